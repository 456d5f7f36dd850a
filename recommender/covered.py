"""What runs were made of: GPUs, cards of a server, kinds of models. Predictions for anything else say so, are wider."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.store import Store

Kind: TypeAlias = tuple[bool, str, bool, bool]


def kind(model: r.Model) -> Kind:
    """What makes models behave alike: experts or none, quantisation, images or none, tiles or pixels."""
    method = model.quantization[0].method if model.quantization else ""
    return bool(model.text.mixture), method, bool(model.vision), any(each.pixels for each in model.vision)


@lru_cache(maxsize=8)
def gpus(store: Store) -> frozenset[str]:
    """The GPUs that the coefficients were fitted on."""
    return frozenset(gpu for each in store.residuals.values() for gpu in each.gpus)


@lru_cache(maxsize=8)
def kinds(store: Store) -> frozenset[Kind]:
    """The kinds of models that the coefficients were fitted on."""
    names = {name for each in store.residuals.values() for name in each.models}
    return frozenset(kind(store.models[name]) for name in names if name in store.models)


@lru_cache(maxsize=8)
def _cards(store: Store) -> frozenset[str]:
    """The cards that servers had."""
    return frozenset(cards for each in store.residuals.values() for cards in each.cards)


def group(gpu: r.Gpu, tp: int) -> str:
    """The cards of a server, as residuals name them."""
    return f"{gpu.id} x{tp}"


def cards(store: Store, gpu: r.Gpu, tp: int) -> bool:
    """Whether servers over so many of these cards were run; all such runs had NVLink."""
    return group(gpu, tp) in _cards(store) and (tp == 1 or bool(gpu.nvlink_gb_s))
