"""Format a comparison as 80-column text that claims no more than the counts support."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from recommender.common.terminal import cut
from recommender.common.text import count, masked
from recommender.smoke.bench import statistics
from recommender.smoke.bench.comparison import MADE_UP, ScriptComparison, differing_settings, one_pass
from recommender.smoke.record import clean_message
from recommender.smoke.report import wrap

SHOWN = 10  # images with different answers to list
LEAST_LONE = 6  # fewer discordant pairs can never be significant


def text(compared: ScriptComparison) -> str:
    """Return the comparison as text."""
    lines = [
        *_head(compared),
        *_speed(compared),
        *_agreement(compared),
        *_accuracy(compared),
        *_failed(compared),
        *_different(compared),
    ]
    failure = compared.failure
    lines += ["", "RESULT", *wrap(f"{failure.kind.name}: {clean_message(failure.message)}" if failure else "ok")]
    return "\n".join(lines) + "\n"


def _head(compared: ScriptComparison) -> Iterator[str]:
    question, folder, result = compared.a.question, compared.folder, compared.a.result
    yield "COMPARISON"
    yield from (line for name, side in compared.sides.items() for line in wrap(f"{name}: {side.request.artefact.name}"))
    total = f" of {len(folder.names)}" if len(folder.pictures) < len(folder.names) else ""
    images = f"{len(folder.pictures)}{total} images of {masked(compared.place)}, concurrency {question.concurrency}"
    yield from wrap(f"{images}, temperature 0, at most {question.max_tokens} tokens")
    yield from wrap(f"prompt: {masked(question.prompt)}")
    if result:
        release = compared.a.request.recommendation.resolved.release.id
        yield from wrap(f"{result.host.gpu_count} x {result.host.gpu_name}, LMDeploy {release}")
    yield from wrap(f"weights: {', '.join(dict.fromkeys(side.request.checkpoint for side in compared.sides.values()))}")
    differences = differing_settings(compared)
    if compared.b and not differences:
        yield from wrap("A and B have the same settings")
    if differences:
        yield from ("", f"{'SETTINGS that differ':<30}{'A':>24}{'B':>24}")
        yield from (f"  {cut(name, 27):<28}{cut(a, 23):>24}{cut(b, 23):>24}" for name, (a, b) in differences.items())


def _speed(compared: ScriptComparison) -> Iterator[str]:
    """Yield one column a pass, and B relative to A; memory excludes the idle GPU."""
    columns = {name: statistics.measure_speed(answers) for name, answers in compared.passes()}
    if not columns:
        return
    yield from (
        "",
        f"{'SPEED':<26}" + "".join(f"{name:>13}" for name in columns) + f"{'B vs A':>14}" * ("B" in columns),
    )
    for name in ("rate", "median_ms", "p95_ms"):
        shown_as = {"rate": "images/s"}.get(name, name.replace("_", " "))
        yield _row(shown_as, {which: getattr(column, name) for which, column in columns.items()}, ",.1f")
    ready: dict[str, float] = {}
    peak: dict[str, float] = {}
    for name, sitting in compared.sides.items():
        if sitting.result and sitting.rounds:
            ready[name] = sitting.result.ready_mib - sitting.result.idle_mib
    for name, answers in compared.passes():
        result = compared.sides[name[0]].result
        peak[name] = answers.peak_mib - result.idle_mib if result else 0
    yield _row("VRAM ready MiB", {which: ready.get(which) for which in columns}, ",.0f")
    yield _row("VRAM peak MiB", peak, ",.0f")


def _row(name: str, values: Mapping[str, float | None], form: str) -> str:
    cells = "".join(f"{'' if value is None else format(value, form):>13}" for value in values.values())
    a, b = values.get("A"), values.get("B")
    return f"  {name:<24}{cells}" + (f"{100 * (b / a - 1):>+12.1f} %" if a and b is not None else "")


def _agreement(compared: ScriptComparison) -> Iterator[str]:
    contrast = compared.contrast
    if not contrast.agreement and not contrast.itself:
        return
    yield from ("", f"{'AGREEMENT':<30}{'same':>16}{'share':>14}  95 % interval")
    if contrast.agreement:
        yield _share_row("A with B", contrast.agreement)
    if contrast.itself:
        yield _share_row("A with itself, asked again", contrast.itself)
    if compared.synthetic:
        yield from wrap(MADE_UP)
    elif contrast.agreement:
        yield from wrap(_compare_to_repeat(contrast))


def _compare_to_repeat(contrast: statistics.AnswerStatistics) -> str:
    """Return how A's disagreement with B compares with its own repeat."""
    pairs = contrast.beyond
    if pairs is None:
        return "A was asked once, so its own unsteadiness is unknown"
    if not pairs.first and not pairs.second:
        return (
            f"over {pairs.of} images B changes nothing that A's repeat does not; smaller differences need more images"
        )
    counts = (
        f"B alone differs from A's first answer on {count(pairs.first, 'image')}, A's repeat alone on "
        f"{count(pairs.second, 'image')}; if A and B were equal, chance would give such counts in "
        f"{percent(pairs.p_value)} of cases: "
    )
    if pairs.p_value < statistics.SURE and pairs.first > pairs.second:
        return counts + "B differs more than A's own unsteadiness"
    if pairs.p_value < statistics.SURE:
        return counts + "A agrees with B more than with itself; check its repeat"
    return counts + "A's own unsteadiness may explain this"


def _accuracy(compared: ScriptComparison) -> Iterator[str]:
    accuracy = compared.contrast.accuracy
    if compared.labels is None:
        yield from wrap("pass --labels to see which answers are right")
        return
    if accuracy is None:
        return
    yield from ("", f"{'ACCURACY by the labels':<30}{'right':>16}{'share':>14}  95 % interval")
    for name, share in (("A", accuracy.a), ("A, asked again", accuracy.again), ("B", accuracy.b)):
        if share:
            yield _share_row(name, share)
    if compared.synthetic:
        yield from wrap(MADE_UP)
    elif accuracy.pairs:
        yield from wrap(_describe_pairs(accuracy.pairs))
        change = f"B's accuracy minus A's is {_points(accuracy.difference)} points"
        yield from wrap(f"{change}, 95 % interval {_points(accuracy.low)} to {_points(accuracy.high)}")
        yield from wrap(_verdict(accuracy.pairs))


def _describe_pairs(pairs: statistics.Pairs) -> str:
    """Return the discordant pairs in words."""
    if not pairs.first and not pairs.second:
        return f"on all {count(pairs.of, 'image')} with a label, A and B are both right or both wrong"
    return (
        f"only B is right {_times(pairs.second)}, only A {_times(pairs.first)}; chance "
        f"alone gives such a difference in {percent(pairs.p_value)} of cases"
    )


def _verdict(pairs: statistics.Pairs) -> str:
    """Return which side is more accurate, if chance cannot explain it."""
    if pairs.p_value < statistics.SURE:
        return f"{'B' if pairs.second > pairs.first else 'A'} is more accurate on such images"
    verdict = f"these {count(pairs.of, 'image')} do not show which is more accurate"
    if pairs.first + pairs.second < LEAST_LONE:
        verdict += f": at least {LEAST_LONE} images that only one gets right are needed"
    return verdict


def _failed(compared: ScriptComparison) -> Iterator[str]:
    lines: list[str] = []
    for name, answers in compared.passes():
        for cause, (times, message) in statistics.count_failures(answers).items():
            lines += wrap(f"{name}: {times} x {cause}: {clean_message(message)}")
        remaining = len(compared.folder.pictures) - len(answers.answers)
        lines += wrap(f"{name}: {count(remaining, 'image')} not asked") if remaining else []
    if not compared.b and compared.a.failure:
        lines += wrap("B was not started; A's results are above")
    elif compared.b and compared.b.failure:
        lines += wrap(f"B ended early ({compared.b.failure.kind.name}); A's results are complete")
    broken = [f"{masked(name)} ({message})" for name, message in compared.folder.unreadable.items()]
    if broken:
        more = f" and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        lines += wrap(f"unreadable, not asked: {', '.join(broken[:SHOWN])}{more}")
    if compared.folder.passed_by:
        lines += wrap(f"{compared.folder.passed_by} files of other image formats were skipped")
    if lines:
        yield from ("", "NOT ANSWERED", *lines)


def _different(compared: ScriptComparison) -> Iterator[str]:
    names = compared.contrast.different
    if not names:
        return
    which = f", the first {SHOWN} of {len(names)}; --json has all" if len(names) > SHOWN else f": {len(names)}"
    labelled, again = compared.labels is not None, one_pass(compared.a, 1)
    heads = ["A", *(["A again"] if again else []), "B", *(["label"] if labelled else [])]
    yield from ("", f"DIFFERENT ANSWERS{which}")
    yield f"  {'image':<30}" + "".join(f"{head:>12}" for head in heads)
    rounds = [one_pass(compared.a, 0), *([again] if again else []), one_pass(compared.b, 0)]
    for name in names[:SHOWN]:
        answers = [
            image_round.answers[name] if image_round and name in image_round.answers else None for image_round in rounds
        ]
        cells = ["-" if answer is None else answer.cause or _value(answer.value) for answer in answers]
        cells += [_value((compared.labels or {})[name]) if name in (compared.labels or {}) else "-"] if labelled else []
        shortened = masked(name) if len(name) <= 29 else "..." + masked(name)[-26:]
        yield (f"  {shortened:<30}" + "".join(f"{cut(cell, 11):>12}" for cell in cells)).rstrip()


def _share_row(name: str, share: statistics.Share) -> str:
    return (
        f"  {name:<28}{f'{share.count} of {share.of}':>16}{100 * share.count / share.of:>12.1f} %"
        f"  {100 * share.low:.1f} to {100 * share.high:.1f} %"
    )


def percent(chance: float) -> str:
    """Return a probability as a percentage with sensible digits."""
    percentage = 100 * chance
    return "under 0.1 %" if percentage < 0.1 else f"{percentage:.1f} %" if percentage < 10 else f"{percentage:.0f} %"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _value(value: Any) -> str:
    return masked(value if isinstance(value, str) else json.dumps(value))
