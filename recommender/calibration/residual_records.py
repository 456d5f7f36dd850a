"""Turn held-out errors into the records that give predictions their ranges."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from recommender.calibration.fit import rounded
from recommender.calibration.held_out import HeldOutError
from recommender.calibration.observations import prediction_key
from recommender.estimate.coverage import name_group
from recommender.knowledge import records

INSIDE = 0.8
SLACK = 1e-9
"""Tolerance for sums of weights, which floating point rounds."""
Weighted: TypeAlias = Sequence[tuple[float, float]]
"""Values with weights: repeats of a launch under a load together weigh as much as one run."""


def residuals(errors: Sequence[HeldOutError]) -> list[records.Residuals]:
    """Return a record of each figure's held-out errors."""
    return [
        _residuals(name, [error for error in errors if error.figure == name])
        for name in sorted({error.figure for error in errors})
    ]


def _residuals(name: str, errors: Sequence[HeldOutError]) -> records.Residuals:
    by_workload = [(abs(error.error), weight) for error, weight in _weights(errors) if error.kind == "workload"]
    # Ranges describe unseen models and configurations; errors by workload repeat the same observations.
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
        low=rounded(math.exp(-reach)),
        high=rounded(math.exp(reach)),
        by_model=rounded(median("model")),
        by_configuration=rounded(median("configuration")),
        by_workload=rounded(_median(by_workload)) if by_workload else None,
        worst=rounded(max(abs(error.error) for error in errors)),
        covered=rounded(inside / sum(weight for _, weight in weights)),
        predictions=len({prediction_key(observation) for observation in observations}),
        starts=len({observation.run for observation in observations}),
        models=tuple(sorted({observation.model for observation in observations})),
        engines=tuple(sorted({observation.resolved.engine for observation in observations})),
        gpus=tuple(sorted({observation.gpu for observation in observations})),
        cards=tuple(
            sorted({name_group(observation.resolved.gpu, observation.config.tp) for observation in observations})
        ),
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
    """Weight the logs so that unseen models and unseen configurations have the shares that they have of all errors."""
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
