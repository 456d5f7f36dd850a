"""Tell whether an engine keeps a prefix cache that a configuration asks for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.common.fast_replace import fast_replace
from recommender.knowledge.conditions import Condition, Value, parse

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge.store import Store
    from recommender.request.resolved_request import ResolvedRequest

OFF = ("config.prefix_caching == false",)
"""What a constraint requires that says where an engine drops the prefix cache."""


def is_dropped(resolved: ResolvedRequest) -> bool:
    """Return whether the engine drops the prefix cache for this model, or for prompts with images."""
    values: dict[str, Value] = {
        "config.backend": resolved.engine,
        "lmdeploy": resolved.version,
        "model.id": resolved.model.id,
        "model.architecture": resolved.model.architecture,
        "model.vision": bool(resolved.model.vision),
        "request.images": resolved.images,
    }
    return any(all(condition.holds(values) for condition in when) for when in _drops(resolved.store))


def as_run(resolved: ResolvedRequest, config: Configuration) -> Configuration:
    """Return a configuration as the engine runs it: without a prefix cache that it drops."""
    return fast_replace(config, prefix_caching=False) if config.prefix_caching and is_dropped(resolved) else config


@lru_cache(maxsize=8)
def _drops(store: Store) -> tuple[tuple[Condition, ...], ...]:
    """Return the conditions under which an engine drops the prefix cache, one group for each constraint."""
    return tuple(tuple(map(parse, record.when)) for record in store.constraints.values() if record.require == OFF)
