"""Parse ``lmdeploy serve`` commands as LMDeploy's own parser does."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from recommender.common.pattern import pattern
from recommender.review import accepted_options
from recommender.review.script.mentions import is_unjudged
from recommender.review.script.model import Container, GivenOption, Launch, Span, Starts, Word
from recommender.review.script.source_map import Field, SourceText
from recommender.review.script.variables import MOST_BRANCHES

NEGATIVE = pattern(r"-\d+(\.\d*)?|-\.\d+")
LIKE_ENOUGH = 0.8
# Text allowed between an option and its values: blanks, quotes, list marks, comments.
BETWEEN = pattern(r"(?:[\s\\\"'=,]|(?<=[\s])-(?=\s)|#[^\n]*\n)*")
SUBCOMMANDS: Mapping[str, Starts] = {"api_server": "api_server", "proxy": "proxy"}
MODULES: Mapping[str, Starts] = {
    "lmdeploy.serve.openai.api_server": "api_server",
    "lmdeploy.serve.proxy.proxy": "proxy",
}
NO_MODULE = pattern(r"lmdeploy(?:\.\w+){0,4}\.api_server")
"""A module that stands for the server, right or wrong: ``lmdeploy.serve.api_server`` never existed."""
SENTENCE = pattern(r"(?:serve|api_server|proxy)[:：，。（].*")
"""How prose continues after a command's words; Chinese has no blank there."""
LONGEST_NAME = 60
MOST_COMMANDS = 8
"""Most combinations of branches tried; beyond them, only one branch at a time is left out."""
GROUPS = frozenset({"serve", "lite", "import"})
HELP = frozenset({"-h", "--help", "-v", "--version"})


@lru_cache(maxsize=512)
def _takes(name: str, command: str) -> int | None:
    """Return how many values an option takes; None for any number.

    A shortened or misspelt name counts as the nearest option of any release.
    """
    known = accepted_options.counts(command)
    meant = name.replace("_", "-")
    if meant in ("--help", "-h"):
        return 0
    if meant not in known and len(meant) <= LONGEST_NAME:
        begun = [option for option in known if option.startswith(meant)] if len(meant) > len("--") else []
        near = begun if len(begun) == 1 else difflib.get_close_matches(meant, sorted(known), 1, LIKE_ENOUGH)
        meant = near[0] if near else meant
    nargs = known.get(meant, "")
    return None if nargs in ("*", "+") else 0 if nargs == "0" else 1


class Surroundings(NamedTuple):
    """What holds where a command is: environment, container, background."""

    environment: Mapping[str, Word]
    container: Container | None = None
    background: bool = False
    guarded: bool = False
    place: Span | None = None
    """Of the command; without it the launch spans its words."""
    image: Word | None = None


def launch(page: SourceText, fields: Sequence[Field], around: Surroundings, starts: Starts | None = None) -> Launch:
    """Return what ``lmdeploy …`` starts: a server, a proxy, or a tool such as ``lite auto_awq``.

    ``starts``: the words begin with a server program, not with ``lmdeploy``.
    """
    (first, *others), more = _possible(fields)
    made = _launch(page, first, around, starts)
    alike = {_words(made)}
    alternatives = []
    for words in others:
        other = _launch(page, words, around, starts)._replace(place=made.place, more=more)
        alternatives += [] if _words(other) in alike else [other]
        alike.add(_words(other))
    return made._replace(alternatives=tuple(alternatives), more=more)


def _words(launch: Launch) -> tuple[object, ...]:
    return launch.starts, launch.model, launch.options, launch.extra, launch.command


def _possible(fields: Sequence[Field]) -> tuple[list[list[Field]], bool]:
    """Return the words, and those that other branches of the script make; and whether these are not all.

    Where each command would be too many, it is what each branch changes.
    """
    found = list(islice(_of_branches(fields), MOST_COMMANDS + 1))
    if len(found) <= MOST_COMMANDS:
        return found, False
    marks = [(at, field.own, other) for at, field in enumerate(fields) for other in field.others]
    ways = ([*fields[: at - own], *other, *fields[at + 1 :]] for at, own, other in marks[:MOST_BRANCHES])
    return [found[0], *(next(_of_branches(words)) for words in ways)], True


def _of_branches(fields: Sequence[Field]) -> Iterator[list[Field]]:
    """Yield the words for each choice among what branches add; the first has what comes first at each."""
    at = next((at for at in range(len(fields) - 1, -1, -1) if fields[at].others), None)
    if at is None:
        yield list(fields)
        return
    mark = fields[at]
    for words in (fields[at - mark.own : at], *mark.others):
        yield from _of_branches([*fields[: at - mark.own], *words, *fields[at + 1 :]])


def _launch(page: SourceText, fields: Sequence[Field], around: Surroundings, starts: Starts | None) -> Launch:
    instead: Field | None = None
    rest = list(fields[1:])
    if starts is not None and NO_MODULE.fullmatch(fields[0].known_prefix) and fields[0].known_prefix not in MODULES:
        instead = fields[0]
    if starts is None:
        if len(fields) < 2 or fields[1].value != "serve" or any(field.value in HELP for field in fields):
            return _tool(page, fields, around)
        starts = SUBCOMMANDS.get(fields[2].value or "") if len(fields) > 2 else None
        rest = list(fields[3:])
        if starts is None and len(fields) > 2 and (fields[2].value or "").startswith("-"):
            starts, rest = "api_server", list(fields[2:])
        elif starts is None:
            starts, instead = "api_server", fields[2] if len(fields) > 2 else None
            # If a path is where the subcommand belongs, it was meant as the model.
            rest = list(fields[2:]) if instead and re.search(r"[/.$]", page.text[instead.start : instead.end]) else rest
    read = _Arguments(page, starts, f"serve {starts}").read(rest)
    return Launch(
        starts=starts,
        place=_place(page, fields, around.place),
        model=page.model(read.positional[0]) if read.positional and starts == "api_server" else None,
        options=tuple(read.options),
        environment=dict(around.environment),
        extra=tuple(page.word(field) for field in read.positional[1 if starts == "api_server" else 0 :]),
        unsure=read.unsure or (instead is not None and instead.value is None),
        unread=tuple(page.word(field) for field in read.unread),
        background=around.background,
        container=around.container,
        instead=page.word(instead) if instead else None,
        guarded=around.guarded,
        image=around.image,
    )


def is_sentence(fields: Sequence[Field]) -> bool:
    """Return whether the words are a note that begins with the command that it explains."""
    return any(SENTENCE.match(field.known_prefix) for field in fields[1:3])


def _tool(page: SourceText, fields: Sequence[Field], around: Surroundings) -> Launch:
    """Return another command of LMDeploy, or one that only prints its help."""
    count = 2 if len(fields) > 2 and fields[1].value in GROUPS and not fields[2].known_prefix.startswith("-") else 1
    words = fields[1 : 1 + count]
    command = " ".join(field.known_prefix for field in words)
    read = _Arguments(page, "tool", command).read(list(fields[1 + len(words) :]))
    return Launch(
        starts="tool",
        place=_place(page, fields, around.place),
        model=None,
        options=tuple(read.options),
        environment=dict(around.environment),
        extra=tuple(page.word(field) for field in read.positional),
        unsure=read.unsure or any(field.value is None for field in words),
        unread=tuple(page.word(field) for field in read.unread),
        container=around.container,
        instead=page.word(words[-1]) if words else None,
        command=command,
    )


def _place(page: SourceText, fields: Sequence[Field], command: Span | None) -> Span:
    """Return the place from the program to the last word that another can follow."""
    start, end = fields[0].start, fields[0].end
    inside = command is not None and command.start <= start <= command.end
    for field in fields[1:]:
        if inside and command is not None:
            if command.start <= field.start and field.end <= command.end:
                end = max(end, field.end)
        elif field.start < end or field.many:
            break
        else:
            end = field.end
    return page.place(start, end)


class _Arguments:
    """Parse options and positional words."""

    def __init__(self, page: SourceText, starts: Starts, command: str) -> None:
        self.page = page
        self.starts = starts
        self.command = command
        self.options: list[GivenOption] = []
        self.positional: list[Field] = []
        self.unsure = False
        self.unread: list[Field] = []

    def read(self, fields: list[Field]) -> _Arguments:
        """Parse all words, in order."""
        at = 0
        while at < len(fields):
            field = fields[at]
            value, known = field.value, field.known_prefix
            at += 1
            if value == "--":
                self.positional += fields[at:]
                break
            if field.many:
                self._many(field)
            elif known.startswith("-") and "=" in known:
                self._option(field, [field.after(known.index("=") + 1, self.page.text)], known.partition("=")[0])
            elif value is None and known.startswith("-"):
                self._many(field)
            elif value is not None and self._is_option(value):
                values = self._values(value, fields, at)
                self._option(field, values, value)
                at += len(values)
            else:
                self._plain(field)
        return self

    def _many(self, field: Field) -> None:
        """Note a word that may be any number of words; those of branches are commands of their own."""
        self.unsure = self.unsure or not field.others
        if not field.optional:
            self.unread.append(field)

    def _plain(self, field: Field) -> None:
        """Take a positional word; after the model, an unknown one is unsure."""
        if field.value is None and field.loose and (self.positional or self.starts == "proxy"):
            self._many(field)
        else:
            self.positional.append(field)

    @staticmethod
    def _is_option(value: str) -> bool:
        return len(value) > 1 and value.startswith("-") and not NEGATIVE.fullmatch(value) and " " not in value

    def _values(self, name: str, fields: list[Field], at: int) -> list[Field]:
        """Return the words after an option that are its values."""
        most = _takes(name, self.command)
        values: list[Field] = []
        for field in fields[at:]:
            text = field.known_prefix if field.value is None else field.value
            if field.many or self._is_option(text) or (most is not None and len(values) >= most):
                break
            values.append(field)
        if not values and at < len(fields) and fields[at].many and most != 0:
            return [fields[at]]
        return values

    def _option(self, field: Field, values: list[Field], name: str) -> None:
        start = field.start + (self.page.text[field.start : field.start + 1] in ("'", '"'))
        place = self.page.place(start, start + len(name))
        if self.page.text[place.start : place.end] != name:
            parts = (piece for piece in field.pieces if piece.start >= 0 and len(piece.text or "") > len("--"))
            own = next((piece for piece in parts if name.endswith(piece.text or "")), None)
            place = self.page.place(own.start, own.end) if own else self.page.place(field.start, field.end)
        words = tuple(self.page.word(value) for value in values)
        if any(value.many for value in values):
            self.unsure = True
            self.unread += [] if is_unjudged(name) else [value for value in values if value.many and not value.optional]
        end = words[-1].place.end if words else place.end
        if "=" in field.known_prefix and values:
            end = max(end, field.end)
        # In an array, other text may separate an option from its values; then they have no common range.
        ends = [place.end, *(word.place.end for word in words)]
        behind = all(
            before <= word.place.start and BETWEEN.fullmatch(self.page.text, before, word.place.start)
            for before, word in zip(ends, words, strict=False)
        )
        whole = self.page.place(place.start, end if behind else place.end)
        self.options.append(GivenOption(name, words, place, whole))
