"""Tell what the measured runs of each engine cover: GPUs, GPUs per server, kinds of models.

Predictions outside that coverage say so and have wider ranges.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.knowledge.store import Store
    from recommender.request.resolved_request import ResolvedRequest

TURBOMIND = "turbomind"
ModelKind: TypeAlias = tuple[bool, str, bool, bool]


def classify_model(model: records.Model) -> ModelKind:
    """Return what makes models behave alike.

    Mixture of experts or dense; quantisation method, or ``""``, with ``linear`` for layers with
    linear attention and ``latent`` for compressed keys and values; reads images; resizes images
    by pixels instead of cutting tiles.
    """
    method: str = model.quantization[0].method if model.quantization else ""
    attention = "linear" if model.text.linear else "latent" if model.text.latent else ""
    method = f"{method} {attention}".strip()
    return bool(model.text.mixture), method, bool(model.vision), any(vision.pixels for vision in model.vision)


def name_residual(engine: str, name: str) -> str:
    """Return the id of the record that holds the errors of an engine's figure."""
    return name if engine == TURBOMIND else f"{engine}-{name}"


def name_load(resolved: ResolvedRequest, loaded: bool) -> str:
    """Return the name of a load in records of errors. ``loaded``: see ``is_loaded``."""
    if resolved.images:
        return "load" if loaded else "alone"
    return "text" if loaded else "text-alone"


def is_loaded(resolved: ResolvedRequest, concurrency: int, servers: int) -> bool:
    """Return whether a server may have several requests at a time."""
    return concurrency > servers or bool(resolved.rps)


def _residuals(store: Store, engine: str) -> list[records.Residuals]:
    return [residual for residual in store.residuals.values() if engine in residual.engines]


@lru_cache(maxsize=8)
def list_measured_gpus(store: Store, engine: str = TURBOMIND) -> frozenset[str]:
    """Return the ids of the GPUs that the coefficients were fitted on."""
    return frozenset(gpu for residual in _residuals(store, engine) for gpu in residual.gpus)


@lru_cache(maxsize=8)
def list_measured_kinds(store: Store, engine: str = TURBOMIND) -> frozenset[ModelKind]:
    """Return the kinds of models that the coefficients were fitted on."""
    names = {name for residual in _residuals(store, engine) for name in residual.models}
    return frozenset(classify_model(store.models[name]) for name in names if name in store.models)


ENOUGH = 2
"""Measured models that make the speed of a kind predictable; predictions of an unseen one were up to 1.6 times off."""


def is_speed_measured(store: Store, model: records.Model, engine: str = TURBOMIND) -> bool:
    """Return whether the coefficients were fitted to enough models with these weights, and with such a vision model."""
    weights, encoders = _count_measured(store, engine)
    mixture, method, vision, pixels = classify_model(model)
    return weights[mixture, method] >= ENOUGH and (not vision or encoders[pixels] >= ENOUGH)


@lru_cache(maxsize=8)
def _count_measured(store: Store, engine: str) -> tuple[Counter[tuple[bool, str]], Counter[bool]]:
    """Return how many measured models have each kind of weights, and how many with images each kind of vision model."""
    found = _residuals(store, engine)
    names = {name for residual in found for name in residual.models if name in store.models}
    shown = {name for residual in found if residual.id.endswith("-load") for name in residual.models}
    weights = Counter(classify_model(store.models[name])[:2] for name in sorted(names))
    seen = (store.models[name] for name in sorted(names & shown) if store.models[name].vision)
    encoders = Counter(classify_model(model)[3] for model in seen)
    return weights, encoders


@lru_cache(maxsize=8)
def _measured_groups(store: Store, engine: str) -> frozenset[str]:
    """Return the measured GPU groups, as ``name_group`` writes them."""
    return frozenset(group for residual in _residuals(store, engine) for group in residual.cards)


def name_group(gpu: records.Gpu, tp: int) -> str:
    """Return the GPUs of one server as residuals name them: ``h200-sxm x2``."""
    return f"{gpu.id} x{tp}"


def is_group_measured(store: Store, gpu: records.Gpu, tp: int, engine: str = TURBOMIND) -> bool:
    """Return whether servers on ``tp`` of these GPUs were measured.

    All such runs over several GPUs had NVLink, so it is required for ``tp`` > 1.
    """
    return name_group(gpu, tp) in _measured_groups(store, engine) and (tp == 1 or bool(gpu.nvlink_gb_s))
