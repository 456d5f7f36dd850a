"""A comparison as a text of 80 columns; it claims no more than the counts bear out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from recommender.smoke import contrast
from recommender.smoke.compared import MADE_UP, Compared, differing, one_pass
from recommender.smoke.record import shown
from recommender.smoke.report import wrapped

WIDTH = 80
SHOWN = 10  # pictures with different answers that the text lists
LEAST_LONE = 6  # below so many lone right answers no outcome is surer than that


def text(made: Compared) -> str:
    """The comparison as people read it."""
    lines = [*_head(made), *_speed(made), *_agreement(made), *_accuracy(made), *_failed(made), *_different(made)]
    failure = made.failure
    lines += ["", "RESULT", *wrapped(f"{failure.kind.name}: {shown(failure.said)}" if failure else "ok")]
    return "\n".join(lines) + "\n"


def _head(made: Compared) -> Iterator[str]:
    question, folder, taken = made.a.question, made.folder, made.a.taken
    yield "COMPARISON"
    yield from (line for name, each in made.sides.items() for line in wrapped(f"{name}: {each.asked.artefact.name}"))
    of = f" of {len(folder.names)}" if len(folder.pictures) < len(folder.names) else ""
    asked = f"{len(folder.pictures)}{of} images of {_safe(made.place)}, {question.in_flight} in flight"
    yield from wrapped(f"{asked}, temperature 0, at most {question.max_tokens} tokens")
    yield from wrapped(f"asked: {_safe(question.prompt)}")
    if taken:
        yield from wrapped(
            f"{taken.host.gpu_count} x {taken.host.gpu_name}, LMDeploy {made.a.asked.found.facts.release.id}"
        )
    yield from wrapped(f"weights: {', '.join(dict.fromkeys(each.asked.checkpoint for each in made.sides.values()))}")
    found = differing(made)
    if made.b and not found:
        yield from wrapped("A and B have the same settings")
    if found:
        yield from ("", f"{'SETTINGS that differ':<30}{'A':>24}{'B':>24}")
        yield from (f"  {_cut(name, 27):<28}{_cut(a, 23):>24}{_cut(b, 23):>24}" for name, (a, b) in found.items())


def _speed(made: Compared) -> Iterator[str]:
    """One column a pass, and what B is beside A's first; memory is a launch's, above the idle card."""
    columns = {name: contrast.speed(each) for name, each in made.passes()}
    if not columns:
        return
    yield from (
        "",
        f"{'SPEED':<26}" + "".join(f"{name:>13}" for name in columns) + f"{'B against A':>14}" * ("B" in columns),
    )
    for name in ("rate", "median_ms", "p95_ms"):
        shown_as = {"rate": "images/s"}.get(name, name.replace("_", " "))
        yield _row(shown_as, {which: getattr(each, name) for which, each in columns.items()}, ",.1f")
    ready: dict[str, float] = {}
    peak: dict[str, float] = {}
    for name, sitting in made.sides.items():
        if sitting.taken and sitting.rounds:
            ready[name] = sitting.taken.ready_mib - sitting.taken.idle_mib
    for name, each in made.passes():
        taken = made.sides[name[0]].taken
        peak[name] = each.peak_mib - taken.idle_mib if taken else 0
    yield _row("VRAM ready MiB", {which: ready.get(which) for which in columns}, ",.0f")
    yield _row("VRAM peak MiB", peak, ",.0f")


def _row(name: str, values: Mapping[str, float | None], form: str) -> str:
    cells = "".join(f"{'' if each is None else format(each, form):>13}" for each in values.values())
    a, b = values.get("A"), values.get("B")
    return f"  {name:<24}{cells}" + (f"{100 * (b / a - 1):>+12.1f} %" if a and b is not None else "")


def _agreement(made: Compared) -> Iterator[str]:
    found = made.found
    if not found.agreement and not found.itself:
        return
    yield from ("", f"{'AGREEMENT':<30}{'same':>16}{'share':>14}  95 % interval")
    if found.agreement:
        yield _counted("A with B", found.agreement)
    if found.itself:
        yield _counted("A with itself, asked again", found.itself)
    if made.synthetic:
        yield from wrapped(MADE_UP)
    elif found.agreement:
        yield from wrapped(_beyond(found))


def _beyond(found: contrast.Contrast) -> str:
    """What the disagreement of A and B is beside that of A with itself."""
    pairs = found.beyond
    if pairs is None:
        return "A was not asked twice, so it cannot be told how much of this is A's own unsteadiness"
    if not pairs.first and not pairs.second:
        return f"on {pairs.of} images B changes nothing that A's repeat does not; rarer differences need more images"
    said = (
        f"B alone differs from A's first answer on {_images(pairs.first)}, A's repeat alone on "
        f"{_images(pairs.second)}; were B no other than A, so uneven a count would come in "
        f"{percent(pairs.p_value)} of cases: "
    )
    if pairs.p_value < contrast.SURE and pairs.first > pairs.second:
        return said + "B's answers differ by more than A's own unsteadiness"
    if pairs.p_value < contrast.SURE:
        return said + "A agrees with B more than with itself; see what its repeat changes"
    return said + "this may be A's own unsteadiness"


def _accuracy(made: Compared) -> Iterator[str]:
    found = made.found.accuracy
    if made.labels is None:
        yield from wrapped("without --labels nothing says which of two answers is right")
        return
    if found is None:
        return
    yield from ("", f"{'ACCURACY by the labels':<30}{'right':>16}{'share':>14}  95 % interval")
    for name, each in (("A", found.a), ("A, asked again", found.again), ("B", found.b)):
        if each:
            yield _counted(name, each)
    if made.synthetic:
        yield from wrapped(MADE_UP)
    elif found.pairs:
        yield from wrapped(_lone(found.pairs))
        change = f"B's accuracy less A's is {_points(found.difference)} points"
        yield from wrapped(f"{change}, 95 % interval {_points(found.low)} to {_points(found.high)}")
        yield from wrapped(_more_accurate(found.pairs))


def _lone(pairs: contrast.Pairs) -> str:
    """The discordant pairs in words."""
    if not pairs.first and not pairs.second:
        return f"on all {_images(pairs.of)} with a label A and B are right together or wrong together"
    return (
        f"B is right where A is wrong {_times(pairs.second)}, A where B is wrong {_times(pairs.first)}; by chance "
        f"alone a difference so large comes in {percent(pairs.p_value)} of cases"
    )


def _more_accurate(pairs: contrast.Pairs) -> str:
    """The verdict, which is none where chance would do."""
    if pairs.p_value < contrast.SURE:
        return f"{'B' if pairs.second > pairs.first else 'A'} is more accurate on images such as these"
    said = f"these {_images(pairs.of)} cannot tell which is more accurate"
    if pairs.first + pairs.second < LEAST_LONE:
        said += f": that takes {LEAST_LONE} or more on which only one is right"
    return said


def _failed(made: Compared) -> Iterator[str]:
    lines: list[str] = []
    for name, each in made.passes():
        for cause, (count, said) in contrast.failures(each).items():
            lines += wrapped(f"{name}: {count} x {cause}: {shown(said)}")
        left = len(made.folder.pictures) - len(each.answers)
        lines += wrapped(f"{name}: {_images(left)} not asked any more") if left else []
    if not made.b and made.a.failure:
        lines += wrapped("B was not started; what A gave is above")
    elif made.b and made.b.failure:
        lines += wrapped(f"B ended early ({made.b.failure.kind.name}); what A gave is kept and counted")
    broken = [f"{_safe(name)} ({said})" for name, said in made.folder.unreadable.items()]
    if broken:
        more = f" and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        lines += wrapped(f"unreadable, not asked: {', '.join(broken[:SHOWN])}{more}")
    if made.folder.passed_by:
        lines += wrapped(f"{made.folder.passed_by} files of other picture formats were left out")
    if lines:
        yield from ("", "NOT ANSWERED", *lines)


def _different(made: Compared) -> Iterator[str]:
    names = made.found.different
    if not names:
        return
    which = f", the first {SHOWN} of {len(names)}; --json has all" if len(names) > SHOWN else f": {len(names)}"
    labelled, again = made.labels is not None, one_pass(made.a, 1)
    heads = ["A", *(["A again"] if again else []), "B", *(["label"] if labelled else [])]
    yield from ("", f"DIFFERENT ANSWERS{which}")
    yield f"  {'image':<30}" + "".join(f"{each:>12}" for each in heads)
    rounds = [one_pass(made.a, 0), *([again] if again else []), one_pass(made.b, 0)]
    for name in names[:SHOWN]:
        given = [each.answers[name] if each and name in each.answers else None for each in rounds]
        cells = ["-" if each is None else each.cause or _value(each.value) for each in given]
        cells += [_value((made.labels or {})[name]) if name in (made.labels or {}) else "-"] if labelled else []
        shortened = _safe(name) if len(name) <= 29 else "..." + _safe(name)[-26:]
        yield (f"  {shortened:<30}" + "".join(f"{_cut(each, 11):>12}" for each in cells)).rstrip()


def _counted(name: str, share: contrast.Share) -> str:
    return (
        f"  {name:<28}{f'{share.count} of {share.of}':>16}{100 * share.count / share.of:>12.1f} %"
        f"  {100 * share.low:.1f} to {100 * share.high:.1f} %"
    )


def percent(chance: float) -> str:
    """A chance as a percentage with as many digits as it is worth."""
    of = 100 * chance
    return "under 0.1 %" if of < 0.1 else f"{of:.1f} %" if of < 10 else f"{of:.0f} %"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"


def _value(value: Any) -> str:
    return _safe(value if isinstance(value, str) else json.dumps(value))


def _safe(said: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in said)


def _cut(said: str, most: int) -> str:
    return said if len(said) <= most else said[: most - 3] + "..."
