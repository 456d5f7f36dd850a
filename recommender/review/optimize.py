"""Rewrites a launch's values to what ``recommend`` would choose for it, in the author's own structure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from recommender import candidates, pipeline
from recommender import constraints as c
from recommender.choose import measure, pick
from recommender.explain import Explanation, explain
from recommender.review.case import ASSIGNED
from recommender.review.context import HEAD, MADE_BY
from recommender.review.engine import Review
from recommender.review.fix import Stretch, worse
from recommender.review.rule import Case, Setting
from recommender.review.script import Option, Place
from recommender.review.source import Source
from recommender.terminal import cut

AUTHORS = ASSIGNED | {"trust_remote_code", "backend", "model_format", "dtype", "tp"}
"""What the author knows better than a request says: addresses, safety, and what the checkpoint is."""
PLAIN = re.compile(r"[A-Za-z0-9_.,:/+-]+")
ALONE = {
    "bash": re.compile(r"""\s*(?:(?:export|local|readonly)\s+)?\w+=(?:"[^"\\`]*"|'[^']*'|[^\s"'\\`#]*)\s*"""),
    "python": re.compile(r"""\s*\w+\s*=\s*(?:"[^"\\]*"|'[^'\\]*'|[\w.+-]+),?\s*"""),
}
ROUNDS = 3
COMMENT, REASON = 90, 120


@dataclass(frozen=True)
class Change:
    """One value that becomes another: the edit, where, and why in a line."""

    edit: Stretch
    line: int
    what: str
    why: str


def optimize(source: Source, review: Review, look: Callable[[Source], Review]) -> tuple[Source, list[str]]:
    """The rewritten file and a line a change: line, what, why. Twice changes nothing more."""
    now, found, said = source, review, list[str]()
    for turn in range(ROUNDS):
        changes, notes = _changes(found)
        if turn == 0:
            said += notes
        if not changes:
            return now, said
        for chosen in (changes, [each for each in changes if each.edit[0] != each.edit[1]]):
            after = now.edited([*(each.edit for each in chosen), *_comments(found, chosen)])
            seen = look(after)
            if chosen and not worse(found, seen, ()):
                said += [f"{each.line}: {each.what}: {each.why}" for each in chosen]
                said += [f"{each.line}: add {each.what} by hand: {each.why}" for each in changes if each not in chosen]
                now, found = after, seen
                break
        else:
            return now, [*said, "1: the values could not be rewritten without breaking something; nothing was changed"]
    return now, said


def _changes(review: Review) -> tuple[list[Change], list[str]]:
    """The changes of all launches, without those that want one literal to be two values; and what was not done."""
    made: list[Change] = []
    notes: list[str] = []
    for case in review.cases:
        if case.launch.starts == "proxy":
            continue
        at = case.launch.place.line
        lacking = [need for need in ("gpu", "model", "load") if not getattr(case, f"{need}_known")]
        if lacking:
            notes.append(f"{at}: not optimized: say {' and '.join(f'--{need}' for need in lacking)}")
            continue
        wanted = _chosen(case)
        if wanted is None:
            notes.append(f"{at}: not optimized: nothing that recommend knows fits; recommend says what would")
            continue
        for each in wanted:
            found = list(_change(case, each))
            made += found
            if not found and _missing(case, each):
                notes.append(f"{at}: {_written(case, each)} is for you to add: {_reason(each)}")
    targets = [each.edit for each in made]
    torn = [each for each in made if any(each.edit[:2] == other[:2] and each.edit != other for other in targets)]
    torn = [each for each in torn if each.edit[0] != each.edit[1]]
    notes += [f"{each.line}: left: {each.what}, but the same literal serves another value too" for each in torn]
    return sorted(_joined([each for each in made if each not in torn]), key=lambda each: each.edit), notes


def _joined(changes: list[Change]) -> list[Change]:
    """One change a literal, and one insertion a spot."""
    found: dict[tuple[int, int], Change] = {}
    for each in changes:
        spot = each.edit[:2]
        if spot not in found:
            found[spot] = each
        elif spot[0] == spot[1]:
            first = found[spot]
            edit = (*spot, first.edit[2] + each.edit[2])
            found[spot] = Change(edit, first.line, f"{first.what}, {each.what}", f"{first.why}; {each.why}")
    return list(found.values())


def _chosen(case: Case) -> tuple[Explanation, ...] | None:
    """What recommend gives one server of this request; None where nothing fits.

    Where several servers behind a proxy would be better, it is the best of one; an artefact of ours has the several.
    """
    facts = case.facts
    try:
        found = pipeline.recommend(facts.request, facts.store)
    except pipeline.NothingFits:
        return None
    if found.config.servers == 1 or MADE_BY in case.script.text[:HEAD]:
        return found.explanations
    known = c.fact_values(facts)
    among = c.applicable(facts, known)
    for group in candidates.tiers(facts):
        tried = [measure(facts, each, known, ranged=False) for each in group if each.servers == 1]
        fits = [each for each in tried if not c.evaluate(among, each.values)]
        if fits:
            return explain(facts, measure(facts, pick(fits, facts.request.goal).config, known))
    return None


def _change(case: Case, wanted: Explanation) -> Iterator[Change]:
    """The change that gives a launch one value, if it needs one and one is safe."""
    if not _ours(case, wanted):
        return
    given = case.settings.get(wanted.option)
    value = wanted.value if wanted.emitted else wanted.default
    if given is None:
        if wanted.emitted and PLAIN.fullmatch(wanted.value) and not case.launch.unsure:
            yield from _added(case, wanted)
    elif given.text is not None and value and not _same(given.text, value) and PLAIN.fullmatch(value):
        yield from _rewritten(case, given, wanted, value)


def _ours(case: Case, wanted: Explanation) -> bool:
    """Whether recommend decides this option, and its author does not know better."""
    record = next((each for each in case.facts.store.options() if each.id == wanted.option), None)
    return bool(record and record.setting and record.setting not in AUTHORS and wanted.kind != "client")


def _missing(case: Case, wanted: Explanation) -> bool:
    """Whether a flag would be given and is not."""
    if wanted.kind != "flag" or not wanted.emitted or case.launch.unsure:
        return False
    return wanted.option not in case.settings and _ours(case, wanted)


def _written(case: Case, wanted: Explanation) -> str:
    """An option as the launch would have it."""
    if case.launch.starts == "pipeline":
        fields = case.facts.store.flags[wanted.option].fields
        return f"{fields[0].field if fields else wanted.name}={wanted.value}"
    return wanted.name if wanted.switch else f"{wanted.name} {wanted.value}"


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one.casefold() == other.casefold()


def _rewritten(case: Case, given: Setting, wanted: Explanation, value: str) -> Iterator[Change]:
    written = given.word.written if given.word else None
    if written is None or (wanted.switch and case.launch.starts != "pipeline"):
        return
    text = {"true": "True", "false": "False"}.get(value, value) if case.script.kind == "python" else value
    what = f"{given.option.name} {given.text} -> {value}"
    yield Change((written.start, written.end, text), written.line, what, _reason(wanted))


def _reason(wanted: Explanation) -> str:
    return cut(wanted.reason.partition(". ")[0].rstrip(".").replace("\n", " "), REASON)


# --- what is added


def _added(case: Case, wanted: Explanation) -> Iterator[Change]:
    """An option behind the command's last one, as the author writes options; a variable above the command."""
    if wanted.kind == "environment":
        yield from _exported(case, wanted)
        return
    end = _end(case)
    if case.script.kind not in ("bash", "command") or end is None or (wanted.switch and wanted.value != "true"):
        return
    style = "=" if any(_after(case, each) == "=" for each in case.launch.options) else " "
    text = wanted.name if wanted.switch else f"{wanted.name}{style}{wanted.value}"
    edit = (end.end, end.end, f"{_gap(case, end)}{text}")
    yield Change(edit, end.line, _written(case, wanted), _reason(wanted))


def _after(case: Case, option: Option) -> str:
    return case.script.text[option.place.end : option.place.end + 1]


def _parts(case: Case) -> list[Place]:
    """The command's parts in order: what it starts, the model, the options."""
    options = [each.whole for each in case.launch.options]
    model = [case.launch.model.place] if case.launch.model else []
    return sorted({*options, *model})


def _end(case: Case) -> Place | None:
    """The last part, behind which another can stand: the text goes on with a blank, a line's end or nothing."""
    parts = _parts(case)
    last = max(parts, key=lambda each: each.end, default=None)
    if last is None or case.script.text[last.end : last.end + 1] not in ("", " ", "\n", "\t", ")"):
        return None
    return last


def _gap(case: Case, last: Place) -> str:
    """What stands between the last two parts, if only blanks and line ends do."""
    before = [each for each in _parts(case) if each.end <= last.start]
    between = case.script.text[before[-1].end : last.start] if before else " "
    return between if re.fullmatch(r"[ \t]*(?:\\?\n)?[ \t]+", between) else " "


def _exported(case: Case, wanted: Explanation) -> Iterator[Change]:
    """``export NAME=value`` in a line of its own, where the command begins one."""
    text, place = case.script.text, case.launch.place
    start = text.rfind("\n", 0, place.start) + 1
    indent = text[start : place.start]
    if case.script.kind != "bash" or case.launch.container or indent.strip() or text[:start].endswith("\\\n"):
        return
    line = f"{indent}export {wanted.name}={wanted.value}\n"
    yield Change((start, start, line), place.line, f"{wanted.name}={wanted.value}", _reason(wanted))


# --- reasons beside the values


def _comments(review: Review, changes: list[Change]) -> Iterator[Stretch]:
    """The reason as a comment, where the value stands alone in its line and nothing else could read it."""
    pattern = ALONE.get(review.script.kind)
    if pattern is None:
        return
    text = review.script.text
    done = set()
    for each in changes:
        first, last, _ = each.edit
        start = text.rfind("\n", 0, first) + 1
        end = text.find("\n", last)
        end = len(text) if end < 0 else end
        if first == last or start in done or not pattern.fullmatch(text[start:end]):
            continue
        if text[:start].endswith("\\\n"):
            continue
        done.add(start)
        yield end, end, f"  # {cut(each.why, COMMENT)}"
