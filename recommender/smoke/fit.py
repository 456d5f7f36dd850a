"""Fits the coefficients to the evidence, and judges the fit by runs that it had not seen.

Nothing here knows how a figure is predicted: a fit moves the coefficients whose
basis is ``fitted`` between their ends, and compares what ``speed`` and
``memory`` then say with what was measured. It starts from the middle of each
coefficient's ends, so that the result depends on nothing but the evidence.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from recommender import records as r
from recommender import speed
from recommender.smoke.observations import Observation, logs
from recommender.store import Store

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

    from numpy.typing import NDArray

WEIGHTS = {"latency": 1.0, "rps": 1.0, "ttft": 0.3, "token": 0.3, "p99": 0.3, "memory": 1.0}
"""How much an error of each figure counts in a fit."""
PULL = 0.05
"""Pull towards the middle of a coefficient's ends: decides only what no run tells."""
SOFT = 0.1
"""Errors well beyond this share count linearly: one odd run does not bend a fit."""
PARTS = 5
INSIDE = 0.8
DIGITS = 4


@dataclass(frozen=True)
class Miss:
    """One held-out prediction: the figure, its observation, and the log of measured over predicted."""

    figure: str
    of: Observation
    part: str
    log: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return math.exp(-self.log) - 1


def solve(among: Sequence[Observation], store: Store) -> dict[str, float]:
    """All coefficients, those that are fitted at their best for these observations.

    Memory and speed share no coefficient, so each is fitted by itself.
    """
    fitted = [name for name, each in store.coefficients.items() if each.basis == "fitted"]
    found = {name: each.value for name, each in store.coefficients.items()}
    for loads in (False, True):
        free = [name for name in fitted if (name in speed.COEFFICIENTS) == loads]
        found |= _solved([each for each in among if bool(each.flight) == loads], free, store)
    return found


def _solved(among: Sequence[Observation], free: Sequence[str], store: Store) -> dict[str, float]:
    """The free coefficients at their best."""
    from scipy.optimize import least_squares

    low = [math.log(store.coefficients[name].low) for name in free]
    high = [math.log(store.coefficients[name].high) for name in free]
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    kept = {name: each.value for name, each in store.coefficients.items()}

    def values(at: Iterable[float]) -> dict[str, float]:
        return {name: math.exp(each) for name, each in zip(free, at, strict=True)}

    def errors(at: NDArray[Any], /) -> list[float]:
        tried = kept | values(at)
        made = [WEIGHTS[name] * log for of in among for name, log in logs(of, tried)]
        pulls = (PULL * (x - mid) / (b - a) for x, mid, a, b in zip(at, middle, low, high, strict=True))
        return [*made, *pulls]

    best = least_squares(errors, middle, bounds=(low, high), loss="soft_l1", f_scale=SOFT)
    return {name: _rounded(value) for name, value in values(float(each) for each in best.x).items()}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def misses(every: Sequence[Observation], store: Store, say: Callable[[str], None]) -> list[Miss]:
    """Every observation predicted by fits that had not seen its model, and not its configuration.

    The fits know nothing of each other and run beside each other, one a core.
    """
    folds = list(_folds(every))
    found: list[Miss] = []
    with _workers(every, store) as pool:
        for fold, values in zip(folds, pool.imap(_without, [each.left_out for each in folds]), strict=True):
            say(f"fitted without {fold.name}")
            for place in fold.left_out:
                of = every[place]
                load = "" if not of.flight else "-load" if of.flight > 1 else "-alone"
                part = f"{fold.kind} {fold.name}"
                found += [Miss(f"{name}{load}", of, part, log) for name, log in logs(of, values)]
    return found


class Fold(NamedTuple):
    """What one fit does not see: places in the list of observations."""

    kind: str
    name: str
    left_out: tuple[int, ...]


def _folds(every: Sequence[Observation]) -> Iterator[Fold]:
    launches = sorted({each.launch for each in every})
    part = {name: f"configurations {number % PARTS + 1}" for number, name in enumerate(launches)}
    kinds: tuple[tuple[str, Callable[[Observation], str]], ...] = (
        ("model", lambda each: each.model),
        ("configuration", lambda each: part[each.launch]),
    )
    for kind, of_fold in kinds:
        for name in sorted({of_fold(each) for each in every}):
            yield Fold(kind, name, tuple(place for place, each in enumerate(every) if of_fold(each) == name))


def _workers(every: Sequence[Observation], store: Store) -> Pool:
    """Processes that inherit the observations."""
    return multiprocessing.get_context("fork").Pool(initializer=_hold, initargs=(every, store))


_held: list[tuple[Sequence[Observation], Store]] = []


def _hold(every: Sequence[Observation], store: Store) -> None:
    _held[:] = [(every, store)]


def _without(left_out: tuple[int, ...]) -> dict[str, float]:
    ((every, store),) = _held
    unseen = set(left_out)
    return solve([each for place, each in enumerate(every) if place not in unseen], store)


def residuals(found: Sequence[Miss]) -> list[r.Residuals]:
    """What the held-out errors of each figure amount to."""
    return [_residuals(name, [each for each in found if each.figure == name]) for name in _names(found)]


def _names(found: Iterable[Miss]) -> list[str]:
    return sorted({each.figure for each in found})


def _residuals(name: str, found: Sequence[Miss]) -> r.Residuals:
    low, high = _ends([each.log for each in found])
    inside = 0
    for part in {each.part for each in found}:
        rest = [each.log for each in found if each.part != part] or [0.0]
        least, most = _ends(rest)
        inside += sum(least <= each.log <= most for each in found if each.part == part)

    def median(kind: str) -> float:
        return statistics.median(abs(each.error) for each in found if each.part.startswith(kind))

    return r.Residuals(
        id=name,
        low=_rounded(math.exp(low)),
        high=_rounded(math.exp(high)),
        by_model=_rounded(median("model")),
        by_configuration=_rounded(median("configuration")),
        worst=_rounded(max(abs(each.error) for each in found)),
        covered=_rounded(inside / len(found)),
        predictions=len({each.of.what for each in found}),
        starts=len({each.of.run for each in found}),
        models=tuple(sorted({each.of.model for each in found})),
        gpus=tuple(sorted({each.of.gpu for each in found})),
        tp=tuple(sorted({each.of.config.tp for each in found})),
    )


def _ends(errors: Sequence[float]) -> tuple[float, float]:
    """The ends between which ``INSIDE`` of the errors lie, as many beyond each: conformal, so a little outside."""
    ordered, beyond = sorted(errors), (1 - INSIDE) / 2
    place = math.floor(beyond * (len(ordered) + 1)) - 1
    place = min(max(place, 0), len(ordered) - 1)
    return ordered[place], ordered[len(ordered) - 1 - place]


def changed_value(text: str, value: float) -> str:
    """A coefficient's file with another value; nothing else of it is touched."""
    return re.sub(r"^value: .*$", f"value: {value!r}", text, count=1, flags=re.MULTILINE)


def as_yaml(residual: r.Residuals) -> str:
    """The file of a figure's residuals."""
    import yaml

    plain = json.loads(residual.model_dump_json())
    head = "# Written by recommend knowledge fit; not to be edited.\n"
    return head + yaml.safe_dump(plain, sort_keys=False, width=100, default_flow_style=False)
