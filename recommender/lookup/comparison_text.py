"""Write the comparison with the advisers as JSON or as text of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.choose.reasons import has_source
from recommender.common.terminal import labelled, plain, wrap
from recommender.lookup.comparison import OURS, ComparedSetting, ComparedValue, Comparison, rejections, unknown_options
from recommender.render.summary import cite, gib

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.estimate.uncertainty import Range

FORMAT = 1
LABEL = 18
"""Columns of the values."""


def as_json(comparison: Comparison) -> dict[str, object]:
    """Return the comparison as plain data.

    ``format`` (rises when a field changes its meaning), ``request``, ``lmdeploy``, ``gpu``, ``model``, ``ours``
    (null where nothing fits, then ``nothing_fits`` says why), ``advisers``, ``settings``.

    Ours and each adviser: adviser, fits, refused (options that the release's parser does not know), config, memory
    (total_bytes, low_bytes, high_bytes, kv_tokens), speed, findings. A setting: option, name, kind, state (read,
    unread, gone), default, ours and given (adviser, value, up_to, left, reason), sources of our reason with their
    caveat, verdicts (claim, advisers, verdict, statement, because, measured, sources, caveat).
    """
    resolved = comparison.resolved
    return {
        "format": FORMAT,
        "request": plain(replace(resolved.request, replay=())),
        "lmdeploy": resolved.release.id,
        "gpu": resolved.gpu.id,
        "model": resolved.model.id,
        "nothing_fits": str(comparison.nothing) if comparison.nothing else "",
        "ours": plain(_outcome(comparison.ours)) if comparison.ours else None,
        "advisers": [plain(_outcome(recommendation)) for recommendation in comparison.advised],
        "settings": plain(comparison.settings),
    }


def _outcome(recommendation: Recommendation) -> dict[str, object]:
    memory = recommendation.memory
    return {
        "adviser": recommendation.adviser or OURS,
        "fits": not rejections(recommendation),
        "refused": unknown_options(recommendation),
        "config": recommendation.config,
        "memory": {
            "total_bytes": memory.total,
            "low_bytes": memory.low,
            "high_bytes": memory.high,
            "kv_tokens": memory.kv_tokens,
        },
        "speed": recommendation.speed,
        "findings": recommendation.findings,
    }


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the text of 80 columns."""
    resolved = comparison.resolved
    images = f", {resolved.images} x {resolved.image_width}x{resolved.image_height}" if resolved.images else ""
    for note in resolved.notes:
        yield from wrap(f"note: {note}")
    yield from wrap(
        f"{resolved.model.hub} on {resolved.gpu.name}, LMDeploy {resolved.release.id}: "
        f"concurrency {resolved.concurrency}{images}, {resolved.output_tokens} output tokens."
    )
    yield ""
    yield from _table(comparison)
    yield ""
    yield "SETTINGS"
    yield from wrap(
        "Each value with the advisers who gave it; (default) is LMDeploy's own where they gave none.", "  ", "  "
    )
    for setting in comparison.settings:
        yield ""
        yield from _setting(setting, resolved.release.id)


def _table(comparison: Comparison) -> Iterator[str]:
    yield "PREDICTION"
    yield f"  {'':<8} {'fits':<9}{'GiB per GPU':<20}{'seconds/request':<20}requests/s"
    against: dict[tuple[str, str], list[str]] = {}
    for recommendation in (*((comparison.ours,) if comparison.ours else ()), *comparison.advised):
        name = recommendation.adviser or OURS
        yield _row(name, recommendation)
        for finding in rejections(recommendation):
            against.setdefault((finding.message, finding.remedy), []).append(name)
    basis = (comparison.ours or comparison.advised[0]).speed.basis
    yield from wrap(
        f"fits: starts on this release and meets the request. Figures are predicted ({basis}), also for what does "
        "not fit. recommend --follow NAME shows all problems of one adviser.",
        "  ",
        "  ",
    )
    if against:
        yield ""
        yield "WHY ADVISERS DO NOT FIT"
    for (message, remedy), names in against.items():
        yield from wrap(f"{', '.join(names)}: {message}", "  ", "    ")
        if remedy:
            yield from wrap(f"fix: {remedy}", "    ", "    ")


def _row(name: str, recommendation: Recommendation) -> str:
    memory, speed = recommendation.memory, recommendation.speed
    gibs = f"{gib(memory.total)} ({gib(memory.low)}-{gib(memory.high)})"
    fits = "no start" if unknown_options(recommendation) else "no" if rejections(recommendation) else "yes"
    return f"  {name:<8} {fits:<9}{gibs:<20}{_range(speed.latency_ms, 1000):<20}{_range(speed.rps)}"


def _range(figure: Range, unit: float = 1) -> str:
    return f"{_digits(figure.value / unit)} ({_digits(figure.low / unit)}-{_digits(figure.high / unit)})"


def _digits(value: float) -> str:
    """Return a number with about three digits, without an exponent."""
    return f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def _setting(setting: ComparedSetting, release: str) -> Iterator[str]:
    yield f"  {setting.name}"
    if setting.state == "gone":
        yield from wrap(f"not in {release}: a server started with it exits at once", "    ", "    ")
    if setting.state == "unread":
        yield from wrap(f"no effect in {release} on TurboMind", "    ", "    ")
    if setting.ours.value or setting.ours.reason:
        reason = "ours" if setting.ours.left else f"ours: {setting.ours.reason}"
        yield from labelled(_value(setting.ours), reason, "    ", LABEL)
        if not setting.ours.left and has_source(setting.sources):
            yield from wrap(f"[{cite(setting.sources, setting.caveat)}]", " " * (4 + LABEL), " " * (4 + LABEL))
    givers: dict[str, list[str]] = {}
    for value in sorted(setting.given, key=lambda value: value.left):
        givers.setdefault(_value(value), []).append(value.adviser)
    for text, names in givers.items():
        yield from labelled(text, ", ".join(names), "    ", LABEL)
    for verdict in setting.verdicts:
        by = f" ({', '.join(verdict.advisers)})" if verdict.advisers else ""
        yield from wrap(f"{verdict.verdict}: {verdict.statement}{by}", "    ", "      ")


def _value(value: ComparedValue) -> str:
    text = f"{value.value or 'none'} to {value.up_to}" if value.up_to else value.value or "none"
    return f"{text} (default)" if value.left else text
