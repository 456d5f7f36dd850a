"""Writing a file whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def write(path: Path, text: str, *, executable: bool = False) -> None:
    """Write a text file such that others see the old text or the new one, never a part. Raises OSError.

    A link keeps pointing where it did, and a file that is there keeps its mode; a new one has what the umask
    leaves, and may be run if it is ``executable``. A device or a pipe is written to, not replaced.
    """
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
    if there and stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if there and not os.access(path, os.W_OK):  # a new file could take its place all the same: it is not asked to
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    if there and not stat.S_ISREG(there.st_mode):
        path.write_text(text, encoding="utf-8")
        return
    _replace(path.resolve(), text, 0o777 if executable else 0o666, there and stat.S_IMODE(there.st_mode))


def _replace(path: Path, text: str, new: int, kept: int | None) -> None:
    """Write beside a file, then take its place; ``kept`` is the mode of the one that is there."""
    temporary, handle = _beside(path, new)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if kept is not None:
                os.fchmod(handle, kept)
            os.fsync(handle)  # a full disk tells here at the latest
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _beside(path: Path, mode: int) -> tuple[Path, int]:
    """A new file in the same folder, under a name that no pattern for records finds."""
    number = 0
    while True:
        temporary = path.with_name(f".recommend-{os.getpid()}-{number}")
        try:
            return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except FileExistsError:  # of another thread, or of a process that was killed
            number += 1
