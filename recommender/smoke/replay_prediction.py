"""Predict a phase that replayed a trace: the same requests, at the same times."""

from __future__ import annotations

import statistics
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from recommender.calibration.predict import cache_of, resolve_phase, with_free_memory, with_server_layout
from recommender.estimate import speed
from recommender.estimate.uncertainty import Range
from recommender.knowledge import run_figures
from recommender.request.request import Replayed

if TYPE_CHECKING:
    from recommender.choose.recommend import Setup
    from recommender.knowledge import records


def read_replay(drawn: records.DrawnLoad) -> tuple[Replayed, ...]:
    """Return the requests that a phase replayed."""
    texts = (drawn.arrivals_ms, drawn.prompts, drawn.outputs, drawn.shared_with, drawn.shared_tokens)
    return tuple(Replayed(*each) for each in zip(*map(run_figures.numbers, texts), strict=True))


def _common(replay: tuple[Replayed, ...]) -> int:
    """Return the tokens that 90 % of the later requests repeat at least: the cache holds them once."""
    repeated = sorted(each.shared for each in replay[1:])
    return repeated[len(repeated) // 10] if repeated else 0


def predict_replay(setup: Setup, run: records.SmokeRun, phase: records.Phase) -> speed.Speed:
    """Predict a phase with ``drawn`` requests of a trace.

    Quantiles and rate are those of the replay. Ranges have the width that a load of the same rate and mean lengths
    has.
    """
    assert phase.drawn is not None
    replay = read_replay(phase.drawn)
    resolved = resolve_phase(setup, run, phase.model_copy(update={"drawn": None}))
    resolved = replace(
        with_free_memory(resolved, run),
        request=replace(resolved.request, replay=replay, repeated_share=0.0, headroom=1.0),
        prompt_tokens=max(round(statistics.fmean(request.prompt for request in replay)), 1),
        output_tokens=max(round(statistics.fmean(request.output for request in replay)), 1),
        prompt_lengths=(),
        output_lengths=(),
        prefix_tokens=_common(replay),
        turns=1,
        max_context=0,
    )
    config = with_server_layout(run, setup.config)
    kv_tokens = cache_of(resolved, config)
    steady = speed.estimate(resolved, config, kv_tokens=kv_tokens)
    figures = speed.replay(resolved, config, kv_tokens)
    assert figures is not None
    scale = figures.rps / steady.rps.value
    return replace(steady, profile=figures, rps=Range(*(end * scale for end in astuple(steady.rps))))
