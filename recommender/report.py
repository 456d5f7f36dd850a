"""The report on stderr: plain text of 80 columns, which a terminal shows in colour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender import memory as m
from recommender.candidates import fewer_tiles
from recommender.explain import Explanation, opened
from recommender.facts import MIB
from recommender.render import cite, gib, printable, summary
from recommender.speed import estimate as estimated
from recommender.terminal import wrap

if TYPE_CHECKING:
    from recommender.pipeline import NothingFits, Recommendation


WIDE = {
    "calibrated by runs of your own": "as wide as the errors of ours at unseen runs; smoke holds yours against them",
    "extrapolated from datasheets": "no run was made on this card, so they are wide: see smoke, and --calibrate",
    "modelled from measurements of fewer cards a server": "no run was made over so many, so they are wide",
    "modelled from measurements of other kinds of models": (
        "no model of this kind was run, so they are wide: see smoke, and --calibrate"
    ),
}
"""Why ranges are wider than the errors at unseen runs, by what a prediction rests on."""


def report(found: Recommendation, full: bool = True) -> str:
    """The whole report; without ``full`` what was left at its default is only counted."""
    return "\n".join(_lines(found, full)) + "\n"


def estimate(found: Recommendation) -> str:
    """What a configuration is expected to take and to do, and what speaks against it."""
    return "\n".join(_expected(found)) + "\n"


def _expected(found: Recommendation) -> Iterator[str]:
    for note in found.facts.notes:
        yield from wrap(f"note: {note}")
    for line in summary(found):
        yield from wrap(line)
    yield ""
    yield from _memory(found)
    yield ""
    yield from _speed(found)
    yield from _near(found)
    yield from _cost(found)
    yield from _less_detail(found)
    if found.findings:
        yield ""
        yield "AGAINST IT" if found.adviser else "MIND"
        for finding in found.findings:
            yield from wrap(f"{finding.severity}: {finding.message}", "  ", "    ")
            if finding.remedy:
                yield from wrap(f"mend: {finding.remedy}", "    ", "    ")
            if opened(finding.sources):  # some limits are the user's own, or arithmetic
                yield from wrap(f"[{cite(finding.sources)}]", "    ", "    ")


def _lines(found: Recommendation, full: bool) -> Iterator[str]:
    yield from _expected(found)
    yield ""
    yield "SETTINGS"
    for each in found.explanations:
        if each.emitted:
            yield from _option(each)
    left = [each for each in found.explanations if not each.emitted]
    yield ""
    if not full:
        yield from wrap(
            f"{len(left)} more options are left at their defaults; --format report gives the reason for each."
        )
        return
    yield "LEFT AT THE DEFAULT"
    for each in left:
        yield from _option(each)


def _memory(found: Recommendation) -> Iterator[str]:
    memory = found.memory
    yield "MEMORY OF EACH CARD (GiB)"
    for item in memory.items:
        if item.bytes:
            yield f"  {item.name:<12}{gib(item.bytes):>8}   {gib(item.low)} to {gib(item.high)}, {item.basis}"
    card = found.facts.available_bytes
    low, high = m.likely(found.facts, memory, found.config.tp)
    yield f"  {'total':<12}{gib(memory.total):>8}   {gib(low)} to {gib(high)}, of {gib(card)}"
    yield f"  {'at most':<12}{gib(memory.high):>8}   with every part at its upper end, or while loading"
    yield from wrap(
        f"KV cache: {memory.kv_blocks:,} blocks, {memory.kv_tokens:,} tokens, {memory.kv_requests:,} full-length "
        f"requests; {memory.kv_needed_tokens:,} tokens are needed (load, one full session, warm-up).",
        "  ",
        "  ",
    )
    if found.request.vram_gib:
        yield from _empty(found)


def _empty(found: Recommendation) -> Iterator[str]:
    """What the command of a server for part of a card takes of an empty one, where that is more."""
    whole = m.estimate(replace(found.facts, available_bytes=found.facts.gpu.memory_mib * MIB), found.config)
    if gib(whole.total) == gib(found.memory.total):
        return
    card = gib(found.facts.available_bytes)
    yield from wrap(
        f"The cache's share is of what is free as the server starts, reckoned with {card} GiB on the card. "
        f"On an empty card the same command takes {gib(whole.total)} GiB: start it after what shares the card.",
        "  ",
        "  ",
    )


def _speed(found: Recommendation) -> Iterator[str]:
    speed = found.speed
    yield f"SPEED ({speed.basis})"
    if speed.basis == "calibrated by runs of your own":
        host, card = found.request.host_scale, found.request.card_scale
        by = ", ".join(found.request.calibrated_by.split()) or "these"
        took = f"the host's work takes {host:g} times as long as elsewhere, the card's {card:g} times"
        yield from wrap(f"by {by} {took}", "  ", "  ")
    rows = (
        ("alone", speed.alone_ms, "ms a request"),
        ("under load", speed.latency_ms, "ms a request, mean"),
        ("p99", speed.p99_ms, "ms"),
        ("first token", speed.ttft_ms, "ms"),
        ("per token", speed.token_ms, "ms"),
        ("throughput", speed.rps, "requests/s"),
    )
    for name, figure, unit in rows:
        yield f"  {name:<12}{figure.value:>8,.1f}   {figure.low:,.1f} to {figure.high:,.1f} {unit}"
    ranges = WIDE.get(speed.basis, "four of five runs unseen by the fit lay in these ranges")
    yield from wrap(f"limited by {speed.limit}; {ranges}", "  ", "  ")


def _near(found: Recommendation) -> Iterator[str]:
    """What runs say that are like this one: a reader may hold the prediction against them."""
    if not found.near:
        return
    yield ""
    yield "MEASURED NEAREST TO THIS"
    for each in found.near:
        other = "" if each.gpu == found.facts.gpu.id else f", {each.gpu}"
        other += "" if each.model == found.facts.model.id else f", {each.model}"
        what = f"{each.concurrency} in flight, {each.image or 'text'}{other}"
        yield from wrap(f"{each.run}: {what}: {each.rps:,.1f} requests/s, median {each.p50_ms:,.0f} ms", "  ", "    ")


def _cost(found: Recommendation) -> Iterator[str]:
    """What a recommendation that gives up accuracy costs; an adviser's own choice speaks for itself."""
    if found.adviser:
        return
    if found.config.kv_bits < 16 or found.config.max_tiles:
        yield ""
        yield from wrap(
            "accuracy: this gives some up; see the reasons of the KV cache precision and of the tiles below."
        )


def _less_detail(found: Recommendation) -> Iterator[str]:
    """What fewer tiles an image would bring on the same server: for the user to decide, since answers may change."""
    facts, config = found.facts, found.config
    offered = fewer_tiles(facts, config.max_tiles)
    if found.adviser or not offered:
        return
    yield ""
    yield "LESS DETAIL, IF YOUR IMAGES ALLOW IT (not taken)"
    for most in offered:
        speed = estimated(facts, replace(config, max_tiles=most))
        yield from wrap(
            f"max_dynamic_patch {most}: {facts.input_tokens(most):,} tokens in instead of "
            f"{facts.input_tokens(config.max_tiles):,}, "
            f"{speed.rps.value:,.1f} requests/s ({speed.rps.low:,.1f} to {speed.rps.high:,.1f}), "
            f"{speed.alone_ms.value:,.0f} ms alone",
            "  ",
            "    ",
        )
    yield from wrap(
        "The cost is detail: answers may change. The client asks for it with each image, the server stays as it is. "
        "What it costs your own images, on your own weights: recommend bench-prompt --images DIR "
        f"--tiles {config.max_tiles},{offered[0]} serve.sh serve.sh",
        "  ",
        "  ",
    )


def _option(each: Explanation) -> Iterator[str]:
    value = printable(each.value) or "(not set)"
    yield f"  {each.name}" + ("" if each.switch and each.emitted else f" {value}")
    yield from wrap(each.reason, "    ", "    ")
    yield from wrap(f"[{cite(each.sources)}]", "    ", "    ")
    if each.advice:
        said = ", ".join(f"{advice.adviser} {printable(advice.value)}" for advice in each.advice)
        yield from wrap(f"advised: {said}", "    ", "    ")
    for bearing in each.verdicts:
        yield from wrap(f"{bearing.verdict}: {bearing.statement}", "    ", "      ")


def nothing(error: NothingFits) -> str:
    """Why nothing fits and the nearest change that would, in a few lines."""
    lines = list(wrap(f"recommend: nothing fits: {error.nothing.binding.message}", "", "  "))
    for note in error.facts.notes:
        lines += wrap(f"note: {note}", "  ", "  ")
    if opened(error.nothing.binding.sources):
        lines += wrap(f"[{cite(error.nothing.binding.sources)}]", "  ", "  ")
    for finding in error.nothing.others[:2]:
        lines += wrap(f"also: {finding.message}", "  ", "  ")
    if error.change is not None:
        lines += wrap(f"nearest that fits: {error.change.options} ({error.change.text})", "  ", "  ")
    else:
        lines += wrap(f"no single change was found that fits; {error.nothing.binding.remedy}", "  ", "  ")
    return "\n".join(lines) + "\n"
