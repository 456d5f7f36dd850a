"""Fit the coefficients to the evidence, and judge the fit by held-out runs.

A fit moves the coefficients of basis ``fitted`` between their ends and compares
the predictions of ``speed`` and ``memory`` with the measurements. It starts from
the middle of each coefficient's ends, so the result depends only on the evidence.
The closed form is fitted; simulated loads (text under load) are judged by the
simulation, with the coefficients of fits that did not see them.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from recommender.calibration.observations import (
    Observation,
    is_simulated,
    log_errors,
    merge_repeats,
    predict,
    prediction_key,
    simulate,
)
from recommender.calibration.predict import needs_simulation
from recommender.estimate import speed
from recommender.estimate.coverage import name_group
from recommender.knowledge import records
from recommender.knowledge.store import Store

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

    from numpy.typing import NDArray

WEIGHTS = {"latency": 1.0, "rps": 1.0, "ttft": 0.3, "token": 0.3, "p99": 0.3, "memory": 1.0}
"""Weight of an error of each figure."""
MIDDLE = 1.5
"""Between a coefficient's ends, 1 and 2, on a logarithmic scale."""
PULL = 0.05
"""Pull towards the middle of a coefficient's ends; it decides only where no run does."""
SOFT = 0.1
"""Errors well above this share count linearly, so that one odd run does not bend a fit."""
PARTS = 5
INSIDE = 0.8
STEP = 0.01
"""Step for slopes, as a share of the way between a coefficient's ends. The equations have bends and bytes are whole:
with a shorter step slopes are random, and the fit would depend on the machine's last digits."""
SLACK = 1e-9
"""Of sums of weights, which are not exact."""
DIGITS = 4

Weighted: TypeAlias = Sequence[tuple[float, float]]
"""Values with weights: repeats of a launch under a load together weigh as much as one run."""


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


def solve(observations: Sequence[Observation], store: Store) -> dict[str, float]:
    """Return all coefficients, those of basis ``fitted`` at their best for these observations.

    Memory and speed share no coefficient, so each is fitted alone. Repeated runs of a launch under a load count once.
    The terms of experts come last, from mixtures only: with the loads' simulation, because all of those vary in length,
    and with the other coefficients as dense models gave them.
    """
    fitted = [name for name, coefficient in store.coefficients.items() if coefficient.basis == "fitted"]
    values = {name: coefficient.value for name, coefficient in store.coefficients.items()}
    once = merge_repeats(observations)
    starts, loads, mixtures = [], [], []
    for each in once:
        if not each.concurrency:
            starts.append(each)
        elif _is_mixture_load(each):
            mixtures.append(each)
        elif _is_fitted(each):
            loads.append(each)
    dense = set(speed.COEFFICIENTS) - set(speed.EXPERT_COEFFICIENTS)
    values |= _solve(starts, [name for name in fitted if name not in speed.COEFFICIENTS], store, values)
    values |= _solve(loads, [name for name in fitted if name in dense], store, values)
    return values | _solve(mixtures, speed.EXPERT_COEFFICIENTS, store, values)


def _is_fitted(observation: Observation) -> bool:
    """Return whether a fit can see it: the closed form knows only requests that are alike, the terms of experts all."""
    alike = not observation.concurrency or not needs_simulation(observation.resolved)
    return alike or _is_mixture_load(observation)


def _is_mixture_load(observation: Observation) -> bool:
    return bool(observation.concurrency and observation.resolved.model.text.mixture)


def _predict_load(observation: Observation, values: Mapping[str, float]) -> dict[str, float]:
    """Predict as printed figures are: by simulation where a load is simulated."""
    return (simulate if is_simulated(observation) else predict)(observation, values)


def _solve(
    observations: Sequence[Observation], free: Sequence[str], store: Store, fixed: Mapping[str, float]
) -> dict[str, float]:
    """Return the free coefficients at their best beside the ``fixed`` ones.

    Mixtures are predicted as printed figures are, all else by the closed form.
    """
    from scipy.optimize import least_squares

    ends = [(math.log(store.coefficients[name].low), math.log(store.coefficients[name].high)) for name in free]
    predicted_by = _predict_load if set(free) == set(speed.EXPERT_COEFFICIENTS) else predict

    def values(place: Iterable[float]) -> dict[str, float]:
        # 1 is the low end and 2 the high one: scipy's steps are shares of a place, of 0 they would be nothing.
        return {name: math.exp(a + (x - 1) * (b - a)) for name, x, (a, b) in zip(free, place, ends, strict=True)}

    def errors(place: NDArray[Any], /) -> list[float]:
        coefficients = {**fixed, **values(place)}
        logs = (pair for each in observations for pair in log_errors(each, coefficients, predicted_by))
        weighted = [WEIGHTS[name] * log for name, log in logs]
        return [*weighted, *(PULL * (x - MIDDLE) for x in place)]

    best = least_squares(
        errors,
        [MIDDLE] * len(free),
        bounds=(1, 2),
        loss="soft_l1",
        f_scale=SOFT,
        jac="3-point",
        diff_step=[STEP] * len(free),
    )
    return {name: _rounded(value) for name, value in values(float(x) for x in best.x).items()}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def held_out_errors(
    observations: Sequence[Observation], store: Store, say: Callable[[str], None]
) -> list[HeldOutError]:
    """Predict every observation by fits that did not see its model, and that did not see its configuration.

    Simulated loads are also predicted by fits that did not see their workload. The fits are independent and run in
    parallel, one a core.
    """
    folds = list(_folds(observations))
    # Lengths that vary are in no fit but that of experts: leaving them out changes nothing for dense models.
    unseen = [tuple(place for place in fold.left_out if _is_fitted(observations[place])) for fold in folds]
    errors: list[HeldOutError] = []
    with _workers(observations, store) as pool:
        fits = {left_out: pool.apply_async(_solve_without, (left_out,)) for left_out in dict.fromkeys(unseen)}
        for fold, left_out in zip(folds, unseen, strict=True):
            values = fits[left_out].get()
            say(f"fitted without {fold.name}")
            for place in fold.left_out:
                observation = observations[place]
                load = "" if not observation.concurrency else "-load" if observation.concurrency > 1 else "-alone"
                load = "-text" if is_simulated(observation) else load
                part = f"{fold.kind} {fold.name}"
                errors += [
                    HeldOutError(f"{name}{load}", observation, part, log)
                    for name, log in log_errors(observation, values, _predict_load)
                ]
    return errors


class Fold(NamedTuple):
    """What one fit does not see: places in the list of observations."""

    kind: str
    name: str
    left_out: tuple[int, ...]


def _folds(observations: Sequence[Observation]) -> Iterator[Fold]:
    launches = sorted({observation.launch for observation in observations})
    parts = {name: f"configurations {number % PARTS + 1}" for number, name in enumerate(launches)}
    for kind, names in (
        ("model", [observation.model for observation in observations]),
        ("configuration", [parts[observation.launch] for observation in observations]),
    ):
        for name in sorted(set(names)):
            yield Fold(kind, name, tuple(place for place, other in enumerate(names) if other == name))
    workloads = [each.workload or "equal lengths" if is_simulated(each) else "" for each in observations]
    for name in sorted({*workloads} - {""}):
        yield Fold("workload", name, tuple(place for place, other in enumerate(workloads) if other == name))


def _workers(observations: Sequence[Observation], store: Store) -> Pool:
    """Return processes that inherit the observations, which cannot be pickled."""
    return multiprocessing.get_context("fork").Pool(initializer=_inherit, initargs=(observations, store))


_inherited: list[tuple[Sequence[Observation], Store]] = []
"""Of a worker process; empty in any other."""


def _inherit(observations: Sequence[Observation], store: Store) -> None:
    _inherited[:] = [(observations, store)]


def _solve_without(left_out: tuple[int, ...]) -> dict[str, float]:
    ((observations, store),) = _inherited
    unseen = set(left_out)
    seen = [observation for place, observation in enumerate(observations) if place not in unseen]
    if not any(_is_mixture_load(observations[place]) for place in left_out):  # nothing asks for the terms of experts
        seen = [observation for observation in seen if not _is_mixture_load(observation)]
    return solve(seen, store)


def residuals(errors: Sequence[HeldOutError]) -> list[records.Residuals]:
    """Return a record of each figure's held-out errors."""
    return [
        _residuals(name, [error for error in errors if error.figure == name])
        for name in sorted({error.figure for error in errors})
    ]


def _residuals(name: str, errors: Sequence[HeldOutError]) -> records.Residuals:
    by_workload = [(abs(error.error), weight) for error, weight in _weights(errors) if error.kind == "workload"]
    # Ranges are of unseen models and configurations: those errors are of the same observations.
    errors = [error for error in errors if error.kind != "workload"]
    weights = _weights(errors)
    shares = _sums(weights)
    reach = _reach(_mixed(weights, shares))
    inside = 0.0
    for part in {error.part for error in errors}:
        rest = [pair for pair in weights if pair[0].part != part]
        limit = _reach(_mixed(rest, shares)) if rest else 0.0
        inside += sum(weight for error, weight in weights if error.part == part and abs(error.log) <= limit)

    def median(kind: str) -> float:
        return _median([(abs(error.error), weight) for error, weight in weights if error.kind == kind])

    observations = [error.observation for error in errors]
    return records.Residuals(
        id=name,
        low=_rounded(math.exp(-reach)),
        high=_rounded(math.exp(reach)),
        by_model=_rounded(median("model")),
        by_configuration=_rounded(median("configuration")),
        by_workload=_rounded(_median(by_workload)) if by_workload else None,
        worst=_rounded(max(abs(error.error) for error in errors)),
        covered=_rounded(inside / sum(weight for _, weight in weights)),
        predictions=len({prediction_key(each) for each in observations}),
        starts=len({each.run for each in observations}),
        models=tuple(sorted({each.model for each in observations})),
        gpus=tuple(sorted({each.gpu for each in observations})),
        cards=tuple(sorted({name_group(each.resolved.gpu, each.config.tp) for each in observations})),
    )


def _weights(errors: Sequence[HeldOutError]) -> list[tuple[HeldOutError, float]]:
    """Return each error with its weight: all errors of one launch under one load weigh 1 together."""
    keys = [(error.part, prediction_key(error.observation)) for error in errors]
    repeats = Counter(keys)
    return [(error, 1 / repeats[key]) for error, key in zip(errors, keys, strict=True)]


def _sums(errors: Iterable[tuple[HeldOutError, float]]) -> dict[str, float]:
    """Return the weight of unseen models, and of unseen configurations."""
    sums: dict[str, float] = defaultdict(float)
    for error, weight in errors:
        sums[error.kind] += weight
    return sums


def _mixed(errors: Sequence[tuple[HeldOutError, float]], shares: Mapping[str, float]) -> Weighted:
    """Return logs with weights in which unseen models and configurations have the shares that they have of all."""
    own = _sums(errors)
    scale = sum(own.values()) / sum(shares.values())
    return [(error.log, weight * scale * shares[error.kind] / own[error.kind]) for error, weight in errors]


def _reach(errors: Weighted) -> float:
    """Return the absolute log that a share ``INSIDE`` of the errors stays below: conformal, so a little further.

    Signs are dropped: where a fit to model A predicts B too high, a fit to B predicts A too low, so the sign of the
    known errors says nothing about an unseen model.
    """
    beyond = (1 - INSIDE) * (sum(weight for _, weight in errors) + 1)
    ordered = sorted(((abs(log), weight) for log, weight in errors), reverse=True)
    counted, last = 0.0, ordered[0][0]
    for size, weight in ordered:
        counted += weight
        if counted > beyond + SLACK:
            break
        last = size
    return last


def _median(values: Weighted) -> float:
    """Return the weighted median: of two middle values their mean."""
    half = sum(weight for _, weight in values) / 2
    ordered, counted = sorted(values), 0.0
    for place, (value, weight) in enumerate(ordered):
        counted += weight
        if abs(counted - half) <= SLACK and place + 1 < len(ordered):
            return (value + ordered[place + 1][0]) / 2
        if counted > half:
            return value
    return ordered[-1][0]


def changed_value(text: str, value: float) -> str:
    """Return a coefficient's file with another value and everything else unchanged."""
    return re.sub(r"^value: .*$", f"value: {value!r}", text, count=1, flags=re.MULTILINE)


def as_yaml(residual: records.Residuals) -> str:
    """Return the YAML file of a figure's residuals."""
    import yaml

    plain = json.loads(residual.model_dump_json())
    head = "# Written by recommend knowledge fit; not to be edited.\n"
    return head + yaml.safe_dump(plain, sort_keys=False, width=100, default_flow_style=False)
