"""Write files atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from recommender.common import leftovers

KEPT = ("user.", "system.posix_acl_")
"""Extended attributes that are a file's own; others are the kernel's, which may refuse or recompute them."""


def write(path: Path, text: str, *, executable: bool = False, names: int = 1) -> None:
    """Write a text file atomically: readers see the old text or the new one, never a part. Raises OSError.

    If the path is a symbolic link, its target is replaced. An existing file keeps its owner, group, mode, access
    control list and other extended attributes; if it cannot, or has hard links, the write is refused. A new file gets
    its mode from the umask and ``executable``. A device or a pipe is written to, not replaced. ``names``: the most
    hard links that a file may have; the others keep the old text.
    """
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
    if there and stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if there and not os.access(path, os.W_OK):  # renaming would replace it anyway
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    if there and not stat.S_ISREG(there.st_mode):
        path.write_text(text, encoding="utf-8")
        return
    if there and there.st_nlink > names:
        why = f"it has {there.st_nlink - names + 1} names (hard links), and the others would keep the old text"
        raise OSError(errno.EMLINK, f"{why}; copy it to a file of its own first", str(path))
    _replace(path.resolve(), text, 0o777 if executable else 0o666, there)


def _replace(path: Path, text: str, new: int, old_stat: os.stat_result | None) -> None:
    """Write a temporary file, then rename it; ``old_stat``: of an existing file, ``new``: the mode of a new one."""
    temporary, handle = _open_temporary(path, 0o600 if old_stat else new)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if old_stat:
                _keep(path, handle, old_stat)
            os.fsync(handle)  # a full disk is reported here at the latest
            temporary.replace(path)  # before the file is closed: an unlocked one may be removed by another run
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _keep(path: Path, handle: int, old_stat: os.stat_result) -> None:
    """Give a new file the owner, group, attributes and mode of the one that it replaces. Raises OSError."""
    new_stat = os.fstat(handle)
    try:
        if (new_stat.st_uid, new_stat.st_gid) != (old_stat.st_uid, old_stat.st_gid):
            os.fchown(
                handle,
                old_stat.st_uid if old_stat.st_uid != new_stat.st_uid else -1,
                old_stat.st_gid if old_stat.st_gid != new_stat.st_gid else -1,
            )
    except PermissionError:
        owner = f"{old_stat.st_uid}:{old_stat.st_gid}"
        raise PermissionError(
            errno.EPERM, f"its owner ({owner}) would change; run this as its owner", str(path)
        ) from None
    _keep_attributes(path, handle)
    os.fchmod(handle, stat.S_IMODE(old_stat.st_mode))  # last: a change of owner clears bits of it


def _keep_attributes(path: Path, handle: int) -> None:
    """Copy extended attributes, and remove those that only the new file has, such as the folder's default list."""
    if not hasattr(os, "listxattr"):
        return
    try:
        old, new = set(os.listxattr(path)), set(os.listxattr(handle))
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):
            return
        raise
    for name in new - old:
        if name.startswith(KEPT):
            os.removexattr(handle, name)
    for name in old:
        try:
            os.setxattr(handle, name, os.getxattr(path, name))
        except OSError:
            if name.startswith(KEPT):
                raise


def _open_temporary(path: Path, mode: int) -> tuple[Path, int]:
    """Open a new file in the same folder, with a name that no glob for records matches."""
    leftovers.remove_abandoned_files(path.parent)
    number = 0
    while True:
        temporary = path.with_name(f".recommend-{os.getpid()}-{number}")
        with contextlib.suppress(FileExistsError):  # another thread's, or one that could not be removed
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            if leftovers.hold(handle):
                return temporary, handle
            os.close(handle)
        number += 1
