"""Write the comparison with the advisers as JSON or as text of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recommender.choose.constraints import ConstraintFinding
from recommender.choose.reasons import has_source, range_text
from recommender.common.terminal import labelled, wrap
from recommender.estimate.configuration import Configuration
from recommender.estimate.memory import likely_range
from recommender.estimate.speed import Speed
from recommender.lookup.comparison import OURS, ComparedSetting, ComparedValue, Comparison, rejections, unknown_options
from recommender.render.summary import cite, gib
from recommender.request.request import Request

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.estimate.uncertainty import Range

FORMAT = 1
LABEL = 18
"""Columns of the values."""


@dataclass(frozen=True, slots=True)
class ComparedMemory:
    """Memory of one GPU in bytes, and the capacity of the KV cache in tokens."""

    total_bytes: int
    """Predicted bytes in use."""
    low_bytes: int
    """Low end of the range."""
    high_bytes: int
    """High end of the range."""
    kv_tokens: int
    """Tokens that the KV cache holds."""


@dataclass(frozen=True, slots=True)
class ComparedOutcome:
    """One configuration and its prediction."""

    adviser: str
    """Id of the adviser, or ours."""
    fits: bool
    """No constraint rejects it."""
    refused: tuple[str, ...]
    """Options that the release's parser does not know."""
    config: Configuration
    """Settings of the server."""
    memory: ComparedMemory
    """Predicted memory of one GPU."""
    speed: Speed
    """Predicted speed."""
    findings: tuple[ConstraintFinding, ...]
    """Problems and warnings."""


@dataclass(frozen=True, slots=True)
class ComparisonJson:
    """The JSON form of a comparison."""

    format: int
    request: Request
    """What was asked, after parsing."""
    lmdeploy: str
    """LMDeploy release."""
    gpu: str
    """Id of the GPU."""
    model: str
    """Id of the model."""
    nothing_fits: str
    """Why nothing fits; empty: something does."""
    ours: ComparedOutcome | None
    """Our configuration; null: nothing fits."""
    advisers: tuple[ComparedOutcome, ...]
    """Each adviser's configuration."""
    settings: tuple[ComparedSetting, ...]
    """Every option with all values."""


def json_form(comparison: Comparison) -> ComparisonJson:
    """Return the comparison without its store, ready to be written."""
    resolved = comparison.resolved
    return ComparisonJson(
        format=FORMAT,
        request=replace(resolved.request, replay=(), trace_requests=0),
        lmdeploy=resolved.release.id,
        gpu=resolved.gpu.id,
        model=resolved.model.id,
        nothing_fits=str(comparison.nothing) if comparison.nothing else "",
        ours=_outcome(comparison.ours) if comparison.ours else None,
        advisers=tuple(_outcome(recommendation) for recommendation in comparison.advised),
        settings=comparison.settings,
    )


def _outcome(recommendation: Recommendation) -> ComparedOutcome:
    memory = recommendation.memory
    return ComparedOutcome(
        adviser=recommendation.adviser or OURS,
        fits=not rejections(recommendation),
        refused=unknown_options(recommendation),
        config=recommendation.config,
        memory=ComparedMemory(memory.total, memory.low, memory.high, memory.kv_tokens),
        speed=recommendation.speed,
        findings=recommendation.findings,
    )


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the text of 80 columns."""
    yield from head(comparison)
    yield ""
    yield from _table(comparison)
    yield ""
    yield "SETTINGS"
    yield from wrap(
        "Each value with the advisers who gave it; (default) is LMDeploy's own where they gave none.", "  ", "  "
    )
    for compared in comparison.settings:
        yield ""
        yield from setting(compared, comparison.resolved.release.id)


def head(comparison: Comparison) -> Iterator[str]:
    """Yield what was asked, and what was assumed."""
    resolved = comparison.resolved
    images = f", {resolved.images} x {resolved.image_width}x{resolved.image_height}" if resolved.images else ""
    load = f"{resolved.rps:g} requests/s arriving" if resolved.rps else f"concurrency {resolved.concurrency}"
    for note in resolved.notes:
        yield from wrap(f"note: {note}")
    yield from wrap(
        f"{resolved.model.hub} on {resolved.gpu.name}, LMDeploy {resolved.release.id}: "
        f"{load}{images}, {resolved.output_tokens} output tokens."
    )


def rows(comparison: Comparison) -> Iterator[str]:
    """Yield the table of predictions."""
    yield "PREDICTION"
    yield f"  {'':<8} {'fits':<9}{'GiB per GPU':<20}{'seconds/request':<20}requests/s"
    for recommendation in _all(comparison):
        yield _row(recommendation.adviser or OURS, recommendation)


def reasons_against(comparison: Comparison) -> dict[tuple[str, str], list[str]]:
    """Return each message and remedy with the configurations that it rejects."""
    against: dict[tuple[str, str], list[str]] = {}
    for recommendation in _all(comparison):
        for finding in rejections(recommendation):
            against.setdefault((finding.message, finding.remedy), []).append(recommendation.adviser or OURS)
    return against


def _all(comparison: Comparison) -> tuple[Recommendation, ...]:
    return (*((comparison.ours,) if comparison.ours else ()), *comparison.advised)


def _table(comparison: Comparison) -> Iterator[str]:
    yield from rows(comparison)
    basis = (comparison.ours or comparison.advised[0]).speed.basis
    yield from wrap(
        f"fits: starts on this release and meets the request. Figures are predicted ({basis}), also for what does "
        "not fit. recommend --follow NAME shows all problems of one adviser.",
        "  ",
        "  ",
    )
    against = reasons_against(comparison)
    if against:
        yield ""
        yield "WHY ADVISERS DO NOT FIT"
    for (message, remedy), names in against.items():
        yield from wrap(f"{', '.join(names)}: {message}", "  ", "    ")
        if remedy:
            yield from wrap(f"fix: {remedy}", "    ", "    ")


def _row(name: str, recommendation: Recommendation) -> str:
    memory, speed = recommendation.memory, recommendation.speed
    low, high = likely_range(recommendation.resolved, memory, recommendation.config.tp)
    gibs = f"{gib(memory.total)} ({gib(low)}-{gib(high)})"
    fits = "no start" if unknown_options(recommendation) else "no" if rejections(recommendation) else "yes"
    return f"  {name:<8} {fits:<9}{gibs:<20}{_range(speed.latency_ms, 1000):<20}{_range(speed.rps)}"


def _range(figure: Range, unit: float = 1) -> str:
    return f"{_digits(figure.value / unit)} ({_digits(figure.low / unit)}-{_digits(figure.high / unit)})"


def _digits(value: float) -> str:
    """Return a number with about three digits, without an exponent."""
    return f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def setting(setting: ComparedSetting, release: str) -> Iterator[str]:
    """Yield one option: our value with its reason and source, each adviser's, and the verdicts."""
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
    text = range_text(value.value or "none", value.up_to)
    return f"{text} (default)" if value.left else text
