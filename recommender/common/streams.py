"""Handle standard streams that are closed, full or abandoned by their reader.

Such a stream must not end a command with a traceback or with a code of another meaning. So the entry point replaces the
streams once, and no other code handles their errors: a failed write raises nothing, and the command goes on and cleans
up. Lost output on stdout then decides the exit code; lost messages on stderr do not.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from recommender.common.exit_codes import BROKEN_PIPE, MACHINE, NEGATIVE, fail


class Output(io.FileIO):
    """The raw end of stdout or stderr: keeps the first error and drops all that follows."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of the data, or nothing after an error; return its length either way."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left and not self.error:
            try:
                written = super().write(left)
                if written is None:  # non-blocking: another program set that on a shared terminal or pipe
                    select.select([], [self], [])
                left = left[written or 0 :]
            except OSError as error:
                self.error = error
        return size


class ClosedInput(io.RawIOBase):
    """A closed stdin."""

    def readable(self) -> bool:
        """Return True: only reading fails."""
        return True

    def readinto(self, _: Any) -> int:
        """Raise OSError."""
        raise OSError(errno.EBADF, "stdin is closed")


@contextlib.contextmanager
def tolerant() -> Iterator[None]:
    """Replace the standard streams while a command runs; then exit with 3 or 141 if output was lost.

    If stdout lost output, exit codes 0 and 1 become 141 (its reader left) or 3 (any other error). Other codes stay.
    Streams that a caller such as a test replaced are left alone.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    _reserve_descriptors()
    out = Output(1, "w", closefd=False)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(ClosedInput()))
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(out, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(Output(2, "w", closefd=False), sys.stderr)
    code: Any = 0
    try:
        yield
    except SystemExit as stop:
        code = stop.code
        raise
    finally:
        try:
            sys.stdout.flush()
            if out.error and code in (None, 0, NEGATIVE):
                _lost(out.error)
        finally:
            sys.stderr.flush()
            sys.stdin, sys.stdout, sys.stderr = before


def _lost(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):  # head, say, has read enough: nothing is wrong
        sys.exit(BROKEN_PIPE)
    fail(f"stdout: {error.strerror}; the output is incomplete: send it to a file that can be written", MACHINE)


def _reserve_descriptors() -> None:
    """Open descriptors below 3 that are closed: else the next file gets the number, and with it a program's output.

    /dev/null opened the wrong way round fails as a closed descriptor does.
    """
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one


def _text(raw: Output, stream: TextIO | None) -> io.TextIOWrapper:
    """Return a text stream in UTF-8, whatever the locale, buffered as the one that it replaces."""
    unbuffered = bool(getattr(stream, "write_through", False))  # python -u
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=raw.fileno() == 2 or raw.isatty(),
        write_through=unbuffered,
    )
