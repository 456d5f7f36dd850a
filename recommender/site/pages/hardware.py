"""Render the pages of the GPUs and the models."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlencode

from recommender.choose.reasons import has_source
from recommender.choose.recommend import resolve_with_checkpoint
from recommender.choose.relax import distinct_gpus
from recommender.choose.select import Choice, choose
from recommender.common.errors import UserError
from recommender.common.units import GIB, MIB
from recommender.estimate import model_shape
from recommender.estimate.coverage import list_measured_gpus
from recommender.knowledge import records
from recommender.knowledge.names import PART
from recommender.knowledge.provenance import newest_about
from recommender.request.request import Request
from recommender.site import markup
from recommender.site.controls import data_table
from recommender.site.pages.runs import COLUMNS, card, title
from recommender.site.site_data import SiteData, SitePage, page

if TYPE_CHECKING:
    from recommender.knowledge.store import Store

SHOWN = 5
"""Runs that a GPU's or a model's page names."""
KIB = 1024
USUAL = "h100-sxm-80g"
"""The GPU that a model's page opens the configurator with."""
NAMED = 3
"""Models beside a GPU, and GPUs beside a model."""
WEIGHTS_SHARE = 0.75
"""Most of a GPU's memory that weights take where a model runs, with few exceptions: larger ones are not tried."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return both indexes, and in English a page per GPU and model."""
    yield page("gpus/index.md", data.t("GPUs"), _gpus(data))
    yield page("models/index.md", data.t("Models"), _models(data))
    if data.english:
        yield from (
            page(f"gpus/{gpu.id}.md", markup.text(gpu.name), _gpu(data, gpu)) for gpu in data.store.gpus.values()
        )
        for model in data.store.models.values():
            yield page(f"models/{model.id}.md", markup.text(model.hub), _model(data, model))


def _gpus(data: SiteData) -> Iterator[str]:
    known, t = data.store.gpus.values(), data.t
    yield t(
        "{0} GPUs and slices of GPUs. Rates are dense peaks, without sparsity. Click a head to sort. "
        "Measured: predictions rest on runs on that GPU."
    ).format(len(data.store.gpus))
    measured = list_measured_gpus(data.store)
    rows = []
    for gpu in known:
        rate = next((rate.tera for rate in gpu.rates if rate.precision == "fp16"), 0.0)
        link = _link(data, f"gpus/{gpu.id}.md", gpu.name.removeprefix("NVIDIA "), gpu.sources)
        figures = (f"{gpu.memory_mib / 1024:,.1f}", f"{gpu.bandwidth_gb_s:,.0f}", f"{rate:,.0f}")
        kind = t("slice") if PART in gpu.id else t("whole")
        rows.append((link, kind, gpu.compute_capability, *figures, _yes(data, gpu.id in measured)))
    head = data.labels("GPU", "Kind", "Capability", "GiB", "GB/s", "fp16 TFLOP/s", "Measured")
    yield from data_table(data, "gpus", head, rows, (head[1], head[-1]), "{0} of {1} GPUs")


def _link(data: SiteData, address: str, name: str, sources: records.Sources) -> str:
    doubt = "" if has_source(sources) else f" {markup.unverified(data.say)}"
    return f'<a href="md:{address}">{html.escape(name)}</a>{doubt}'


def _yes(data: SiteData, holds: bool) -> str:
    return data.t("yes" if holds else "no")


def _gpu(data: SiteData, gpu: records.Gpu) -> Iterator[str]:
    runs = [run for run in data.runs.values() if run.gpu == gpu.id]
    basis = f"rest on {len(runs)} runs on it" if runs else "are extrapolated from its datasheet, with wider ranges"
    yield (
        f"{gpu.memory_mib / 1024:,.1f} GiB at {gpu.bandwidth_gb_s:,.0f} GB/s, compute capability "
        f"{gpu.compute_capability}. Predictions {basis}.\n"
    )
    status = "as nvidia-smi prints it" if gpu.memory_mib_status == "read" else "estimated"
    yield _configure({"gpu": gpu.id})
    yield from _fitting_models(data, gpu)
    yield from markup.resolved(
        (
            ("Id", markup.code(gpu.id)),
            ("Also called", ", ".join(markup.code(alias) for alias in gpu.aliases if alias not in gpu.ambiguous)),
            ("Ambiguous names", ", ".join(map(markup.code, gpu.ambiguous))),
            ("Memory", f"{gpu.memory_mib:,} MiB ({status}), sold as {gpu.memory_gb:g} GB"),
            ("NVLink", f"{gpu.nvlink_gb_s:,.6g} GB/s in both directions together" if gpu.nvlink_gb_s else "none"),
            ("Peak rates", ", ".join(map(_rate, gpu.rates))),
        )
    )
    name = card(data, runs[0]).partition(" x ")[2] or card(data, runs[0]) if runs else ""
    yield from _nearest_runs(data, runs, COLUMNS.index("GPU"), name)
    yield markup.heading(2, "Sources", "sources")
    yield from markup.sources(data.store, gpu.sources)


def _rate(rate: records.Rate) -> str:
    return f"{rate.precision} {rate.tera:,.6g} {'TOP/s' if rate.precision == 'int8' else 'TFLOP/s'}"


def _fitting_models(data: SiteData, gpu: records.Gpu) -> Iterator[str]:
    """Return links to the largest models that one GPU serves, each to its answer in the configurator."""
    room = WEIGHTS_SHARE * gpu.memory_mib * MIB
    sizes = ((model_shape.weight_bytes(model), model) for model in data.store.models.values())
    large = sorted((each for each in sizes if each[0] <= room), key=lambda each: -each[0])
    fitting = islice((each for each in large if _serves(gpu.id, each[1].id, data.store)), NAMED)
    links = [_question(model.id, gpu.id, f"{model.hub} ({size / GIB:,.1f} GiB)") for size, model in fitting]
    if links:
        yield f"\nLargest models on one, for one request at a time: {', '.join(links)}.\n"


def _fitting_gpus(data: SiteData, model: records.Model) -> Iterator[str]:
    """Return links to the smallest GPUs that serve a model."""
    least = model_shape.weight_bytes(model) / WEIGHTS_SHARE
    large = (gpu for gpu in distinct_gpus(data.store) if gpu.memory_mib * MIB >= least)
    fitting = islice((gpu for gpu in large if _serves(gpu.id, model.id, data.store)), NAMED)
    links = [_question(model.id, gpu.id, gpu.name.removeprefix("NVIDIA ")) for gpu in fitting]
    if links:
        yield f"\nSmallest GPUs that serve it, one request at a time: {', '.join(links)}.\n"


@cache
def _serves(gpu: str, model: str, store: Store) -> bool:
    """Return whether a configuration runs; its reasons, which take most of an answer's time, are not needed."""
    try:
        resolved = resolve_with_checkpoint(Request(gpu=gpu, model=model, concurrency=1), store)
    except UserError:
        return False
    return isinstance(choose(resolved), Choice)


def _question(model: str, gpu: str, label: str) -> str:
    return f'<a href="md:index.md?{html.escape(urlencode({"model": model, "gpu": gpu}))}">{html.escape(label)}</a>'


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
    known, t = data.store.models.values(), data.t
    yield t(
        "{0} checkpoints. Sizes are computed from each shape; KV cache is for one token in 16 bits on one GPU. "
        "Click a head to sort."
    ).format(len(known))
    ran = {run.model for run in data.runs.values()}
    rows = []
    for model in known:
        kind = model.quantization[0].method if model.quantization else model.text.dtype
        link = _link(data, f"models/{model.id}.md", model.hub, model.sources)
        sizes = (
            f"{model_shape.weight_bytes(model) / GIB:,.1f}",
            f"{model_shape.kv_bytes_per_token(model, 16) / KIB:,.1f}",
        )
        shape = t("experts" if model.text.mixture else "dense")
        rows.append(
            (link, kind, t("images" if model.vision else "text only"), shape, *sizes, _yes(data, model.id in ran))
        )
    head = data.labels("Model", "Weights", "Input", "Shape", "GiB", "KV cache, KiB per token", "Measured")
    yield from data_table(data, "models", head, rows, (head[1], head[2], head[-1]), "{0} of {1} models")


def _model(data: SiteData, model: records.Model) -> Iterator[str]:
    kind = model.quantization[0].method if model.quantization else model.text.dtype
    yield (
        f"{model_shape.weight_bytes(model) / GIB:,.1f} GiB of {kind} weights, "
        f"{'images and text' if model.vision else 'text'}, {model_shape.kv_bytes_per_token(model, 16) / KIB:,.1f} KiB "
        "of KV cache for each token in 16 bits.\n"
    )
    yield _configure({"model": model.id, "gpu": _large_enough(data, model)})
    yield from _fitting_gpus(data, model)
    yield from markup.resolved(
        (
            ("Id", markup.code(model.id)),
            ("Also called", ", ".join(map(markup.code, model.aliases))),
            ("Architecture", markup.code(model.architecture)),
            ("Runs code from its repository", "yes" if model.remote_code else "no"),
            ("Parameters", f"{model_shape.parameters(model) / 1e9:,.2f} billion"),
            ("Weights", f"{model_shape.weight_bytes(model) / GIB:,.2f} GiB, computed from the shape"),
            *(("Published size", f"{size.bytes / GIB:,.2f} GiB") for size in model.published),
            ("Tokens of the chat template", str(model.chat_tokens)),
        )
    )
    for quantization in model.quantization:
        yield (
            f"\nQuantised: {quantization.method}, {quantization.bits} bits in groups of {quantization.group}, "
            f"version {markup.code(quantization.version)}."
        )
    yield markup.heading(2, "KV cache", "kv")
    sizes = {bits: model_shape.kv_bytes_per_token(model, bits) for bits in (16, 8, 4)}
    rows = ((f"{bits}", f"{size / KIB:,.1f}", f"{GIB // size:,}") for bits, size in sizes.items())
    yield from markup.table(("Bits", "KiB per token on one GPU", "Tokens in a GiB"), rows)
    runs = [run for run in data.runs.values() if run.model == model.id]
    yield from _nearest_runs(data, runs, COLUMNS.index("Model"), model.id)
    yield from _served_by(data, model)
    yield from _shapes(model)
    yield markup.heading(2, "Sources", "sources")
    yield from markup.sources(data.store, model.sources)


def _large_enough(data: SiteData, model: records.Model) -> str:
    """Return the GPUs that the configurator is opened with: as few of the usual one as hold the weights."""
    one = WEIGHTS_SHARE * data.store.gpus[USUAL].memory_mib * MIB
    count = next((count for count in (1, 2, 4) if count * one >= model_shape.weight_bytes(model)), 8)
    return f"{USUAL}:{count}" if count > 1 else USUAL


def _shapes(model: records.Model) -> Iterator[str]:
    yield markup.heading(2, "Shape", "shape")
    yield from _shape(model.text, records.TextShape)
    for name, encoders, kind in (
        ("Image encoder", model.vision, records.VisionShape),
        ("Audio encoder", model.audio, records.AudioShape),
    ):
        for encoder in encoders:
            yield markup.heading(3, name)
            yield from _shape(encoder, kind)


def _served_by(data: SiteData, model: records.Model) -> Iterator[str]:
    yield markup.heading(2, "Served by", "support")
    for support in model.support:
        yield f"\n**{support.engine}**, {markup.span(support.since, support.until)}:\n"
        yield from markup.sources(data.store, support.sources, release=newest_about(data.store, support))
    for need in model.needs:
        option = f"{data.store.flags[need.option].option} {need.value}"
        yield f"\nNeeds {markup.code(option)}, {markup.span(need.since, need.until)}:\n"
        yield from markup.sources(data.store, need.sources, release=newest_about(data.store, need))


def _shape(part: object, kind: type[records.Record]) -> Iterator[str]:
    """Return tables of a record part's fields: first its own, then those of each part within, under its name.

    What is as in most models, by the field's default, is left out.
    """
    defaults = {name: field.default for name, field in kind.model_fields.items()}
    fields = {name: value for name, value in vars(part).items() if value not in ("", ()) and value != defaults[name]}
    within = {name: value for name, value in fields.items() if isinstance(value, tuple)}
    about = {name: _about(name, field.description) for name, field in kind.model_fields.items()}
    own = ((name, value) for name, value in fields.items() if name not in within)
    yield from markup.resolved((about[name], markup.text(_shown(value))) for name, value in own)
    for name, parts in within.items():
        (inner, _) = get_args(kind.model_fields[name].annotation)
        for each in parts:
            yield f"\n{about[name]}:\n"
            yield from _shape(each, inner)


def _about(name: str, description: str | None) -> str:
    """Return a field's label: what its description says first."""
    words = (description or name.replace("_", " ")).partition(";")[0]
    return words[0].upper() + words[1:]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
