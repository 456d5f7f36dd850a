"""Temporary files and folders that the next run removes if their own run was killed.

Their maker holds a lock on them (flock). The kernel releases it when the process ends, however it ends; a process id
would say less, because another process may have it by then. So whatever has our name and can be locked is abandoned.
Where the file system has no locks, nothing is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

FILE = re.compile(r"\.recommend-\d+-\d+")
"""A file that ``atomic_write`` has not renamed yet."""
FOLDER = re.compile(r"recommend-[a-z]+-[a-z0-9_]{8}")
LOCK = ".recommend-lock"
"""The file in a work folder that its process has locked."""


@contextlib.contextmanager
def work_folder(purpose: str) -> Iterator[Path]:
    """Make a temporary folder named after its purpose (a lower-case word) and remove it in the end.

    Remove those of killed runs first.
    """
    import tempfile  # late: with shutil a tenth of a second of every command

    _remove_abandoned_folders(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"recommend-{purpose}-") as name:
        new = Path(name, f"{LOCK}.new")
        with new.open("wb") as file:
            hold(file.fileno())
            new.rename(new.with_name(LOCK))  # only now does another run look at it
            yield Path(name)


def hold(handle: int) -> bool:
    """Lock a new file until it is closed; return False if another run took it for abandoned and removed it."""
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX)
    return os.fstat(handle).st_nlink > 0


def remove_abandoned_files(folder: Path) -> None:
    """Remove temporary files of killed runs from a folder; leave what cannot be removed."""
    for path in _named(folder, FILE):
        with contextlib.suppress(OSError), _abandoned(path):
            path.unlink()


def _remove_abandoned_folders(root: Path) -> None:
    import shutil

    for path in _named(root, FOLDER):
        with contextlib.suppress(OSError), _abandoned(path / LOCK):
            shutil.rmtree(path, ignore_errors=True)


def _named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    except OSError:
        return []


@contextlib.contextmanager
def _abandoned(path: Path) -> Iterator[None]:
    """Lock a file while it is removed; raise OSError unless it is this user's regular file and not locked."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{path}: not of this user's runs")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(found, os.lstat(path)):  # its writer was done, and has begun another
            raise FileExistsError(f"{path}: another file by now")
        yield
    finally:
        os.close(handle)
