"""The first thing a person sees of a recommendation: one screen of 30 lines and 80 columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from recommender.common.terminal import cut, labelled, wrap
from recommender.common.text import WIDTH, count, printable
from recommender.common.units import SECONDS_FROM, duration
from recommender.estimate import memory
from recommender.estimate.configuration import Configuration
from recommender.knowledge.engines import LABELS
from recommender.knowledge.names import other_variants
from recommender.render.next_steps import next_steps
from recommender.render.report import costs_accuracy, on_empty_gpu
from recommender.render.summary import (
    against_defaults,
    asked_of_clients,
    describe_goals,
    describe_load,
    gib,
    given_up,
    notes_of_request,
    rate_digits,
    replayed_misses,
    with_16_bits,
)

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.estimate.uncertainty import Range

LINES = 30
WARNINGS = 3
BAR = 30
"""Most columns of the memory bar."""

RANK = {field.name: number for number, field in enumerate(fields(Configuration))}
SEVERITIES = {"reject": "error"}
"""How a finding's severity is shown; the others are warnings."""


def screen(
    recommendation: Recommendation,
    given_options: Collection[str],
    words: Collection[str],
    file: str,
    with_bar: bool = False,
    form: str = "bash",
    width: int = WIDTH,
) -> str:
    """Return what is recommended, what to expect of it and what to do next.

    ``given_options`` are the names of options on the command line, ``words`` all of it, ``file`` where the output of
    ``form`` went (empty: stdout). ``with_bar``: a terminal shows the bar; a screen reader would spell it. ``width``:
    columns that a setting's reason may take.
    """
    head = [*_subject(recommendation), *_assumed(recommendation, given_options), "", *_expect(recommendation, with_bar)]
    tail = [*_warnings(recommendation), "", *next_steps(recommendation, words, file, form)]
    room = LINES - len(head) - len(tail)
    lines = [*head, *_settings(recommendation, room, width), *tail]
    while len(lines) > LINES and "" in lines:
        lines.remove("")
    return "\n".join(lines) + "\n"


def brief(recommendation: Recommendation, given_options: Collection[str]) -> Iterator[str]:
    """Yield the lines of ``screen`` without the settings and what to do next."""
    yield from (*_subject(recommendation), *_assumed(recommendation, given_options), "")
    yield from (*_expect(recommendation, False), *_warnings(recommendation))


def _subject(recommendation: Recommendation) -> Iterator[str]:
    resolved, config = recommendation.resolved, recommendation.config
    servers = f", {config.servers} servers" if config.servers > 1 else ""
    gpus = f"{config.cards} x {resolved.gpu.name}"
    engine = "" if config.backend == "turbomind" else f", {LABELS[config.backend].title}"
    yield from wrap(f"{resolved.model.hub} on {gpus}{servers}, LMDeploy {resolved.release.id}{engine}")
    yield from wrap(describe_load(resolved, config))


def _assumed(recommendation: Recommendation, given_options: Collection[str]) -> Iterator[str]:
    if assumed := list_assumptions(recommendation, given_options):
        yield from labelled("assumed", ", ".join(assumed), "", 9)
    for note in (*notes_of_request(recommendation.resolved), *_idle(recommendation)):
        yield from labelled("note", note, "", 9)


def list_assumptions(recommendation: Recommendation, given_options: Collection[str]) -> list[str]:
    """Return what the prediction rests on although none of the ``given_options`` says it."""
    resolved, request = recommendation.resolved, recommendation.request
    assumed = []
    if "lmdeploy" not in given_options:
        assumed.append(f"LMDeploy {resolved.release.id}")
    if "model" not in given_options:
        assumed.append(f"model {resolved.model.id}")
    if not (request.revision or resolved.local or resolved.model.remote_code):
        assumed.append("the model's newest revision")
    if others := other_variants(resolved.store, resolved.gpu, request.gpu):
        assumed.append(f"card {resolved.gpu.id} (not {', '.join(others[:2])}{', ...' if len(others) > 2 else ''})")
    elif any("; assuming " in note for note in resolved.notes):
        assumed.append(f"card {resolved.gpu.id}")
    if not {"workload", "trace"} & set(given_options) and (given := _workload(recommendation, given_options)):
        assumed.append(f"workload {resolved.workload} ({', '.join(given)})")
    if not {"load", "rps", "trace"} & set(given_options):
        assumed.append("one request at a time")
    if "cpus" not in given_options:
        assumed.append(count(request.cpus, "CPU core"))
    return assumed


def _workload(recommendation: Recommendation, given_options: Collection[str]) -> list[str]:
    """Return what the workload that was assumed fills in."""
    resolved = recommendation.resolved
    parts = []
    if resolved.images and "image" not in given_options:
        parts.append(f"{count(resolved.images, 'image')} of {resolved.image_width}x{resolved.image_height}")
    if "prompt_tokens" not in given_options:
        parts.append(f"{count(resolved.prompt_tokens, 'token')} of text in")
    if "output_tokens" not in given_options:
        parts.append(f"{resolved.output_tokens:,} out")
    if resolved.response_schema and not {"prompt", "schema"} & set(given_options):
        parts.append("answers in JSON")
    return parts


def _idle(recommendation: Recommendation) -> Iterator[str]:
    """Say why GPUs are left over."""
    used, given = recommendation.config.cards, recommendation.request.gpu_count
    if used >= given:
        return
    uneven = given & (given - 1) and recommendation.config.tp > 1
    why = "a model is split over 2, 4 or 8" if uneven else "more would not help this load"
    if recommendation.adviser:
        why = "the advice that is followed asks for no more"
    yield f"{used} of {given} GPUs are used: {why}"


def _expect(recommendation: Recommendation, with_bar: bool) -> Iterator[str]:
    predicted, used = recommendation.speed, recommendation.memory
    resolved = recommendation.resolved
    low, high = memory.likely_range(resolved, used, recommendation.config.tp)
    yield f"EXPECT ({predicted.basis})"
    per_gpu = " each" if recommendation.config.cards > 1 else ""
    row = _row(
        "GPU memory", "GiB", gib(used.total), gib(low), gib(high), f"of {gib(resolved.available_bytes)}{per_gpu}"
    )
    columns = min(BAR, WIDTH - len(row) - 1)
    share = min(used.total / resolved.available_bytes, 1)
    yield row + (f" {'█' * max(round(share * columns), 1):░<{columns}}" if with_bar else "")
    yield from _speeds(recommendation)
    for goal in describe_goals(recommendation):
        yield f"  {'goal':<12}{goal}"
    if text := against_defaults(recommendation):
        yield from labelled("defaults", text, "  ", 12)
    if text := with_16_bits(recommendation):
        yield from labelled("16-bit KV", text, "  ", 12)
    if replayed := predicted.replayed:
        ttft, latency = replayed.ttft, replayed.latency
        yield from wrap(
            f"replayed: {len(resolved.request.replay):,} requests of the trace as they came; "
            f"TTFT p50 {duration(ttft.p50)}, p99 {duration(ttft.p99)}; "
            f"latency p50 {duration(latency.p50)}, p99 {duration(latency.p99)}",
            "  ",
            "            ",
        )
        for missed in replayed_misses(recommendation):
            yield from wrap(missed, "            ", "            ")


def _speeds(recommendation: Recommendation) -> Iterator[str]:
    """Show the predicted times and the rate, each with its range."""
    resolved, predicted = recommendation.resolved, recommendation.speed
    rows: list[tuple[str, Range, str]] = [
        ("latency", predicted.latency_ms, "ms"),
        ("p99 latency", predicted.p99_ms, "ms"),
        ("TTFT", predicted.ttft_ms, "ms"),
    ]
    if resolved.output_tokens > 1 and not resolved.images:
        rows.append(("TPOT", predicted.token_ms, "ms"))
    rows.append(("rate", predicted.rps, "requests/s"))
    loaded = resolved.concurrency > recommendation.config.servers or resolved.rps
    for name, figure, unit in rows:
        scale = 1000 if unit == "ms" and figure.value >= SECONDS_FROM else 1
        value, low, high = (end / scale for end in (figure.value, figure.low, figure.high))
        digits = 1 if scale > 1 else _digits(value) if unit == "ms" else rate_digits(value)
        shown, low_end, high_end = (f"{end:,.{digits}f}" for end in (value, low, high))
        more = "mean under load" if loaded and name == "latency" else ""
        yield _row(name, "s" if scale > 1 else unit, shown, low_end, high_end, more)


def _digits(value: float) -> int:
    return 0 if value >= 20 else 1 if value >= 1 else 3


def _row(name: str, unit: str, value: str, low: str, high: str, more: str = "") -> str:
    return f"  {name:<12}{value:>7} {unit:<11}{low} to {high}{'  ' if more else ''}{more}".rstrip()


def _settings(recommendation: Recommendation, room: int, width: int) -> Iterator[str]:
    """Show the options that differ from LMDeploy's defaults, as many as there is room for."""
    emitted = (option for option in recommendation.explanations if option.emitted)
    rows = [option for option in emitted if option.value not in (option.default, option.unset)]
    if not rows:
        return
    store = recommendation.resolved.store
    settings = {record.id: record.setting for record in store.options()}
    # What clients send comes last.
    rows.sort(key=lambda row: (row.kind == "client", RANK.get(settings[row.option], len(RANK))))
    least = 2 if room > 0 else 1  # blank lines go then, and make room for the rest
    left = len(rows) - max(room - 3, least) if len(rows) > room - 2 else 0
    names = max(len(option.name) for option in rows)
    yield ""
    yield _setting(f"{'SETTING':<{names}}", "VALUE", "DEFAULT", "WHY", width)
    for option in rows[: len(rows) - left]:
        default = cut(printable(option.default or option.unset), 10) or "-"
        yield _setting(f"{option.name:<{names}}", printable(option.value) or "-", default, option.brief, width)
    if left:
        yield f"  and {left} more; --format report shows all"


def _setting(name: str, value: str, default: str, why: str, width: int) -> str:
    """Return a row of the settings: name and value whole, the default and the reason as far as there is room."""
    row = f"  {name}  {value:<11}"
    room = width - len(row) - 1
    row += f" {default:<10}" if room >= 10 else ""
    return (f"{row} {cut(why, room - 11)}" if room >= 15 else row).rstrip()


def _warnings(recommendation: Recommendation) -> Iterator[str]:
    """Show what needs action, two lines each at most."""
    findings = sorted(
        recommendation.findings, key=lambda finding: [*SEVERITIES, "warn", finding.severity].index(finding.severity)
    )
    texts = [f"{SEVERITIES.get(finding.severity, 'warning')}: {finding.message}" for finding in findings]
    if asked := asked_of_clients(recommendation.resolved, recommendation.config):
        texts.insert(0, asked)
    if recommendation.request.vram_gib:
        texts += (f"warning: {text.partition('. ')[2]}" for text in on_empty_gpu(recommendation))
    if costs_accuracy(recommendation) and not any("accuracy" in text for text in texts):
        texts.append(f"accuracy: {given_up(recommendation.config)} may change answers; --format report says why")
    if texts:
        yield ""
    for text in texts[:WARNINGS]:
        yield from _cut(text, 2 if len(texts) > 1 else 3)
    if len(texts) > WARNINGS:
        yield f"and {len(texts) - WARNINGS} more; --format report has all"


def _cut(text: str, most: int) -> list[str]:
    """Return a warning in at most ``most`` lines: all of it if it fits, else its first sentence."""
    lines = wrap(text, "", "  ")
    return lines if len(lines) <= most else wrap(text.partition(". ")[0] + ".", "", "  ")[:most]
