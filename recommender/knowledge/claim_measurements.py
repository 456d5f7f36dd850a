"""Compute what recorded runs show for and against a claim, at every load that both sides measured."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from recommender.common.text import count
from recommender.knowledge import conditions, records, run_figures

NOISE = 0.12
"""Medians that differ by less count as equal: nine in ten pairs of starts of one launch do (requests/s)."""
FIELDS: Mapping[str, str] = {"requests/s": "rps", "latency": "p50_ms", "first token": "ttft_ms"}
"""Field of a measured load, by its name in a comparison."""
Runs: TypeAlias = Mapping[str, records.SmokeRun]


@dataclass(frozen=True, order=True, slots=True)
class RequestLoad:
    """One load: ``concurrency`` requests at a time, or ``rps`` arriving. ``image``: width x height; empty: text.

    ``workload`` is that of lengths that vary, whose medians the tokens are; empty elsewhere.
    """

    image: str
    images: int
    input_tokens: int
    output_tokens: int
    concurrency: int
    rps: float
    workload: str = ""

    @property
    def requests(self) -> str:
        """Return what one request has, as text."""
        images = f"{count(self.images, 'image')} of {self.image}" if self.images > 1 else self.image or "text"
        tokens = f"{self.input_tokens:,} in, " if self.input_tokens else ""
        workload = f"{self.workload} (medians): " if self.workload else ""
        return f"{workload}{images}, {tokens}{self.output_tokens} out"

    @property
    def pressure(self) -> str:
        """Return how many requests there are, as text."""
        return f"{self.concurrency}" if self.concurrency else f"{self.rps:g}/s"

    def values(self) -> dict[str, conditions.Value]:
        """Return the load by the names of the condition vocabulary."""
        width, _, height = self.image.partition("x")
        return {
            "request.concurrency": self.concurrency,
            "request.rps": self.rps,
            "request.images": self.images,
            "request.image_width": int(width or 0),
            "request.image_height": int(height or 0),
            "request.input_tokens": self.input_tokens,
            "request.output_tokens": self.output_tokens,
        }


@dataclass(frozen=True, slots=True)
class ComparedLoad:
    """One load of both sides. ``ratio``: median of the one over that of the other.

    ``outcome``: more, less or same; ``counts``: the verdict is about this load.
    """

    requests: str
    pressure: str
    ratio: float
    outcome: str
    counts: bool


@dataclass(frozen=True, slots=True)
class MeasuredComparison:
    """A claim's comparison with every load that both sides measured, and those of one side only."""

    change: str
    figure: str
    says: str
    of: tuple[str, ...]
    than: tuple[str, ...]
    loads: tuple[ComparedLoad, ...]
    alone: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a claim was measured on: releases, GPUs by name, model ids, and whether all weights were random."""

    releases: tuple[str, ...]
    gpus: tuple[str, ...]
    models: tuple[str, ...]
    random_weights: bool
    comparisons: tuple[MeasuredComparison, ...]


def starts(runs: Runs, names: Iterable[str]) -> tuple[str, ...]:
    """Return every run of the launches that these runs are starts of: same host, same command, same environment."""
    named = [runs[name] for name in names if name in runs]
    commands, launches = {run.launch_sha256 for run in named}, set(map(_launch, named))
    # Whether the commands are equal is quick to see, and mostly they are not.
    return tuple(run.id for run in runs.values() if run.launch_sha256 in commands and _launch(run) in launches)


def _launch(run: records.SmokeRun) -> tuple[object, ...]:
    host = (run.gpu, run.gpu_count, run.lmdeploy, run.pinned)
    return (*host, run.model, run.launch_sha256, run.copies, run.mps, run.max_tiles)


def measure(
    claim: records.Claim, runs: Runs, earlier: Mapping[str, records.Measurement], gpus: Mapping[str, str]
) -> Measured | None:
    """Return what a claim's runs show; None if it cites none.

    ``earlier``: measurements from before there were runs; nothing is compared in them. ``gpus``: names by id.
    """
    compared = tuple(compare(comparison, runs) for comparison in claim.comparisons)
    names = [*claim.sources.evidence, *(name for each in compared for name in (*each.of, *each.than))]
    cited = [runs.get(name) or earlier.get(name) for name in dict.fromkeys(names)]
    known = [run for run in cited if run is not None]
    if not known:
        return None
    models = (run.model for run in known if isinstance(run, records.SmokeRun))
    older = (start.model for run in known if isinstance(run, records.Measurement) for start in run.starts)
    return Measured(
        releases=tuple(sorted({run.lmdeploy for run in known}, key=conditions.version)),
        gpus=tuple(dict.fromkeys(gpus.get(run.gpu, run.gpu) for run in known)),
        models=tuple(dict.fromkeys((*models, *older))),
        random_weights=all(run.random_weights for run in known),
        comparisons=compared,
    )


def compare(comparison: records.ComparedRuns, runs: Runs) -> MeasuredComparison:
    """Return the ratio at every load that both sides measured without failures, with a rate and times that agree."""
    of, than = starts(runs, comparison.of), starts(runs, comparison.than)
    # A limit on the tiles changes the tokens of an image, so such runs are compared by the image, not by its tokens.
    tokens = not any(runs[name].max_tiles for name in (*of, *than))
    field = FIELDS[comparison.figure]
    one, other = (_figures((runs[name] for name in side), field, tokens) for side in (of, than))
    where = [conditions.parse(text) for text in comparison.where]
    return MeasuredComparison(
        comparison.change,
        comparison.figure,
        comparison.says,
        of,
        than,
        loads=tuple(
            ComparedLoad(
                load.requests,
                load.pressure,
                round(statistics.median(one[load]) / statistics.median(other[load]), 2),
                _find(one[load], other[load]),
                all(condition.holds(load.values()) for condition in where),
            )
            for load in sorted(one.keys() & other.keys())
        ),
        alone=tuple(f"{load.pressure} x {load.requests}" for load in sorted(one.keys() ^ other.keys())),
    )


def _figures(runs: Iterable[records.SmokeRun], field: str, tokens: bool) -> dict[RequestLoad, list[float]]:
    found: dict[RequestLoad, list[float]] = defaultdict(list)
    for run in runs:
        for load, value in _phases(run, field, tokens):
            found[load].append(value)
    return found


def _phases(run: records.SmokeRun, field: str, tokens: bool) -> Iterator[tuple[RequestLoad, float]]:
    for phase in run.phases:
        figures = _figures_of(phase)
        value: float = getattr(figures, field)
        drawn = phase.drawn
        if not value or phase.failures or not figures.trusted or (drawn and (drawn.trace_speed or drawn.image_mix)):
            continue
        counted, output = phase.input_tokens if tokens else 0, phase.output_tokens
        if drawn:  # the requests of one workload come in one order; how many of them a phase answers differs
            counted, output = (
                round(statistics.median(run_figures.numbers(lengths))) for lengths in (drawn.prompts, drawn.outputs)
            )
        yield (
            RequestLoad(
                phase.image,
                phase.images,
                counted,
                output,
                phase.concurrency,
                phase.arrivals_rps,
                _workload_name(drawn) if drawn else "",
            ),
            value,
        )


def _workload_name(drawn: records.DrawnLoad) -> str:
    prefix = f" with a prefix of {drawn.prefix_tokens:,}" if drawn.prefix_tokens else ""
    turns = f", {drawn.turns} turns" if drawn.turns > 1 else ""
    return f"{drawn.workload or 'lengths that vary'}{prefix}{turns}"


@cache
def _figures_of(phase: records.Phase) -> run_figures.RunFigures:
    return run_figures.figures(phase)


def _find(one: Sequence[float], other: Sequence[float]) -> str:
    """Return how one side's starts compare with the other's: ``same`` within the noise, or where they overlap."""
    ratio = statistics.median(one) / statistics.median(other)
    overlap = min(one) <= max(other) and min(other) <= max(one)
    if overlap or abs(math.log(ratio)) <= math.log1p(NOISE):
        return "same"
    return "more" if ratio > 1 else "less"


def against(verdict: str, comparison: MeasuredComparison) -> Iterator[ComparedLoad]:
    """Yield the loads within a verdict's scope that it does not agree with."""
    for load in comparison.loads:
        agrees = {
            "confirmed": load.outcome == comparison.says,
            "refuted": load.outcome != comparison.says,
            "no-effect": load.outcome == "same",
        }.get(verdict, True)
        if load.counts and not agrees:
            yield load
