"""Resolve the names that people write to records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.common.errors import UnknownName
from recommender.common.text import did_you_mean, normal, shorten
from recommender.knowledge.store import NamedRecord, Store

if TYPE_CHECKING:
    from recommender.knowledge import records


PART = "-mig-"
"""Marks the id of a GPU's MIG slice."""


TUNED = {"instruct", "chat", "it", "hf"}
"""Words that people leave out of a model's name."""
MAKER = re.compile(r"^nvidia[\s-]+(?=\S)", re.IGNORECASE)
SHOWN = 5
NO_GPU = "only some NVIDIA GPUs are covered; see recommend list gpus"


def index_by_name(by_id: Mapping[str, NamedRecord], extra: Mapping[str, str]) -> dict[str, NamedRecord]:
    """Return records by every name they go by, as ``normal`` writes it; ``extra`` maps further names to ids."""
    by_name = {normal(alias): record for record in by_id.values() for alias in (record.id, *record.aliases)}
    return by_name | {normal(alias): by_id[name] for alias, name in extra.items()}


def resolve(kind: str, name: str, by_name: Mapping[str, NamedRecord], otherwise: str) -> NamedRecord:
    """Return the record of a name as people write it. Raises UnknownName with near matches, or ``otherwise``."""
    record = by_name.get(normal(name))
    if record is None:
        names = sorted({alias for item in by_name.values() for alias in (item.id, *item.aliases)})
        near = did_you_mean(name, names, otherwise, lambda alias: by_name[normal(alias)].id)
        raise UnknownName(f"{kind} {shorten(name)}{near}")
    return record


def resolve_release(store: Store, name: str, option: str = "") -> records.Release:
    """Return a covered release; a leading v is allowed. Raises UnknownName with near matches."""
    version = name.strip().removeprefix("v")
    if version not in store.releases:
        known = sorted(store.releases, key=Version, reverse=True)
        minor = ".".join(version.split(".")[:2]) if "." in version else version
        near = [release for release in known if release.startswith(f"{minor}.")]
        hint = f": did you mean {', '.join(near[:3])}?" if near else f": covered are {known[-1]} to {known[0]}"
        raise UnknownName(f"{option}{': ' if option else ''}unknown LMDeploy release {shorten(name)}{hint}")
    return store.releases[version]


@lru_cache(maxsize=8)
def _gpu_names(store: Store) -> dict[str, records.Gpu]:
    return index_by_name(store.gpus, {alias: gpu.id for gpu in store.gpus.values() for alias in gpu.nvml_names})


@lru_cache(maxsize=8)
def _model_names(store: Store) -> dict[str, records.Model]:
    shorts = {normal(model.hub.rpartition("/")[2]): model for model in store.models.values()}
    return shorts | index_by_name(store.models, {model.hub: model.id for model in store.models.values()})


@lru_cache(maxsize=64)
def resolve_gpu(store: Store, name: str, option: str = "--gpu") -> tuple[records.Gpu, tuple[str, ...]]:
    """Return a GPU by any of its names, with a note where the name fits other products too. ``option`` had the name."""
    names = _gpu_names(store)
    short = MAKER.sub("", name.strip())
    name = next((candidate for candidate in (name, short, f"{short}G") if normal(candidate) in names), name)  # A100 80
    gpu = resolve(f"{option}: unknown GPU", name, names, NO_GPU)
    ambiguous = next((alias for alias in gpu.ambiguous if normal(alias) == normal(name)), "")
    if not ambiguous:
        return gpu, ()
    others = other_variants(store, gpu, name)
    among = f"{', '.join(others[:SHOWN])}{' ...' if len(others) > SHOWN else ''}" or "a card that no record covers"
    return gpu, (f"{ambiguous} may also mean {among}; assuming {gpu.name}",)


def other_variants(store: Store, gpu: records.Gpu, name: str) -> list[str]:
    """Return the other GPUs that an ambiguous name may mean; none of a name that means one."""
    if normal(name) not in map(normal, gpu.ambiguous):
        return []
    words = [normal(word) for word in re.split(r"[\s-]+", name)]
    others = (other for other in store.gpus.values() if other is not gpu and PART not in other.id)
    return sorted(other.id for other in others if all(word in normal(other.name) for word in words))


def gpu_of_driver(store: Store, planned: str, driver_name: str) -> str:
    """Return the id of the GPU behind a driver's name; the planned one's if the name is unknown or fits it too."""
    try:
        named, notes = resolve_gpu(store, driver_name)
    except UnknownName:
        return planned
    return planned if notes or PART in planned or named.name == store.gpus[planned].name else named.id


def resolve_model(store: Store, name: str) -> records.Model:
    """Return a checkpoint by its id, hub name or alias, or the only one with these words beside TUNED.

    Raises UnknownName with near matches.
    """
    if normal(name) not in _model_names(store):
        plain = [model for model in models_with_words(store, name) if _words(model.id) - _words(name) <= TUNED]
        if len(plain) == 1:
            return plain[0]
    return resolve("--model: unknown model", name, _model_names(store), "see recommend list models")


def models_with_words(store: Store, name: str) -> list[records.Model]:
    """Return the models whose id has all words of a name, shortest first."""
    words = _words(name)
    found = (model for model in store.models.values() if words and words <= _words(model.id))
    return sorted(found, key=lambda model: (len(model.id), model.id))


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s-]+", name.strip().rpartition("/")[2].casefold())) - {""}
