"""Write the report on stderr: plain text of 80 columns, which a terminal shows in colour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.choose.candidates import fewer_tiles
from recommender.choose.reasons import Explanation, has_source
from recommender.common.terminal import wrap
from recommender.common.text import count, printable
from recommender.common.units import MIB
from recommender.estimate import memory, speed
from recommender.estimate.uncertainty import Basis
from recommender.knowledge.provenance import weights
from recommender.render.summary import (
    against_defaults,
    cite,
    gib,
    rate,
    rate_digits,
    replayed_misses,
    summary,
    with_16_bits,
)

if TYPE_CHECKING:
    from recommender.choose.recommend import NothingFits, Recommendation
    from recommender.estimate.scheduler.simulation import LoadFigures


WIDE: Mapping[Basis, str] = {
    "calibrated by runs of your own": (
        "Ranges are held-out errors on our hosts; run `recommend smoke` to compare them with yours."
    ),
    "extrapolated from datasheets": (
        "Not measured on this GPU; run `recommend smoke` to narrow the range, and pass the run with --calibrate."
    ),
    "modelled from measurements of fewer cards a server": (
        "Not measured with this many GPUs per server, so the ranges are wide."
    ),
    "modelled from measurements of other kinds of models": (
        "No model of this kind was measured; run `recommend smoke` to narrow the range, and pass the run with "
        "--calibrate."
    ),
}
"""Why ranges are wider than the held-out errors, by the basis of a prediction."""
VERDICTS = 3
"""Verdicts of an option that the short report shows."""


def report(recommendation: Recommendation, full: bool = True) -> str:
    """Return the report; unless ``full``, options at their defaults and further verdicts are counted."""
    return "\n".join(_lines(recommendation, full)) + "\n"


def estimate(recommendation: Recommendation) -> str:
    """Return the predicted memory and speed of a configuration, and what speaks against it."""
    return "\n".join(_expected(recommendation)) + "\n"


def _expected(recommendation: Recommendation) -> Iterator[str]:
    for note in recommendation.resolved.notes:
        yield from wrap(f"note: {note}")
    for line in summary(recommendation):
        yield from wrap(line)
    yield ""
    yield from _memory(recommendation)
    yield ""
    yield from _speed(recommendation)
    yield from _near(recommendation)
    yield from _cost(recommendation)
    yield from _less_detail(recommendation)
    if recommendation.findings:
        yield ""
        yield "PROBLEMS" if recommendation.adviser else "WARNINGS"
        for finding in recommendation.findings:
            yield from wrap(f"{finding.severity}: {finding.message}", "  ", "    ")
            if finding.remedy:
                yield from _indented(f"fix: {finding.remedy}")
            if has_source(finding.sources):  # some limits are the user's own, or arithmetic
                yield from _indented(f"[{cite(finding.sources, finding.caveat)}]")


def _indented(text: str, columns: int = 4) -> list[str]:
    return wrap(text, " " * columns, " " * columns)


def _lines(recommendation: Recommendation, full: bool) -> Iterator[str]:
    yield from _expected(recommendation)
    yield from ("", "SETTINGS")
    for option in recommendation.explanations:
        if option.emitted:
            yield from _option(option, len(option.verdicts) if full else VERDICTS)
    left = [option for option in recommendation.explanations if not option.emitted]
    yield ""
    if not full:
        yield from wrap(f"{len(left)} more options are left at their defaults; see --format report for the reasons.")
        return
    yield "LEFT AT THE DEFAULT"
    for option in left:
        yield from _option(option, len(option.verdicts))


def _memory(recommendation: Recommendation) -> Iterator[str]:
    predicted, available = recommendation.memory, recommendation.resolved.available_bytes
    yield "MEMORY PER GPU (GiB)"
    for item in predicted.items:
        if item.bytes:
            yield f"  {item.name:<12}{gib(item.bytes):>8}   {gib(item.low)} to {gib(item.high)}, {item.basis}"
    low, high = memory.likely_range(recommendation.resolved, predicted, recommendation.config.tp)
    yield f"  {'total':<12}{gib(predicted.total):>8}   {gib(low)} to {gib(high)}, of {gib(available)}"
    yield f"  {'at most':<12}{gib(predicted.high):>8}   every part at its upper end, or while loading"
    yield from _indented(
        f"KV cache: {predicted.kv_blocks:,} blocks, {predicted.kv_tokens:,} tokens, {predicted.kv_requests:,} "
        f"full-length requests; {predicted.kv_needed_tokens:,} tokens are needed (load, one full session, warm-up).",
        2,
    )
    if shared := predicted.kv_prefix_tokens:
        yield from _indented(f"{shared:,} of these tokens are the prefix that all requests share, held once.", 2)
    if recommendation.request.vram_gib:
        yield from (line for text in on_empty_gpu(recommendation) for line in _indented(text, 2))


def on_empty_gpu(recommendation: Recommendation) -> Iterator[str]:
    """Say how much memory the command takes on an empty GPU, if that is more."""
    resolved = recommendation.resolved
    whole = memory.estimate(replace(resolved, available_bytes=resolved.gpu.memory_mib * MIB), recommendation.config)
    if gib(whole.total) == gib(recommendation.memory.total):
        return
    yield (
        "The KV cache takes a share of the memory that is free at startup; this assumes "
        f"{gib(resolved.available_bytes)} GiB on the GPU. Start the other programs first: alone on the GPU, this takes "
        f"{gib(whole.total)} GiB."
    )


def _speed(recommendation: Recommendation) -> Iterator[str]:
    predicted, request = recommendation.speed, recommendation.request
    yield f"SPEED ({predicted.basis})"
    if predicted.basis == "calibrated by runs of your own":
        runs = ", ".join(request.calibrated_by.split()) or "these runs"
        yield from _indented(
            f"By {runs}, host work takes {request.host_scale:g} times as long as on our hosts, and GPU work "
            f"{request.card_scale:g} times.",
            2,
        )
    rows = (
        ("alone", predicted.alone_ms, "ms per request"),
        ("under load", predicted.latency_ms, "ms per request, mean"),
        ("p99", predicted.p99_ms, "ms"),
        ("first token", predicted.ttft_ms, "ms"),
        ("per token", predicted.token_ms, "ms"),
        ("throughput", predicted.rps, "requests/s"),
    )
    for name, figure, unit in rows:
        shown, low, high = (
            f"{value:,.{rate_digits(figure.value)}f}" for value in (figure.value, figure.low, figure.high)
        )
        yield f"  {name:<12}{shown:>8}   {low} to {high} {unit}"
    ranges = WIDE.get(predicted.basis, "Four of five held-out runs lay in these ranges.")
    yield from _indented(f"Limited by {predicted.limit}. {ranges}", 2)
    if text := against_defaults(recommendation):
        yield from _indented(f"LMDeploy's defaults: {text}.", 2)
    if text := with_16_bits(recommendation):
        yield from _indented(f"KV cache of 16 bits: {text}.", 2)
    yield from _quantiles(recommendation)


def _quantiles(recommendation: Recommendation) -> Iterator[str]:
    """Show the quantiles of a simulated load."""
    resolved, profile = recommendation.resolved, recommendation.speed.profile
    if profile is None:
        return
    how = f"{resolved.rps:g} requests/s arriving" if resolved.rps else f"concurrency {resolved.concurrency}"
    yield from _times(f"QUANTILES in ms (simulated, {how})", profile)
    if replayed := recommendation.speed.replayed:
        requests = f"{len(resolved.request.replay):,} requests of the trace in a row"
        yield from _times(f"REPLAYED in ms (simulated, {requests})", replayed)
        for missed in replayed_misses(recommendation):
            yield from _indented(missed, 2)


def _times(title: str, profile: LoadFigures) -> Iterator[str]:
    yield from ("", title)
    yield f"  {'':<12}{'p50':>10}{'p90':>10}{'p99':>10}"
    for name, times in (("first token", profile.ttft), ("per token", profile.tpot), ("request", profile.latency)):
        yield f"  {name:<12}{times.p50:>10,.1f}{times.p90:>10,.1f}{times.p99:>10,.1f}"
    yield f"  output      {profile.tokens:>10,.0f} tokens/s"
    if not profile.keeps_up:
        yield from _indented("Requests arrive faster than they are answered: these times grow without end.", 2)


def _near(recommendation: Recommendation) -> Iterator[str]:
    """List the most similar runs, to compare the prediction with."""
    resolved = recommendation.resolved
    if recommendation.similar_runs:
        yield from ("", "SIMILAR RUNS")
    for run in recommendation.similar_runs:
        gpu = "" if run.gpu == resolved.gpu.id else f", {run.gpu}"
        model = "" if run.model == resolved.model.id else f", {run.model}"
        workload = f"{run.concurrency} concurrent, {run.kind}{gpu}{model}"
        figures = f"{run.rps:,.1f} requests/s, median {run.p50_ms:,.0f} ms"
        host = f"LMDeploy {run.lmdeploy}, {weights(run.random_weights)}"
        yield from wrap(f"{run.run}: {workload}: {figures} ({host})", "  ", "    ")
    if recommendation.published:
        yield from ("", "NEAREST PUBLISHED FIGURES (not used in the fit)")
    for found in recommendation.published:
        cards = f"{found.tp} x {found.gpu}, {found.model}, {found.weights} weights"
        lengths = (
            f"{found.input_tokens:,} + {found.output_tokens:,} tokens" if found.output_tokens else "lengths not given"
        )
        figures = f"{found.output_tps:,.0f} output tokens/s" if found.output_tps else f"{found.tpot_ms:g} ms per token"
        workload = f"{cards}, {found.concurrency} concurrent, {lengths}"
        yield from wrap(f"{workload}: {figures} (LMDeploy {found.version}, {found.url})", "  ", "    ")


def costs_accuracy(recommendation: Recommendation) -> bool:
    """Return whether a recommendation gives up accuracy."""
    config = recommendation.config
    return not recommendation.adviser and (config.kv_bits < 16 or config.max_tiles > 0)


def _cost(recommendation: Recommendation) -> Iterator[str]:
    """Say that a recommendation gives up accuracy."""
    if costs_accuracy(recommendation):
        yield ""
        yield from wrap(
            "accuracy: this configuration gives up some; see the reasons for KV cache precision and tiles below."
        )


def _less_detail(recommendation: Recommendation) -> Iterator[str]:
    """Show the speed of fewer tiles per image, which the user may choose."""
    resolved, config = recommendation.resolved, recommendation.config
    offered = fewer_tiles(resolved, config.max_tiles)
    if recommendation.adviser or not offered:
        return
    yield from ("", "FEWER TILES PER IMAGE (optional, not applied)")
    for tiles in offered:
        predicted = speed.estimate(resolved, replace(config, max_tiles=tiles))
        yield from wrap(
            f"max_dynamic_patch {tiles}: {resolved.input_tokens(tiles):,} input tokens instead of "
            f"{resolved.input_tokens(config.max_tiles):,}, "
            f"{rate(predicted.rps.value, predicted.rps.low, predicted.rps.high)}, "
            f"{predicted.alone_ms.value:,.0f} ms alone",
            "  ",
            "    ",
        )
    yield from _indented(
        "Images lose detail, so answers may change. The client sends this limit with each image; the server stays the "
        "same. To measure the cost on your images and weights: recommend bench-prompt --images DIR "
        f"--tiles {config.max_tiles},{offered[0]} serve.sh serve.sh",
        2,
    )


def _option(option: Explanation, most: int) -> Iterator[str]:
    value = printable(option.value) or "(not set)"
    yield f"  {option.name}" + ("" if option.switch and option.emitted else f" {value}")
    yield from _indented(option.reason)
    yield from _indented(f"[{cite(option.sources, option.caveat)}]")
    if option.advice:
        advice = ", ".join(f"{advice.adviser} {printable(advice.value)}" for advice in option.advice)
        yield from _indented(f"advised: {advice}")
    for verdict in option.verdicts[:most]:
        yield from wrap(f"{verdict.verdict}: {verdict.statement}", "    ", "      ")
    if len(option.verdicts) > most:
        more = count(len(option.verdicts) - most, "more verdict")
        yield f"    {more}: recommend explain {option.option}"


def explain_no_fit(error: NothingFits) -> str:
    """Return why nothing fits and the nearest change that would, in a few lines."""
    binding = error.nothing.binding
    lines = list(wrap(f"recommend: nothing fits: {binding.message}", "", "  "))
    if has_source(binding.sources):
        lines += _indented(f"[{cite(binding.sources, binding.caveat)}]", 2)
    for finding in error.nothing.others[:2]:
        lines += _indented(f"also: {finding.message}", 2)
    if error.change is not None:
        lines += _indented(f"nearest that fits: {error.change.options} ({error.change.text})", 2)
    else:
        lines += _indented(f"no single change fits. {binding.remedy}", 2)
    for other in error.others:
        lines += _indented(f"or: {other.options} ({other.text})", 2)
    for note in error.resolved.notes:
        if not (error.nothing.too_large and "CPU cores" in note):
            lines += _indented(f"note: {note}", 2)
    return "\n".join(lines) + "\n"
