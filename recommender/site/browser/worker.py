"""The calls of the page's worker, with arguments and results as JSON."""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from recommender.site.browser.answer import answer
from recommender.site.browser.run import folder_with, run

if TYPE_CHECKING:
    from recommender.review.case import Case

# A browser has one thread and no thread_time: use the process's clock.
if not hasattr(time, "thread_time"):
    time.thread_time = time.process_time
# The page ends a worker that takes too long; a browser has no such timer for the code itself.
with contextlib.suppress(AttributeError, OSError, ValueError):
    signal.signal(signal.SIGVTALRM, signal.SIG_IGN)


def _answer(words: Sequence[str], files: Mapping[str, str]) -> dict[str, Any]:
    with folder_with(files):
        return answer(words)


def _questions(text: str, options: Mapping[str, str]) -> list[tuple[int, dict[str, str]]]:
    """Return the line of each launch in a script, and what the launch tells about the request."""
    from recommender.api import review  # loaded with the first script

    return [(case.launch.place.line, dict(_known(case))) for case in review(text, "script", **options).cases]


def _known(case: Case) -> Iterator[tuple[str, str]]:
    resolved = case.resolved
    if case.model_known:
        yield "model", resolved.model.id
    if case.gpu_known:
        count = resolved.request.gpu_count
        yield "gpu", resolved.gpu.id if count == 1 else f"{resolved.gpu.id}:{count}"
    if case.release_known and not case.context.uncovered:
        yield "lmdeploy", resolved.release.id


CALLS: Mapping[str, Callable[..., Any]] = {
    "answer": _answer,
    "questions": _questions,
    "run": lambda words, files: asdict(run(words, files)),
}


def call(name: str, arguments: str) -> str:
    """Call a function by name."""
    gc.disable()  # a collection during an answer would take as long as the answer
    return json.dumps(CALLS[name](*json.loads(arguments)))


def tidy() -> None:
    """Collect the garbage of a call; what is there after it stays, so the next time need not look through it."""
    if gc.get_freeze_count():  # the first time there is little garbage, and all that was imported
        gc.collect()
    gc.freeze()
