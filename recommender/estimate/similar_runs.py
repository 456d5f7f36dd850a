"""Find the measured loads that are most similar to the predicted one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.estimate.configuration import Configuration
from recommender.knowledge.store import WITH_PREFIX
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge.store import RunLoad, RunSummary, Store

SHOWN = 3
# How much these differences count, in doublings of the load.
OTHER_MODEL, OTHER_GPU, OTHER_ENGINE, TEXT_FOR_IMAGES, OTHER_WORKLOAD = 3.0, 3.0, 3.0, 8.0, 1.0
TOO_FAR = 9.0


@dataclass(frozen=True, slots=True)
class SimilarRun:
    """One measured load."""

    run: str
    """Id of the run."""
    gpu: str
    """Id of the GPU."""
    model: str
    """Id of the model."""
    concurrency: int
    """Concurrent requests."""
    workload: str
    """What lengths were drawn from; empty: all requests were alike."""
    image: str
    """Width x height in pixels; empty: text only."""
    rps: float
    """Measured requests/s."""
    p50_ms: float
    """Measured median latency in ms."""
    lmdeploy: str
    """LMDeploy release."""
    random_weights: bool
    """The weights were random, so that the answers mean nothing."""

    @property
    def kind(self) -> str:
        """The workload or the image of the requests."""
        return ", ".join(filter(None, (self.workload, self.image))) or "text"


def find_similar_runs(resolved: ResolvedRequest, config: Configuration) -> tuple[SimilarRun, ...]:
    """Return up to ``SHOWN`` similar measured loads, most similar first.

    One load a run; none at a distance of ``TOO_FAR`` or more.
    """
    nearest: list[tuple[float, str, RunSummary, RunLoad]] = []
    prompt = resolved.input_tokens(config.max_tiles)
    workload = resolved.request.workload + WITH_PREFIX * bool(resolved.prefix_tokens) if resolved.varies else ""
    asked = (resolved.model.id, resolved.gpu.id, config.backend)
    kinds = ((_compare_kinds(asked, kind), launches) for kind, launches in _group_runs(resolved.store).items())
    farthest = TOO_FAR
    for unlike, launches in sorted(kinds, key=lambda pair: pair[0]):
        if unlike > farthest:
            break
        apart_runs = ((unlike + _compare_launches(config, runs[0]), runs) for runs in launches)
        for apart, runs in sorted(apart_runs, key=lambda pair: pair[0]):
            for run in runs if apart <= farthest else ():  # a load only adds to its run's distance
                distances = ((apart + _compare_loads(resolved, prompt, workload, load), load) for load in run.loads)
                distance, load = min(distances, key=lambda pair: pair[0])
                nearest = sorted([*nearest, (distance, run.id, run, load)], key=lambda entry: entry[:2])[:SHOWN]
                farthest = nearest[-1][0] if len(nearest) == SHOWN else TOO_FAR
    return tuple(
        SimilarRun(
            name,
            run.gpu,
            run.model,
            load.concurrency,
            load.workload,
            load.image,
            load.rps,
            load.p50_ms,
            run.lmdeploy,
            run.random_weights,
        )
        for distance, name, run, load in nearest
        if distance < TOO_FAR
    )


@lru_cache(maxsize=8)
def _group_runs(store: Store) -> dict[tuple[str, str, str], list[list[RunSummary]]]:
    """Return the runs with loads by model, GPU and engine, those with equal options in one list.

    So hundreds of runs need not be compared one by one.
    """
    groups: dict[tuple[str, str, str], dict[tuple[int, ...], list[RunSummary]]] = {}
    for run in store.evidence.values():
        if run.loads:
            launches = groups.setdefault((run.model, run.gpu, run.engine), {})
            launches.setdefault((run.batch, run.threads, run.prefill_tokens, run.session), []).append(run)
    return {kind: [*launches.values()] for kind, launches in groups.items()}


def _compare_kinds(request_kind: tuple[str, str, str], kind: tuple[str, str, str]) -> float:
    """Return how much another model, GPU and engine count, in doublings."""
    pairs = zip((OTHER_MODEL, OTHER_GPU, OTHER_ENGINE), request_kind, kind, strict=True)
    return sum(apart for apart, wanted, measured in pairs if wanted != measured)


def _compare_launches(config: Configuration, run: RunSummary) -> float:
    """Return how much a run's options differ from ``config``, in doublings."""
    apart = doublings(run.batch, config.max_batch_size) / 2 + doublings(run.threads, config.omp_threads) / 2
    apart += doublings(run.prefill_tokens, config.prefill_tokens) / 2
    # The session length barely matters, but distinguishes equal launches from similar ones.
    return apart + doublings(run.session, config.session_len) / 8


def _compare_loads(resolved: ResolvedRequest, prompt: int, workload: str, load: RunLoad) -> float:
    """Return how much a measured load differs from the request's, in doublings."""
    apart = doublings(load.concurrency, resolved.concurrency)
    apart += doublings(load.output_tokens, resolved.output_tokens) / 2
    apart += OTHER_WORKLOAD * (load.workload != workload)
    pixels = resolved.images * resolved.image_width * resolved.image_height
    longer = doublings(load.input_tokens, prompt)
    if not pixels or not load.pixels:
        return apart + longer + (TEXT_FOR_IMAGES if bool(pixels) != bool(load.pixels) else 0.0)
    return apart + max(doublings(load.pixels, pixels), longer)


def doublings(first: float, second: float) -> float:
    """Return how much two figures differ, in doublings; a 0 counts as 1."""
    return abs(math.log2((first or 1) / (second or 1)))
