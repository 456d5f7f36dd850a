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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from recommender import records as r
from recommender import speed
from recommender.covered import group
from recommender.smoke.observations import Observation, alike, logs, merged
from recommender.store import Store

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

    from numpy.typing import NDArray

WEIGHTS = {"latency": 1.0, "rps": 1.0, "ttft": 0.3, "token": 0.3, "p99": 0.3, "memory": 1.0}
"""How much an error of each figure counts in a fit."""
MIDDLE = 1.5
"""Between a coefficient's ends, 1 and 2, on a logarithmic scale."""
PULL = 0.05
"""Pull towards the middle of a coefficient's ends: decides only what no run tells."""
SOFT = 0.1
"""Errors well beyond this share count linearly: one odd run does not bend a fit."""
PARTS = 5
INSIDE = 0.8
STEP = 0.01
"""Of the way between a coefficient's ends, for slopes. The equations have bends, and bytes are whole: slopes over
shorter ways come out by chance, and the fit ends where the machine's last digits lead it."""
SLACK = 1e-9
"""Of sums of weights, which are not exact."""
DIGITS = 4

Weighted: TypeAlias = Sequence[tuple[float, float]]
"""Values and how much each counts: repeats of a launch under a load count as much as one run together."""


@dataclass(frozen=True)
class Miss:
    """One held-out prediction: the figure, its observation, and the log of measured over predicted."""

    figure: str
    of: Observation
    part: str
    log: float

    @property
    def kind(self) -> str:
        """Whether its model or its configuration was left out."""
        return self.part.split()[0]

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return math.exp(-self.log) - 1


def solve(among: Sequence[Observation], store: Store) -> dict[str, float]:
    """All coefficients, those that are fitted at their best for these observations.

    Memory and speed share no coefficient, so each is fitted by itself. However often a launch was run under a load,
    it counts once.
    """
    fitted = [name for name, each in store.coefficients.items() if each.basis == "fitted"]
    found = {name: each.value for name, each in store.coefficients.items()}
    once = merged(among)
    for loads in (False, True):
        free = [name for name in fitted if (name in speed.COEFFICIENTS) == loads]
        found |= _solved([each for each in once if bool(each.flight) == loads], free, store)
    return found


def _solved(among: Sequence[Observation], free: Sequence[str], store: Store) -> dict[str, float]:
    """The free coefficients at their best."""
    from scipy.optimize import least_squares

    ends = [(math.log(store.coefficients[name].low), math.log(store.coefficients[name].high)) for name in free]
    kept = {name: each.value for name, each in store.coefficients.items()}

    def values(at: Iterable[float]) -> dict[str, float]:
        # 1 is the low end and 2 the high one: scipy's steps are shares of a place, of 0 they would be nothing.
        return {name: math.exp(a + (x - 1) * (b - a)) for name, x, (a, b) in zip(free, at, ends, strict=True)}

    def errors(at: NDArray[Any], /) -> list[float]:
        tried = kept | values(at)
        made = [WEIGHTS[name] * log for of in among for name, log in logs(of, tried)]
        return [*made, *(PULL * (x - MIDDLE) for x in at)]

    best = least_squares(
        errors,
        [MIDDLE] * len(free),
        bounds=(1, 2),
        loss="soft_l1",
        f_scale=SOFT,
        jac="3-point",
        diff_step=[STEP] * len(free),
    )
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
    weights = _weights(found)
    of_all = _sums(weights)
    reach = _reach(_mixed(weights, of_all))
    inside = 0.0
    for part in {each.part for each in found}:
        rest = [pair for pair in weights if pair[0].part != part]
        most = _reach(_mixed(rest, of_all)) if rest else 0.0
        inside += sum(weight for each, weight in weights if each.part == part and abs(each.log) <= most)

    def median(kind: str) -> float:
        return _median([(abs(each.error), weight) for each, weight in weights if each.kind == kind])

    return r.Residuals(
        id=name,
        low=_rounded(math.exp(-reach)),
        high=_rounded(math.exp(reach)),
        by_model=_rounded(median("model")),
        by_configuration=_rounded(median("configuration")),
        worst=_rounded(max(abs(each.error) for each in found)),
        covered=_rounded(inside / sum(weight for _, weight in weights)),
        predictions=len({alike(each.of) for each in found}),
        starts=len({each.of.run for each in found}),
        models=tuple(sorted({each.of.model for each in found})),
        gpus=tuple(sorted({each.of.gpu for each in found})),
        cards=tuple(sorted({group(each.of.facts.gpu, each.of.config.tp) for each in found})),
    )


def _weights(found: Sequence[Miss]) -> list[tuple[Miss, float]]:
    """Each miss with its weight: those of one launch under one load have together what one has."""
    often = Counter((each.part, alike(each.of)) for each in found)
    return [(each, 1 / often[each.part, alike(each.of)]) for each in found]


def _sums(among: Iterable[tuple[Miss, float]]) -> dict[str, float]:
    """The weight of unseen models, and of unseen configurations."""
    counted: dict[str, float] = defaultdict(float)
    for each, weight in among:
        counted[each.kind] += weight
    return counted


def _mixed(among: Sequence[tuple[Miss, float]], of_all: Mapping[str, float]) -> Weighted:
    """Logs with weights by which unseen models and configurations have the parts that they have of all."""
    here = _sums(among)
    scale = sum(here.values()) / sum(of_all.values())
    return [(each.log, weight * scale * of_all[each.kind] / here[each.kind]) for each, weight in among]


def _reach(errors: Weighted) -> float:
    """How far ``INSIDE`` of the errors reach, whatever their sign: conformal, so a little further.

    Without their signs: what a fit to one model says of another is off as far as what one to the other says of it, and
    the other way, so the side that the models seen erred on says nothing of an unseen one's.
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
    """The middle value; of two middle ones their mean."""
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
    """A coefficient's file with another value; nothing else of it is touched."""
    return re.sub(r"^value: .*$", f"value: {value!r}", text, count=1, flags=re.MULTILINE)


def as_yaml(residual: r.Residuals) -> str:
    """The file of a figure's residuals."""
    import yaml

    plain = json.loads(residual.model_dump_json())
    head = "# Written by recommend knowledge fit; not to be edited.\n"
    return head + yaml.safe_dump(plain, sort_keys=False, width=100, default_flow_style=False)
