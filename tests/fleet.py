"""Runs that take seconds each, made several at a time and only for the tests that were chosen."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

Ran = TypeVar("Ran")


def uses(*names: str) -> Callable[[Any], Any]:
    """Says which runs a test looks at, so that they can be made ahead, several at once."""

    def mark(test: Any) -> Any:
        test.uses = names
        return test

    return mark


def made_ahead(
    request: pytest.FixtureRequest,
    file: Path,
    parameter: str,
    jobs: Mapping[str, Callable[[Path], Ran]],
    at_once: int,
    folders: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Ran]]:
    """The runs of the chosen tests of a file by name: those of ``uses``, or the one a test's parameter names."""
    names: dict[str, None] = {}
    for item in request.session.items:
        if getattr(item, "path", None) == file:
            test, chosen = getattr(item, "function", None), getattr(item, "callspec", None)
            case = chosen.params.get(parameter) if chosen else None
            names |= dict.fromkeys([case] if case in jobs else getattr(test, "uses", ()))
    pool = ThreadPoolExecutor(at_once)
    runs: dict[str, Future[Ran]] = {
        name: pool.submit(jobs[name], folders.mktemp(name.replace(" ", "-"), numbered=True)) for name in names
    }
    yield lambda name: runs[name].result()
    pool.shutdown(cancel_futures=True)
