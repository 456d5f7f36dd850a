"""The first thing a person sees of a recommendation: one screen of 30 lines and 80 columns."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from recommender.common.terminal import cut, labelled, wrap
from recommender.common.text import WIDTH, count, printable
from recommender.estimate import memory
from recommender.knowledge.engines import LABELS
from recommender.render.report import costs_accuracy, on_empty_gpu
from recommender.render.summary import against_defaults, describe_load, gib, missing, replayed_misses

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.estimate.uncertainty import Range

LINES = 30
WARNINGS = 3
LAST = frozenset({"server", "security", "model"})
"""Topics of options that change neither memory nor speed; they come last."""
BAR = 30
"""Most columns of the memory bar."""


START = {
    "bash": "bash serve.sh",
    "command": "bash command.sh",
    "docker": "bash docker.sh",
    "python": "python3 pipeline.py",
    "client": "python3 client.py",
}
"""How a format starts; the others are read by other programs."""


def screen(
    recommendation: Recommendation,
    told: Collection[str],
    words: Collection[str],
    file: str,
    drawn: bool = False,
    form: str = "bash",
) -> str:
    """Return what is recommended, what to expect of it and what to do next.

    ``told`` are the options that were given, ``words`` the command line, ``file`` where the output of ``form`` went
    (empty: stdout). ``drawn``: with a bar, which a terminal shows and a screen reader would spell.
    """
    head = [*_subject(recommendation), *_assumed(recommendation, told), "", *_expect(recommendation, drawn)]
    tail = [*_warnings(recommendation), "", *_next(recommendation, words, file, form)]
    room = LINES - len(head) - len(tail)
    lines = [*head, *_settings(recommendation, room), *tail]
    while len(lines) > LINES and "" in lines:
        lines.remove("")
    return "\n".join(lines) + "\n"


def brief(recommendation: Recommendation, told: Collection[str]) -> Iterator[str]:
    """Yield the lines of ``screen`` without the settings and what to do next."""
    yield from (*_subject(recommendation), *_assumed(recommendation, told), "")
    yield from (*_expect(recommendation, False), *_warnings(recommendation))


def _subject(recommendation: Recommendation) -> Iterator[str]:
    resolved, config = recommendation.resolved, recommendation.config
    servers = f", {config.servers} servers" if config.servers > 1 else ""
    gpus = f"{config.cards} x {resolved.gpu.name}"
    engine = "" if config.backend == "turbomind" else f", {LABELS[config.backend].title}"
    yield from wrap(f"{resolved.model.hub} on {gpus}{servers}, LMDeploy {resolved.release.id}{engine}")
    yield from wrap(describe_load(resolved, config))


def _assumed(recommendation: Recommendation, told: Collection[str]) -> Iterator[str]:
    assumed = list_assumptions(recommendation, told)
    notes = [note for note in recommendation.resolved.notes if "CPU cores" not in note]
    if assumed:
        yield from labelled("assumed", ", ".join(assumed), "", 9)
    for note in (*notes, *_idle(recommendation)):
        yield from labelled("note", note, "", 9)


def list_assumptions(recommendation: Recommendation, told: Collection[str]) -> list[str]:
    """Return what the prediction rests on although nobody said it; ``told`` are the options that were given."""
    resolved, request = recommendation.resolved, recommendation.request
    described = {"workload", "trace"} & set(told)
    assumed = []
    if "lmdeploy" not in told:
        assumed.append(f"LMDeploy {resolved.release.id}")
    if "model" not in told:
        assumed.append(f"model {resolved.model.id}")
    if resolved.images and not {"image", *described} & set(told):
        assumed.append(f"{count(resolved.images, 'image')} of {resolved.image_width}x{resolved.image_height}")
    if not described and "prompt_tokens" not in told:
        assumed.append(f"{count(resolved.prompt_tokens, 'token')} of text in")
    if not described and "output_tokens" not in told:
        assumed.append(f"{count(resolved.output_tokens, 'token')} out")
    if resolved.response_schema and not {"prompt", "schema", *described} & set(told):
        assumed.append("answers in JSON")
    if not {"load", "rps", "trace"} & set(told):
        assumed.append("one request at a time")
    if "cpus" not in told:
        assumed.append(count(request.cpus, "CPU core"))
    if not (request.revision or resolved.local or resolved.model.remote_code):
        assumed.append("the model's newest revision")
    return assumed


def _idle(recommendation: Recommendation) -> Iterator[str]:
    """Say why GPUs are left over."""
    used, given = recommendation.config.cards, recommendation.request.gpu_count
    if used >= given:
        return
    uneven = given & (given - 1) and recommendation.config.tp > 1
    why = "a model is split over 2, 4 or 8" if uneven else "more would not help this load"
    yield f"{used} of {given} GPUs are used: {why}"


def _expect(recommendation: Recommendation, drawn: bool) -> Iterator[str]:
    predicted, used = recommendation.speed, recommendation.memory
    resolved = recommendation.resolved
    low, high = memory.likely_range(resolved, used, recommendation.config.tp)
    yield f"EXPECT ({predicted.basis})"
    each = " each" if recommendation.config.cards > 1 else ""
    row = _row("GPU memory", gib(used.total), "GiB", gib(low), gib(high), f"of {gib(resolved.available_bytes)}{each}")
    columns = min(BAR, WIDTH - len(row) - 1)
    share = min(used.total / resolved.available_bytes, 1)
    yield row + (f" {'█' * max(round(share * columns), 1):░<{columns}}" if drawn else "")
    loaded = resolved.concurrency > recommendation.config.servers or resolved.rps
    rows: list[tuple[str, Range, str]] = [
        ("latency", predicted.latency_ms, "ms"),
        ("p99 latency", predicted.p99_ms, "ms"),
        ("TTFT", predicted.ttft_ms, "ms"),
    ]
    if resolved.output_tokens > 1 and not resolved.images:
        rows.append(("TPOT", predicted.token_ms, "ms"))
    rows.append(("rate", predicted.rps, "requests/s"))
    for name, figure, unit in rows:
        places = _digits(figure.value) if unit == "ms" else 1 if figure.value >= 1 else 3
        shown, low_end, high_end = (f"{end:,.{places}f}" for end in (figure.value, figure.low, figure.high))
        yield _row(name, shown, unit, low_end, high_end, "mean under load" if loaded and name == "latency" else "")
    if text := against_defaults(recommendation):
        yield from labelled("defaults", text, "  ", 12)
    if replayed := predicted.replayed:
        ttft, latency = replayed.ttft, replayed.latency
        yield from wrap(
            f"replayed: {len(resolved.request.replay):,} requests of the trace as they came; "
            f"TTFT p50 {ttft.p50:,.0f} ms, p99 {ttft.p99:,.0f} ms; "
            f"latency p50 {latency.p50:,.0f} ms, p99 {latency.p99:,.0f} ms",
            "  ",
            "            ",
        )
        for missed in replayed_misses(recommendation):
            yield from wrap(missed, "            ", "            ")


def _digits(value: float) -> int:
    return 0 if value >= 20 else 1 if value >= 1 else 3


def _row(name: str, value: str, unit: str, low: str, high: str, more: str = "") -> str:
    return f"  {name:<12}{value:>7} {unit:<11}{low} to {high}{'  ' if more else ''}{more}".rstrip()


def _settings(recommendation: Recommendation, room: int) -> Iterator[str]:
    """Show the options that differ from LMDeploy's defaults, as many as there is room for."""
    emitted = (option for option in recommendation.explanations if option.emitted)
    rows = [option for option in emitted if option.value not in (option.default, option.unset)]
    flags = recommendation.resolved.store.flags
    rows.sort(key=lambda option: option.option in flags and flags[option.option].topic in LAST)
    left = len(rows) - max(room - 3, 2) if len(rows) > room - 2 else 0
    names = max((len(option.name) for option in rows), default=0)
    yield ""
    yield f"  {'SETTING':<{names}}  {'VALUE':<12}{'DEFAULT':<10}WHY"
    for option in rows[: len(rows) - left]:
        default = _text(option.default or option.unset)
        yield cut(f"  {option.name:<{names}}  {_text(option.value):<12}{default:<10}{option.brief}")
    if left:
        yield f"  and {left} more; -v shows all, with reasons and sources"


def _text(value: str) -> str:
    return cut(printable(value), 11) or "-"


def _warnings(recommendation: Recommendation) -> Iterator[str]:
    """Show what needs action, two lines each at most."""
    texts = [f"warning: {finding.message}" for finding in recommendation.findings]
    if recommendation.request.vram_gib:
        texts += (f"warning: {text.partition('. ')[2]}" for text in on_empty_gpu(recommendation))
    if costs_accuracy(recommendation) and not any("accuracy" in text for text in texts):
        given_up = [f"{recommendation.config.kv_bits}-bit KV cache"] if recommendation.config.kv_bits < 16 else []
        given_up += ["fewer tiles per image"] if recommendation.config.max_tiles else []
        texts.append(f"accuracy: {' and '.join(given_up)} may change answers; -v says why")
    if texts:
        yield ""
    for text in texts[:WARNINGS]:
        yield from _cut(text, 2 if len(texts) > 1 else 3)
    if len(texts) > WARNINGS:
        yield f"and {len(texts) - WARNINGS} more warnings; see -v"


def _cut(text: str, most: int) -> list[str]:
    """Return a warning in so many lines at most: all of it, or its first sentence."""
    lines = wrap(text, "", "  ")
    return lines if len(lines) <= most else wrap(text.partition(". ")[0] + ".", "", "  ")[:most]


def _next(recommendation: Recommendation, words: Collection[str], file: str, form: str) -> Iterator[str]:
    yield "NEXT"
    pinned = form == "client" or not missing(recommendation)
    if form in START:
        program, name = START[form].split()
        script = shlex.quote(file or name)
        start = f"{'' if pinned else 'REVISION=COMMIT '}{program} {script}"
        yield from labelled("start", start + ("" if file else f"   (after: recommend ... > {name})"), "  ", 9)
    if not pinned:
        name = "COMMIT" if form in START else "REVISION"
        yield from labelled(
            name, f"see https://huggingface.co/{recommendation.resolved.model.hub}/commits/main", "  ", 9
        )
    if form in ("bash", "python"):
        yield from labelled("measure", f"recommend smoke {script}", "  ", 9)
    yield from labelled("why", shlex.join(["recommend", *words, "-v"]), "  ", 9)
