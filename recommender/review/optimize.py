"""Rewrite a launch's values to recommended ones, keeping the author's layout."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from recommender.choose import candidates, constraints, recommend
from recommender.choose.reasons import Explanation, explain
from recommender.choose.select import pick, predict
from recommender.common.terminal import cut
from recommender.review.engine import Review
from recommender.review.fix import Stretch, is_worse
from recommender.review.launch_settings import ASSIGNED
from recommender.review.rule import Case, LaunchSetting
from recommender.review.script.mentions import HEAD, MADE_BY
from recommender.review.script.model import Span
from recommender.review.script.source import Source

AUTHORS = ASSIGNED | {"trust_remote_code", "backend", "model_format", "dtype", "tp"}
"""What the author knows better than the request: addresses, safety, the checkpoint's format."""
PLAIN = re.compile(r"[A-Za-z0-9_.,:/+-]+")
ALONE = {
    "bash": re.compile(r"""\s*(?:(?:export|local|readonly)\s+)?\w+=(?:"[^"\\`]*"|'[^']*'|[^\s"'\\`#]*)\s*"""),
    "python": re.compile(r"""\s*\w+\s*=\s*(?:"[^"\\]*"|'[^'\\]*'|[\w.+-]+),?\s*"""),
}
ROUNDS = 3
COMMENT, REASON = 90, 120


@dataclass(frozen=True)
class ValueChange:
    """One changed value: the edit, its line, what and why."""

    edit: Stretch
    line: int
    what: str
    why: str


def optimize(source: Source, review: Review, look: Callable[[Source], Review]) -> tuple[Source, list[str]]:
    """Return the rewritten file and a line per change. Idempotent."""
    current, current_review, messages = source, review, list[str]()
    for turn in range(ROUNDS):
        changes, notes = _changes(current_review)
        if turn == 0:
            messages += notes
        if not changes:
            return current, messages
        for chosen in (changes, [change for change in changes if change.edit[0] != change.edit[1]]):
            after = current.edited([*(change.edit for change in chosen), *_comments(current_review, chosen)])
            review_after = look(after)
            if chosen and not is_worse(current_review, review_after, ()):
                messages += [f"{change.line}: {change.what}: {change.why}" for change in chosen]
                messages += [
                    f"{change.line}: add {change.what} by hand: {change.why}"
                    for change in changes
                    if change not in chosen
                ]
                current, current_review = after, review_after
                break
        else:
            messages.append("1: no value was changed: every change would cause another finding")
            break
    return current, messages


def _changes(review: Review) -> tuple[list[ValueChange], list[str]]:
    """Return the changes of all launches, and notes on what was not changed."""
    changes: list[ValueChange] = []
    notes: list[str] = []
    for case in review.cases:
        if case.launch.starts == "proxy":
            continue
        at = case.launch.place.line
        lacking = [need for need in ("gpu", "model", "load") if not getattr(case, f"{need}_known")]
        if lacking:
            notes.append(f"{at}: not optimized: pass {' and '.join(f'--{need}' for need in lacking)}")
            continue
        explanations = _recommended(case)
        if explanations is None:
            notes.append(f"{at}: not optimized: no configuration fits; recommend shows the nearest change")
            continue
        for explanation in explanations:
            option_changes = list(_change(case, explanation))
            changes += option_changes
            if not option_changes and _is_missing(case, explanation):
                notes.append(f"{at}: {_spelled(case, explanation)}: add it by hand: {_reason(explanation)}")
    texts: dict[tuple[int, int], set[str]] = {}
    for change in changes:
        texts.setdefault(change.edit[:2], set()).add(change.edit[2])
    torn = [change for change in changes if len(texts[change.edit[:2]]) > 1 and change.edit[0] != change.edit[1]]
    notes += [f"{change.line}: not changed: {change.what}: the same literal sets another value too" for change in torn]
    return sorted(_merge([change for change in changes if change not in torn]), key=lambda change: change.edit), notes


def _merge(changes: list[ValueChange]) -> list[ValueChange]:
    """Merge changes of one literal, and insertions at one place."""
    joined: dict[tuple[int, int], ValueChange] = {}
    for change in changes:
        spot = change.edit[:2]
        if spot not in joined:
            joined[spot] = change
        elif spot[0] == spot[1]:
            first = joined[spot]
            edit = (*spot, first.edit[2] + change.edit[2])
            joined[spot] = ValueChange(edit, first.line, f"{first.what}, {change.what}", f"{first.why}; {change.why}")
    return list(joined.values())


def _recommended(case: Case) -> tuple[Explanation, ...] | None:
    """Return the recommended settings of one server; None if nothing fits.

    If several servers behind a proxy would be better, return the best single one, except for generated files.
    """
    resolved = case.resolved
    try:
        recommendation = recommend.recommend(resolved.request, resolved.store)
    except recommend.NothingFits:
        return None
    if recommendation.config.servers == 1 or MADE_BY in case.script.text[:HEAD]:
        return recommendation.explanations
    known = constraints.fact_values(resolved)
    among = constraints.select_applicable(resolved, known)
    for group in candidates.tiers(resolved):
        measured = [predict(resolved, candidate, known, ranged=False) for candidate in group if candidate.servers == 1]
        fits = [candidate for candidate in measured if not constraints.evaluate(among, candidate.values)]
        if fits:
            return explain(resolved, predict(resolved, pick(fits, resolved.request.goal).config, known))
    return None


def _change(case: Case, wanted: Explanation) -> Iterator[ValueChange]:
    """Yield the change that sets one value, if needed and safe."""
    if not _is_decided_here(case, wanted):
        return
    given = case.settings.get(wanted.option)
    value = wanted.value if wanted.emitted else wanted.default
    if given is None:
        if wanted.emitted and PLAIN.fullmatch(wanted.value) and not case.launch.unsure:
            yield from _add_option(case, wanted)
    elif given.text is not None and value and not _same(given.text, value) and PLAIN.fullmatch(value):
        yield from _replace_value(case, given, wanted, value)


def _is_decided_here(case: Case, wanted: Explanation) -> bool:
    """Return whether recommend decides this option rather than the author."""
    record = next((option for option in case.resolved.store.options() if option.id == wanted.option), None)
    return bool(record and record.setting and record.setting not in AUTHORS and wanted.kind != "client")


def _is_missing(case: Case, wanted: Explanation) -> bool:
    """Return whether a recommended flag is missing."""
    if wanted.kind != "flag" or not wanted.emitted or case.launch.unsure:
        return False
    return wanted.option not in case.settings and _is_decided_here(case, wanted)


def _spelled(case: Case, wanted: Explanation) -> str:
    """Return an option as the launch would spell it."""
    if case.launch.starts == "pipeline":
        fields = case.resolved.store.flags[wanted.option].fields
        return f"{fields[0].field if fields else wanted.name}={wanted.value}"
    return wanted.name if wanted.switch else f"{wanted.name} {wanted.value}"


def _same(first: str, second: str) -> bool:
    try:
        return float(first) == float(second)
    except ValueError:
        return first.casefold() == second.casefold()


def _replace_value(case: Case, given: LaunchSetting, wanted: Explanation, value: str) -> Iterator[ValueChange]:
    written = given.word.written if given.word else None
    if written is None or (wanted.switch and case.launch.starts != "pipeline"):
        return
    text = {"true": "True", "false": "False"}.get(value, value) if case.script.kind == "python" else value
    what = f"{given.option.name} {given.text} -> {value}"
    yield ValueChange((written.start, written.end, text), written.line, what, _reason(wanted))


def _reason(wanted: Explanation) -> str:
    return cut(wanted.reason.partition(". ")[0].rstrip(".").replace("\n", " "), REASON)


# --- what is added


def _add_option(case: Case, wanted: Explanation) -> Iterator[ValueChange]:
    """Yield an option after the command's last one, or a variable above it."""
    if wanted.kind == "environment":
        yield from _add_export(case, wanted)
        return
    end = _end(case)
    if case.script.kind not in ("bash", "command") or end is None or (wanted.switch and wanted.value != "true"):
        return
    text = case.script.text
    style = "=" if any(text.startswith("=", option.place.end) for option in case.launch.options) else " "
    added = wanted.name if wanted.switch else f"{wanted.name}{style}{wanted.value}"
    edit = (end.end, end.end, f"{_gap(case, end)}{added}")
    yield ValueChange(edit, end.line, _spelled(case, wanted), _reason(wanted))


def _parts(case: Case) -> list[Span]:
    """Return the places of the model and the options, in order."""
    options = [option.whole for option in case.launch.options]
    model = [case.launch.model.place] if case.launch.model else []
    return sorted({*options, *model})


def _end(case: Case) -> Span | None:
    """Return the last part, if another option can follow it."""
    parts = _parts(case)
    last = max(parts, key=lambda part: part.end, default=None)
    if last is None or case.script.text[last.end : last.end + 1] not in ("", " ", "\n", "\t", ")"):
        return None
    return last


def _gap(case: Case, last: Span) -> str:
    """Return the blanks and line ends between the last two parts."""
    before = [part for part in _parts(case) if part.end <= last.start]
    between = case.script.text[before[-1].end : last.start] if before else " "
    return between if re.fullmatch(r"[ \t]+|[ \t]*+\\?\n[ \t]+", between) else " "


def _add_export(case: Case, wanted: Explanation) -> Iterator[ValueChange]:
    """Yield ``export NAME=value`` on a line of its own above the command."""
    text, place = case.script.text, case.launch.place
    start = text.rfind("\n", 0, place.start) + 1
    indent = text[start : place.start]
    if case.script.kind != "bash" or case.launch.container or indent.strip() or text[:start].endswith("\\\n"):
        return
    line = f"{indent}export {wanted.name}={wanted.value}\n"
    yield ValueChange((start, start, line), place.line, f"{wanted.name}={wanted.value}", _reason(wanted))


# --- reasons as comments


def _comments(review: Review, changes: list[ValueChange]) -> Iterator[Stretch]:
    """Yield the reason as a comment, if the value is alone on its line."""
    pattern = ALONE.get(review.script.kind)
    if pattern is None:
        return
    text = review.script.text
    done = set()
    for change in changes:
        first, last, _ = change.edit
        start = text.rfind("\n", 0, first) + 1
        end = text.find("\n", last)
        end = len(text) if end < 0 else end
        if first == last or start in done or not pattern.fullmatch(text[start:end]):
            continue
        if text[:start].endswith("\\\n"):
            continue
        done.add(start)
        yield end, end, f"  # {cut(change.why, COMMENT)}"
