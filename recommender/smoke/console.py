"""What the commands that launch something have in common: signals, the time limit, progress, and how a failure ends."""

from __future__ import annotations

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


def fail(failure: Failure, who: str = SMOKE) -> NoReturn:
    """The last log lines, one line that names the failure, and its exit code."""
    for line in failure.tail:
        click.echo(f"  | {line}", err=True)
    mend = f"; {failure.kind.mend}" if failure.kind.mend else ""
    click.echo(f"{who}: {failure.kind.name}: {failure.said.rstrip('.')}{mend}", err=True)
    sys.exit(failure.kind.code)


class Stopped(KeyboardInterrupt):
    """A signal asked to stop."""


def stopping() -> tuple[signal.Signals, ...]:
    """The signals that end a run through its clean-up. Under nohup SIGHUP is ignored, and stays so."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))


@contextlib.contextmanager
def signals(limit_s: float, who: str = SMOKE) -> Iterator[None]:
    """Signals and the time limit end the run through its clean-up; a second signal cuts the clean-up short."""
    codes: list[int] = []

    def stop(number: int, _: object) -> None:
        codes.append(number)
        raise Stopped

    def late(*_: object) -> None:
        raise Failure("time-limit", f"not done after {limit_s:g} s")

    before = {each: signal.signal(each, stop) for each in stopping()}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    except KeyboardInterrupt:
        number = codes[0] if codes else signal.SIGINT
        click.echo(f"{who}: stopped by {signal.Signals(number).name}; nothing is left running", err=True)
        sys.exit(128 + number)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def progress(who: str = SMOKE) -> Iterator[Callable[[str], None]]:
    """Tells what goes on: on one line of a terminal that is redrawn, elsewhere a line every few seconds."""
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
