"""Why nothing fits a request, as JSON, and its JSON Schema."""

from dataclasses import dataclass

from recommender.choose.constraints import ConstraintFinding
from recommender.choose.recommend import NothingFits
from recommender.choose.request_change import RequestChange
from recommender.common.terminal import json_text

FORMAT = 1


@dataclass(frozen=True)
class NoFit:
    """The JSON form of a refusal."""

    format: int
    nothing_fits: ConstraintFinding
    """The limit that the nearest configuration breaks."""
    also: tuple[ConstraintFinding, ...]
    """Other limits that it breaks."""
    change: RequestChange | None
    """The smallest change that fits; null: no single one does."""
    others: tuple[RequestChange, ...]
    """Other changes that fit."""
    considered: int
    """Configurations that were considered."""
    rejected: dict[str, int]
    """By constraint: how many configurations it rejected."""
    notes: tuple[str, ...]
    """What was assumed, as sentences."""


def to_json(error: NothingFits) -> str:
    """Return a refusal as JSON text in ASCII."""
    nothing = error.nothing
    return json_text(
        NoFit(
            format=FORMAT,
            nothing_fits=nothing.binding,
            also=nothing.others,
            change=error.change,
            others=error.others,
            considered=nothing.considered,
            rejected=dict(nothing.rejected),
            notes=error.resolved.notes,
        )
    )
