"""Judge a fit by runs that it did not see: fits without a model, a part of the configurations, or a workload.

The fits are kept in ``extracted/fit_folds.json``. So a check need not fit again: it asks of each whether its
coefficients are at their best for what it saw, and predicts with them what it did not see.
"""

from __future__ import annotations

import gc
import json
import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from recommender.calibration.fit import (
    is_fitted,
    is_mixture_load,
    is_pytorch_load,
    list_fitted,
    list_improvable,
    list_stages,
    predict_load,
    read_values,
    solve,
)
from recommender.calibration.observations import Observation, is_simulated, log_errors
from recommender.estimate.coverage import is_loaded, name_load, name_residual
from recommender.knowledge.store import Store

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

PARTS = 5
Fits: TypeAlias = Mapping[str, Mapping[str, float]]
"""Fitted coefficients by the name of what the fit did not see."""


@dataclass(frozen=True)
class HeldOutError:
    """One held-out prediction: the figure, its observation, what was left out, and log of measured over predicted."""

    figure: str
    observation: Observation
    part: str
    log: float

    @property
    def kind(self) -> str:
        """What was left out with it: its model, its configuration or its workload."""
        return self.part.split()[0]

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return math.exp(-self.log) - 1


def solve_folds(
    observations: Sequence[Observation], store: Store, whole: Mapping[str, float], say: Callable[[str], None]
) -> Fits:
    """Return the coefficients of the fits without each fold. They are independent and run in parallel, one a core.

    ``whole`` are those of the fit to all observations.
    """
    folds = list(list_folds(observations))
    with _workers(observations, store, whole) as pool:
        results = {unseen: pool.apply_async(_solve_without, (unseen,)) for _, unseen in _unseen(folds, observations)}
        fits = {}
        for fold, unseen in _unseen(folds, observations):
            values = results[unseen].get()
            fits[fold.title] = {name: values[name] for name in list_fitted(store)}
            say(f"fitted without {fold.name}")
    return fits


def list_stale(observations: Sequence[Observation], store: Store, fits: Fits) -> list[str]:
    """Return why kept fits are not those of the observations; empty if they are.

    Each kept fit must be of a fold, and at its best for what it saw, but for the terms of experts where nothing asks
    for them.
    """
    folds = list(list_folds(observations))
    titles = {fold.title for fold in folds}
    stale = [f"{title}: not kept" for title in sorted(titles - fits.keys())]
    stale += [f"{title}: nothing is left out under this name" for title in sorted(fits.keys() - titles)]
    if stale:
        return stale
    with _workers(observations, store, {}) as pool:
        asked = {(unseen, tuple(fits[fold.title].items())): fold.title for fold, unseen in _unseen(folds, observations)}
        pending = [(title, pool.apply_async(_improve_without, key)) for key, title in asked.items()]
        return [f"{title}: {name} is not at its best" for title, names in pending for name in names.get()]


def _unseen(folds: Sequence[Fold], observations: Sequence[Observation]) -> Iterator[tuple[Fold, tuple[int, ...]]]:
    """Yield each fold with what its fit does not see.

    Lengths that vary are in no fit but that of experts: leaving them out changes nothing for dense models.
    """
    for fold in folds:
        yield fold, tuple(place for place in fold.left_out if is_fitted(observations[place]))


def held_out_errors(observations: Sequence[Observation], store: Store, fits: Fits) -> list[HeldOutError]:
    """Predict every observation by the fits that did not see its model, its configuration, or its workload."""
    errors: list[HeldOutError] = []
    kept = read_values(store)
    for fold in list_folds(observations):
        values = {**kept, **fits[fold.title]}
        for place in fold.left_out:
            observation = observations[place]
            resolved, config = observation.resolved, observation.config
            loaded = is_loaded(resolved, observation.concurrency, config.servers)
            load = f"-{name_load(resolved, loaded)}" if observation.concurrency else ""
            errors += [
                HeldOutError(name_residual(config.backend, f"{name}{load}"), observation, fold.title, log)
                for name, log in log_errors(observation, values, predict_load)
            ]
    return errors


class Fold(NamedTuple):
    """The observations that one fit leaves out, as indices."""

    kind: str
    name: str
    left_out: tuple[int, ...]

    @property
    def title(self) -> str:
        """Its kind and name."""
        return f"{self.kind} {self.name}"


def list_folds(observations: Sequence[Observation]) -> Iterator[Fold]:
    """Yield what is left out once: each model, each part of the launches, each workload of text."""
    launches = sorted({observation.launch for observation in observations})
    parts = {name: f"configurations {number % PARTS + 1}" for number, name in enumerate(launches)}
    for kind, names in (
        ("model", [observation.model for observation in observations]),
        ("configuration", [parts[observation.launch] for observation in observations]),
    ):
        for name in sorted(set(names)):
            yield Fold(kind, name, tuple(place for place, other in enumerate(names) if other == name))
    workloads = [_name_workload(observation) for observation in observations]
    for name in sorted({*workloads} - {""}):
        yield Fold("workload", name, tuple(place for place, other in enumerate(workloads) if other == name))


def _name_workload(observation: Observation) -> str:
    """Return the workload that a fold leaves out; "" for starts, images and the PyTorch engine, which had few."""
    if not is_simulated(observation) or observation.config.backend != "turbomind":
        return ""
    return observation.workload or "equal lengths"


def _workers(observations: Sequence[Observation], store: Store, whole: Mapping[str, float]) -> Pool:
    """Return processes that inherit the observations, which cannot be pickled.

    Each works once: the simulations that it keeps would fill the memory (12 GB after twenty fits).
    """
    arguments = (observations, store, whole)
    return multiprocessing.get_context("fork").Pool(initializer=_inherit, initargs=arguments, maxtasksperchild=1)


_inherited: list[tuple[Sequence[Observation], Store, Mapping[str, float]]] = []
"""Of a worker process; empty in any other."""


def _inherit(observations: Sequence[Observation], store: Store, whole: Mapping[str, float]) -> None:
    _inherited[:] = [(observations, store, whole)]


def _seen_without(left_out: tuple[int, ...]) -> tuple[list[Observation], Store]:
    ((observations, store, _),) = _inherited
    unseen = set(left_out)
    seen = [observation for place, observation in enumerate(observations) if place not in unseen]
    for is_load in (is_mixture_load, is_pytorch_load):
        if not any(is_load(observations[place]) for place in left_out):  # nothing asks for the terms of these loads
            seen = [observation for observation in seen if not is_load(observation)]
    return seen, store


def _lacks_pytorch_only(left_out: tuple[int, ...]) -> bool:
    """Return whether a fit sees all of TurboMind, so that its terms are those of the whole fit."""
    ((observations, _, _),) = _inherited
    return all(observations[place].config.backend == "pytorch" for place in left_out)


def _solve_without(left_out: tuple[int, ...]) -> dict[str, float]:
    ((_, _, whole),) = _inherited
    return solve(*_seen_without(left_out), whole if _lacks_pytorch_only(left_out) else None)


def _improve_without(left_out: tuple[int, ...], fitted: tuple[tuple[str, float], ...]) -> list[str]:
    ((observations, *_),) = _inherited
    gc.disable()  # collecting takes 5 % of the time and frees 75 MB at most; this process ends with the check
    seen, store = _seen_without(left_out)
    return list(list_improvable(seen, store, read_values(store) | dict(fitted), list_stages(observations, store)))


def as_json(fits: Fits) -> str:
    """Return the text of the file that keeps the fits: a line each."""
    names = sorted(next(iter(fits.values()), ()))
    rows = (f"{json.dumps(title)}: {json.dumps([values[name] for name in names])}" for title, values in fits.items())
    return f'{{"coefficients": {json.dumps(names)},\n"without": {{\n' + ",\n".join(rows) + "\n}}\n"


def read_fits(path: Path) -> Fits:
    """Return the fits that a file keeps; none without the file."""
    try:
        kept = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return {title: dict(zip(kept["coefficients"], row, strict=True)) for title, row in kept["without"].items()}
