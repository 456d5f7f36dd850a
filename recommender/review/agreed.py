"""Whether a launch is what ``recommend`` itself gives for its request: then rules of degree have nothing to say."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recommender import constraints as c
from recommender.review import support as s
from recommender.review.case import ASSIGNED
from recommender.review.context import made_for
from recommender.review.rule import Case, Rule

if TYPE_CHECKING:
    from recommender.configuration import Configuration
    from recommender.request import Request
    from recommender.store import Store

OF_DEGREE = frozenset({"answers", "nothing", "costs"})
"""Families that weigh a value against a request. What does not start, is open or breaks down is always said."""
ESTIMATED = frozenset({"gpu", "model"})
"""What a rule needs that weighs an estimate of memory or speed."""


def agreed(rule: Rule, case: Case) -> bool:
    """Whether a rule weighs values that ``recommend`` chose, in an artefact of its own that nobody has edited.

    What speaks against them all the same stands in the report; ``recommend check`` tells when advice has changed.
    """
    if rule.family not in OF_DEGREE and not ESTIMATED.issubset(rule.needs):
        return False
    memo: dict[str, Any] = vars(case)  # as functools.cached_property does
    if "_agreed" not in memo:
        memo["_agreed"] = _as_recommended(case)
    return bool(memo["_agreed"])


def _as_recommended(case: Case) -> bool:
    request, store = made_for(case.script), case.facts.store
    wanted = recommended(request, store) if request is not None else None
    if wanted is None:
        return False
    written = {f"config.{each.setting}" for each in store.options() if each.id in case.settings}
    written -= {f"config.{each}" for each in ASSIGNED}  # in a container the addresses are others
    here, there = s.known(case), c.config_values(case.facts, wanted)
    return all(here[name] == there[name] for name in written & here.keys())


@lru_cache(maxsize=64)
def recommended(request: Request, store: Store) -> Configuration | None:
    """What ``recommend`` chooses for a request; None where it cannot."""
    from recommender.pipeline import NothingFits, recommend
    from recommender.request import RequestError
    from recommender.store import UnknownName

    try:
        return recommend(request, store).config
    except (NothingFits, RequestError, UnknownName):
        return None
    except _unusable_folder():  # asked for only once something was raised: what reads folders is slow to load
        return None


def _unusable_folder() -> type[Exception]:
    from recommender.checkpoint import CheckpointError

    return CheckpointError
