"""Recommend, explain and check LMDeploy serving configurations.

>>> import recommender
>>> request = recommender.Request(gpu="A100-80G", load="single")
>>> recommendation = recommender.recommend(request)
>>> recommendation.config.max_batch_size
1
>>> script = recommender.render(recommendation, "bash")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Three functions share their name with a folder. A folder is set as an attribute here when it is first imported:
# imported now, it cannot replace the function later. ``from recommender.review import …`` goes on working.
import recommender.estimate
import recommender.render
import recommender.review  # noqa: F401
from recommender.api import compare, estimate, explain, follow, plan, recommend, render, report, review
from recommender.common.version import __version__

if TYPE_CHECKING:
    from recommender.choose.recommend import NothingFits, Recommendation
    from recommender.common.errors import CheckpointError, KnowledgeError, RequestError, UnknownName, UserError
    from recommender.fleet.sizing import FleetPlan
    from recommender.lookup.comparison import Comparison
    from recommender.lookup.option import OptionInfo
    from recommender.request.request import Request
    from recommender.review.engine import Review

_TYPES = {
    "CheckpointError": "common.errors",
    "Comparison": "lookup.comparison",
    "FleetPlan": "fleet.sizing",
    "KnowledgeError": "common.errors",
    "NothingFits": "choose.recommend",
    "OptionInfo": "lookup.option",
    "Recommendation": "choose.recommend",
    "Request": "request.request",
    "RequestError": "common.errors",
    "Review": "review.engine",
    "UnknownName": "common.errors",
    "UserError": "common.errors",
}

__all__ = [
    "CheckpointError",
    "Comparison",
    "FleetPlan",
    "KnowledgeError",
    "NothingFits",
    "OptionInfo",
    "Recommendation",
    "Request",
    "RequestError",
    "Review",
    "UnknownName",
    "UserError",
    "__version__",
    "compare",
    "estimate",
    "explain",
    "follow",
    "plan",
    "recommend",
    "render",
    "report",
    "review",
]


def __getattr__(name: str) -> Any:
    """Import a type on first use: the module itself loads in milliseconds."""
    if name not in _TYPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_TYPES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
