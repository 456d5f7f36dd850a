"""A fleet's folder is replaced whole: by kill -9 at every system call, on full disks, and with a user's files in it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from artefacts import KNOWLEDGE, command
from layouts import layout

from recommender.common import folder_swap
from recommender.common.errors import RequestError
from recommender.fleet import write
from recommender.fleet.layout import Layout
from recommender.fleet.systemd import KEYS

ROOT = KNOWLEDGE.parent
OLD = {"front.cfg": "old front\n", "server-1.env": "one\n", "server-2.env": "two\n", "s@2.d/order.conf": "after\n"}
NEW = {"front.cfg": "new front\n", "server-1.env": "one\n", "more/added.yaml": "added\n"}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for the digests."""
    found = (path for path in folder.rglob("*") if not path.is_dir() and path.name != write.DIGESTS)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def encoded(files: dict[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


def checked(folder: Path) -> bool:
    """What sha256sum itself says of the digests."""
    words = ["sha256sum", "--check", "--quiet", "--strict", write.DIGESTS]
    return subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fleet as it was rendered first."""
    made = tmp_path / "parent" / "fleet"
    assert write.write(OLD, made).whole
    assert tree(made) == encoded(OLD)
    return made


# --- what is no longer part of the fleet


def test_files_of_an_earlier_rendering_go(folder: Path) -> None:
    """With the folder that only they were in; what the user added stays, whatever it is."""
    (folder / "notes").mkdir()
    (folder / "notes/mine.txt").write_text("mine")
    (folder / "notes/empty").mkdir()
    (folder / "key").symlink_to("/nowhere")
    (folder / ".env").write_text("REVISION=abc\n")
    (folder / ".env").chmod(0o640)
    made = write.write(NEW, folder)
    assert (made.whole, made.kept_paths) == (True, ())
    assert sorted(made.removed) == [folder / "s@2.d/order.conf", folder / "server-2.env"]
    (folder / "key").unlink()
    assert tree(folder) == encoded({**NEW, "notes/mine.txt": "mine", ".env": "REVISION=abc\n"})
    assert (folder / "notes/empty").is_dir()
    assert not (folder / "s@2.d").exists()
    assert (folder / ".env").stat().st_mode & 0o777 == 0o640
    assert {path.stat().st_nlink for path in folder.rglob("*") if path.is_file()} == {1}
    assert checked(folder)
    assert names(folder.parent) == ["fleet"]


def test_an_edited_one_stays_and_is_named_each_time(folder: Path) -> None:
    """Also by --force, which only overwrites files of the new fleet."""
    (folder / "server-2.env").write_text("two, edited\n")
    for _ in range(2):
        assert write.write(NEW, folder).kept_paths == (folder / "server-2.env",)
        assert (folder / "server-2.env").read_text() == "two, edited\n"
    (folder / "server-2.env").write_text("two\n")  # as it was
    assert write.write(NEW, folder).removed == (folder / "server-2.env",)
    assert write.write(NEW, folder) == write.Written(tuple(folder / name for name in NEW))


def test_names_that_lead_out_of_the_folder_remove_nothing(folder: Path) -> None:
    """The digests are a file that anybody may have written: `..`, absolute paths, and folders that are links."""
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "a").write_text("kept")
    digest = hashlib.sha256(b"kept").hexdigest()
    (folder / "link").symlink_to(outside)
    names = ("../outside/a", str(outside / "a"), "link/a", "", ".", "s@2.d", "x\0y", "\x1b[2J")
    (folder / write.DIGESTS).write_text("".join(f"{digest}  {name}\n" for name in names) + "garbage\n\n")
    made = write.write(NEW, folder)
    assert (made.removed, made.kept_paths) == ((), ())
    assert (outside / "a").read_text() == "kept"
    assert (folder / "server-2.env").exists(), "nobody says any more that it was written"


def test_links_are_refused(folder: Path) -> None:
    """The folder itself, a file of it, a folder below it; nothing is written."""
    before = tree(folder)
    link = folder.parent / "link"
    link.symlink_to(folder)
    (folder / "more").symlink_to(folder.parent)
    for where, named in ((link, "link"), (folder, "more")):
        with pytest.raises(RequestError, match=f"{named} is a symbolic link"):
            write.write(NEW, where)
    (folder / "more").unlink()
    assert tree(folder) == before


def test_the_same_again_leaves_the_folder_alone(folder: Path) -> None:
    """Not even its inode changes, so a shell in it stays there."""
    before = folder.stat().st_ino, (folder / "front.cfg").stat().st_mtime_ns
    assert write.write(OLD, folder).whole
    assert before == (folder.stat().st_ino, (folder / "front.cfg").stat().st_mtime_ns)


def test_modes_and_attributes_stay(folder: Path) -> None:
    """Of the folder, of one below it, and of a file that is replaced; keys are their owner's only."""
    folder.chmod(0o2750)
    (folder / "front.cfg").chmod(0o604)
    (folder / "mine").mkdir(mode=0o711)
    write.write({**NEW, "api-keys": "# none\n"}, folder)
    modes = {name: (folder / name).stat().st_mode & 0o7777 for name in (".", "front.cfg", "mine", "api-keys")}
    assert modes == {".": 0o2750, "front.cfg": 0o604, "mine": 0o2711, "api-keys": 0o600}
    (folder / "api-keys").write_text("secret\n")
    assert folder / "api-keys" not in write.write({**OLD, "api-keys": "# none\n"}, folder).paths
    assert (folder / "api-keys").read_text() == "secret\n"
    write.write(NEW, folder)  # a form without keys
    assert (folder / "api-keys").read_text() == "secret\n"


# --- interruptions

KILLED = """
import os, signal, sys
from pathlib import Path
from recommender.common import folder_swap, leftovers
from recommender.fleet import write
left = int(sys.argv[2])
def counted(event, _):
    global left
    if event.startswith(("os.", "open", "shutil.", "tempfile.", "ctypes.", "fcntl.")):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
files = eval(sys.argv[3])
sys.addaudithook(counted)
write.write(files, Path(sys.argv[1]))
os._exit(0)
"""


def killed_after(calls: int, folder: Path, files: dict[str, str]) -> bool:
    """Writes in a process that SIGKILL ends before its so manieth call of the system; false if it had fewer."""
    words = [sys.executable, "-c", KILLED, str(folder), str(calls), repr(files)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.mark.parametrize("first", [True, False], ids=["new folder", "over an old one"])
def test_sigkill_leaves_the_old_or_the_new(tmp_path: Path, first: bool) -> None:
    """At any call of the system; the next run removes what the killed one left beside the folder."""
    seen: set[str] = set()
    calls, killed = 1, True
    while killed:
        parent = tmp_path / str(calls)
        fleet = parent / "fleet"
        parent.mkdir()
        if not first:
            write.write(OLD, fleet)
            (fleet / "mine.txt").write_text("mine")
        mine = {} if first else {"mine.txt": "mine"}
        killed = killed_after(calls, fleet, NEW)
        found = tree(fleet) if fleet.exists() else None
        old = None if first else encoded({**OLD, **mine})
        assert found in (old, encoded({**NEW, **mine})), calls
        assert found is None or checked(fleet)
        seen.add("old" if found == old else "new")
        write.write(NEW, fleet)
        assert tree(fleet) == encoded({**NEW, **mine})
        assert names(parent) == ["fleet"], calls  # even if the killed one had written all
        calls += 3 if not first else 2
    assert seen == {"old", "new"}
    assert calls > 30, "the audit hook counts"


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("room", [0, 1, 2, 3, 4, 5, 6, 8, 12])
def test_a_full_disk_leaves_the_old_folder(tmp_path: Path, room: int) -> None:
    """However many pages are left; nothing stays beside it, and with more room the same command succeeds."""
    files = {name: text * 3000 for name, text in NEW.items()}
    with small_disk(tmp_path / "disk", "512k") as disk:
        fleet = disk / "fleet"
        write.write(OLD, fleet)
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        os.truncate(filler, filler.stat().st_size - room * 4096)
        with pytest.raises(OSError, match="No space left"):
            write.write(files, fleet)
        assert tree(fleet) == encoded(OLD)
        assert checked(fleet)
        assert names(disk) == ["filler", "fleet"]
        filler.unlink()
        assert write.write(files, fleet).whole
        assert tree(fleet) == encoded(files)


def test_a_mount_point_is_written_file_by_file(tmp_path: Path) -> None:
    """It cannot be swapped with its neighbour: that is said, and stale files go all the same."""
    with small_disk(tmp_path / "disk", "512k") as disk:
        assert not write.write(OLD, disk).whole
        made = write.write(NEW, disk)
        assert (made.whole, tree(disk)) == (False, encoded(NEW))
        assert len(made.removed) == 2
        assert not (disk / "s@2.d").exists()
    assert names(tmp_path) == ["disk"]


def test_a_folder_with_much_else_is_not_moved(folder: Path) -> None:
    """Such as a home: its inode stays, also where the files are in many folders."""
    for number in range(334):
        (folder / f"mine{number}/deeper").mkdir(parents=True)
        (folder / f"mine{number}/deeper/file").touch()
    before = folder.stat().st_ino
    assert not write.write(NEW, folder).whole
    assert folder.stat().st_ino == before
    assert names(folder.parent) == ["fleet"]
    assert encoded(NEW).items() <= tree(folder).items()


def test_without_the_system_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems that have no such exchange."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    assert not write.write(NEW, folder).whole
    assert tree(folder) == encoded(NEW)
    assert names(folder.parent) == ["fleet"]


def test_a_failure_names_the_users_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with another name elsewhere: nothing changes, and the message has no temporary path."""
    os.link(folder / "front.cfg", folder.parent / "other")
    with pytest.raises(OSError, match="2 names") as caught:
        write.write(NEW, folder)
    assert caught.value.filename == str(folder / "front.cfg")
    monkeypatch.chdir(folder.parent)
    with pytest.raises(OSError, match="2 names") as caught:
        write.write(NEW, Path("fleet"))
    assert caught.value.filename == "fleet/front.cfg"
    assert tree(folder) == encoded(OLD)
    assert names(folder.parent) == ["fleet", "other"]


def test_readers_and_writers_at_the_same_time(folder: Path) -> None:
    """The folder is there at any time; writers wait for each other."""
    writers = [
        threading.Thread(target=lambda files=files: [write.write(files, folder) for _ in range(15)])
        for files in (OLD, NEW, OLD)
    ]
    for each in writers:
        each.start()
    while any(each.is_alive() for each in writers):
        assert (folder / "front.cfg").read_text() in (OLD["front.cfg"], NEW["front.cfg"])
    for each in writers:
        each.join()
    assert tree(folder) in (encoded(OLD), encoded(NEW))
    assert names(folder.parent) == ["fleet"]


def test_only_what_a_killed_run_left_is_removed(folder: Path) -> None:
    """Not what merely has its name: with other files in it, a link, a file; nor does a link in it lead anywhere."""
    other = folder.parent / "other"
    other.mkdir(mode=0o500)
    left, mine, link, file = (folder.parent / f"recommend-folder-{each}bcdefgh" for each in "abcd")
    (left / "copy").mkdir(parents=True)
    (left / "copy/link").symlink_to(other)
    (left / "copy").chmod(0)
    mine.mkdir()
    (mine / "notes").touch()
    link.symlink_to(left)
    file.touch()
    write.write(NEW, folder)
    assert names(folder.parent) == sorted(["fleet", "other", mine.name, link.name, file.name])
    assert other.stat().st_mode & 0o777 == 0o500


# --- the command


@cache
def words(hosts: str, form: str = "systemd") -> tuple[str, ...]:
    return ("plan", "--rps", "40", "--gpu", hosts, "--format", form)


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("systemd", "see the head of {}/lmdeploy.target"),
        ("k8s", "see the head of {}/kustomization.yaml"),
        ("compose", "cd {} && docker compose run --rm fetch && docker compose up -d --wait"),
    ],
)
def test_the_command_says_how_many_hosts_and_what_is_next(form: str, start: str, tmp_path: Path) -> None:
    """The plan itself is not shown then, so its hosts are; pods are not measured from here."""
    status, out, said = command(*words("L4:2", form), "-o", f"{tmp_path}/fleet")
    assert (status, len(out.splitlines()) > 4) == (0, True)
    lines = " ".join(said.split())
    hosts = re.match(r"Fleet: \d+ servers on (\d+) hosts with 2 cards each\. Planned for 60 requests/s", lines)
    assert hosts, said
    assert f"NEXT start {start.format(f'{tmp_path}/fleet')} REVISION see https://huggingface.co/" in lines
    assert (f"measure recommend smoke {tmp_path}/fleet" in lines) == (form != "k8s")
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in said.splitlines() if str(tmp_path) not in line)


def test_the_command_says_what_went_and_what_stayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four servers, then two: files of the others go but for an edited one; --force names what it overwrites."""
    fleet = tmp_path / "fleet"
    status, _, said = command(*words("L4:4"), "-o", str(fleet))
    assert status == 0
    assert said.startswith("Fleet: ")
    (fleet / "server-3.env").write_text("edited")
    status, _, said = command(*words("L4:2"), "-o", str(fleet))
    assert status == 0, said
    assert f"{fleet}/server-2.env: removed" in said
    assert f"{fleet}/server-3.env: kept, because it was edited by hand" in said
    assert sorted(path.name for path in fleet.glob("server-*.env")) == [f"server-{n}.env" for n in (0, 1, 3)]
    (fleet / "front.env").write_text("MINE=1\n")
    status, _, said = command(*words("L4:4"), "-o", str(fleet))
    assert (status, "front.env" in said, (fleet / "front.env").read_text()) == (3, True, "MINE=1\n")
    monkeypatch.chdir(fleet)
    status, _, said = command(*words("L4:2", "compose"), "--force", "-o", ".")
    assert status == 0
    assert "run: cd ." in said
    assert not (fleet / "server.env").exists()
    assert (fleet / "front.env").read_text() == "MINE=1\n"
    assert f"{Path('front.env')}: kept" in said


@pytest.mark.parametrize("form", ["systemd", "k8s"])
def test_a_revision_of_the_command_needs_no_edit(tmp_path: Path, form: str) -> None:
    """It is in the files again when they are written for other hosts; so are keys that somebody set."""
    fleet = tmp_path / "fleet"
    name = {"systemd": "server.env", "k8s": "deployment.yaml"}[form]
    for hosts in ("L4:4", "L4:2"):
        status, _, said = command(*words(hosts, form), "--revision", "abc123", "-o", str(fleet))
        assert status == 0, said
        assert "abc123" in (fleet / name).read_text().partition("request:")[2].partition("\n")[2]
        if form == "k8s":
            assert "set REVISION" not in (fleet / "kustomization.yaml").read_text()
        else:
            assert (fleet / "api-keys").read_text() == (KEYS if hosts == "L4:4" else "secret\n")
            (fleet / "api-keys").write_text("secret\n")


def test_real_renderings_replace_each_other(tmp_path: Path) -> None:
    """Each form and size over every other: the folder is that of a first rendering."""
    made = [
        write.render_files(Layout(layout(name).recommendation, 1), form)
        for name in ("one-card", "shared")
        for form in ("systemd", "compose", "k8s")
    ]
    for files in (*made, *reversed(made)):
        assert write.find_work(files, tmp_path / "fleet") == []
        assert write.write(files, tmp_path / "fleet").kept_paths == ()
        assert tree(tmp_path / "fleet").keys() - {"api-keys"} == files.keys() - {"api-keys"}
        shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
        write.write(files, tmp_path / "fresh")
        assert tree(tmp_path / "fresh").items() <= tree(tmp_path / "fleet").items()
    assert folder_swap.NAMES == 2
