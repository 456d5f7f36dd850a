"""Follow a range of a file to all that depends on it: the launches' own words, and what else reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from recommender.common.pattern import pattern
from recommender.review.script import text_uses
from recommender.review.script.model import Launch, Script, Span, Word
from recommender.review.script.python_uses import Given, PythonNames, python_names

TRAILING = pattern(
    r"(?:(?:[ \t,]|\\\n)*[\"']?(?:\$\{\{[^{}\n]*\}\}|\{\{[^{}\n]*\}\}|\${1,2}\{[^{}\n]*\}|\${1,2}[\w@*]+|\$\(\w+\)"
    r"|\*[\w-]+)[\"']?)*"
)
"""Expansions behind the last word that is written in a command."""
FUNCTION = pattern(r"(?m)^[ \t]*(?:function[ \t]+[\w-]+|[\w-]+[ \t]*\(\))[^\n]*")
BLANKS = pattern(r" *")
Range = tuple[int, int]


class Reached(NamedTuple):
    """What a range's value reaches: variables, and the first one that something else reads, if any."""

    names: frozenset[str]
    elsewhere: str = ""


def words(launch: Launch) -> Iterator[Word]:
    """Yield the words of a launch's command."""
    yield from (launch.model,) if launch.model else ()
    yield from launch.extra
    for option in launch.options:
        yield from option.values


def touches(word: Word, place: Range) -> bool:
    """Return whether a word's value is written in a range."""
    return word.literal is not None and word.literal.start < place[1] and place[0] < word.literal.end


def reach(script: Script, launches: Sequence[Launch], place: Span) -> Reached:
    """Return what a range reaches beyond the commands of launches that a repair of it is right for."""
    follower = _Follower(script, launches, (place.start, max(place.end, place.start + 1)))
    return Reached(frozenset()) if follower.direct() else follower.follow()


class _Follower:
    """Follow one range."""

    def __init__(self, script: Script, launches: Sequence[Launch], place: Range) -> None:
        """``launches``: those that depend on the range, as the repair wants."""
        self.script, self.launches, self.place = script, launches, place
        self.python: PythonNames | None = python_names(script) if script.kind == "python" else None

    @cached_property
    def commands(self) -> tuple[Range, ...]:
        """The ranges of the launches' commands."""
        return tuple(self._command(launch) for launch in self.launches)

    def _command(self, launch: Launch) -> Range:
        start, end = launch.place.start, launch.place.end
        if self.python:
            first, last = self.python.whole(start)
            return min(start, first), max(end, last)
        if self.script.kind == "python":
            return start, end
        behind = TRAILING.match(self.script.text, end)
        return start, behind.end() if behind else end

    def direct(self) -> bool:
        """Return whether the range is in a launch's command."""
        return any(first <= self.place[0] <= last for first, last in self.commands)

    def follow(self) -> Reached:
        """Follow the variables until one is read by something else."""
        names = self._names()
        while True:
            known = len(names)
            for at, name in self._uses(names):
                if self._is_own(at, name) or self._is_another(at):
                    continue
                given = self._given(at)
                if given is None:
                    return Reached(frozenset(names), name.lstrip("&"))
                names |= given
            if len(names) == known:
                return Reached(frozenset(names))

    def _names(self) -> set[str]:
        """Return the variables that get the range's value."""
        if self.script.kind == "python":
            return self._given(self.place[0]) or set()
        own = {word.variable for launch in self.launches for word in words(launch) if touches(word, self.place)}
        own |= {name for launch in self.launches for name, word in launch.environment.items() if self._is_set(word)}
        return {name for name in own | text_uses.named_at(self.script, self.place[0]) if name}

    def _is_set(self, word: Word) -> bool:
        place = word.literal or word.place
        return place.start < self.place[1] and self.place[0] < place.end

    def _uses(self, names: set[str]) -> Iterator[tuple[int, str]]:
        """Yield where the file reads these variables."""
        if self.python:
            yield from ((at, name) for at, name in self.python.uses if name in names)
        elif self.script.kind != "python":
            limits = self._limits()
            for at, name in list(text_uses.uses(self.script, names)):
                bounds = self._functions if name.isdecimal() else () if name.startswith("&") else limits
                if not bounds or any(first <= at < last for first, last in bounds):
                    yield at, name

    def _limits(self) -> tuple[Range, ...]:
        """Return the containers that set a variable for themselves; empty if it is set for more."""
        blocks = self._blocks
        return blocks if any(first <= self.place[0] < last for first, last in blocks) else ()

    @cached_property
    def _blocks(self) -> tuple[Range, ...]:
        """The ranges of the launches' containers in YAML."""
        places = (launch.container.place for launch in self.launches if launch.container)
        return tuple(_block(self.script.text, place.start) for place in places) if self._is_yaml() else ()

    def _is_yaml(self) -> bool:
        return self.script.kind in ("compose", "kubernetes")

    @cached_property
    def _functions(self) -> tuple[Range, ...]:
        """The ranges of the shell functions around the launches, in which $1 is one argument."""
        text = self.script.text
        found = []
        for launch in self.launches:
            before = [match.start() for match in FUNCTION.finditer(text, 0, launch.place.start)]
            after = FUNCTION.search(text, launch.place.end)
            closed = re.compile(r"\n\}").search(text, launch.place.end)
            ends = [match.start() for match in (after, closed) if match]
            found.append((before[-1] if before else 0, min(ends, default=len(text))))
        return tuple(found)

    def _is_own(self, at: int, name: str) -> bool:
        """Return whether a launch reads a variable here, for the same value or for its environment."""
        if name.startswith("&") and any(first <= at < last for first, last in self._blocks):
            return True
        for launch, (first, last) in zip(self.launches, self.commands, strict=True):
            here = [word for word in words(launch) if word.place.start <= at < word.place.end]
            if any(touches(word, self.place) for word in here):
                return self._is_read_once(launch)
            called = launch.called
            if first <= at < last or (called is not None and called.start <= at < called.end):
                return not here
            if any(word.place.start <= at < word.place.end for word in launch.environment.values()):
                return True
        return False

    def _is_read_once(self, launch: Launch) -> bool:
        """Return whether one option of a launch has its value from the range."""
        reading = (word for word in words(launch) if touches(word, self.place) and word.place != word.literal)
        return len({word.place for word in reading}) <= 1

    def _is_another(self, at: int) -> bool:
        """Return whether a command reads another value here, as after a second assignment."""
        if any(launch.called for launch in self.launches):
            return False
        said = (word for call in self.script.calls for word in call.words)
        other = (word for launch in self.script.launches for word in words(launch))
        here = [word for each in (said, other) for word in each if word.place.start <= at < word.place.end]
        return any(word.literal is not None for word in here) and not any(touches(word, self.place) for word in here)

    def _given(self, at: int) -> set[str] | None:
        """Return the variables that a use gives its value to; None if it is read for something else."""
        if self.script.kind != "python":
            return text_uses.given_at(self.script, at) or None
        if self.python is None:
            return None
        around = [assignment for assignment in self.python.assignments if assignment.start <= at < assignment.end]
        launched = [assignment.name for assignment in self.python.assignments if self._starts(assignment)]
        names = {assignment.name for assignment in around if not self._starts(assignment)}
        grown = {assignment.name for assignment in around if assignment.grows and assignment.name in launched}
        return names - grown if around else None

    def _starts(self, assignment: Given) -> bool:
        """Return whether a name is given a launch's command."""
        return any(assignment.start <= launch.place.start < assignment.end for launch in self.launches)


def _block(text: str, start: int) -> Range:
    """Return the range of the YAML key at an offset with its value; within a line, of the list's item around it."""
    first = text.rfind("\n", 0, start) + 1
    depth = _depth(text, first)
    while first + depth < start and not text.startswith("-", first + depth) and first:
        first = text.rfind("\n", 0, first - 1) + 1
        depth = min(depth, _depth(text, first))
    end = text.find("\n", start) + 1 or len(text)
    while end < len(text) and (text[end] == "\n" or _depth(text, end) > depth):
        end = text.find("\n", end) + 1 or len(text)
    return first, end


def _depth(text: str, first: int) -> int:
    """Return the number of blanks at the start of a line."""
    blanks = BLANKS.match(text, first)
    return blanks.end() - first if blanks else 0
