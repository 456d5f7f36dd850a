"""Render what a GPU's or a model's page says of runs: its own, or those of the nearest that were measured."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from recommender.estimate import model_shape
from recommender.estimate.coverage import classify_model
from recommender.estimate.similar_runs import doublings
from recommender.knowledge.names import PART
from recommender.site import markup
from recommender.site.pages.runs import COLUMNS, title
from recommender.site.site_data import SiteData

if TYPE_CHECKING:
    from recommender.knowledge import records

SHOWN = 5
"""Runs that a page names."""
NEAREST = 3
"""How many measured models a page names if its own has no run."""
# How much these differences count, in doublings of the parameters.
OTHER_SHAPE, OTHER_INPUT, OTHER_ARCHITECTURE, OTHER_WEIGHTS = 4.0, 2.0, 3.0, 1.0


def runs_on(data: SiteData, gpu: records.Gpu) -> Iterator[str]:
    """Return the runs on a GPU; without any, the measured GPUs, nearest first, and how near they are."""
    counts = Counter(run.gpu for run in data.runs.values()) + Counter(probe.gpu for probe in data.probes.values())
    if gpu.id in counts:
        runs = [run for run in data.runs.values() if run.gpu == gpu.id]
        yield from _own(data, runs, _rows_on(gpu), counts[gpu.id])
        return
    yield from _heading(data, "No run on this GPU. The nearest that were measured:")
    for other in sorted((data.store.gpus[name] for name in counts), key=lambda other: _gpus_apart(gpu, other)):
        same = gpu.compute_capability == other.compute_capability
        near = (
            *([data.t("this is a slice of it")] if _whole(gpu) == other.id else []),
            data.t("same generation" if same else "another generation"),
            data.t("{0} GB (this: {1})").format(f"{other.memory_gb:g}", f"{gpu.memory_gb:g}"),
            data.t("{0} GB/s (this: {1})").format(f"{other.bandwidth_gb_s:,.0f}", f"{gpu.bandwidth_gb_s:,.0f}"),
        )
        link = f"[{markup.text(_name(other))}](/gpus/{other.id}.md)"
        yield f"- {link}: {_filtered(_rows_on(other), _count(data, counts[other.id]))}; {', '.join(near)}"


def runs_of(data: SiteData, model: records.Model) -> Iterator[str]:
    """Return the runs of a model; without any, the nearest measured models, and how near they are."""
    counts = Counter(run.model for run in data.runs.values())
    if model.id in counts:
        runs = [run for run in data.runs.values() if run.model == model.id]
        yield from _own(data, runs, _rows_of(model), counts[model.id])
        return
    yield from _heading(data, "No run of this model. The nearest that were measured:")
    measured = sorted((data.store.models[name] for name in counts), key=lambda other: _models_apart(model, other))
    for other in measured[:NEAREST]:
        same = model.architecture == other.architecture
        weights = "same weights ({0})" if _kind(model) == _kind(other) else "other weights ({0})"
        near = (
            data.t("same architecture" if same else "another architecture"),
            data.t(weights).format(_kind(other)),
            data.t("{0} billion parameters (this: {1})").format(_billions(other), _billions(model)),
        )
        link = markup.model_link(other)
        yield f"- {link}: {_filtered(_rows_of(other), _count(data, counts[other.id]))}; {', '.join(near)}"


def _own(data: SiteData, runs: list[records.SmokeRun], rows: Mapping[str, str], count: int) -> Iterator[str]:
    """Return the latest run of each pair of a GPU and a model, and a link to all of them."""
    newest = {(run.gpu, run.model): run for run in sorted(runs, key=lambda run: run.taken)}
    latest = sorted(newest.values(), key=lambda run: run.taken, reverse=True)[:SHOWN]
    yield markup.heading(2, data.t("Measured"), "measured")
    yield from (f"- [{run.model}: {markup.text(title(data, run))}](/runs.md#{run.id})" for run in latest)
    if count > len(latest):
        yield f"\n{_filtered(rows, data.t('All {0} runs').format(count))}\n"


def _heading(data: SiteData, words: str) -> Iterator[str]:
    yield markup.heading(2, data.t("Measured"), "measured")
    yield f"{data.t(words)}\n"


def _count(data: SiteData, count: int) -> str:
    return data.t("1 run" if count == 1 else "{0} runs").format(count)


def _filtered(rows: Mapping[str, str], label: str) -> str:
    """Return a link to some rows of the table of runs."""
    return f'<a href="{html.escape(f"md:runs.md#{urlencode(rows)}")}">{label}</a>'


def _rows_on(gpu: records.Gpu) -> dict[str, str]:
    """Return what finds a GPU's rows: those with several of them have their count before the name."""
    return {"q": _name(gpu)}


def _rows_of(model: records.Model) -> dict[str, str]:
    return {f"by-{COLUMNS.index('Model')}": model.id}


def _name(gpu: records.Gpu) -> str:
    return gpu.name.removeprefix("NVIDIA ")


def _billions(model: records.Model) -> str:
    return f"{model_shape.parameters(model) / 1e9:,.1f}"


def _whole(gpu: records.Gpu) -> str:
    return gpu.id.partition(PART)[0]


def _kind(model: records.Model) -> str:
    return model.quantization[0].method if model.quantization else model.text.dtype


def _gpus_apart(gpu: records.Gpu, other: records.Gpu) -> tuple[bool, bool, float]:
    return (
        _whole(gpu) != other.id,
        gpu.compute_capability != other.compute_capability,
        doublings(gpu.bandwidth_gb_s, other.bandwidth_gb_s) + doublings(gpu.memory_mib, other.memory_mib),
    )


def _models_apart(model: records.Model, other: records.Model) -> float:
    """Return how much two models differ, in doublings of the parameters."""
    (mixture, method, vision, _), (others, other_method, sees, _) = classify_model(model), classify_model(other)
    apart = (
        OTHER_SHAPE * (mixture != others) + OTHER_INPUT * (vision != sees) + OTHER_WEIGHTS * (method != other_method)
    )
    apart += OTHER_ARCHITECTURE * (model.architecture != other.architecture)
    return apart + doublings(model_shape.parameters(model), model_shape.parameters(other))
