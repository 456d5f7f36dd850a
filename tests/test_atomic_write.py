"""A file is written whole or not at all."""

import contextlib
import errno
import fcntl
import os
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from artefacts import KNOWLEDGE

from recommender.common import atomic_write, leftovers

ROOT = KNOWLEDGE.parent


@pytest.fixture
def mask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("mask")
def test_a_new_file_has_what_the_umask_leaves(tmp_path: Path) -> None:
    """A text may be read and written, a program run too; the text is in UTF-8, byte for byte."""
    atomic_write.write(tmp_path / "a.txt", "Tiếng Việt\r\n")
    atomic_write.write(tmp_path / "a.sh", "#!/bin/sh\n", executable=True)
    assert (tmp_path / "a.txt").read_bytes() == "Tiếng Việt\r\n".encode()
    assert (mode(tmp_path / "a.txt"), mode(tmp_path / "a.sh")) == (0o640, 0o750)


@pytest.mark.usefixtures("mask")
def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """Whether it was narrower or wider than a new one's."""
    path = tmp_path / "a"
    for kept in (0o600, 0o664, 0o755):
        path.write_text("old")
        path.chmod(kept)
        atomic_write.write(path, "new", executable=True)
        assert (path.read_text(), mode(path)) == ("new", kept)


def test_links_keep_pointing(tmp_path: Path) -> None:
    """Also one after another, and one whose target is not there yet."""
    (tmp_path / "far").mkdir()
    (tmp_path / "second").symlink_to("far/file")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    for text in ("new", "again"):
        atomic_write.write(tmp_path / "first", text)
        assert (tmp_path / "first").is_symlink()
        assert (tmp_path / "far/file").read_text() == text
        assert not (tmp_path / "far/file").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        atomic_write.write(tmp_path / "loop", "x")


def test_the_owner_and_the_group_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when root writes; where they cannot be kept, nothing is written, and one line says so."""
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o4750)
    if os.geteuid() == 0:
        os.chown(path, 4321, 8765)
        path.chmod(0o4750)
    before = path.stat()
    atomic_write.write(path, "new")
    after = path.stat()
    assert path.read_text() == "new"
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    class Other:
        st_uid, st_gid, st_mode, st_nlink, st_size = before.st_uid + 1, before.st_gid + 1, stat.S_IFREG, 1, 0

    real = os.fstat
    monkeypatch.setattr(os, "fchown", refused)
    monkeypatch.setattr(atomic_write.os, "fstat", lambda handle: Other if handle > 2 else real(handle))
    with pytest.raises(PermissionError, match=r"owner .* would change; run this as its owner"):
        atomic_write.write(path, "newer")
    monkeypatch.undo()
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def access_list(user: int) -> bytes:
    """An access control list, as the kernel holds it, that lets one more user read."""
    everyone = 0xFFFFFFFF
    entries = ((1, 6, everyone), (2, 4, user), (4, 0, everyone), (0x10, 4, everyone), (0x20, 0, everyone))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_extended_attributes_and_access_lists_stay(tmp_path: Path) -> None:
    """Those of the file, and not those that a folder gives to what is made in it."""
    kinds = {"user.origin": b"here", "system.posix_acl_access": access_list(4321)}
    held = {}
    path, plain = tmp_path / "a", tmp_path / "b"
    path.write_text("old")
    plain.write_text("old")
    plain.chmod(0o640)
    for name, value in kinds.items():
        with contextlib.suppress(OSError):  # a file system may have none of them
            os.setxattr(path, name, value)
            held[name] = value
    with contextlib.suppress(OSError):
        os.setxattr(tmp_path, "system.posix_acl_default", access_list(1234))
    for file in (path, plain):
        before = {name: os.getxattr(file, name) for name in os.listxattr(file)}, mode(file)
        atomic_write.write(file, "new")
        assert ({name: os.getxattr(file, name) for name in os.listxattr(file)}, mode(file)) == before
    assert {name: os.getxattr(path, name) for name in held} == held
    assert (path.read_text(), plain.read_text()) == ("new", "new")


def test_hard_links_are_refused(tmp_path: Path) -> None:
    """A new file in the place of one name would leave the old text under the other."""
    path = tmp_path / "a"
    path.write_text("kept")
    (tmp_path / "b").hardlink_to(path)
    (tmp_path / "c").symlink_to("a")
    for name in ("a", "b", "c"):
        with pytest.raises(OSError, match=r"2 names \(hard links\).*; copy it to a file of its own first"):
            atomic_write.write(tmp_path / name, "x")
    assert path.read_text() == (tmp_path / "b").read_text() == "kept"
    assert path.stat().st_nlink == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_secret_is_nobody_elses_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new text of a file that only its owner reads is never open to others."""
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    seen: list[int] = []
    real = os.fsync

    def watch(handle: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        real(handle)

    opened = os.open

    def watched(name: object, flags: int, *more: int) -> int:
        handle = opened(name, flags, *more)  # type: ignore[arg-type]
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return handle

    monkeypatch.setattr(os, "fsync", watch)
    monkeypatch.setattr(os, "open", watched)
    atomic_write.write(path, "new")
    assert seen == [0o600, 0o600]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """A pipe is written to, a device too, and a folder is refused."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    atomic_write.write(pipe, "through")
    reader.join(30)
    assert read == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    null = tmp_path / "null"
    null.symlink_to(os.devnull)
    atomic_write.write(null, "gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    with pytest.raises(IsADirectoryError):
        atomic_write.write(tmp_path, "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["null", "pipe"]


def test_a_file_that_may_not_be_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its folder would let another take its place."""
    path = tmp_path / "a"
    path.write_text("kept")
    monkeypatch.setattr(os, "access", lambda *_: False)  # for root every file may be written
    with pytest.raises(PermissionError):
        atomic_write.write(path, "x")
    assert path.read_text() == "kept"


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    """A full disk or Ctrl-C while it is written, or just before it takes its place."""
    path = tmp_path / "a"
    path.write_text("kept")
    open_files = len(list(Path("/proc/self/fd").iterdir()))

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(*((os, step) if step == "fsync" else (Path, step)), fails)
    with pytest.raises(type(error)):
        atomic_write.write(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "kept"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


def test_a_text_that_cannot_be_encoded_leaves_nothing(tmp_path: Path) -> None:
    """The half of it before the odd character is not kept."""
    with pytest.raises(UnicodeEncodeError):
        atomic_write.write(tmp_path / "a", "fine \ud800")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["no/such/folder", "file/x", "x" * 300])
def test_places_that_are_none(tmp_path: Path, name: str) -> None:
    """A missing folder, a file as a folder, too long a name: the system's own error."""
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError):  # noqa: PT011 - whichever it is
        atomic_write.write(tmp_path / name, "x")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


WRITES = "import sys; from pathlib import Path; from recommender.common import atomic_write as a\n"
STUCK = (
    WRITES + "a.os.fsync = lambda _: (print('here', flush=True), sys.stdin.read())\na.write(Path(sys.argv[1]), 'late')"
)


def stuck(path: Path) -> subprocess.Popen[bytes]:
    """A process that has a file half written, and stays there until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdout.readline() == b"here\n"
    return process


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """Its half file, whatever process id the next run has; no pattern for records or indexes finds it meanwhile."""
    with stuck(tmp_path / "a.yaml") as process:
        process.kill()
    (left,) = tmp_path.iterdir()
    left.rename(tmp_path / f".recommend-{os.getpid()}-0")  # the number of this process now
    assert list(tmp_path.glob("*.*ml")) == []
    atomic_write.write(tmp_path / "b.yaml", "whole")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"b.yaml": "whole"}


def test_what_another_process_writes_is_not_removed(tmp_path: Path) -> None:
    """It is alive, so its file is not abandoned, and becomes whole."""
    with stuck(tmp_path / "a") as process:
        atomic_write.write(tmp_path / "b", "whole")
        assert len(list(tmp_path.iterdir())) == 2
        process.communicate()
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a": "late", "b": "whole"}


def test_files_of_others_are_not_removed(tmp_path: Path) -> None:
    """A name that is not quite ours, and what is no file."""
    kept = [".recommend.toml", ".recommend-1", ".recommend-1-a", ".recommend-1-0.txt", "x.recommend-1-0"]
    for name in kept:
        (tmp_path / name).write_text("the user's")
    (tmp_path / ".recommend-1-0").mkdir()
    (tmp_path / ".recommend-1-1").symlink_to(tmp_path / ".recommend.toml")
    os.mkfifo(tmp_path / ".recommend-1-2")
    before = sorted(each.name for each in tmp_path.iterdir())
    atomic_write.write(tmp_path / "new", "whole")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*before, "new"])
    assert all((tmp_path / name).read_text() == "the user's" for name in kept)


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems have none: files are written all the same."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    left = tmp_path / f".recommend-{os.getpid()}-0"
    left.write_text("half")
    atomic_write.write(tmp_path / "a", "whole")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {left.name: "half", "a": "whole"}


def test_a_name_that_another_file_has_by_now_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run looks at a temporary file; before it has its lock, the writer renames it and begins the next file, which
    has the same name again.
    """
    name, lock = tmp_path / f".recommend-{os.getpid()}-0", fcntl.flock

    def late(handle: int, how: int) -> None:
        if name.read_text() == "first":
            name.rename(tmp_path / "a")
            name.write_text("second")
        lock(handle, how)

    name.write_text("first")
    monkeypatch.setattr(fcntl, "flock", late)
    leftovers.remove_abandoned_files(tmp_path)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a": "first", name.name: "second"}
    leftovers.remove_abandoned_files(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_writers_at_the_same_time(tmp_path: Path) -> None:
    """Each reader sees the text of one of them, whole."""
    path = tmp_path / "a"
    texts = [letter * 50_000 for letter in "abcd"]
    atomic_write.write(path, texts[0])
    with ThreadPoolExecutor(len(texts)) as pool:
        writes = [pool.submit(atomic_write.write, path, text) for text in texts * 10]
        while not all(write.done() for write in writes):
            assert path.read_text() in texts
    assert [write.exception() for write in writes] == [None] * len(writes)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
