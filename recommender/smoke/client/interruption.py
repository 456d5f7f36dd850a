"""Run a coroutine so that what a signal handler raises cancels it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def run_interruptible(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine that a raising signal handler cancels; then raise its error.

    Handlers run wherever the loop happens to be, and the loop swallows most errors raised in its callbacks.
    """
    raised: list[BaseException] = []
    running: list[asyncio.Task[T]] = []

    def interrupt(error: BaseException) -> None:
        raised.append(error)
        if len(raised) == 1 and running:
            running[0].get_loop().call_soon_threadsafe(running[0].cancel)

    async def main() -> T:
        task = asyncio.ensure_future(work())
        running.append(task)
        if raised:
            task.cancel()
        try:
            return await task
        finally:
            running.clear()

    with _handlers(interrupt):
        try:
            result = asyncio.run(main())
        except asyncio.CancelledError:
            if not raised:
                raise
    if raised:
        raise raised[0]
    return result


@contextmanager
def _handlers(interrupt: Callable[[BaseException], None]) -> Iterator[None]:
    """Pass what this process's signal handlers raise to ``interrupt`` (main thread only)."""
    main = threading.current_thread() is threading.main_thread()
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in signal.valid_signals()} if main else {}
    live: list[bool] = []

    def relay(number: int, frame: FrameType | None) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as error:
            # If a signal cuts the clean-up below short, a left-over relay acts like the original handler.
            if not live:
                raise
            interrupt(error)

    changed = [number for number, handler in handlers.items() if callable(handler)]
    try:
        for number in changed:
            signal.signal(number, relay)
        live.append(True)
        yield
    finally:
        live.clear()
        for number in changed:
            signal.signal(number, handlers[number])
