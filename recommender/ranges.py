"""The ranges of predictions of speed: what they rest on, and how wide they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from recommender import covered
from recommender.configuration import Configuration
from recommender.facts import Facts

if TYPE_CHECKING:
    from recommender.store import Store

Basis: TypeAlias = Literal[
    "modelled from measurements on the same GPU",
    "modelled from measurements of other kinds of models",
    "modelled from measurements of fewer cards a server",
    "calibrated by runs of your own",
    "extrapolated from datasheets",
]

UNTESTED = 2.0
"""Factor of both ends of a figure that no run tested."""


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted figure: middle and ends."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Range:
        """The same range in another unit."""
        return Range(self.value * factor, self.low * factor, self.high * factor)


def basis_of(facts: Facts, config: Configuration) -> Basis:
    """What a prediction rests on."""
    if _calibrated(facts):
        return "calibrated by runs of your own"
    return _unlike(facts, config) or "modelled from measurements on the same GPU"


def _calibrated(facts: Facts) -> bool:
    asked = facts.request
    return bool(asked.calibrated_by) or (asked.host_scale, asked.card_scale) != (1.0, 1.0)


def _unlike(facts: Facts, config: Configuration) -> Basis | None:
    """What sets a prediction apart from all that ran. Runs of one's own tell of a card, and of nothing else."""
    own = _calibrated(facts)
    if not own and facts.gpu.id not in covered.gpus(facts.store):
        return "extrapolated from datasheets"
    if not covered.cards(facts.store, facts.gpu, config.tp) and not (own and config.tp == 1):
        return "modelled from measurements of fewer cards a server"
    if covered.kind(facts.model) not in covered.kinds(facts.store):
        return "modelled from measurements of other kinds of models"
    return None


def rate_of(latency: Range, rps: float) -> Range:
    """Requests a second where each server has one at a time: what its time admits."""
    return Range(rps, rps * latency.value / latency.high, rps * latency.value / latency.low)


SPREADS: Mapping[Basis, str] = {
    "extrapolated from datasheets": "unmeasured-gpu-spread",
    "modelled from measurements of fewer cards a server": "unmeasured-gpu-spread",
    "modelled from measurements of other kinds of models": "unmeasured-kind-spread",
}


def widening(facts: Facts, config: Configuration) -> float:
    """Factor of both ends where nothing alike was measured."""
    unlike = _unlike(facts, config)
    return facts.store.coefficients[SPREADS[unlike]].value if unlike else 1.0


def ranged_by(store: Store, name: str, value: float, widen: float) -> Range:
    """A figure with the range that its errors at unseen runs give it."""
    known = store.residuals.get(name)
    low, high = (known.low, known.high) if known else (1 / UNTESTED, UNTESTED)
    return Range(value, value * min(low, 1.0) / widen, value * max(high, 1.0) * widen)
