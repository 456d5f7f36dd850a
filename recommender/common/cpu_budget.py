"""Bound the processor time that one file may take, where no limit on its contents does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from recommender.common.user_file import Unreadable

SECONDS = 4.0
AGAIN_S = 0.25
"""The exception is raised again after this time: a destructor or a callback may have swallowed it."""


class _Over(BaseException):
    """The time is up. A BaseException, so that no handler for Exception catches it."""


def _stop(_signal: int, _frame: object) -> None:
    raise _Over


@contextmanager
def cpu_budget(seconds: float = SECONDS) -> Iterator[None]:
    """Raise Unreadable when the block has taken this much processor time of the process, in user mode.

    A timer of the main thread ends the block; it is the last resort behind limits on size, depth and number, which
    hold everywhere. In other threads, within another budget, and where the caller's program has a handler of its own
    for SIGVTALRM, there is no timer.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGVTALRM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN_S)
    try:
        try:
            yield
        finally:
            _disarm()
    except _Over:
        raise Unreadable(
            f"judging it takes more than {seconds:g} s of processor time; split it, or remove what is repeated"
        ) from None
    finally:
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)


def _disarm() -> None:
    while True:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except _Over:
            continue
        return
