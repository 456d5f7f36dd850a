"""What records of smoke runs measured, beside what the estimates say of the same launch and load."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from recommender import measured as m
from recommender import memory, speed
from recommender import records as r
from recommender.compiling import read_record
from recommender.configuration import Configuration
from recommender.facts import MIB, Facts
from recommender.smoke import launch
from recommender.smoke.forecast import arranged, facts_of, foretold, met
from recommender.store import KnowledgeError, Plain, Store

Values: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Observation:
    """A start's memory, or one load on it, with what was measured (ms, requests/s, MiB)."""

    run: str
    model: str
    gpu: str
    launch: str
    facts: Facts
    config: Configuration
    flight: int
    measured: Mapping[str, float]

    @property
    def what(self) -> str:
        """The run and its load in a few words."""
        facts = self.facts
        image = f"{facts.image_width}x{facts.image_height}" if facts.images else "text"
        return f"{self.run}: {self.flight} in flight, {image}" if self.flight else f"{self.run}: memory"


def observations(folder: Path, store: Store) -> list[Observation]:
    """What the records of a folder measured, as far as one server (or one to a card) was measured."""
    found: list[Observation] = []
    for path in sorted(folder.glob("*.yaml")):
        run = read_record(path, r.SmokeRun)
        try:
            found += observed(run, store)
        except launch.UNUSABLE as error:
            raise KnowledgeError(f"{path}: cannot be held against a prediction: {error}; mend it") from None
    return found


def observed(run: r.SmokeRun, store: Store) -> Iterator[Observation]:
    """The observations of one run; none of copies that shared a card without CUDA MPS, which nothing here predicts."""
    if not foretold(run):
        return
    made = launch.ran(run, store)
    made = replace(made, facts=met(made.facts, run))
    config = arranged(run, made.config)
    key = f"{run.launch_sha256} {run.model} {run.copies}"

    def observation(facts: Facts, flight: int, measured: Values) -> Observation:
        held = replace(facts, store=store)
        return Observation(run.id, run.model, run.gpu, key, held, config, flight, MappingProxyType(dict(measured)))

    yield observation(made.facts, 0, {"memory": float(run.ready_mib - run.idle_mib)})
    for phase in run.phases:
        got = m.figures(phase)
        if not phase.concurrency or phase.failures or not got.requests:
            continue
        width, height = (int(side) for side in phase.image.split("x")) if phase.image else (0, 0)
        facts = facts_of(made, phase.concurrency, phase.images, width, height, run.cores)
        loaded = phase.concurrency > 1
        figures = {"latency": got.p50_ms, "ttft": got.ttft_ms, "token": got.token_ms, "p99": got.p99_ms}
        named = {**figures, "rps": got.rps} if loaded else figures
        yield observation(facts, phase.concurrency, {name: value for name, value in named.items() if value})


def merged(every: Iterable[Observation]) -> list[Observation]:
    """Each launch under each load once, with the geometric mean of what its runs measured."""
    groups: dict[tuple[object, ...], list[Observation]] = {}
    for each in every:
        groups.setdefault(alike(each), []).append(each)
    return [replace(group[0], measured=MappingProxyType(_means(group))) for group in groups.values()]


def alike(of: Observation) -> tuple[object, ...]:
    """What the runs of one launch under one load share: all that the predictions know of them."""
    facts = of.facts
    asked = (facts.images, facts.image_width, facts.image_height, facts.input_tokens(), facts.output_tokens)
    host = (of.gpu, facts.available_bytes, facts.release.id)
    return (of.launch, of.config, host, of.flight, (asked, facts.request.cpus) if of.flight else ())


def _means(group: Sequence[Observation]) -> Values:
    """The geometric mean of each figure over the observations that have it."""
    found: dict[str, list[float]] = {}
    for each in group:
        for name, value in each.measured.items():
            found.setdefault(name, []).append(value)
    return {name: statistics.geometric_mean(values) for name, values in found.items()}


def predicted(of: Observation, values: Values) -> dict[str, float]:
    """The figures of an observation under these coefficients."""
    if not of.flight:
        held = replace(of.facts, store=valued(of.facts.store, values))
        used = memory.estimate(held, of.config)
        return {"memory": (used.total - used.item("vision").bytes) / MIB}
    got = speed.spread(of.facts, of.config, of.flight, values)
    return {"latency": got.latency, "ttft": got.ttft, "token": got.token, "p99": got.p99, "rps": got.rps}


def valued(store: Store, values: Values) -> Store:
    """The store with other values of coefficients."""
    changed = copy.copy(store)
    known: dict[str, Any] = {
        name: Plain({**vars(each), "value": values.get(name, each.value)}) for name, each in store.coefficients.items()
    }
    changed.coefficients = MappingProxyType(known)
    return changed


def logs(of: Observation, values: Values) -> Iterator[tuple[str, float]]:
    """Each measured figure's name and the log of measured over predicted."""
    made = predicted(of, values)
    for name, value in of.measured.items():
        yield name, math.log(value / made[name])
