"""What a shell's variables hold at a point of a script, as far as the script alone tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from recommender.review.mapped import Field, Piece, joined
from recommender.review.script import Word


@dataclass(frozen=True)
class Variable:
    """A variable: its text in pieces, or its words if it is an array; neither where it cannot be known."""

    pieces: tuple[Piece, ...] | None = None
    words: tuple[Field, ...] | None = None
    word: Word | None = None
    exported: bool = False

    @property
    def known(self) -> bool:
        """Whether the script tells the value."""
        return self.pieces is not None or self.words is not None

    @property
    def text(self) -> str | None:
        """The value of a plain variable."""
        return None if self.pieces is None else joined(self.pieces)

    def unknown(self) -> Variable:
        """The same variable with a value that cannot be known."""
        word = replace(self.word, value=None, written=None) if self.word else None
        return Variable(word=word, exported=self.exported)


@dataclass
class State:
    """The variables, and the words that the script or function was called with; None: unknown."""

    variables: dict[str, Variable] = field(default_factory=dict)
    arguments: tuple[Field, ...] | None = None

    def copy(self) -> State:
        """A state that a branch may change."""
        return State(dict(self.variables), self.arguments)

    def get(self, name: str) -> Variable | None:
        """The variable, or the argument of that number; None where nothing set it."""
        if name.isdecimal() and self.arguments is not None and name.strip("0"):
            number = int(name.lstrip("0")[:4])
            if number > len(self.arguments):
                return Variable(pieces=())
            found = self.arguments[number - 1]
            return Variable() if found.many else Variable(pieces=found.pieces)
        return self.variables.get(name)

    def forget(self, names: Iterable[str]) -> None:
        """What these hold cannot be known from here on."""
        for name in names:
            if name in self.variables:
                self.variables[name] = self.variables[name].unknown()

    def environment(self) -> dict[str, Word]:
        """What is exported."""
        return {name: each.word for name, each in self.variables.items() if each.exported and each.word}


def merged(states: list[State], defaults: frozenset[str] = frozenset()) -> State:
    """The state after branches of which one was taken. A value that they do not share is unknown.

    ``defaults``: variables that a branch sets because nobody else did, as ``[ -z "$X" ] && X=1``: they hold that.
    """
    first, rest = states[0], states[1:]
    out = State({}, first.arguments if all(each.arguments == first.arguments for each in rest) else None)
    names = dict.fromkeys(name for each in states for name in each.variables)
    for name in names:
        found = [each.variables.get(name) for each in states]
        given = [each for each in found if each is not None]
        if len(given) < len(found) and name not in defaults:
            out.variables[name] = given[0].unknown()
        else:
            out.variables[name] = _shared(given)
    return out


def _shared(given: list[Variable]) -> Variable:
    first = given[0]
    if all(each is first for each in given):
        return first
    exported = any(each.exported for each in given)
    if any(each != replace(first, exported=each.exported) for each in given):
        if all(each.words is not None for each in given):
            return replace(_begun(given), exported=exported)
        texts = {each.text for each in given}
        if len(texts) != 1 or None in texts or any(each.words is not None for each in given):
            return replace(first.unknown(), exported=exported)
        # The same text from two places: known, but no single literal gives it.
        word = replace(first.word, written=None) if first.word else None
        return Variable((Piece(texts.pop()),), None, word, exported)
    return replace(first, exported=exported)


def _begun(given: list[Variable]) -> Variable:
    """An array that some branch appends to: the words that all share, and behind them any number."""
    first = given[0]
    shared: list[Field] = []
    for words in zip(*(each.words or () for each in given), strict=False):
        if any(each != words[0] for each in words):
            break
        shared.append(words[0])
    if not shared or first.word is None:
        return first.unknown()
    place = first.word.place
    return replace(first, words=(*shared, Field((Piece(None),), place.start, place.end, many=True)))
