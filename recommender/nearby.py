"""The measured loads that are most like the one predicted: what a prediction can be held against."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.configuration import Configuration
from recommender.facts import Facts

if TYPE_CHECKING:
    from recommender.store import Ran, RanLoad

SHOWN = 3
# Doublings of the load that these differences count as.
OTHER_MODEL, OTHER_GPU, TEXT_FOR_IMAGES = 3.0, 3.0, 8.0
TOO_FAR = 9.0


@dataclass(frozen=True, slots=True)
class Near:
    """One measured load: the evidence record, what ran, requests a second and the median in ms."""

    run: str
    gpu: str
    model: str
    concurrency: int
    image: str
    rps: float
    p50_ms: float


def near(facts: Facts, config: Configuration) -> tuple[Near, ...]:
    """The measured loads nearest to this one, nearest first; of each run the nearest only. None that is far."""
    found: list[tuple[float, str, Ran, RanLoad]] = []
    prompt = facts.input_tokens(config.max_tiles)
    runs = sorted((_apart(facts, config, run), run.id, run) for run in facts.store.evidence.values() if run.loads)
    for apart, name, run in runs:
        if apart > (found[SHOWN - 1][0] if len(found) >= SHOWN else TOO_FAR):
            break  # no load brings a run nearer than it is by itself
        distance, load = min(
            ((apart + _unlike(facts, prompt, each), each) for each in run.loads), key=lambda pair: pair[0]
        )
        found = sorted([*found, (distance, name, run, load)], key=lambda each: each[:2])[:SHOWN]
    return tuple(
        Near(name, run.gpu, run.model, load.concurrency, load.image, load.rps, load.p50_ms)
        for distance, name, run, load in found
        if distance < TOO_FAR
    )


def _apart(facts: Facts, config: Configuration, run: Ran) -> float:
    """How unlike what ran is, in doublings."""
    apart = OTHER_MODEL * (run.model != facts.model.id) + OTHER_GPU * (run.gpu != facts.gpu.id)
    apart += _doublings(run.batch, config.max_batch_size) / 2 + _doublings(run.threads, config.omp_threads) / 2
    apart += _doublings(run.budget, config.prefill_tokens) / 2
    # The session length changes little but tells equal launches from like ones.
    return apart + _doublings(run.session, config.session_len) / 8


def _unlike(facts: Facts, prompt: int, load: RanLoad) -> float:
    """How unlike two loads are, in doublings."""
    apart = _doublings(load.concurrency, facts.concurrency) + _doublings(load.output_tokens, facts.output_tokens) / 2
    pixels = facts.images * facts.image_width * facts.image_height
    longer = _doublings(load.input_tokens, prompt)
    if not pixels or not load.pixels:
        return apart + longer + (TEXT_FOR_IMAGES if bool(pixels) != bool(load.pixels) else 0.0)
    return apart + max(_doublings(load.pixels, pixels), longer)


def _doublings(one: float, other: float) -> float:
    return abs(math.log2(max(one, 1) / max(other, 1)))
