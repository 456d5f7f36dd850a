"""Find the published benchmarks nearest to a prediction: other people's figures, which no coefficient was fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.estimate import model_shape
from recommender.estimate.configuration import Configuration
from recommender.estimate.similar_runs import doublings
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.knowledge.published_loads import PublishedLoad, PublishedTable

SHOWN = 2
TOO_FAR = 2.0
"""Doublings of bandwidth and compute from which another GPU's figures say nothing about this one."""


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One published load."""

    table: str
    """Id of the published table."""
    gpu: str
    """Id of the GPU."""
    tp: int
    """GPUs that share the model."""
    model: str
    """Id of a model of the same shape."""
    weights: str
    """Precision of the weights."""
    concurrency: int
    """Concurrent requests."""
    input_tokens: int
    """Input tokens of a request."""
    output_tokens: int
    """Output tokens of a request."""
    output_tps: float
    """Output tokens/s of all requests; 0: not published."""
    ttft_ms: float
    """Time to first token in ms; 0: not published."""
    tpot_ms: float
    """Time per output token in ms; 0: not published."""
    version: str
    """LMDeploy's version as the page names it."""
    url: str
    """Address of the page."""


def find_published(resolved: ResolvedRequest, config: Configuration) -> tuple[PublishedFigure, ...]:
    """Return the nearest load of up to ``SHOWN`` tables: by GPU, then model size, then load. None for images."""
    if resolved.images:
        return ()
    near = []
    for table in resolved.store.published.values():
        gpu = _compare_gpus(resolved.store.gpus[table.gpu], resolved.gpu)
        if gpu < TOO_FAR and table.engine == config.backend:
            load = min(table.rows, key=lambda row: _compare_loads(row, resolved))
            near.append((gpu, _compare_models(table, resolved, config), _compare_loads(load, resolved), table.id, load))
    tables = resolved.store.published
    return tuple(_show(tables[name], load) for _, _, _, name, load in sorted(near, key=lambda each: each[:4])[:SHOWN])


def _show(table: PublishedTable, load: PublishedLoad) -> PublishedFigure:
    return PublishedFigure(
        table.id,
        table.gpu,
        table.tp,
        table.model,
        table.weights,
        load.concurrency,
        load.input_tokens,
        load.output_tokens,
        load.output_tps,
        load.ttft_ms,
        load.tpot_ms,
        table.version,
        table.url,
    )


def _compare_gpus(first: records.Gpu, second: records.Gpu) -> float:
    """Return how much bandwidth and 16-bit compute differ, in doublings."""
    if first.id == second.id:
        return 0.0
    rates = [max(rate.tera for rate in gpu.rates if "16" in rate.precision) for gpu in (first, second)]
    return doublings(first.bandwidth_gb_s, second.bandwidth_gb_s) + doublings(*rates)


def _compare_models(table: PublishedTable, resolved: ResolvedRequest, config: Configuration) -> float:
    """Return how much the weights on one GPU differ, in doublings."""
    bits = 4 if table.weights == "awq" else 16
    asked = resolved.model.quantization[0].bits if resolved.model.quantization else 16
    sizes = [model_shape.linear_parameters(model) for model in (resolved.store.models[table.model], resolved.model)]
    return doublings(sizes[0] * bits / table.tp, sizes[1] * asked / config.tp)


def _compare_loads(load: PublishedLoad, resolved: ResolvedRequest) -> float:
    """Return how much a load differs, in doublings; lengths that were not published do not count."""
    apart = doublings(load.concurrency, resolved.concurrency)
    for known, asked in ((load.input_tokens, resolved.input_tokens()), (load.output_tokens, resolved.output_tokens)):
        apart += doublings(known, asked) / 2 if known else 0.0
    return apart
