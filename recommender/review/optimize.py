"""Rewrite a launch's values to recommended ones, keeping the author's layout.

A launch is rewritten whole or not at all: its values are chosen together. The author's value stays
where the request says nothing: the session length without prompt lengths, prefix caching without shared prefixes, and
tp always.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.choose import candidates, constraints, recommend
from recommender.choose.pick import pick
from recommender.choose.reasons import Explanation, explain
from recommender.choose.select import predict
from recommender.common.errors import RequestError
from recommender.common.pattern import pattern
from recommender.request.resolved_request import check_context
from recommender.review import checks, edits, shared_repairs
from recommender.review.additions import option, spelled, variable
from recommender.review.context import resolve_for
from recommender.review.engine import Review
from recommender.review.fix import Stretch, is_worse
from recommender.review.launch_settings import ASSIGNED, weighed_settings
from recommender.review.rule import Case, LaunchSetting
from recommender.review.script.source import Source
from recommender.review.shared_repairs import dependent

if TYPE_CHECKING:
    from recommender.knowledge.records import Option
    from recommender.knowledge.store import Store

AUTHORS = ASSIGNED | {"trust_remote_code", "backend", "model_format", "dtype", "tp"}
"""What the author knows better than the request: addresses, safety, the checkpoint's format."""
UNLESS = {
    "session_len": frozenset({"prompt_tokens", "output_tokens", "max_context", "workload", "text_only"}),
    "prefix_caching": frozenset({"prefix_tokens", "turns", "workload"}),
}
"""Settings that stay the author's unless one of these questions is answered."""
PLAIN = pattern(r"[A-Za-z0-9_.,:/+-]+")
ALONE = {
    "bash": re.compile(r"""\s*(?:(?:export|local|readonly)\s+)?\w+=(?:"[^"\\`]*"|'[^']*'|[^\s"'\\`#]*)\s*"""),
    "python": re.compile(r"""\s*\w+\s*=\s*(?:"[^"\\]*"|'[^'\\]*'|[\w.+-]+),?\s*"""),
}
ROUNDS = 3
MOST_LAUNCHES = 400
"""More servers are not rewritten: each rewriting is reviewed again."""
REASON = 100
PARTS = re.compile(r"[:;] ")


@dataclass(frozen=True)
class ValueChange:
    """One changed value: the edit, its line, what and why."""

    edit: Stretch
    line: int
    description: str
    why: str


def optimize(source: Source, review: Review, look: Callable[[Source], Review]) -> tuple[Source, list[str]]:
    """Return the rewritten file and a line per change. Idempotent."""
    if not review.script.repairable:
        return source, ["1: not optimized: this file does not hold the command as it runs"]
    if len(review.cases) > MOST_LAUNCHES:
        return source, [f"1: not optimized: more than {MOST_LAUNCHES} servers; split the file"]
    current, current_review, messages, done = source, review, list[str](), set[str]()
    for turn in range(ROUNDS):
        changes, notes = _changes(current_review)
        messages += notes if turn == 0 else []
        again = next((change for change in changes if change.description in done), None)
        if again is not None:
            return source, [f"{again.line}: not optimized: {again.description} has no effect where it was added"]
        if not changes:
            return current, messages
        done |= {change.description for change in changes}
        after = current.edited([*(change.edit for change in changes), *_comments(current_review, changes)])
        review_after = look(after)
        if is_worse(current_review, review_after, ()):
            new = ", ".join(_new(current_review, review_after))
            return current, [
                *messages,
                f"1: not optimized: the result would have new findings: {new or 'lost servers'}",
            ]
        messages += [f"{change.line}: {change.description}: {change.why}" for change in changes]
        current, current_review = after, review_after
    return current, messages


def _new(before: Review, after: Review) -> list[str]:
    """Return the rules that find more than before."""
    then, now = (Counter(finding.rule.id for finding in review.findings) for review in (before, after))
    return sorted(name for name in now if now[name] > then[name])


def _changes(review: Review) -> tuple[list[ValueChange], list[str]]:
    """Return the changes of all launches, and notes on what was not changed."""
    changes: list[ValueChange] = []
    notes: list[str] = []
    by_launch: dict[int, set[Stretch]] = {}
    for case in review.cases:
        if case.launch.starts in ("api_server", "pipeline"):
            at = case.launch.place.line
            made, problem, by_hand = _of_launch(case)
            changes += _merge(made)
            by_launch[id(case.launch)] = {change.edit for change in made}
            notes += [f"{at}: not optimized: {problem}"] if problem else [f"{at}: {note}" for note in by_hand]
    texts: dict[tuple[int, int], set[str]] = {}
    for change in changes:
        texts.setdefault(change.edit[:2], set()).add(change.edit[2])
    if any(len(new) > 1 for new in texts.values()) or not _is_agreed(review, by_launch):
        return [], [*notes, "1: not optimized: two servers share a literal but need different values"]
    return sorted({change.edit: change for change in changes}.values(), key=lambda change: change.edit), notes


def _is_agreed(review: Review, by_launch: Mapping[int, set[Stretch]]) -> bool:
    """Return whether each server that depends on a literal asks for its new value."""
    script = review.script
    for edit in {edit for edits_ in by_launch.values() for edit in edits_ if edit[0] < edit[1]}:
        servers = (each for each in dependent(script, script.place(*edit[:2])) if each.starts != "tool")
        if any(edit not in by_launch.get(id(each), ()) for each in servers):
            return False
    return True


def _of_launch(case: Case) -> tuple[list[ValueChange], str, list[str]]:
    """Return a launch's changes, or why there are none, and what is to be added by hand."""
    lacking = [need for need in ("gpu", "model", "load") if not getattr(case, f"{need}_known")]
    if lacking:
        return [], f"pass {' and '.join(f'--{need}' for need in lacking)}", []
    others = () if case.script.generated else case.launch.alternatives
    if any(weighed_settings(case.resolved, other) != weighed_settings(case.resolved, case.launch) for other in others):
        return [], "branches of the file give it several configurations", []
    try:
        check_context(case.resolved)
    except RequestError as error:
        return [], str(error), []
    choices = _recommended(case.twin or case)
    if choices is None:
        return [], "no configuration fits; recommend shows the nearest change", []
    wanted = [setting for setting in choices if _is_decided_here(case, setting) and not _holds_session(case, setting)]
    new = {setting.option: list(_change(case, setting)) for setting in wanted}
    blocked = [setting for setting in wanted if not new[setting.option] and _is_missing(case, setting)]
    flags = [setting for setting in blocked if setting.kind == "flag"]
    if flags:
        missing = ", ".join(spelled(case, flag.option, flag.value, flag.switch) for flag in flags)
        return [], f"these cannot be added here, so add them by hand: {missing}", []
    shared = next((edit for name, edits in new.items() for edit in edits if _is_shared(case, name, edit, new)), None)
    if shared is not None:
        return [], f"{shared.description}: the same literal sets another value too", []
    apart = [(change, _apart(case, name, change)) for name, edits in new.items() for change in edits]
    read = next((change for change, own in apart if own is None), None)
    if read is not None:
        return [], f"{read.description}: another program reads the same literal", []
    by_hand = [f"{setting.name}={setting.value}: add it by hand: {_reason(setting)}" for setting in blocked]
    return [own for _, own in apart if own], "", [*by_hand, *_kept_share(case, choices)]


def _apart(case: Case, name: str, change: ValueChange) -> ValueChange | None:
    """Return a change that no other program reads; None without one."""
    start, end, text = change.edit
    given = case.settings.get(name)
    if start == end or given is None:
        return change
    moved = shared_repairs.apart(case, given.option.name, (case.script.place(start, end), text))
    return replace(change, edit=(moved[0].start, moved[0].end, moved[1]), line=moved[0].line) if moved else None


def _kept_share(case: Case, explanations: Iterable[Explanation]) -> Iterator[str]:
    """Yield why a share of the cache stays that differs from the recommended one."""
    for each in explanations:
        given = case.settings.get(each.option)
        if _holds_session(case, each) and given and given.text and not _same(given.text, each.value):
            name = given.option.name
            yield f"{name} {given.text} stays, not {each.value}: your session length may need the cache"


def _holds_session(case: Case, explanation: Explanation) -> bool:
    """Return whether a value is the cache's share, and the author keeps a session length that may need more."""
    kept = "session-len" in case.settings and _stays(case, "session_len")
    return kept and explanation.option == "cache-max-entry-count"


def _is_shared(case: Case, name: str, change: ValueChange, new: Mapping[str, list[ValueChange]]) -> bool:
    """Return whether a literal sets another option too, to which it does not fit."""
    for other, setting in case.settings.items():
        written = setting.word.literal if setting.word else None
        if other != name and written is not None and (written.start, written.end) == change.edit[:2]:
            return change.edit not in [each.edit for each in new.get(other, ())]
    return False


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
            joined[spot] = ValueChange(
                edit, first.line, f"{first.description}, {change.description}", f"{first.why}; {change.why}"
            )
    return list(joined.values())


@lru_cache(maxsize=64)
def _recommended(case: Case) -> tuple[Explanation, ...] | None:
    """Return the recommended settings of one server; None if nothing fits.

    If several servers behind a proxy would be better, return the best single one, except for generated files.
    """
    try:
        resolved = resolve_for(case.resolved, _kept(case))
    except RequestError:  # the host has not as many GPUs, or no model is split over so many
        return None
    try:
        recommendation = recommend.recommend(resolved.request, resolved.store)
    except recommend.NothingFits:
        return None
    if recommendation.config.servers == 1 or case.script.generated:
        return recommendation.explanations
    known = constraints.fact_values(resolved)
    among = constraints.select_applicable(resolved, known)
    for group in candidates.tiers(resolved):
        measured = [predict(resolved, candidate, known, ranged=False) for candidate in group if candidate.servers == 1]
        fits = [candidate for candidate in measured if not constraints.evaluate(among, candidate.values)]
        if fits:
            return explain(resolved, predict(resolved, pick(fits, resolved.request.goal).config, known))
    return None


def _kept(case: Case) -> dict[str, int]:
    """Return what the request must respect of the author's settings: tp."""
    asked = case.resolved.request
    return {"tp": checks.number(case, "tp") or 0} if "tp" in case.settings and not asked.tp else {}


def _stays(case: Case, setting: str) -> bool:
    """Return whether an explicit setting depends on what the request does not tell."""
    made_here = case.script.generated
    if setting == "session_len" and any(checks.broken(case, *checks.HOLDS_INPUT)):
        return False  # the server would refuse every request that is known
    return setting in UNLESS and not UNLESS[setting] & case.answered and not made_here


def _change(case: Case, explanation: Explanation) -> Iterator[ValueChange]:
    """Yield the change that sets one value, if needed and safe."""
    given = case.settings.get(explanation.option)
    value = explanation.value if explanation.emitted else explanation.default
    if given is None:
        if explanation.emitted and PLAIN.fullmatch(explanation.value) and not case.launch.unsure:
            yield from _add_option(case, explanation)
    elif given.text is not None and value and not _same(given.text, value) and PLAIN.fullmatch(value):
        yield from _replace_value(case, given, explanation, value)


def _add_option(case: Case, explanation: Explanation) -> Iterator[ValueChange]:
    """Yield the insertion of an option, or of a variable."""
    environment = explanation.kind == "environment"
    edit = variable(case, explanation.name, explanation.value) if environment else option(case, explanation)
    if edit is not None:
        what = (
            f"{explanation.name}={explanation.value}"
            if environment
            else spelled(case, explanation.option, explanation.value, explanation.switch)
        )
        line = case.script.place(edit[0], edit[1]).line
        yield ValueChange(edit, line, what, _reason(explanation))


def _is_decided_here(case: Case, explanation: Explanation) -> bool:
    """Return whether recommend decides this option rather than the author."""
    record = _options(case.resolved.store).get(explanation.option)
    if record is None or not record.setting or record.setting in AUTHORS or explanation.kind == "client":
        return False
    return explanation.option not in case.settings or not _stays(case, record.setting)


@lru_cache(maxsize=4)
def _options(store: Store) -> Mapping[str, Option]:
    return {option.id: option for option in store.options()}


def _is_missing(case: Case, explanation: Explanation) -> bool:
    """Return whether a recommended setting is missing."""
    return explanation.emitted and not case.launch.unsure and explanation.option not in case.settings


def _same(first: str, second: str) -> bool:
    try:
        return float(first) == float(second)
    except ValueError:
        return first.casefold() == second.casefold()


def _replace_value(case: Case, setting: LaunchSetting, explanation: Explanation, value: str) -> Iterator[ValueChange]:
    written = setting.word.literal if setting.word else None
    if explanation.switch and case.launch.starts != "pipeline":
        fix = edits.remove(case.script, setting.option) if value == "false" and not setting.option.values else None
        for place, new in fix.edits if fix else ():
            yield ValueChange(
                (place.start, place.end, new), place.line, f"remove {setting.option.name}", _reason(explanation)
            )
        return
    if written is None:
        return
    text = {"true": "True", "false": "False"}.get(value, value) if case.script.kind == "python" else value
    what = f"{setting.option.name} {setting.text} -> {value}"
    yield ValueChange((written.start, written.end, text), written.line, what, _reason(explanation))


def _reason(explanation: Explanation) -> str:
    """Return the first sentence of the reason, whole; the brief one if it is too long, or has parts: it is joined."""
    sentence = " ".join(explanation.reason.partition(". ")[0].rstrip(".").split())
    simple = len(sentence) <= REASON and not PARTS.search(sentence)
    return sentence if simple else " ".join(explanation.brief.rstrip(".").split())[:REASON]


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
        if change.why:
            yield end, end, f"  # {change.why}"
