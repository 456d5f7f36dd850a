"""Signals, time limit, progress and failure output of the commands that launch."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import click

from recommender.smoke.failures import Failure

SAY_EVERY_S = 5.0
SMOKE = "recommend smoke"

LOG_MARK = "  | "
"""What a line of a server's log begins with on stderr."""


def fail(failure: Failure, who: str = SMOKE) -> NoReturn:
    """Print the last log lines and the failure in one line; exit with its code."""
    for line in failure.tail:
        click.echo(f"{LOG_MARK}{line}", err=True)
    fix = f"; {failure.kind.fix}" if failure.kind.fix else ""
    click.echo(f"{who}: {failure.kind.name}: {failure.message.rstrip('.')}{fix}", err=True)
    sys.exit(failure.exit_code)


class Stopped(KeyboardInterrupt):
    """A signal asked to stop."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a run; SIGHUP only if it is not ignored (nohup)."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))


@contextlib.contextmanager
def handle_signals(limit_s: float, who: str = SMOKE) -> Iterator[None]:
    """Stop the run cleanly on a signal or time-out; a second signal cuts it short."""
    codes: list[int] = []

    def stop(number: int, _: object) -> None:
        codes.append(number)
        raise Stopped

    def late(*_: object) -> None:
        raise Failure("time-limit", f"not done after {limit_s:g} s")

    before = {number: signal.signal(number, stop) for number in stop_signals()}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    except KeyboardInterrupt:
        number = codes[0] if codes else signal.SIGINT
        click.echo(f"{who}: stopped by {signal.Signals(number).name}; all processes are stopped", err=True)
        sys.exit(128 + number)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def progress(who: str = SMOKE) -> Iterator[Callable[[str], None]]:
    """Show progress: one redrawn line in a terminal, else a line every 5 s."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console

        with Console(stderr=True, highlight=False).status("") as status:

            def show(text: str) -> None:
                status.update(text[: max(20, status.console.width - 4)]) if text else status.stop()

            yield show
        return
    at, last = time.monotonic(), ""

    def line(text: str) -> None:
        nonlocal at, last
        if text and time.monotonic() - at >= SAY_EVERY_S and text != last:
            click.echo(f"{who}: {text}", err=True)
            at, last = time.monotonic(), text

    yield line
