"""Render the pages of the GPUs and the models."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from recommender.choose.reasons import has_source
from recommender.common.units import GIB
from recommender.estimate import model_shape
from recommender.estimate.coverage import list_measured_gpus
from recommender.knowledge.names import PART
from recommender.knowledge.provenance import newest_about
from recommender.site import markup
from recommender.site.controls import data_table
from recommender.site.pages.runs import COLUMNS, card, title
from recommender.site.site_data import SiteData, SitePage, page

if TYPE_CHECKING:
    from recommender.knowledge import records

SHOWN = 5
"""Runs that a GPU's or a model's page names."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return both indexes, and a page per GPU and model."""
    yield page("gpus/index.md", "GPUs", _gpus(data))
    yield from (page(f"gpus/{gpu.id}.md", markup.text(gpu.name), _gpu(data, gpu)) for gpu in data.store.gpus.values())
    yield page("models/index.md", "Models", _models(data))
    for model in data.store.models.values():
        yield page(f"models/{model.id}.md", markup.text(model.hub), _model(data, model))


def _gpus(data: SiteData) -> Iterator[str]:
    known = data.store.gpus.values()
    yield (
        f"{len(known)} GPUs and slices of GPUs. Rates are dense peaks, without sparsity. Click a head to sort. "
        "Measured: predictions rest on runs on that GPU."
    )
    measured = list_measured_gpus(data.store)
    rows = []
    for gpu in known:
        rate = next((rate.tera for rate in gpu.rates if rate.precision == "fp16"), 0.0)
        link = f'<a href="md:gpus/{gpu.id}.md">{html.escape(gpu.name.removeprefix("NVIDIA "))}</a>{_doubt(gpu.sources)}'
        figures = (f"{gpu.memory_mib / 1024:,.1f}", f"{gpu.bandwidth_gb_s:,.0f}", f"{rate:,.0f}")
        kind = "slice" if PART in gpu.id else "whole"
        rows.append((link, kind, gpu.compute_capability, *figures, "yes" if gpu.id in measured else "no"))
    head = ("GPU", "Kind", "Capability", "GiB", "GB/s", "fp16 TFLOP/s", "Measured")
    yield from data_table("gpus", head, rows, ("Kind", "Measured"), "{0} of {1} GPUs")


def _doubt(sources: records.Sources) -> str:
    return "" if has_source(sources) else f" {markup.unverified()}"


def _gpu(data: SiteData, gpu: records.Gpu) -> Iterator[str]:
    runs = [run for run in data.runs.values() if run.gpu == gpu.id]
    basis = f"rest on {len(runs)} runs on it" if runs else "are extrapolated from its datasheet"
    yield (
        f"{markup.text(gpu.name)}: {gpu.memory_mib / 1024:,.1f} GiB at {gpu.bandwidth_gb_s:,.0f} GB/s, compute "
        f"capability {gpu.compute_capability}. Predictions {basis}.\n"
    )
    status = "as nvidia-smi prints it" if gpu.memory_mib_status == "read" else "estimated"
    yield _configure({"gpu": gpu.id})
    yield from markup.resolved(
        (
            ("Id", markup.code(gpu.id)),
            ("Also called", ", ".join(markup.code(alias) for alias in gpu.aliases if alias not in gpu.ambiguous)),
            ("Ambiguous names", ", ".join(map(markup.code, gpu.ambiguous))),
            ("Compute capability", gpu.compute_capability),
            ("Memory", f"{gpu.memory_mib:,} MiB ({status}), sold as {gpu.memory_gb:g} GB"),
            ("Memory bandwidth", f"{gpu.bandwidth_gb_s:,.6g} GB/s"),
            ("NVLink", f"{gpu.nvlink_gb_s:,.6g} GB/s in both directions together" if gpu.nvlink_gb_s else "none"),
        )
    )
    rates = ((rate.precision, f"{rate.tera:,.6g}") for rate in gpu.rates)
    yield from markup.table(("Precision", "Peak, TFLOP/s (int8: TOP/s)"), rates)
    name = card(data, runs[0]).partition(" x ")[2] or card(data, runs[0]) if runs else ""
    yield from _nearest_runs(data, runs, COLUMNS.index("GPU"), name)
    if gpu.id not in list_measured_gpus(data.store):
        yield "\nNot measured. Its predicted speeds are extrapolated from these figures, with wider ranges."
    yield markup.heading(2, "Sources", "sources")
    yield from markup.sources(data.store, gpu.sources)


def _nearest_runs(data: SiteData, runs: list[records.SmokeRun], column: int, name: str) -> Iterator[str]:
    """Return the latest runs of a GPU or a model, and the table of all of them."""
    if not runs:
        return
    yield markup.heading(2, "Measured", "measured")
    latest = sorted(runs, key=lambda run: run.taken, reverse=True)[:SHOWN]
    yield from (f"- [{markup.text(title(data, run))}](/runs.md#{run.id})" for run in latest)
    if len(runs) > len(latest):
        address = f"md:runs.md#{urlencode({f'by-{column}': name})}"
        yield f'\n<a href="{html.escape(address)}">All {len(runs)} runs</a>\n'


def _configure(question: Mapping[str, str]) -> str:
    """Return a link that opens the configurator with a question."""
    return f'<a class="md-button" href="md:index.md?{urlencode(question)}">Configure it</a>\n'


def _models(data: SiteData) -> Iterator[str]:
    known = data.store.models.values()
    yield (
        f"{len(known)} checkpoints. Sizes are computed from each shape; KV bytes are for one token in 16 bits on one "
        "GPU. Click a head to sort."
    )
    ran = {run.model for run in data.runs.values()}
    rows = []
    for model in known:
        kind = model.quantization[0].method if model.quantization else model.text.dtype
        link = f'<a href="md:models/{model.id}.md">{html.escape(model.hub)}</a>{_doubt(model.sources)}'
        sizes = f"{model_shape.weight_bytes(model) / GIB:,.1f}", f"{model_shape.kv_bytes_per_token(model, 16):,}"
        shape = "experts" if model.text.mixture else "dense"
        measured = "yes" if model.id in ran else "no"
        rows.append((link, kind, "images" if model.vision else "text", shape, *sizes, measured))
    head = ("Model", "Weights", "Input", "Shape", "GiB", "KV bytes per token", "Measured")
    yield from data_table("models", head, rows, ("Weights", "Input", "Measured"), "{0} of {1} models")


def _model(data: SiteData, model: records.Model) -> Iterator[str]:
    kind = model.quantization[0].method if model.quantization else model.text.dtype
    yield (
        f"{markup.text(model.hub)}: {model_shape.weight_bytes(model) / GIB:,.1f} GiB of {kind} weights, "
        f"{'images and text' if model.vision else 'text'}, {model_shape.kv_bytes_per_token(model, 16):,} bytes of KV "
        "cache for each token in 16 bits.\n"
    )
    yield _configure({"model": model.id, "gpu": "a100-sxm-80g"})
    yield from markup.resolved(
        (
            ("Id", markup.code(model.id)),
            ("Also called", ", ".join(map(markup.code, model.aliases))),
            ("Architecture", markup.code(model.architecture)),
            ("Runs code from its repository", "yes" if model.remote_code else "no"),
            ("Parameters", f"{model_shape.parameters(model):,}"),
            ("Weights", f"{model_shape.weight_bytes(model) / GIB:,.2f} GiB, computed from the shape"),
            *(("Published size", f"{size.bytes:,} bytes") for size in model.published),
            ("Tokens of the chat template", str(model.chat_tokens)),
        )
    )
    for quantization in model.quantization:
        yield (
            f"\nQuantised: {quantization.method}, {quantization.bits} bits in groups of {quantization.group}, "
            f"version {markup.code(quantization.version)}."
        )
    yield markup.heading(2, "KV cache", "kv")
    rows = ((f"{bits}", f"{model_shape.kv_bytes_per_token(model, bits):,}") for bits in (16, 8, 4))
    yield from markup.table(("Bits", "Bytes per token on one GPU"), rows)
    yield from _shapes(model)
    yield from _served_by(data, model)
    runs = [run for run in data.runs.values() if run.model == model.id]
    yield from _nearest_runs(data, runs, COLUMNS.index("Model"), model.id)
    yield markup.heading(2, "Sources", "sources")
    yield from markup.sources(data.store, model.sources)


def _shapes(model: records.Model) -> Iterator[str]:
    yield markup.heading(2, "Shape", "shape")
    yield from _shape(model.text)
    for name, encoders in (("Image encoder", model.vision), ("Audio encoder", model.audio)):
        for encoder in encoders:
            yield markup.heading(3, name)
            yield from _shape(encoder)


def _served_by(data: SiteData, model: records.Model) -> Iterator[str]:
    yield markup.heading(2, "Served by", "support")
    for support in model.support:
        yield f"\n**{support.engine}**, {markup.span(support.since, support.until)}:\n"
        yield from markup.sources(data.store, support.sources, release=newest_about(data.store, support))
    for need in model.needs:
        option = f"{data.store.flags[need.option].option} {need.value}"
        yield f"\nNeeds {markup.code(option)}, {markup.span(need.since, need.until)}:\n"
        yield from markup.sources(data.store, need.sources, release=newest_about(data.store, need))


def _shape(part: object) -> Iterator[str]:
    """Return tables of a record part's fields: first its own, then those of each part within, under its name."""
    fields = {name: value for name, value in vars(part).items() if value not in ("", ())}
    within = {name: value for name, value in fields.items() if isinstance(value, tuple)}
    own = ((name, value) for name, value in fields.items() if name not in within)
    yield from markup.resolved((name.replace("_", " "), markup.text(_shown(value))) for name, value in own)
    for name, parts in within.items():
        for each in parts:
            yield f"\n{name.capitalize()}:\n"
            yield from _shape(each)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
