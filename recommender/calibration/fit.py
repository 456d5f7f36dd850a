"""Fit the coefficients to the evidence.

A fit moves the coefficients of basis ``fitted`` between their ends and compares
the predictions of ``speed`` and ``memory`` with the measurements. It starts from
the middle of each coefficient's ends, so the result depends only on the evidence.
The closed form is fitted; simulated loads (text under load) are judged by the
simulation, with the coefficients of fits that did not see them (``held_out``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, zip_longest
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from recommender.calibration.observations import Observation, is_simulated, log_errors, merge_repeats, predict, simulate
from recommender.calibration.predict import needs_simulation
from recommender.estimate import speed
from recommender.knowledge.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = {"latency": 1.0, "rps": 1.0, "ttft": 0.3, "token": 0.3, "p99": 0.3, "memory": 1.0}
"""Weight of an error of each figure."""
MIDDLE = 1.5
"""The middle of a coefficient's range, whose ends are 1 and 2 on a logarithmic scale."""
PULL = 0.05
"""Pull towards the middle of a coefficient's ends; it decides only where no run does."""
SOFT = 0.1
"""Errors well above this share count linearly, so that one odd run does not bend a fit."""
STEP = 0.01
"""Step for slopes, as a share of the way between a coefficient's ends. The equations have bends and bytes are whole:
with a shorter step slopes are random, and the fit would depend on the machine's last digits."""
SIMULATED_STEP = 0.08
"""The same where loads are simulated: figures jump where a request just misses a pass."""
DIGITS = 4
SURELY = 1 + 1e-9
"""Factor over a limit above which rounding cannot be the reason that a sum of costs exceeds it."""
CHECKED_STEPS = (2 * STEP, -2 * STEP)
"""Steps of one coefficient that are tried at the end of a fit, and by a check."""
CachedErrors: TypeAlias = tuple[Callable[[Mapping[str, float]], Any], dict[Any, list[float]]]
"""What returns the values of the coefficients that a prediction read, and the errors by these values."""


class NotedCoefficients(dict[str, float]):
    """The coefficients that a prediction has read: with other values of the rest it would be the same.

    Only ``[name]`` reads a coefficient; it is kept here, so that reading it again costs no call.
    """

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__()
        self.all_values = values

    def __missing__(self, name: str) -> float:
        value = self[name] = self.all_values[name]
        return value


@dataclass(frozen=True)
class Stage:
    """Observations, and the coefficients that are fitted to them beside ``fixed`` others, from these ends.

    ``predicted_by`` gives figures as they are printed, or those of the closed form. ``slack`` is the share of the cost
    by which a coefficient may be off its best: a simulation's figures jump; ``step`` is that for slopes.
    ``cached_errors`` holds, for the place of each observation, the errors by the coefficients that its prediction read:
    with the same values they are the same.
    """

    observations: Sequence[Observation]
    ends: Mapping[str, tuple[float, float]]
    predicted_by: Callable[[Observation, Mapping[str, float]], dict[str, float]]
    slack: float
    step: float
    cached_errors: Mapping[int, dict[tuple[str, ...], CachedErrors]] = field(default_factory=partial(defaultdict, dict))

    def values(self, places: Iterable[float]) -> dict[str, float]:
        """Return the coefficients at places between their ends: 1 is the low one, 2 the high one."""
        pairs = zip(self.ends.items(), places, strict=True)
        return {name: math.exp(low + (place - 1) * (high - low)) for (name, (low, high)), place in pairs}

    def places(self, values: Mapping[str, float]) -> list[float]:
        """Return where coefficients are between their ends."""
        return [1 + (math.log(values[name]) - low) / (high - low) for name, (low, high) in self.ends.items()]

    def errors(self, places: Sequence[float], fixed: Mapping[str, float]) -> list[float]:
        """Return the weighted errors, and the pull of each coefficient to its middle."""
        return [*chain.from_iterable(self._each(places, fixed)), *pulls(places)]

    def _each(self, places: Sequence[float], fixed: Mapping[str, float]) -> list[list[float]]:
        coefficients = {**fixed, **self.values(places)}
        return [self._errors_of(place, coefficients) for place in range(len(self.observations))]

    def costliest_first(self, places: Sequence[float], fixed: Mapping[str, float]) -> list[int]:
        """Return the numbers of the observations, those first that add most to the cost."""
        costs = [sum_costs(errors) for errors in self._each(places, fixed)]
        return sorted(range(len(costs)), key=costs.__getitem__, reverse=True)

    def known_first(self, order: Iterable[int], name: str) -> list[int]:
        """Return the numbers with those first whose predictions do not read a coefficient: they need no prediction."""
        return sorted(order, key=lambda place: any(name in read for read in self.cached_errors[place]))

    def costs_less(
        self, places: Sequence[float], fixed: Mapping[str, float], most: float, order: Iterable[int]
    ) -> bool:
        """Return whether the cost is below ``most``; no more observations are predicted than tell it."""
        coefficients, errors = {**fixed, **self.values(places)}, pulls(places)
        so_far = sum_costs(errors)
        for place in order:
            errors += (own := self._errors_of(place, coefficients))
            so_far += sum_costs(own)
            if so_far > most * SURELY:  # no part of the cost is below 0
                return False
        return sum_costs(errors) < most

    def _errors_of(self, place: int, coefficients: Mapping[str, float]) -> list[float]:
        """Return the weighted errors of the observation at a place."""
        cached = self.cached_errors[place]
        for values_of, errors_by_values in cached.values():
            if (errors := errors_by_values.get(values_of(coefficients))) is not None:
                return errors
        noted = NotedCoefficients(coefficients)
        logs = log_errors(self.observations[place], noted, self.predicted_by)
        errors = [WEIGHTS[name] * log for name, log in logs]
        read = tuple(sorted(noted))
        values_of, errors_by_values = cached.setdefault(read, (itemgetter(*read), {}))
        errors_by_values[values_of(coefficients)] = errors
        return errors


def pulls(places: Iterable[float]) -> list[float]:
    """Return the pull of each coefficient to its middle, as errors."""
    return [PULL * (place - MIDDLE) for place in places]


def sum_costs(errors: Iterable[float]) -> float:
    """Return what a fit minimises."""
    return math.fsum(math.sqrt(1 + (error / SOFT) ** 2) - 1 for error in errors)


def solve(
    observations: Sequence[Observation], store: Store, turbomind_fit: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return all coefficients, those of basis ``fitted`` at their best for these observations.

    Memory and speed share no coefficient, so each is fitted alone. Repeated runs of a launch under a load count once.
    Decoding steps come from requests alone: with the loads, what the host adds to small models was taken for steps.
    The terms of experts come from mixtures only: with the loads' simulation, because all of those vary in length, and
    with the other coefficients as dense models gave them. What differs with the PyTorch engine comes last, from its
    loads only; its memory is fitted to nothing. ``turbomind_fit``: all of a fit to the same observations of
    TurboMind; only what differs with the PyTorch engine is fitted then.
    """
    values, stages = turbomind_fit or read_values(store), list_stages(observations, store)
    for stage in stages[-1:] if turbomind_fit else stages:
        values = {**values, **_solve(stage, values)}
    return dict(values)


def read_values(store: Store) -> dict[str, float]:
    """Return the value of each coefficient, by name."""
    return {name: coefficient.value for name, coefficient in store.coefficients.items()}


def list_fitted(store: Store) -> list[str]:
    """Return the names of the coefficients that a fit decides."""
    return [name for name, coefficient in store.coefficients.items() if coefficient.basis == "fitted"]


def list_stages(observations: Sequence[Observation], store: Store) -> tuple[Stage, ...]:
    """Return the stages of a fit, in order."""
    starts, loads, mixtures, pytorch = [], [], [], []
    for observation in merge_repeats(observations):
        if observation.config.backend == "pytorch":
            pytorch += [observation] if observation.concurrency else []
        elif not observation.concurrency:
            starts.append(observation)
        elif is_mixture_load(observation):
            mixtures.append(observation)
        elif is_fitted(observation):
            loads.append(observation)
    fitted = list_fitted(store)
    memory = [name for name in fitted if name not in speed.COEFFICIENTS]
    later = {*speed.EXPERT_COEFFICIENTS, *speed.PYTORCH_COEFFICIENTS}
    dense = [name for name in fitted if name in set(speed.COEFFICIENTS) - later - {*speed.STEP_COEFFICIENTS}]

    def ends(names: Iterable[str]) -> dict[str, tuple[float, float]]:
        records = ((name, store.coefficients[name]) for name in names)
        return {name: (math.log(record.low), math.log(record.high)) for name, record in records}

    return (
        Stage(starts, ends(memory), predict, 1e-4, STEP),
        Stage(list(_steps_alone(loads)), ends(speed.STEP_COEFFICIENTS), predict, 1e-4, STEP),
        Stage(loads, ends(dense), predict, 1e-4, STEP),
        Stage(mixtures, ends(speed.EXPERT_COEFFICIENTS), predict_load, 1e-2, SIMULATED_STEP),
        Stage(pytorch, ends(speed.PYTORCH_COEFFICIENTS), predict_load, 1e-2, SIMULATED_STEP),
    )


def _steps_alone(loads: Iterable[Observation]) -> Iterator[Observation]:
    """Yield the loads whose time per token is that of a decoding step, and only that: one request, on one card."""
    for each in loads:
        if each.concurrency == 1 and each.config.tp == 1 and "token" in each.measured:
            yield replace(each, measured=MappingProxyType({"token": each.measured["token"]}))


def is_fitted(observation: Observation) -> bool:
    """Return whether a fit can see it: the closed form knows only requests that are alike, other stages all loads."""
    alike = not observation.concurrency or not needs_simulation(observation.resolved)
    return alike or is_mixture_load(observation) or is_pytorch_load(observation)


def is_mixture_load(observation: Observation) -> bool:
    """Return whether it is a load on a mixture of experts, with TurboMind."""
    mixture = observation.config.backend == "turbomind" and observation.resolved.model.text.mixture
    return bool(observation.concurrency and mixture)


def is_pytorch_load(observation: Observation) -> bool:
    """Return whether it is a load on the PyTorch engine."""
    return bool(observation.concurrency) and observation.config.backend == "pytorch"


def predict_load(observation: Observation, values: Mapping[str, float]) -> dict[str, float]:
    """Predict as printed figures are: by simulation where a load is simulated."""
    return (simulate if is_simulated(observation) else predict)(observation, values)


def _solve(stage: Stage, fixed: Mapping[str, float]) -> dict[str, float]:
    """Return a stage's coefficients at their best beside the ``fixed`` ones."""
    from scipy.optimize import least_squares

    def errors(places: NDArray[Any], /) -> list[float]:
        return stage.errors(places.tolist(), fixed)

    best = least_squares(
        errors,
        [MIDDLE] * len(stage.ends),
        bounds=(1, 2),
        loss="soft_l1",
        f_scale=SOFT,
        jac="3-point",
        diff_step=[stage.step] * len(stage.ends),
    )
    values = {**fixed, **_round(stage.values(best.x.tolist()))}
    while improved := dict(islice(_improvements(stage, values), 1)):  # slopes stop at a bend of a simulation's figures
        values |= improved
    return {name: values[name] for name in stage.ends}


def list_improvable(
    observations: Sequence[Observation], store: Store, values: Mapping[str, float], whole: Sequence[Stage] = ()
) -> Iterator[str]:
    """Yield the coefficients that are not at their best: a small step of one alone lowers the cost of its stage.

    ``whole``: the stages of the fit to all observations, which the store has and which is checked by itself. A stage
    is passed over if it sees the same or nothing, with the same coefficients. This takes a few hundredths of the time
    of a fit.
    """
    kept, read = read_values(store), set[str]()
    for stage, other in zip_longest(list_stages(observations, store), whole):
        read = {*(read & {*speed.COEFFICIENTS}), *stage.ends}  # memory and speed share none
        seen = other is not None and (not stage.observations or stage.observations == other.observations)
        if not seen or any(values[name] != kept[name] for name in read):
            yield from dict(_improvements(stage, values))


def _improvements(stage: Stage, values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield each small step of one coefficient that lowers the cost by more than the slack: its name and value."""
    places = stage.places(values)
    least = (1 - stage.slack) * sum_costs(stage.errors(places, values))
    order = stage.costliest_first(places, values)
    for number, name in enumerate(stage.ends):
        known_first = stage.known_first(order, name)
        for step in CHECKED_STEPS:
            moved = [*places[:number], min(max(places[number] + step, 1.0), 2.0), *places[number + 1 :]]
            value = _round(stage.values(moved))[name]  # as it will be stored: a simulation may jump between both
            if stage.costs_less(stage.places({**values, name: value}), values, least, known_first):
                yield name, value


def _round(values: Mapping[str, float]) -> dict[str, float]:
    return {name: rounded(value) for name, value in values.items()}


def rounded(value: float) -> float:
    """Return a number with the digits that records keep."""
    return float(f"{value:.{DIGITS}g}")
