"""Track what a script sets its shell variables to, at one point of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from recommender.review.script.model import Span, Word
from recommender.review.script.source_map import Field, Piece, distinct, join_pieces

MOST_BRANCHES = 12
MOST_BEFORE = 8
"""Most words of a command up to what it serves."""


class Variable(NamedTuple):
    """A variable's text in pieces, or an array's words; neither if unknown.

    ``others``: the options that branches give an unknown text, each in pieces.
    """

    pieces: tuple[Piece, ...] | None = None
    words: tuple[Field, ...] | None = None
    word: Word | None = None
    exported: bool = False
    others: tuple[tuple[Piece, ...], ...] = ()

    @property
    def is_known(self) -> bool:
        """Return whether the script determines the value."""
        return self.pieces is not None or self.words is not None

    @property
    def text(self) -> str | None:
        """Return the value of a plain variable."""
        return None if self.pieces is None else join_pieces(self.pieces)

    def unknown(self) -> Variable:
        """Return the same variable with an unknown value."""
        word = self.word._replace(value=None, literal=None) if self.word else None
        return Variable(word=word, exported=self.exported)


@dataclass
class Variables:
    """The variables, and the arguments of the script or function (None: unknown)."""

    variables: dict[str, Variable] = field(default_factory=dict)
    arguments: tuple[Field, ...] | None = None

    def copy(self) -> Variables:
        """Return a copy that a branch may change."""
        return Variables(dict(self.variables), self.arguments)

    def get(self, name: str) -> Variable | None:
        """Return the variable or the numbered argument; None if unset."""
        if name.isdecimal() and self.arguments is not None and name.strip("0"):
            number = int(name.lstrip("0")[:4])
            if number > len(self.arguments):
                return Variable(pieces=())
            argument = self.arguments[number - 1]
            return Variable() if argument.many else Variable(pieces=argument.pieces)
        return self.variables.get(name)

    def forget(self, names: Iterable[str]) -> None:
        """Mark these variables as unknown."""
        for name in names:
            if name in self.variables:
                self.variables[name] = self.variables[name].unknown()

    def grow(self, names: Iterable[str]) -> None:
        """Mark these arrays as longer than known; other variables become unknown."""
        for name in names:
            variable = self.variables.get(name)
            if variable is not None and variable.words is not None and variable.word is not None:
                self.variables[name] = variable._replace(words=(*variable.words, _any_number(variable.word)))
            else:
                self.forget([name])

    def environment(self) -> dict[str, Word]:
        """Return the exported variables."""
        return {name: variable.word for name, variable in self.variables.items() if variable.exported and variable.word}


def merge_states(states: list[Variables], defaults: frozenset[str] = frozenset()) -> Variables:
    """Merge the states after branches; values that differ become unknown.

    ``defaults``: variables that a branch sets only if they are unset (``[ -z "$X" ] && X=1``). They keep that value.
    """
    result = Variables({}, _merge_arguments(states))
    names = dict.fromkeys(name for state in states for name in state.variables)
    for name in names:
        variables = [state.variables.get(name) for state in states]
        given = [variable for variable in variables if variable is not None]
        if len(given) < len(variables) and name not in defaults:
            result.variables[name] = given[0].unknown()._replace(others=_options([*given, Variable(())]))
        else:
            result.variables[name] = _merge_variables(given)
    return result


def _merge_arguments(states: list[Variables]) -> tuple[Field, ...] | None:
    """Merge the arguments to which branches append, as ``set -- "$@" --tp 2`` does."""
    given = [state.arguments for state in states if state.arguments is not None]
    if len(given) < len(states) or not all(given):
        return given[0] if given and len(given) == len(states) and not any(given) else None
    last = given[0][-1]
    place = Span(last.start, last.end, 0, 0)
    return _merge_words(given, Word("", None, place))


def _merge_variables(branches: list[Variable]) -> Variable:
    first = branches[0]
    if all(variable is first for variable in branches):
        return first
    exported = any(variable.exported for variable in branches)
    if any(variable != first._replace(exported=variable.exported) for variable in branches):
        if all(variable.words is not None for variable in branches):
            return _merge_arrays(branches)._replace(exported=exported)
        texts = {variable.text for variable in branches}
        if len(texts) != 1 or None in texts or any(variable.words is not None for variable in branches):
            grown = _merge_texts(branches)
            return (grown or first.unknown()._replace(others=_options(branches)))._replace(exported=exported)
        # Two literals with the same text: the value is known, but has no single place.
        word = first.word._replace(literal=None) if first.word else None
        return Variable((Piece(texts.pop()),), None, word, exported)
    return first._replace(exported=exported)


def _merge_texts(branches: list[Variable]) -> Variable | None:
    """Merge texts that branches appended to: the longest, marked at its end; None if they differ elsewhere."""
    longest = max(branches, key=lambda variable: len(variable.pieces or ()))
    pieces = longest.pieces or ()
    for variable in branches:
        if variable.pieces is None or not variable.pieces or pieces[: len(variable.pieces)] != variable.pieces:
            return None
    shared = min(len(variable.pieces or ()) for variable in branches)
    two = all(len(variable.pieces or ()) in (shared, len(pieces)) for variable in branches)
    before, added = pieces[:shared], pieces[shared:]
    apart = two and (_text(added)[:1].isspace() or not _text(before)[-1:].strip())
    opens = (Piece(" "), Piece("", opens=True)) if apart else ()
    mark = (Piece(" "), Piece(None, optional=True, closes=apart), Piece(" "))
    return Variable(
        (*before, *opens, *added, *mark), None, longest.word._replace(literal=None) if longest.word else None
    )


def _text(pieces: tuple[Piece, ...]) -> str:
    """Return the text of pieces, with ``?`` for an unknown one."""
    return "".join("?" if piece.text is None and not piece.optional else piece.text or " " for piece in pieces)


def _options(branches: list[Variable]) -> tuple[tuple[Piece, ...], ...]:
    """Return the texts of all branches, each once, if they are options; else none."""
    if any(variable.pieces is None and not variable.others for variable in branches):
        return ()
    texts = [pieces for each in branches for pieces in (each.others if each.pieces is None else (each.pieces,))]
    options = all(not _text(pieces).strip() or _text(pieces).lstrip().startswith("-") for pieces in texts)
    return (
        tuple({_text(pieces): pieces for pieces in reversed(texts)}.values())[:MOST_BRANCHES][::-1] if options else ()
    )


def _merge_arrays(branches: list[Variable]) -> Variable:
    """Merge arrays to which branches append."""
    first = branches[0]
    words = _merge_words([variable.words or () for variable in branches], first.word)
    return first.unknown() if words is None else first._replace(words=words)


def _merge_words(branches: list[tuple[Field, ...]], word: Word | None) -> tuple[Field, ...] | None:
    """Merge words to which branches append: the common ones, those of one branch, then those of the others."""
    longest = max(branches, key=len)
    if all(words == longest for words in branches):
        return longest
    if word is None:
        return None
    shared = 0
    for words in zip(*branches, strict=False):
        if any(other != words[0] for other in words):
            break
        shared += 1
    begun = {words[0].known_prefix[:1] for words in branches if words}
    ends = distinct(words[shared:] for words in branches)
    if all(longest[: len(words)] == words for words in branches):
        ends = sorted(ends, key=len, reverse=True)
    elif not (shared or begun <= {"-"}):  # each branch has a command of its own, as of another engine
        ends = [end for end in ends if "lmdeploy serve " in " ".join(part.known_prefix for part in end[:MOST_BEFORE])]
    own, *others = [*(end for end in ends if end), *(end for end in ends if not end)] or [()]
    if not own:
        return None
    mark = replace(_any_number(word), others=tuple(others[:MOST_BRANCHES]), own=len(own))
    return (*branches[0][:shared], *own, mark)


def _any_number(word: Word) -> Field:
    """Return what stands for words that a branch or a loop may add."""
    return Field((Piece(None),), word.place.start, word.place.end, many=True, optional=True)
