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
CALIBRATED: Literal["calibrated by runs of your own"] = "calibrated by runs of your own"


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
    if (facts.request.host_scale, facts.request.card_scale) != (1.0, 1.0):
        return CALIBRATED
    if facts.gpu.id not in covered.gpus(facts.store):
        return "extrapolated from datasheets"
    if not covered.cards(facts.store, facts.gpu, config.tp):
        return "modelled from measurements of fewer cards a server"
    if covered.kind(facts.model) not in covered.kinds(facts.store):
        return "modelled from measurements of other kinds of models"
    return "modelled from measurements on the same GPU"


def rate_of(latency: Range, rps: float) -> Range:
    """Requests a second where each server has one at a time: what its time admits."""
    return Range(rps, rps * latency.value / latency.high, rps * latency.value / latency.low)


SPREADS: Mapping[Basis, str] = {
    "extrapolated from datasheets": "unmeasured-gpu-spread",
    "modelled from measurements of fewer cards a server": "unmeasured-gpu-spread",
    "modelled from measurements of other kinds of models": "unmeasured-kind-spread",
}


def widening(facts: Facts, config: Configuration, basis: Basis) -> float:
    """Factor of both ends where nothing alike was measured. Runs of one's own tell of the card, not of all else."""
    of = facts.store.coefficients
    if basis != CALIBRATED:
        return of[SPREADS[basis]].value if basis in SPREADS else 1.0
    wide = 1.0
    if config.tp > 1 and not covered.cards(facts.store, facts.gpu, config.tp):
        wide = of["unmeasured-gpu-spread"].value
    if covered.kind(facts.model) not in covered.kinds(facts.store):
        wide = max(wide, of["unmeasured-kind-spread"].value)
    return wide


def ranged_by(store: Store, name: str, value: float, widen: float) -> Range:
    """A figure with the range that its errors at unseen runs give it."""
    known = store.residuals.get(name)
    low, high = (known.low, known.high) if known else (1 / UNTESTED, UNTESTED)
    return Range(value, value * min(low, 1.0) / widen, value * max(high, 1.0) * widen)
