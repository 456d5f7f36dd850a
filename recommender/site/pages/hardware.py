"""Render the pages of the GPUs and the models."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlencode

from recommender.choose.reasons import has_source
from recommender.choose.relax import distinct_gpus
from recommender.choose.select import Choice, choose
from recommender.common.errors import UserError
from recommender.common.units import GIB, MIB
from recommender.estimate import model_shape
from recommender.estimate.coverage import list_measured_gpus
from recommender.knowledge import records
from recommender.knowledge.conditions import Values, parse, version
from recommender.knowledge.names import PART
from recommender.knowledge.provenance import newest_about
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_with_checkpoint
from recommender.site import markup
from recommender.site.answer_texts import by_sentence
from recommender.site.controls import data_table
from recommender.site.i18n.translation import PLACE
from recommender.site.pages import nearest_runs
from recommender.site.site_data import SiteData, SitePage, page

if TYPE_CHECKING:
    from recommender.knowledge.store import Store

KIB = 1024
USUAL = "h100-sxm-80g"
"""The GPU that a model's page opens the configurator with."""
NAMED = 3
"""Models beside a GPU, and GPUs beside a model."""
WEIGHTS_SHARE = 0.75
"""Most of a GPU's memory that weights take where a model runs, with few exceptions: larger ones are not tried."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return both indexes, and a page per GPU and model."""
    yield page("gpus/index.md", data.t("GPUs"), _gpus(data))
    yield page("models/index.md", data.t("Models"), _models(data))
    for gpu in data.store.gpus.values():
        yield page(f"gpus/{gpu.id}.md", markup.text(f"NVIDIA {data.gpu(gpu)}"), _gpu(data, gpu))
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
        link = _link(data, f"gpus/{gpu.id}.md", data.gpu(gpu), gpu.sources)
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
    t, runs = data.t, [run for run in data.runs.values() if run.gpu == gpu.id]
    figures = (f"{gpu.memory_mib / 1024:,.1f}", f"{gpu.bandwidth_gb_s:,.0f}", gpu.compute_capability)
    about = t("{0} GiB at {1} GB/s, compute capability {2}.").format(*figures)
    if runs:
        yield f"{about} {t('Predictions rest on {0} runs on it.').format(len(runs))}\n"
    else:
        yield f"{about} {t('Predictions are extrapolated from its datasheet, with wider ranges.')}\n"
    status = t("as nvidia-smi prints it" if gpu.memory_mib_status == "read" else "estimated")
    memory = t("{0} MiB ({1}), sold as {2} GB").format(f"{gpu.memory_mib:,}", status, f"{gpu.memory_gb:g}")
    nvlink = t("{0} GB/s in both directions together").format(f"{gpu.nvlink_gb_s:,.6g}")
    yield _configure(data, {"gpu": gpu.id})
    yield from _fitting_models(data, gpu)
    yield from _facts(
        data,
        ("Id", markup.code(gpu.id)),
        ("Also called", ", ".join(markup.code(alias) for alias in gpu.aliases if alias not in gpu.ambiguous)),
        ("Ambiguous names", ", ".join(map(markup.code, gpu.ambiguous))),
        ("Memory", memory),
        ("NVLink", nvlink if gpu.nvlink_gb_s else t("none")),
        ("Peak rates", ", ".join(map(_rate, gpu.rates))),
    )
    yield from nearest_runs.runs_on(data, gpu)
    yield from _sources(data, gpu.sources)


def _facts(data: SiteData, *facts: tuple[str, str]) -> Iterator[str]:
    yield from markup.resolved((data.t(name), value) for name, value in facts)


def _sources(data: SiteData, sources: records.Sources) -> Iterator[str]:
    yield markup.heading(2, data.t("Sources"), "sources")
    if not data.english:
        yield data.t("Quotes from web pages are in English.") + "\n"
    yield from markup.sources(data.store, sources, data.say)


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
        yield f"\n{data.t('Largest models on one, for one request at a time:')} {', '.join(links)}.\n"


def _fitting_gpus(data: SiteData, model: records.Model) -> Iterator[str]:
    """Return links to the smallest GPUs that serve a model."""
    least = model_shape.weight_bytes(model) / WEIGHTS_SHARE
    large = (gpu for gpu in distinct_gpus(data.store) if gpu.memory_mib * MIB >= least)
    fitting = islice((gpu for gpu in large if _serves(gpu.id, model.id, data.store)), NAMED)
    links = [_question(model.id, gpu.id, data.gpu(gpu)) for gpu in fitting]
    if links:
        yield f"\n{data.t('Smallest GPUs that serve it, one request at a time:')} {', '.join(links)}.\n"


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


def _configure(data: SiteData, question: Mapping[str, str]) -> str:
    """Return a link that opens the configurator with a question."""
    return f'<a class="md-button" href="md:index.md?{urlencode(question)}">{data.t("Configure it")}</a>\n'


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
    t, kind = data.t, model.quantization[0].method if model.quantization else model.text.dtype
    weights = model_shape.weight_bytes(model) / GIB
    reads = t("images and text" if model.vision else "text only")
    token = f"{model_shape.kv_bytes_per_token(model, 16) / KIB:,.1f}"
    yield t("{0} GiB of {1} weights, {2}, {3} KiB of KV cache for each token in 16 bits.").format(
        f"{weights:,.1f}", kind, reads, token
    )
    yield ""
    yield _configure(data, {"model": model.id, "gpu": _large_enough(data, model)})
    yield from _fitting_gpus(data, model)
    yield from _facts(
        data,
        ("Id", markup.code(model.id)),
        ("Also called", ", ".join(map(markup.code, model.aliases))),
        ("Architecture", markup.code(model.architecture)),
        ("Runs code from its repository", _yes(data, model.remote_code)),
        ("Parameters", t("{0} billion").format(f"{model_shape.parameters(model) / 1e9:,.2f}")),
        ("Weights", t("{0} GiB, computed from the shape").format(f"{weights:,.2f}")),
        *(("Published size", f"{size.bytes / GIB:,.2f} GiB") for size in model.published),
        ("Tokens of the chat template", str(model.chat_tokens)),
    )
    for quantization in model.quantization:
        facts = (quantization.method, quantization.bits, quantization.group, markup.code(quantization.version))
        yield f"\n{t('Quantised: {0}, {1} bits in groups of {2}, version {3}.').format(*facts)}"
    yield from _limits(data, model)
    yield markup.heading(2, "KV cache", "kv")
    sizes = {bits: model_shape.kv_bytes_per_token(model, bits) for bits in (16, 8, 4)}
    rows = ((f"{bits}", f"{size / KIB:,.1f}", f"{GIB // size:,}") for bits, size in sizes.items())
    yield from markup.table(data.labels("Bits", "KiB per token on one GPU", "Tokens in a GiB"), rows)
    yield from nearest_runs.runs_of(data, model)
    yield from _served_by(data, model)
    yield from _shapes(data, model)
    yield from _sources(data, model.sources)


def _limits(data: SiteData, model: records.Model) -> Iterator[str]:
    """Return what constraints on the architecture say in the newest release, where the model alone decides."""
    known: Values = {"lmdeploy": version(data.newest.id), "model.architecture": model.architecture}
    names = {"{model.hub}": model.hub, "{lmdeploy}": data.newest.id}
    limits = []
    for constraint in data.store.constraints.values():
        tests = [test for test in map(parse, constraint.when) if known.keys() >= {*test.names}]
        about = any("model.architecture" in test.names for test in tests)
        words = by_sentence(data, f"{constraint.message} {constraint.remedy}")
        if about and all(test.holds(known) for test in tests) and names.keys() >= {*PLACE.findall(words)}:
            for name, value in names.items():
                words = words.replace(name, value)
            limits.append(f"- {markup.prose(data.store, words)} [{constraint.id}](/constraints.md#{constraint.id})")
    if limits:
        yield markup.heading(2, data.t("Limits"), "limits")
        yield from limits


def _large_enough(data: SiteData, model: records.Model) -> str:
    """Return the GPUs that the configurator is opened with: as few of the usual one as hold the weights."""
    one = WEIGHTS_SHARE * data.store.gpus[USUAL].memory_mib * MIB
    count = next((count for count in (1, 2, 4) if count * one >= model_shape.weight_bytes(model)), 8)
    return f"{USUAL}:{count}" if count > 1 else USUAL


def _shapes(data: SiteData, model: records.Model) -> Iterator[str]:
    yield markup.heading(2, data.t("Shape"), "shape")
    yield from _shape(data, model.text, records.TextShape)
    for name, encoders, kind in (
        ("Image encoder", model.vision, records.VisionShape),
        ("Audio encoder", model.audio, records.AudioShape),
    ):
        for encoder in encoders:
            yield markup.heading(3, data.t(name))
            yield from _shape(data, encoder, kind)


def _served_by(data: SiteData, model: records.Model) -> Iterator[str]:
    store, say = data.store, data.say
    yield markup.heading(2, data.t("Served by"), "support")
    for support in model.support:
        yield f"\n**{support.engine}**, {markup.span(support.since, support.until, say)}:\n"
        yield from markup.sources(store, support.sources, say, newest_about(store, support))
    for need in model.needs:
        option = markup.code(f"{store.flags[need.option].option} {need.value}")
        since = markup.span(need.since, need.until, say)
        yield f"\n{data.t('Needs {0}, {1}:').format(option, since)}\n"
        yield from markup.sources(store, need.sources, say, newest_about(store, need))


def _shape(data: SiteData, part: object, kind: type[records.Record]) -> Iterator[str]:
    """Return tables of a record part's fields: first its own, then those of each part within, under its name.

    What is as in most models, by the field's default, is left out.
    """
    defaults = {name: field.default for name, field in kind.model_fields.items()}
    fields = {name: value for name, value in vars(part).items() if value not in ("", ()) and value != defaults[name]}
    within = {name: value for name, value in fields.items() if isinstance(value, tuple)}
    about = {name: data.t(_about(name, kind.model_fields[name].description)) for name in fields}
    own = ((name, value) for name, value in fields.items() if name not in within)
    yield from markup.resolved((about[name], markup.text(_shown(data, value))) for name, value in own)
    for name, parts in within.items():
        (inner, _) = get_args(kind.model_fields[name].annotation)
        for inner_part in parts:
            yield f"\n{about[name]}:\n"
            yield from _shape(data, inner_part, inner)


def _about(name: str, description: str | None) -> str:
    """Return a field's label: what its description says first."""
    words = (description or name.replace("_", " ")).partition(";")[0]
    return words[0].upper() + words[1:]


def _shown(data: SiteData, value: object) -> str:
    if isinstance(value, bool):
        return _yes(data, value)
    return f"{value:,}" if isinstance(value, int) else str(value)
