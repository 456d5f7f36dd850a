"""Render the pages of the GPUs and the models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.choose.reasons import has_source
from recommender.common.units import GIB
from recommender.estimate import model_shape
from recommender.estimate.coverage import list_measured_gpus
from recommender.knowledge.provenance import newest_about
from recommender.site import markup
from recommender.site.site_data import SiteData, SitePage, page

if TYPE_CHECKING:
    from recommender.knowledge import records


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return both indexes, and a page per GPU and model."""
    yield page("gpus/index.md", "GPUs", _gpus(data))
    yield from (page(f"gpus/{gpu.id}.md", markup.text(gpu.name), _gpu(data, gpu)) for gpu in data.store.gpus.values())
    yield page("models/index.md", "Models", _models(data))
    for model in data.store.models.values():
        yield page(f"models/{model.id}.md", markup.text(model.hub), _model(data, model))


def _gpus(data: SiteData) -> Iterator[str]:
    known = data.store.gpus.values()
    yield f"{len(known)} GPUs and slices of GPUs. Rates are dense peaks, without sparsity."
    rows = []
    for gpu in known:
        rate = next((rate.tera for rate in gpu.rates if rate.precision == "fp16"), 0.0)
        measured = "yes" if gpu.id in list_measured_gpus(data.store) else ""
        rows.append(
            (
                f"[{markup.text(gpu.name)}](/gpus/{gpu.id}.md){_doubt(gpu.sources)}",
                gpu.compute_capability,
                f"{gpu.memory_mib:,}",
                f"{gpu.bandwidth_gb_s:,.0f}",
                f"{rate:,.0f}",
                measured,
            )
        )
    yield from markup.table(("GPU", "Capability", "MiB", "GB/s", "fp16 TFLOP/s", "Measured"), rows)


def _doubt(sources: records.Sources) -> str:
    return "" if has_source(sources) else f" {markup.unverified()}"


def _gpu(data: SiteData, gpu: records.Gpu) -> Iterator[str]:
    status = "as nvidia-smi prints it" if gpu.memory_mib_status == "read" else "estimated"
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
    yield markup.heading(2, "Plan for it", "plan")
    yield f"    recommend --gpu {gpu.id} --load single > serve.sh"
    yield from _runs(data, [run.id for run in data.runs.values() if run.gpu == gpu.id])
    if gpu.id not in list_measured_gpus(data.store):
        yield "\nNot measured. Its predicted speeds are extrapolated from these figures, with wider ranges."
    yield markup.heading(2, "Sources", "sources")
    yield from markup.sources(data.store, gpu.sources)


def _runs(data: SiteData, names: list[str]) -> Iterator[str]:
    if names:
        yield markup.heading(2, "Measured", "measured")
        yield from (f"- [{name}](/runs.md#{name})" for name in names)


def _models(data: SiteData) -> Iterator[str]:
    known = data.store.models.values()
    yield (
        f"{len(known)} checkpoints. Sizes are computed from each shape; KV bytes are for one token in 16 bits on one "
        "GPU."
    )
    rows = []
    for model in known:
        kind = model.quantization[0].method if model.quantization else model.text.dtype
        rows.append(
            (
                f"{markup.model_link(model)}{_doubt(model.sources)}",
                kind,
                "images" if model.vision else "text",
                f"{model_shape.weight_bytes(model) / GIB:,.1f}",
                f"{model_shape.kv_bytes_per_token(model, 16):,}",
            )
        )
    yield from markup.table(("Model", "Weights", "Input", "GiB", "KV bytes per token"), rows)


def _model(data: SiteData, model: records.Model) -> Iterator[str]:
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
    yield markup.heading(2, "Shape", "shape")
    yield from _shape(model.text, "mixture", "window", "linear", "latent")
    for vision in model.vision:
        yield markup.heading(3, "Image encoder")
        yield from _shape(vision, "pixels", "window")
    yield markup.heading(2, "Served by", "support")
    for support in model.support:
        yield f"\n**{support.engine}**, {markup.span(support.since, support.until)}:\n"
        yield from markup.sources(data.store, support.sources, release=newest_about(data.store, support))
    for need in model.needs:
        option = f"{data.store.flags[need.option].option} {need.value}"
        yield f"\nNeeds {markup.code(option)}, {markup.span(need.since, need.until)}:\n"
        yield from markup.sources(data.store, need.sources, release=newest_about(data.store, need))
    yield markup.heading(2, "Plan for it", "plan")
    yield f"    recommend --gpu A100-80G --model {model.id} --load 16 > serve.sh"
    yield from _runs(data, [run.id for run in data.runs.values() if run.model == model.id])
    yield markup.heading(2, "Sources", "sources")
    yield from markup.sources(data.store, model.sources)


def _shape(part: object, *nested: str) -> Iterator[str]:
    """Return tables of a record part's fields: first its own, then those of nested parts."""
    fields = {name: value for name, value in vars(part).items() if name not in nested and value not in ("", ())}
    yield from markup.resolved((name.replace("_", " "), markup.text(_shown(value))) for name, value in fields.items())
    for name in nested:
        for inner in getattr(part, name):
            yield from _shape(inner)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
