"""Read from recorded runs what was measured, with what predicts the same launch and load."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from recommender.calibration.predict import (
    cache_of,
    is_predictable,
    needs_simulation,
    resolve_phase,
    with_free_memory,
    with_server_layout,
)
from recommender.common.errors import KnowledgeError
from recommender.common.plain import Plain
from recommender.common.units import MIB
from recommender.estimate import memory, speed
from recommender.estimate.configuration import Configuration
from recommender.estimate.simulation import KEEPS_UP
from recommender.knowledge import records, run_figures
from recommender.knowledge.index import read_record
from recommender.knowledge.store import Store
from recommender.render import artefact
from recommender.request.resolved_request import ResolvedRequest

Values: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Observation:
    """The memory of a start (``concurrency`` 0), or one load on it; ``measured`` in ms, requests/s, MiB.

    Where requests arrive at a rate, it is in ``resolved``, and the concurrency says nothing. ``workload`` is that of
    lengths that vary; empty elsewhere.
    """

    run: str
    model: str
    gpu: str
    launch: str
    resolved: ResolvedRequest
    config: Configuration
    concurrency: int
    measured: Mapping[str, float]
    workload: str = ""

    @property
    def what(self) -> str:
        """The run and its load in a few words."""
        resolved = self.resolved
        image = f"{resolved.image_width}x{resolved.image_height}" if resolved.images else "text"
        load = f"{resolved.rps:g} requests/s" if resolved.rps else f"{self.concurrency} in flight"
        return f"{self.run}: {load}, {image}" if self.concurrency else f"{self.run}: memory"


def observations(folder: Path, store: Store) -> list[Observation]:
    """Return what the records of a folder measured of predictable runs. Raises KnowledgeError."""
    found: list[Observation] = []
    for path in sorted(folder.glob("*.yaml")):
        run = read_record(path, records.SmokeRun)
        try:
            found += observe_run(run, store)
        except artefact.UNUSABLE as error:
            raise KnowledgeError(f"{path}: cannot be predicted: {error}; fix the record") from None
    return found


def observe_run(run: records.SmokeRun, store: Store) -> Iterator[Observation]:
    """Yield the observations of one run; none of a run that the estimates do not cover."""
    if not is_predictable(run):
        return
    recommendation = artefact.rebuild_run(run, store)
    recommendation = replace(recommendation, resolved=with_free_memory(recommendation.resolved, run))
    config = with_server_layout(run, recommendation.config)
    launch = f"{run.launch_sha256} {run.model} {run.copies}"

    def observation(resolved: ResolvedRequest, concurrency: int, measured: Values, workload: str = "") -> Observation:
        kept = MappingProxyType(dict(measured))
        resolved = replace(resolved, store=store)
        return Observation(run.id, run.model, run.gpu, launch, resolved, config, concurrency, kept, workload)

    yield observation(recommendation.resolved, 0, {"memory": float(run.ready_mib - run.idle_mib)})
    for phase in run.phases:
        got = run_figures.figures(phase)
        if not _is_usable(phase, got):
            continue
        figures = {"latency": got.p50_ms, "ttft": got.ttft_ms, "token": got.token_ms, "p99": got.p99_ms}
        figures |= {"rps": got.rps} if phase.concurrency > 1 else {}
        measured = {name: value for name, value in figures.items() if value}
        resolved = resolve_phase(recommendation, run, phase)
        yield observation(resolved, phase.concurrency or 1, measured, _workload_name(phase))


def _workload_name(phase: records.Phase) -> str:
    """Return the workload of a phase whose lengths vary; one with a shared prefix is a workload of its own."""
    return (phase.drawn.workload + " with a prefix" * bool(phase.drawn.prefix_tokens)) if phase.drawn else ""


def _is_usable(phase: records.Phase, got: run_figures.RunFigures) -> bool:
    """Return whether a phase is a load that the estimates cover: of arrivals those without images that kept up."""
    if phase.failures or not got.requests or not got.trusted:
        return False
    return bool(phase.concurrency) or (not phase.images and got.rps >= KEEPS_UP * phase.arrivals_rps)


def merge_repeats(observations: Iterable[Observation]) -> list[Observation]:
    """Return each launch under each load once, with the geometric mean of what its runs measured."""
    groups: dict[tuple[object, ...], list[Observation]] = {}
    for observation in observations:
        groups.setdefault(prediction_key(observation), []).append(observation)
    return [replace(group[0], measured=MappingProxyType(_means(group))) for group in groups.values()]


def prediction_key(observation: Observation) -> tuple[object, ...]:
    """Return all that a prediction depends on: equal for repeated runs of one launch under one load."""
    resolved = observation.resolved
    host = (observation.gpu, resolved.available_bytes, resolved.release.id)
    launch = (observation.launch, observation.config, host)
    if not observation.concurrency:
        return launch
    image = (resolved.images, resolved.image_width, resolved.image_height)
    tokens = (resolved.input_tokens(), resolved.output_tokens, resolved.prompt_lengths, resolved.output_lengths)
    repeats = (resolved.prefix_tokens, resolved.turns, resolved.max_context, resolved.streamed_share)
    arrivals = (resolved.rps, resolved.burstiness if resolved.rps else 1.0)
    load = (image, resolved.image_sizes, tokens, repeats, arrivals)
    return (*launch, observation.concurrency, load, resolved.request.cpus)


def _means(group: Sequence[Observation]) -> Values:
    """Return the geometric mean of each figure over the observations that have it."""
    values: dict[str, list[float]] = {}
    for observation in group:
        for name, value in observation.measured.items():
            values.setdefault(name, []).append(value)
    return {name: statistics.geometric_mean(each) for name, each in values.items()}


def predict(observation: Observation, values: Values) -> dict[str, float]:
    """Predict the figures of an observation with these coefficients."""
    resolved, config = observation.resolved, observation.config
    if not observation.concurrency:
        used = memory.estimate(replace(resolved, store=with_coefficients(resolved.store, values)), config)
        return {"memory": (used.total - used.item("vision").bytes) / MIB}
    estimate_servers = speed.estimate_servers(resolved, config, observation.concurrency, values)
    return {name: getattr(estimate_servers, name) for name in ("latency", "ttft", "token", "p99", "rps")}


def is_simulated(observation: Observation) -> bool:
    """Return whether predictions simulate the load: no image, and several in flight, arrivals, or lengths that vary."""
    several = observation.concurrency > observation.config.servers
    load = bool(observation.concurrency) and not observation.resolved.images
    return load and (several or needs_simulation(observation.resolved))


def simulate(observation: Observation, values: Values) -> dict[str, float]:
    """Predict the figures of a simulated load with these coefficients; measured latencies and TTFT are medians."""
    resolved, config = observation.resolved, observation.config
    cache = cache_of(resolved, config)
    point, profile = speed.predict_load(resolved, config, observation.concurrency, values, cache)
    if profile is None:
        raise ValueError(f"{observation.what}: not a simulated load")
    return {
        "latency": profile.latency.p50,
        "ttft": profile.ttft.p50,
        "token": profile.tpot.p50,
        "p99": point.p99,
        "rps": point.rps,
    }


def with_coefficients(store: Store, values: Values) -> Store:
    """Return the store with other values of coefficients."""
    changed = copy.copy(store)
    coefficients: dict[str, Any] = {
        name: Plain({**vars(coefficient), "value": values.get(name, coefficient.value)})
        for name, coefficient in store.coefficients.items()
    }
    changed.coefficients = MappingProxyType(coefficients)
    return changed


def log_errors(
    observation: Observation, values: Values, predicted_by: Callable[[Observation, Values], dict[str, float]] = predict
) -> Iterator[tuple[str, float]]:
    """Yield each measured figure's name and the log of measured over predicted."""
    predicted = predicted_by(observation, values)
    for name, value in observation.measured.items():
        yield name, math.log(value / predicted[name])
