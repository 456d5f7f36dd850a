"""What was predicted for a load, to stand beside what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recommender import speed

if TYPE_CHECKING:
    from recommender.facts import Facts
    from recommender.pipeline import Recommendation


def facts_of(found: Recommendation, concurrency: int, images: int, width: int, height: int, cpus: int = 0) -> Facts:
    """The facts of a recommendation under another load, on a host of so many cores."""
    request = replace(found.facts.request, cpus=cpus) if cpus else found.facts.request
    return replace(
        found.facts,
        request=request,
        concurrency=concurrency,
        images=images,
        image_width=width if images else 0,
        image_height=height if images else 0,
    )


def predicted(found: Recommendation, concurrency: int, images: int, width: int, height: int, cpus: int) -> speed.Speed:
    """The speed of the recommendation's configuration under a closed-loop load."""
    return speed.estimate(facts_of(found, concurrency, images, width, height, cpus), found.config)
