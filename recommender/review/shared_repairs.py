"""Keep repairs from changing what something else depends on, too.

A repair may be where a variable, a list or an anchor is written. It stays if each launch that depends on that place
asks for it and nothing else reads it; else it is made where this launch reads the value, if that is one plain word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from recommender.common.pattern import pattern
from recommender.review.rule import Case, Diagnostic, Fix
from recommender.review.script.model import GivenOption, Launch, Script, Span
from recommender.review.script.reach import Reached, reach, words
from recommender.review.script.text_uses import expansion, named_at

PLAIN = pattern(r"[A-Za-z0-9_.,:/+-]+")
GAP = r"[\"']?(?:[ \t]*[=,][ \t]*|(?:[ \t]|\\\n)+)"
DEFAULT = pattern(
    r"(?:.*[^$])?(?:\$\{\w+:?[-=]|\?=[ \t]*|\bdefault[ \t]*=[ \t]*|\b(?:getenv|get)\([^()]*,[ \t]*)[\"']?"
    r"|[ \t]*(?:async +)?def .*|[ \t]*ARG[ \t].*"
)
"""Before a value that the caller may replace: a launch that no longer reads the variable would not follow."""
Edit = tuple[Span, str]
Reports = list[tuple[Case, Diagnostic]]


def settle(script: Script, reports: Reports) -> Iterator[Diagnostic]:
    """Yield a rule's diagnostics with the repairs that change nothing else, or without one and why."""
    if not script.repairable or not any(diagnostic.fix for _, diagnostic in reports):
        yield from (diagnostic for _, diagnostic in reports)
        return
    places = _RepairPlaces(script, reports)
    moved = [(case, finding._replace(fix=places.moved(case, finding.fix))) for case, finding in reports]
    local = _RepairPlaces(script, moved)
    settled: dict[tuple[Span, str], list[Fix | None]] = {}
    for _, diagnostic in local.reports:
        fix = diagnostic.fix
        kept = fix if fix and all(local.is_agreed(edit) for edit in fix.edits) else None
        settled.setdefault((diagnostic.place, diagnostic.message), []).append(kept)
    for (_, before), (_, diagnostic) in zip(reports, local.reports, strict=True):
        fix = _joined(settled[diagnostic.place, diagnostic.message])
        note = places.note(before.fix) if before.fix and fix is None else ""
        yield diagnostic._replace(fix=fix, why=f"{diagnostic.why} {note}" if note else diagnostic.why)


def apart(case: Case, option: str, edit: Edit) -> Edit | None:
    """Return the edit of an option's value that no other program reads; None without one. Launches may share it."""
    fix = _RepairPlaces(case.script, []).apart(case.launch, Fix((edit,), f"{option} {edit[1]}"), agreed=True)
    return fix.edits[0] if fix else None


def _joined(fixes: list[Fix | None]) -> Fix | None:
    """Join the repairs of several launches at one place into one; None if a launch has no repair."""
    known = [fix for fix in fixes if fix]
    if not known or len(known) < len(fixes):
        return None
    edits = dict.fromkeys(edit for fix in known for edit in fix.edits)
    return known[0]._replace(edits=tuple(edits))


class _RepairPlaces:
    """The places that a rule's repairs change, and the launches that depend on each."""

    def __init__(self, script: Script, reports: Reports) -> None:
        """``reports``: what the rule says of each launch."""
        self.script, self.reports = script, reports
        self.asked: dict[Edit, set[int]] = {}
        self.reached: dict[tuple[Span, frozenset[int]], Reached] = {}
        for case, diagnostic in reports:
            for edit in diagnostic.fix.edits if diagnostic.fix else ():
                self.asked.setdefault(edit, set()).add(id(case.launch))

    def is_agreed(self, edit: Edit) -> bool:
        """Return whether each launch that depends on a place asks for an edit."""
        return all(id(launch) in self.asked[edit] for launch in dependent(self.script, edit[0]))

    def _reach(self, place: Span, own: Launch) -> Reached:
        launches = dependent(self.script, place) or [own]
        key = place, frozenset(map(id, launches))
        if key not in self.reached:
            self.reached[key] = reach(self.script, launches, place)
        return self.reached[key]

    def moved(self, case: Case, fix: Fix | None) -> Fix | None:
        """Return a repair that changes nothing else: itself, or where the launch reads the value; None without one."""
        return None if fix is None else self.apart(case.launch, fix, all(map(self.is_agreed, fix.edits)))

    def apart(self, launch: Launch, fix: Fix, agreed: bool) -> Fix | None:
        """Return the same; ``agreed``: each launch that depends on its places asks for it."""
        reached = [self._reach(place, launch) for place, _ in fix.edits]
        if agreed and not any(each.elsewhere for each in reached):
            return fix
        place = self._use(launch, fix, reached[0].names) if len(fix.edits) == 1 else None
        if place is None or self._reach(place, launch).elsewhere:
            return None
        return fix._replace(edits=((place, self._literal(*fix.edits[0])),))

    def _literal(self, place: Span, new: str) -> str:
        """Return a value as it is written in place of a variable: in Python, a text keeps its quotes."""
        quote = self.script.text[place.start - 1 : place.start]
        return f"{quote}{new}{quote}" if self.script.kind == "python" and quote in ("'", '"') else new

    def _use(self, launch: Launch, fix: Fix, names: frozenset[str]) -> Span | None:
        """Return where a launch reads the value that a repair replaces, if that is one plain word."""
        ((place, new),) = fix.edits
        text = self.script.text
        if DEFAULT.fullmatch(text, text.rfind("\n", 0, place.start) + 1, place.start):
            return None
        known = {name.lstrip("&") for name in names}
        given = [option for option in launch.options if any(word.literal == place for word in option.values)]
        given = [option for option in given if len(given) == 1 or fix.description == f"{option.name} {new}"]
        if len(given) != 1 or not known or not PLAIN.fullmatch(new):
            return None
        return self._after(given[0], known)

    def _after(self, option: GivenOption, names: set[str]) -> Span | None:
        """Return where one of these variables is the whole value of an option."""
        if self.script.kind == "python":
            word = rf"(?:\w+\.)*(?:{'|'.join(sorted(map(re.escape, names)))})(?![\w.(\[\"'])"
            use = re.compile(rf"{GAP}(?P<use>{word})")
        else:
            use = re.compile(rf"{GAP}(?P<quote>[\"']?)(?P<use>{expansion(names)})(?P=quote)(?=[\s;&|)\]}},\"'`]|$)")
        match = use.match(self.script.text, option.place.end)
        return self.script.place(*match.span("use")) if match else None

    def note(self, fix: Fix) -> str:
        """Return why a repair is left to the author; empty if it is for another reason."""
        known = [self.reached[key] for key in self.reached if any(key[0] == place for place, _ in fix.edits)]
        name = next((each.elsewhere for each in known if each.elsewhere), "")
        if not name and all(map(self.is_agreed, fix.edits)):
            return ""
        named = sorted(text.lstrip("&") for place, _ in fix.edits for text in named_at(self.script, place.start))
        name = name or next(iter(named), "")
        return f"{name} is used elsewhere, too: change it by hand." if name else OTHERS


OTHERS = "Another launch uses it, too: change it by hand."


@lru_cache(maxsize=4)
def _words(script: Script) -> list[tuple[int, int, Launch]]:
    """Return the ranges that each launch of a script depends on."""
    ranges = []
    for launch in (*script.launches, *script.tools):
        places = [word.place for word in words(launch)] + [word.literal for word in words(launch)]
        places += [option.place for option in launch.options]
        ranges += [(place.start, place.end, launch) for place in places if place is not None]
    return sorted(ranges, key=lambda each: each[:2])


def dependent(script: Script, place: Span) -> Sequence[Launch]:
    """Return the launches with a word in a place, or next to an insertion."""
    gap = place.start == place.end
    first, last = place.start - gap, place.end + gap
    launches = (launch for start, end, launch in _words(script) if start < last and first < end)
    return list({id(launch): launch for launch in launches}.values())
