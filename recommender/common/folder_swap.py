"""Replace a folder as a whole: readers see the old one or the new one, never a mixture."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2
NOT_HERE = frozenset(
    getattr(errno, name)
    for name in ("EACCES", "EPERM", "EROFS", "EXDEV", "EMLINK", "EBUSY", "EINVAL", "ENOSYS", "ENOTSUP")
)
"""Errors of a folder that cannot be swapped: a mount point, a read-only parent, a file system without hard links."""
NAMES = 2
"""Names that a staged file has until the swap: its own, and the one in the folder as it was."""
MOST_ENTRIES = 1000
"""Files and folders that a folder may hold. One with more is a home or a project, not to be moved for some files."""
WORK, COPY = "recommend-folder-", "copy"


class CannotSwap(OSError):
    """This folder cannot be replaced in one step here."""


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Give a copy of a folder, beside it, to change; swap them at the end, and remove the old one.

    ``folder`` is absolute and no link; a missing one is made. The files of the copy are hard links: replace them, never
    write into them. An exception leaves the folder alone. So does SIGKILL; the next call for a folder of that parent
    removes the copy. Others wait meanwhile. Raises CannotSwap, or OSError for a full disk.
    """
    with contextlib.ExitStack() as stack:
        with _explain(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_only_writer(folder.parent))
            work = Path(tempfile.mkdtemp(prefix=WORK, dir=folder.parent))
            stack.callback(_remove, work)
            copy = work / COPY
            _link(folder, copy, MOST_ENTRIES) if folder.exists() else copy.mkdir()
        yield copy
        _sync(copy)
        with _explain(folder):
            _swap(copy, folder)


def remove_copies(folder: Path) -> None:
    """Remove the copies that killed runs left beside a folder, if it can be read and written there."""
    with contextlib.suppress(OSError), _only_writer(folder.parent):
        pass


@contextlib.contextmanager
def _explain(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NOT_HERE:
            raise CannotSwap(error.errno, error.strerror, str(folder)) from error
        raise


@contextlib.contextmanager
def _only_writer(parent: Path) -> Iterator[None]:
    """Lock a folder, and remove what killed runs left in it; without locks, leave that."""
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
            for entry in list(os.scandir(parent)):
                if re.fullmatch(rf"{WORK}[a-z0-9_]{{8}}", entry.name) and _is_ours(entry):
                    _remove(Path(entry.path))
        yield
    finally:
        os.close(handle)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    found = entry.stat(follow_symlinks=False)
    mine = found.st_uid == os.geteuid() and entry.is_dir(follow_symlinks=False)
    return mine and {each.name for each in os.scandir(entry.path)} <= {COPY}


def _link(folder: Path, copy: Path, most: int) -> int:
    """Copy a folder and those below it, with their owners and modes; link all else. Return how many more there may be.

    Raises CannotSwap for more than ``most`` entries, and OSError.
    """
    copy.mkdir()
    old_stat, new_stat = folder.stat(), copy.stat()
    if (old_stat.st_uid, old_stat.st_gid) != (new_stat.st_uid, new_stat.st_gid):
        os.chown(copy, old_stat.st_uid, old_stat.st_gid)
    for entry in os.scandir(folder):
        most -= 1
        if most < 0:
            raise CannotSwap(errno.EFBIG, "Too many files", str(folder))
        if entry.is_dir(follow_symlinks=False):
            most = _link(Path(entry.path), copy / entry.name, most)
        else:
            os.link(entry.path, copy / entry.name, follow_symlinks=False)
    shutil.copystat(folder, copy)
    return most


def _sync(folder: Path) -> None:
    """Write the entries of a folder, and of those below it, to the disk. Raises OSError if it is full."""
    for name, _, _ in os.walk(folder):
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap(copy: Path, folder: Path) -> None:
    if not os.path.lexists(folder):
        copy.rename(folder)
        return
    try:
        import ctypes  # late: a browser's Python has none

        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except (ImportError, AttributeError):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    if exchange(AT_FDCWD, os.fsencode(copy), AT_FDCWD, os.fsencode(folder), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _remove(work: Path) -> None:
    """Remove a folder, also read-only ones below it. No mode of a file changes: it may be a link to one that stays."""
    for name, folders, _ in os.walk(work):
        for path in (Path(name, folder) for folder in folders):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(work, ignore_errors=True)
