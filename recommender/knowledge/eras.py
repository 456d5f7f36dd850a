"""Find the era of a record that holds in a release."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.knowledge import conditions
from recommender.knowledge.store import Store

if TYPE_CHECKING:
    from recommender.knowledge import records


def within(since: str, until: str, version: Version) -> bool:
    """Return whether a version is in a half-open range; an empty ``until`` is open."""
    return conditions.version(since) <= version and (not until or version < conditions.version(until))


@lru_cache(maxsize=128)
def options_of(store: Store, version: Version) -> Mapping[str, records.Era]:
    """Return the era of every option that a release has, by flag id."""
    eras = ((flag.id, era) for flag in store.flags.values() for era in flag.eras)
    return MappingProxyType({name: era for name, era in eras if within(era.since, era.until, version)})


@lru_cache(maxsize=128)
def default_values(store: Store, version: Version) -> Mapping[str, str]:
    """Return a release's default of each option with a setting, as text by setting."""
    defaults = {store.flags[name].setting: era.default for name, era in options_of(store, version).items()}
    return MappingProxyType({setting: default for setting, default in defaults.items() if setting})
