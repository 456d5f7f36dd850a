"""``recommend compare``: the advisers' configurations beside ours, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from recommender.arguments import question_options

if TYPE_CHECKING:
    from recommender.beside import Beside, Setting, Value
    from recommender.pipeline import Recommendation
    from recommender.ranges import Range

FORMAT = 1
LABEL = 18
"""Columns of the values."""
HELP = """\b
Examples:
  recommend compare --gpu A100-80G --load single
  recommend compare --gpu L4 --load 16 --image 1280x720 --lmdeploy 0.9.2
  recommend compare --gpu A100-80G --json

\b
Exit codes: 0 done; 1 nothing of ours fits, the advisers are shown all the same;
2 the command line is wrong.
"""


@click.command(epilog=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@question_options
@click.option("--json", "as_json", is_flag=True, help="The comparison as JSON on stdout.")
def compare(as_json: bool, **options: Any) -> None:
    """Show the advisers' configurations beside ours for one request, setting by setting."""
    from recommender import arguments, terminal
    from recommender.beside import beside
    from recommender.store import load

    found = beside(arguments.asked(options), load())
    if as_json:
        terminal.show_json(published(found))
    else:
        terminal.show(lines(found))
    if found.nothing:
        raise found.nothing


def published(found: Beside) -> dict[str, object]:
    """The JSON form: ``format`` (rises when a field changes its meaning), ``request``, ``lmdeploy``, ``gpu``,
    ``model``, ``ours`` (null where nothing fits, then ``nothing_fits`` says why), ``advisers``, ``settings``.

    Ours and each adviser: adviser, fits, refused (options that the release's parser does not know), config, memory
    (total_bytes, low_bytes, high_bytes, kv_tokens), speed, findings. A setting: option, name, kind, state (read,
    unread, gone), default, ours and given (adviser, value, up_to, left, reason), sources of our reason, verdicts
    (claim, advisers, verdict, statement, because, sources).
    """
    from recommender.terminal import plain

    facts = found.facts
    return {
        "format": FORMAT,
        "request": plain(facts.request),
        "lmdeploy": facts.release.id,
        "gpu": facts.gpu.id,
        "model": facts.model.id,
        "nothing_fits": str(found.nothing) if found.nothing else "",
        "ours": plain(_outcome(found.ours)) if found.ours else None,
        "advisers": [plain(_outcome(each)) for each in found.advised],
        "settings": plain(found.settings),
    }


def _outcome(found: Recommendation) -> dict[str, object]:
    from recommender.beside import OURS, refused, rejected

    return {
        "adviser": found.adviser or OURS,
        "fits": not rejected(found),
        "refused": refused(found),
        "config": found.config,
        "memory": {
            "total_bytes": found.memory.total,
            "low_bytes": found.memory.low,
            "high_bytes": found.memory.high,
            "kv_tokens": found.memory.kv_tokens,
        },
        "speed": found.speed,
        "findings": found.findings,
    }


def lines(found: Beside) -> Iterator[str]:
    """The text of 80 columns."""
    from recommender.terminal import wrap

    facts = found.facts
    images = f", {facts.images} x {facts.image_width}x{facts.image_height}" if facts.images else ""
    for note in facts.notes:
        yield from wrap(f"note: {note}")
    yield from wrap(
        f"{facts.model.hub} on {facts.gpu.name}, LMDeploy {facts.release.id}: "
        f"{facts.concurrency} in flight{images}, {facts.output_tokens} tokens out."
    )
    yield ""
    yield from _table(found)
    yield ""
    yield "SETTINGS"
    yield from wrap(
        "Each value with those who gave it; (default) is what LMDeploy takes where they left it open.", "  ", "  "
    )
    for each in found.settings:
        yield ""
        yield from _setting(each, facts.release.id)


def _table(found: Beside) -> Iterator[str]:
    from recommender.beside import OURS, rejected
    from recommender.terminal import wrap

    yield "EXPECTED"
    yield f"  {'':<8} {'fits':<9}{'GiB a card':<20}{'seconds a request':<20}requests/s"
    against: dict[tuple[str, str], list[str]] = {}
    for each in (*((found.ours,) if found.ours else ()), *found.advised):
        name = each.adviser or OURS
        yield _row(name, each)
        for finding in rejected(each):
            against.setdefault((finding.message, finding.remedy), []).append(name)
    basis = (found.ours or found.advised[0]).speed.basis
    yield from wrap(
        f"Fits: starts on this release and does what was asked. Figures: predicted, {basis}; what does not fit "
        "is predicted as if it did. --follow NAME tells everything that speaks against one of them.",
        "  ",
        "  ",
    )
    if against:
        yield ""
        yield "WHY THEY DO NOT FIT"
    for (message, remedy), names in against.items():
        yield from wrap(f"{', '.join(names)}: {message}", "  ", "    ")
        if remedy:
            yield from wrap(f"mend: {remedy}", "    ", "    ")


def _row(name: str, each: Recommendation) -> str:
    from recommender.beside import refused, rejected
    from recommender.render import gib

    memory, latency, rate = each.memory, each.speed.latency_ms, each.speed.rps
    gibs = f"{gib(memory.total)} ({gib(memory.low)}-{gib(memory.high)})"
    fits = "no start" if refused(each) else "no" if rejected(each) else "yes"
    return f"  {name:<8} {fits:<9}{gibs:<20}{_span(latency, 1000):<20}{_span(rate)}"


def _span(figure: Range, unit: float = 1) -> str:
    return f"{_digits(figure.value / unit)} ({_digits(figure.low / unit)}-{_digits(figure.high / unit)})"


def _digits(value: float) -> str:
    """About three digits, without an exponent."""
    return f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def _setting(each: Setting, release: str) -> Iterator[str]:
    from recommender.explain import opened
    from recommender.render import cite
    from recommender.terminal import labelled, wrap

    yield f"  {each.name}"
    if each.state != "read":
        why = {"gone": f"is not in {release}: a server started with it ends", "unread": f"does nothing in {release}"}
        yield from wrap(f"{why[each.state]}{' on TurboMind' if each.state == 'unread' else ''}", "    ", "    ")
    if each.ours.value or each.ours.reason:
        said = "ours" if each.ours.left else f"ours: {each.ours.reason}"
        yield from labelled(_value(each.ours), said, "    ", LABEL)
        if not each.ours.left and opened(each.sources):
            yield from wrap(f"[{cite(each.sources)}]", " " * (4 + LABEL), " " * (4 + LABEL))
    givers: dict[str, list[str]] = {}
    for value in sorted(each.given, key=lambda value: value.left):
        givers.setdefault(_value(value), []).append(value.adviser)
    for text, names in givers.items():
        yield from labelled(text, ", ".join(names), "    ", LABEL)
    for verdict in each.verdicts:
        by = f" ({', '.join(verdict.advisers)})" if verdict.advisers else ""
        yield from wrap(f"{verdict.verdict}: {verdict.statement}{by}", "    ", "      ")


def _value(value: Value) -> str:
    text = f"{value.value or 'none'} to {value.up_to}" if value.up_to else value.value or "none"
    return f"{text} (default)" if value.left else text
