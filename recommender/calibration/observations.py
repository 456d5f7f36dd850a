"""Read from recorded runs what was measured, with what predicts the same launch and load."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from recommender.calibration.predict import (
    cache_of,
    is_predictable,
    resolve_phase,
    with_free_memory,
    with_server_layout,
)
from recommender.common.errors import KnowledgeError
from recommender.common.fast_replace import fast_replace
from recommender.common.plain import Plain
from recommender.common.units import MIB
from recommender.estimate import load_profile, memory, speed
from recommender.estimate.configuration import Configuration
from recommender.estimate.engines.engine import engine_of
from recommender.estimate.scheduler.simulation import KEEPS_UP
from recommender.knowledge import records, run_figures
from recommender.knowledge.index import read_record
from recommender.knowledge.run_figures import numbers, write_numbers
from recommender.knowledge.store import Store
from recommender.render import artefact
from recommender.request.resolved_request import ResolvedRequest

Values: TypeAlias = Mapping[str, float]
DONE = attrgetter("done")


@dataclass(frozen=True)
class Observation:
    """The memory of a start (``concurrency`` 0), or one load on it; ``measured`` in ms, requests/s, MiB.

    Where requests arrive at a rate, it is in ``resolved``, and the concurrency says nothing. ``workload`` is that of
    lengths that vary; empty elsewhere. ``driven`` is the phase whose very requests the simulation answers: a short
    phase has other lengths than the distribution that they are drawn from. None: the simulation draws.
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
    driven: records.Phase | None = None

    @property
    def what(self) -> str:
        """The run and its load in a few words."""
        resolved = self.resolved
        image = f"{resolved.image_width}x{resolved.image_height}" if resolved.images else "text"
        load = f"{resolved.rps:g} requests/s" if resolved.rps else f"{self.concurrency} in flight"
        return f"{self.run}: {load}, {image}" if self.concurrency else f"{self.run}: memory"


def observations(folder: Path, store: Store) -> list[Observation]:
    """Return what a folder's predictable runs measured, without those that judge fits. Raises KnowledgeError."""
    found: list[Observation] = []
    for path in sorted(folder.glob("*.yaml")):
        run = read_record(path, records.SmokeRun)
        try:
            found += () if run.judges else observe_run(run, store)
        except artefact.UNUSABLE as error:
            raise KnowledgeError(f"{path}: cannot be predicted: {error}; fix the record") from None
    return found


def observe_run(run: records.SmokeRun, store: Store) -> Iterator[Observation]:
    """Yield the observations of one run; none of a run that the estimates do not cover."""
    if not is_predictable(run):
        return
    setup = artefact.rebuild_setup(run, store)
    setup = replace(setup, resolved=with_free_memory(setup.resolved, run))
    config = with_server_layout(run, setup.config)
    launch = f"{run.launch_sha256} {run.model} {run.copies}"

    def observation(
        resolved: ResolvedRequest, concurrency: int, measured: Values, workload: str = "", driven: Any = None
    ) -> Observation:
        kept = MappingProxyType(dict(measured))
        resolved = replace(resolved, store=store)
        return Observation(run.id, run.model, run.gpu, launch, resolved, config, concurrency, kept, workload, driven)

    most = max(phase.peak_mib for phase in run.phases) if run.phases and engine_of(config).GROWS else run.ready_mib
    yield observation(setup.resolved, 0, {"memory": float(most - run.idle_mib)})
    for phase in run.phases:
        got = run_figures.figures(phase)
        if not _is_usable(phase, got):
            continue
        measured = {name: value for name, value in _figures(got).items() if name != "rps" or phase.concurrency > 1}
        resolved = resolve_phase(setup, run, phase)
        driven = phase if config.servers == 1 and _tells_requests(phase) else None
        yield observation(resolved, phase.concurrency or 1, measured, run_figures.name_workload(phase), driven)


def _is_usable(phase: records.Phase, figures: run_figures.RunFigures) -> bool:
    """Return whether a phase is a load that the estimates cover: of arrivals those without images that kept up.

    Where the simulation answers the same requests at the same times, it need not keep up.
    """
    replayed = phase.drawn and phase.drawn.trace_speed  # what requests share is not simulated here
    # A phase that ends before its conversations do has short histories.
    cut_short = phase.drawn and phase.drawn.turns > 1 and figures.requests < phase.drawn.turns * phase.concurrency
    if phase.failures or not figures.requests or not figures.trusted or replayed or cut_short:
        return False
    kept_up = figures.rps >= KEEPS_UP * phase.arrivals_rps or _tells_requests(phase)
    return bool(phase.concurrency) or (not phase.images and kept_up)


def _tells_requests(phase: records.Phase) -> bool:
    """Return whether a phase has the lengths and the times of each request, and each is a talk of its own.

    A mix of sizes does not tell which request had which.
    """
    drawn = phase.drawn
    if not drawn or drawn.image_mix or drawn.turns > 1 or phase.failures:
        return False
    counts = {
        len(numbers(text)) for text in (drawn.input_tokens, drawn.output_tokens, phase.gaps_ms, phase.latencies_ms)
    }
    return len(counts) == 1


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
    driven = observation.driven and (observation.driven.gaps_ms, observation.driven.latencies_ms)
    load = (image, resolved.image_sizes, tokens, repeats, arrivals, driven)
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
        used = memory.estimate(fast_replace(resolved, store=with_coefficients(resolved.store, values)), config)
        return {"memory": (used.total - used.item("vision").bytes) / MIB}
    estimate_servers = speed.estimate_servers(resolved, config, observation.concurrency, values)
    return {name: getattr(estimate_servers, name) for name in ("latency", "ttft", "token", "p99", "rps")}


def is_simulated(observation: Observation) -> bool:
    """Return whether predictions simulate the load; an observation of memory at startup has no load."""
    concurrency = observation.concurrency
    return bool(concurrency) and load_profile.is_simulated(observation.resolved, observation.config, concurrency)


def simulate(observation: Observation, values: Values) -> dict[str, float]:
    """Predict the figures of a simulated load with these coefficients; measured latencies and TTFT are medians."""
    resolved, config = observation.resolved, observation.config
    cache = cache_of(resolved, config)
    if observation.driven:
        return _answer(observation.driven, resolved, config, values, cache)
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


def _answer(
    phase: records.Phase, resolved: ResolvedRequest, config: Configuration, values: Values, cache: int
) -> dict[str, float]:
    """Simulate the phase's own requests; return their figures, counted as in the measurement."""
    driven = _list_driven(phase)
    answers = sorted(speed.answer_driven(resolved, config, phase.concurrency, values, cache, driven), key=DONE)
    opened, closed = min(answer.sent for answer in answers), max(answer.sent for answer in answers)
    done = [round(answer.done - opened) for answer in answers]
    answered = write_numbers(answer.output for answer in answers)
    same = phase.model_copy(
        update={
            "latencies_ms": write_numbers(answer.done - answer.sent for answer in answers),
            "gaps_ms": write_numbers(end - before for before, end in zip([0, *done], done, strict=False)),
            "ttft_ms": write_numbers(answer.first - answer.sent for answer in answers),
            "streamed": "",
            "window_s": (closed - opened) / 1000,
            "window_requests": sum(answer.done <= closed for answer in answers),
            "drawn": phase.drawn and phase.drawn.model_copy(update={"output_tokens": answered}),
        }
    )
    got = run_figures.figures(same)
    return _figures(got)


@lru_cache(maxsize=4096)
def _list_driven(phase: records.Phase) -> Sequence[tuple[float, int, int]]:
    """Return the requests of a phase as they were sent: when, and the tokens of input and answer."""
    assert phase.drawn
    latencies, ends = numbers(phase.latencies_ms), accumulate(numbers(phase.gaps_ms))
    inputs, outputs = numbers(phase.drawn.input_tokens), numbers(phase.drawn.output_tokens)
    sent = [end - took for end, took in zip(ends, latencies, strict=True)]
    return sorted(zip(sent, inputs, outputs, strict=True))


def _figures(phase_figures: run_figures.RunFigures) -> dict[str, float]:
    """Return what a phase tells: short ones have no p99, others no TTFT."""
    figures = {
        "latency": phase_figures.p50_ms,
        "ttft": phase_figures.ttft_ms,
        "token": phase_figures.token_ms,
        "p99": phase_figures.p99_ms,
        "rps": phase_figures.rps,
    }
    return {name: value for name, value in figures.items() if value}


class OtherCoefficients(dict[str, Any]):
    """Records of coefficients with other values, made as they are read."""

    def __init__(self, coefficients: Mapping[str, records.Coefficient], values: Values) -> None:
        super().__init__()
        self.coefficients, self.values_by_name = coefficients, values

    def __missing__(self, name: str) -> Any:
        record = self[name] = Plain({**vars(self.coefficients[name]), "value": self.values_by_name[name]})
        return record


def with_coefficients(store: Store, values: Values) -> Store:
    """Return the store with other values of coefficients."""
    changed = copy.copy(store)
    changed.coefficients = OtherCoefficients(store.coefficients, values)
    return changed


def log_errors(
    observation: Observation, values: Values, predicted_by: Callable[[Observation, Values], dict[str, float]] = predict
) -> Iterator[tuple[str, float]]:
    """Yield each measured figure's name and the log of measured over predicted."""
    predicted = predicted_by(observation, values)
    for name, value in observation.measured.items():
        yield name, math.log(value / predicted[name])
