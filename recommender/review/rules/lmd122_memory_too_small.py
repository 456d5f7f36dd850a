"""A model and settings that the card's memory does not hold

Finds launches whose weights leave no room for a KV cache, or whose predicted memory is above what the card has.

The KV cache takes its share of what the weights leave free; work buffers come out of the rest and grow with the
batch, the prefill budget and the session length. What does not fit ends in "CUDA runtime error: out of memory", at the
start or at the first large request.

Use a quantised checkpoint, more cards, or lower the cache share, the batch or the prefill budget.

Bad, on one card of 24 GB:

    lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct-AWQ --session-len 8192
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.facts import GIB
from recommender.review import case as k
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

MARGIN = 1.03
ROOM, FITS = "weights-leave-room", "memory-fits"


def _check(case: Case) -> Iterator[Said]:
    if s.wanted(case) != s.engine(case):
        return  # the estimates are TurboMind's
    word = case.launch.model
    for each in s.broken(case, ROOM):
        yield Said(word.place if word else case.launch.place, each.message, each.record.remedy)
        return
    for each in s.broken(case, FITS):
        if _above(case):
            place = s.at(each.settings[0]) if each.settings else case.launch.place
            yield Said(place, each.message, each.record.remedy, severity="warning")


def _above(case: Case) -> bool:
    """Whether the likely figure too is above what the card has, by more than the prediction is often off."""
    made = k.estimate(case)
    available = s.known(case).get("gpu.available_gib")
    return made is not None and isinstance(available, float) and made.memory.total / GIB > MARGIN * available


RULE = Rule(
    id="LMD122",
    name="memory-too-small",
    family="starts",
    severity="error",
    sources=(f"constraints/{ROOM}", f"constraints/{FITS}", "threads/out-of-memory-at-start"),
    check=_check,
    needs=("gpu", "model"),
)
