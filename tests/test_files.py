"""A file is written whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from recommender import files


@pytest.fixture
def mask() -> Iterator[None]:
    """The usual umask for the time of a test."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("mask")
def test_a_new_file_has_what_the_umask_leaves(tmp_path: Path) -> None:
    """A text may be read and written, a program run too; the text is in UTF-8, byte for byte."""
    files.write(tmp_path / "a.txt", "Tiếng Việt\r\n")
    files.write(tmp_path / "a.sh", "#!/bin/sh\n", executable=True)
    assert (tmp_path / "a.txt").read_bytes() == "Tiếng Việt\r\n".encode()
    assert (mode(tmp_path / "a.txt"), mode(tmp_path / "a.sh")) == (0o640, 0o750)


@pytest.mark.usefixtures("mask")
def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """Whether it was narrower or wider than a new one's."""
    path = tmp_path / "a"
    for kept in (0o600, 0o664, 0o755):
        path.write_text("old")
        path.chmod(kept)
        files.write(path, "new", executable=True)
        assert (path.read_text(), mode(path)) == ("new", kept)


def test_links_keep_pointing(tmp_path: Path) -> None:
    """Also one after another, and one whose target is not there yet."""
    (tmp_path / "far").mkdir()
    (tmp_path / "second").symlink_to("far/file")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    for text in ("new", "again"):
        files.write(tmp_path / "first", text)
        assert (tmp_path / "first").is_symlink()
        assert (tmp_path / "far/file").read_text() == text
        assert not (tmp_path / "far/file").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        files.write(tmp_path / "loop", "x")


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """A pipe is written to, a device too, and a folder is refused."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    files.write(pipe, "through")
    reader.join(30)
    assert read == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    null = tmp_path / "null"
    null.symlink_to(os.devnull)
    files.write(null, "gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    with pytest.raises(IsADirectoryError):
        files.write(tmp_path, "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["null", "pipe"]


def test_a_file_that_may_not_be_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its folder would let another take its place."""
    path = tmp_path / "a"
    path.write_text("kept")
    monkeypatch.setattr(os, "access", lambda *_: False)  # for root every file may be written
    with pytest.raises(PermissionError):
        files.write(path, "x")
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
        files.write(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "kept"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


def test_a_text_that_cannot_be_encoded_leaves_nothing(tmp_path: Path) -> None:
    """The half of it before the odd character is not kept."""
    with pytest.raises(UnicodeEncodeError):
        files.write(tmp_path / "a", "fine \ud800")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["no/such/folder", "file/x", "x" * 300])
def test_places_that_are_none(tmp_path: Path, name: str) -> None:
    """A missing folder, a file as a folder, too long a name: the system's own error."""
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError):  # noqa: PT011 - whichever it is
        files.write(tmp_path / name, "x")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_is_not_in_the_way(tmp_path: Path) -> None:
    """Nor taken for its own, nor removed; no pattern for records or indexes finds it."""
    left = tmp_path / f".recommend-{os.getpid()}-0"
    left.write_text("half")
    files.write(tmp_path / "a.yaml", "whole")
    assert (left.read_text(), (tmp_path / "a.yaml").read_text()) == ("half", "whole")
    assert [each.name for each in tmp_path.glob("*.*ml")] == ["a.yaml"]


def test_writers_at_the_same_time(tmp_path: Path) -> None:
    """Each reader sees the text of one of them, whole."""
    path = tmp_path / "a"
    texts = [letter * 50_000 for letter in "abcd"]
    writers = [
        threading.Thread(target=lambda each=each: [files.write(path, each) for _ in range(10)]) for each in texts
    ]
    files.write(path, texts[0])
    for each in writers:
        each.start()
    while any(each.is_alive() for each in writers):
        assert path.read_text() in texts
    for each in writers:
        each.join()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
