"""Read a file of the user: a regular file of bounded size, as text."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from recommender.common.errors import RequestError, UserError

MOST_BYTES = 4 * 2**20
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Unreadable(UserError, ValueError):
    """A file cannot be read or judged; the message lacks the file's name, and says how to fix it."""


@contextmanager
def name_in_errors(name: object, otherwise: str, more: str = "") -> Iterator[None]:
    """Raise RequestError with the file's name where the block cannot read it.

    ``otherwise`` says what to do if the system refuses, ``more`` is added to what is wrong with the contents.
    """
    try:
        yield
    except OSError as error:
        raise RequestError(f"{name}: {error.strerror}; {otherwise}") from None
    except Unreadable as error:
        raise RequestError(f"{name}: {error}{more}") from None


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file to read; never wait for another process. Raise Unreadable or OSError."""
    try:
        check_kind(path)  # opening some devices has side effects
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except Unreadable:
        raise
    except ValueError:
        raise Unreadable("the name contains a NUL character; name an existing file") from None
    try:
        _check(os.fstat(handle).st_mode)  # check the opened file: the name may lead elsewhere by now
    except Unreadable:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def read_bytes(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """Return a regular file's bytes. Raise Unreadable or OSError.

    ``most`` is in bytes. A larger file is refused by its size, before anything of it is read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if size <= most else None  # a file of /proc has no size
    if data is None or len(data) > most:
        raise Unreadable(f"larger than {most // 2**20} MiB, which no file of this kind needs; name a smaller one")
    return data


def check_kind(path: str | Path) -> None:
    """Raise Unreadable if a path exists but is not a regular file."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return
    _check(mode)


def _check(mode: int) -> None:
    kind = next((name for is_kind, name in KINDS if is_kind(mode)), "" if stat.S_ISREG(mode) else "no file")
    if kind:
        raise Unreadable(f"{kind}, not a regular file; name a file, or copy the text into one")


def read_text(path: str | Path) -> str:
    """Return a regular file's text, each line end as one newline. Raise Unreadable or OSError."""
    return decode(read_bytes(path)).replace("\r\n", "\n").replace("\r", "\n")


def decode(data: bytes) -> str:
    """Return bytes as text. Raise Unreadable unless they are UTF-8 without NUL."""
    if len(data) > MOST_BYTES:
        raise Unreadable(f"larger than {MOST_BYTES // 2**20} MiB, which no file of this kind needs; name a smaller one")
    if b"\0" in data:
        raise Unreadable("a binary file (or UTF-16), not text; save it as UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"line {line} is not UTF-8; save the file as UTF-8") from None
