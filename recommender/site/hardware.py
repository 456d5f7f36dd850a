"""Pages of the GPUs and the models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender import shapes
from recommender.covered import gpus
from recommender.explain import opened
from recommender.facts import GIB
from recommender.site import markup as m
from recommender.site.book import Book, Page, page

if TYPE_CHECKING:
    from recommender import records as r


def pages(book: Book) -> Iterator[Page]:
    """Both indexes, and a page a GPU and a model."""
    yield page("gpus/index.md", "GPUs", _gpus(book))
    yield from (page(f"gpus/{each.id}.md", m.text(each.name), _gpu(book, each)) for each in book.store.gpus.values())
    yield page("models/index.md", "Models", _models(book))
    for model in book.store.models.values():
        yield page(f"models/{model.id}.md", m.text(model.hub), _model(book, model))


def _gpus(book: Book) -> Iterator[str]:
    known = book.store.gpus.values()
    yield f"{len(known)} GPUs and slices of GPUs. Rates are dense peaks, without sparsity."
    rows = []
    for each in known:
        rate = next((rate.tera for rate in each.rates if rate.precision == "fp16"), 0.0)
        measured = "yes" if each.id in gpus(book.store) else ""
        rows.append(
            (
                f"[{m.text(each.name)}](/gpus/{each.id}.md){_doubt(each.sources)}",
                each.compute_capability,
                f"{each.memory_mib:,}",
                f"{each.bandwidth_gb_s:,.0f}",
                f"{rate:,.0f}",
                measured,
            )
        )
    yield from m.table(("GPU", "Capability", "MiB", "GB/s", "fp16 TFLOP/s", "Runs behind the estimates"), rows)


def _doubt(sources: r.Sources) -> str:
    return "" if opened(sources) else f" {m.unverified()}"


def _gpu(book: Book, gpu: r.Gpu) -> Iterator[str]:
    status = "as nvidia-smi prints it" if gpu.memory_mib_status == "read" else "estimated"
    yield from m.facts(
        (
            ("Id", m.code(gpu.id)),
            ("Also called", ", ".join(m.code(each) for each in gpu.aliases if each not in gpu.ambiguous)),
            ("Names that fit others too", ", ".join(map(m.code, gpu.ambiguous))),
            ("Compute capability", gpu.compute_capability),
            ("Memory", f"{gpu.memory_mib:,} MiB ({status}), sold as {gpu.memory_gb:g} GB"),
            ("Memory bandwidth", f"{gpu.bandwidth_gb_s:,.6g} GB/s"),
            ("NVLink", f"{gpu.nvlink_gb_s:,.6g} GB/s in both directions together" if gpu.nvlink_gb_s else "none"),
        )
    )
    rates = ((each.precision, f"{each.tera:,.6g}") for each in gpu.rates)
    yield from m.table(("Precision", "Peak, TFLOP/s (int8: TOP/s)"), rates)
    yield m.heading(2, "Plan for it", "plan")
    yield f"    recommend --gpu {gpu.id} --load single > serve.sh"
    yield from _runs(book, [each.id for each in book.runs.values() if each.gpu == gpu.id])
    if gpu.id not in gpus(book.store):
        yield "\nNo run was made on it: speeds predicted for it follow from these figures, and their ranges are wider."
    yield m.heading(2, "Sources", "sources")
    yield from m.sources(book.store, gpu.sources)


def _runs(book: Book, names: list[str]) -> Iterator[str]:
    if names:
        yield m.heading(2, "Measured", "measured")
        yield from (f"- [{name}](/evidence/{name}.md)" for name in names)


def _models(book: Book) -> Iterator[str]:
    known = book.store.models.values()
    yield (
        f"{len(known)} checkpoints. The bytes are computed from each shape; of the KV cache they are those of one "
        "token in 16 bits on one card."
    )
    rows = []
    for each in known:
        kind = each.quantization[0].method if each.quantization else each.text.dtype
        rows.append(
            (
                f"[{m.text(each.hub)}](/models/{each.id}.md){_doubt(each.sources)}",
                kind,
                "images" if each.vision else "text",
                f"{shapes.weight_bytes(each) / GIB:,.1f}",
                f"{shapes.kv_bytes_per_token(each, 16):,}",
            )
        )
    yield from m.table(("Model", "Weights", "Reads", "GiB", "KV bytes a token"), rows)


def _model(book: Book, model: r.Model) -> Iterator[str]:
    yield from m.facts(
        (
            ("Id", m.code(model.id)),
            ("Also called", ", ".join(map(m.code, model.aliases))),
            ("Architecture", m.code(model.architecture)),
            ("Runs code of its repository", "yes" if model.remote_code else "no"),
            ("Parameters", f"{shapes.parameters(model):,}"),
            ("Weights", f"{shapes.weight_bytes(model) / GIB:,.2f} GiB, computed from the shape"),
            *((("Published size", f"{each.bytes:,} bytes")) for each in model.published),
            ("Tokens of the chat template", str(model.chat_tokens)),
        )
    )
    for quantization in model.quantization:
        yield (
            f"\nQuantised: {quantization.method}, {quantization.bits} bits in groups of {quantization.group}, "
            f"version {m.code(quantization.version)}."
        )
    yield m.heading(2, "KV cache", "kv")
    rows = ((name, f"{shapes.kv_bytes_per_token(model, bits):,}") for name, bits in (("16", 16), ("8", 8), ("4", 4)))
    yield from m.table(("Bits", "Bytes a token on one card"), rows)
    yield m.heading(2, "Shape", "shape")
    yield from m.facts(_fields(model.text, ("mixture", "window")))
    for part in (*model.text.mixture, *model.text.window):
        yield from m.facts(_fields(part, ()))
    for vision in model.vision:
        yield m.heading(3, "Image encoder")
        yield from m.facts(_fields(vision, ("pixels", "window")))
        for piece in (*vision.pixels, *vision.window):
            yield from m.facts(_fields(piece, ()))
    yield m.heading(2, "Served by", "support")
    for each in model.support:
        yield f"\n**{each.engine}**, {m.span(each.since, each.until)}:\n"
        yield from m.sources(book.store, each.sources)
    yield m.heading(2, "Plan for it", "plan")
    yield f"    recommend --gpu A100-80G --model {model.id} --load 16 > serve.sh"
    yield from _runs(book, [each.id for each in book.runs.values() if each.model == model.id])
    yield m.heading(2, "Sources", "sources")
    yield from m.sources(book.store, model.sources)


def _fields(part: object, without: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The fields of a part of a record, by their names."""
    for name, value in vars(part).items():
        if name not in without and value not in ("", ()):
            yield name.replace("_", " "), m.text(_shown(value))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
