"""Skip rules of degree for unedited files that ``recommend`` generated."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.choose import constraints
from recommender.common.errors import UserError
from recommender.review.context import ANSWERS, artefact_request
from recommender.review.launch_settings import ASSIGNED
from recommender.review.rule import Case, Rule

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge.store import Store
    from recommender.request.request import Request

OF_DEGREE = frozenset({"answers", "nothing", "costs"})
"""Families that compare a value with a request; other families are always reported."""
OF_LOAD = (
    "load",
    "rps",
    "image",
    "prompt_tokens",
    "output_tokens",
    "prefix_tokens",
    "turns",
    "max_context",
    "workload",
)
"""The questions whose answers make the load."""
ESTIMATED = frozenset({"gpu", "model"})
"""Needs of a rule that judges an estimate of memory or speed."""


def weighs_recommended(rule: Rule, case: Case) -> bool:
    """Return whether a rule judges values that ``recommend`` itself chose.

    The report lists what speaks against them; ``recommend check`` shows when advice has changed.
    """
    return (rule.family in OF_DEGREE or ESTIMATED.issubset(rule.needs)) and _as_recommended(case)


def _as_recommended(case: Case) -> bool:
    request, store = artefact_request(case.script), case.resolved.store
    if request is None or _asks_otherwise(case.resolved.request, request):
        return False
    wanted = recommended(request, store)
    if wanted is None:
        return False
    written = {f"config.{option.setting}" for option in store.options() if option.id in case.settings}
    written -= {f"config.{name}" for name in ASSIGNED}  # addresses differ in a container
    chosen = constraints.config_values(case.resolved, wanted)
    return all(case.known[name] == chosen[name] for name in written & case.known.keys())


def _asks_otherwise(request: Request, header: Request) -> bool:
    """Return whether the review is for another load than the file was made for."""
    names = (name for answer in OF_LOAD for name in ANSWERS[answer])
    return any(getattr(request, name) != getattr(header, name) for name in names)


@lru_cache(maxsize=64)
def recommended(request: Request, store: Store) -> Configuration | None:
    """Return what ``recommend`` chooses for a request; None if it cannot."""
    from recommender.choose.recommend import NothingFits, recommend

    try:
        return recommend(request, store).config
    except (NothingFits, UserError):
        return None
