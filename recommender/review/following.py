"""What is known while a shell script is followed, and what was found so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recommender.review import grammar
from recommender.review.launches import Surroundings, launch
from recommender.review.mapped import Field, Mapped, Page, Piece
from recommender.review.script import Assignment, Call, Container, Launch, Loop, Place, Script, Trouble, Use, Word
from recommender.review.unwrap import Unwrapped, unwrap
from recommender.review.variables import State, Variable

if TYPE_CHECKING:
    from tree_sitter import Node

    from recommender.review.shell import Shell
    from recommender.review.survey import Survey

MOST_STEPS = 25_000
MOST_DEPTH = 60


@dataclass
class Frame:
    """A loop that is being walked."""

    place: Place
    endless: bool
    pauses: bool = False

    def loop(self) -> Loop:
        """As rules see it."""
        return Loop(self.place, self.endless, self.pauses)


@dataclass(frozen=True)
class Where:
    """What holds for the commands at a point: beside the script, and whether a failure is looked at."""

    background: bool = False
    guarded: bool = False
    depth: int = 0

    def deeper(self, background: bool = False, guarded: bool = False) -> Where:
        """One construct further in."""
        return Where(self.background or background, self.guarded or guarded, self.depth + 1)


class TooMuch(Exception):
    """A script that would take too long to follow."""


@dataclass
class Run:
    """What was read so far, of a file and of the scripts within it."""

    page: Page
    state: State = field(default_factory=State)
    functions: dict[str, tuple[Shell, Node]] = field(default_factory=dict)
    called: dict[str, int] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)
    locals: list[dict[str, Variable | None]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    loops: dict[tuple[int, int], Frame] = field(default_factory=dict)
    launches: list[tuple[Launch, Frame | None]] = field(default_factory=list)
    assignments: dict[int, Assignment] = field(default_factory=dict)
    calls: dict[tuple[int, int], tuple[Call, Frame | None]] = field(default_factory=dict)
    surveys: list[Survey] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    container: Container | None = None
    error_exit: Place | None = None
    pipefail: bool = False
    export_all: bool = False
    steps: int = 0

    def spend(self, steps: int = 1) -> None:
        """Counts work; raises TooMuch where a text was written to make it endless."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise TooMuch

    def troubles(self) -> tuple[Trouble, ...]:
        """Each once."""
        return tuple(dict.fromkeys(each for found in self.surveys for each in found.troubles))

    def uses(self) -> tuple[Use, ...]:
        """Each once, in the order of the text."""
        return tuple(sorted({each for found in self.surveys for each in found.uses}, key=lambda use: use.place))


def walk(run: Run, mapped: Mapped, where: Where | None = None) -> list[Trouble]:
    """Reads one text, and the functions that it defines and nobody calls."""
    from recommender.review.shell import Shell

    place = run.page.place(*mapped.span(0, len(mapped.code)))
    place = run.page.place(place.start, min(place.end, (run.page.text + "\n").index("\n", place.start)))
    try:
        root, complete = grammar.parse(mapped.code)
    except grammar.Unparsed as problem:
        return [Trouble(str(problem), place)]
    shell = Shell(run, mapped, root)
    run.surveys.append(shell.survey)
    troubles = [] if complete else [Trouble("this takes too long to read; only its beginning was read", place)]
    try:
        shell.statements(root, where or Where())
        for name in list(run.functions) if where is None else ():
            if not run.called.get(name):
                run.state.arguments = None
                shell.call(name, None, Where())
    except TooMuch:
        troubles.append(Trouble("this takes too long to follow; only its beginning was followed", place))
    return troubles


def finished(script: Script, run: Run, troubles: list[Trouble]) -> Script:
    """The script with all that was read."""
    launches: list[Launch] = []
    for each, frame in run.launches:
        whole = replace(each, loop=frame.loop() if frame and frame.endless else None)
        if whole not in launches[-20:]:
            launches.append(whole)
    assignments = (
        replace(each, exported=True) if each.name in run.exported else each for each in run.assignments.values()
    )
    comments = {each.place: each for found in run.surveys for each in found.comments}
    return replace(
        script,
        launches=(*script.launches, *launches),
        comments=(*script.comments, *(comments[place] for place in sorted(comments))),
        troubles=(*script.troubles, *dict.fromkeys(troubles), *run.troubles()),
        assignments=tuple(sorted(assignments, key=lambda each: each.place)),
        uses=run.uses(),
        calls=tuple(
            replace(call, loop=frame.loop() if frame else None)
            for call, frame in sorted(run.calls.values(), key=lambda pair: pair[0].place)
        ),
        loops=tuple(sorted((frame.loop() for frame in run.loops.values()), key=lambda loop: loop.place)),
        error_exit=run.error_exit,
    )


def export(run: Run, environment: Mapping[str, Word]) -> None:
    """Gives the script to come an environment."""
    for name, word in environment.items():
        known = run.state.variables.get(name)
        if known is None or known.word != word:
            written = (word.written.start, word.written.end) if word.written else (-1, -1)
            pieces = None if word.value is None else (Piece(word.value, *written),)
            run.state.variables[name] = Variable(pieces, None, word, True)


def start(run: Run, fields: list[Field], environment: dict[str, Word], container: Container) -> None:
    """What a container starts, given as words."""
    if not fields:
        return
    found = unwrap(run.page, fields, environment)
    found.container = found.container or container
    if found.nested is not None:
        nested(run, found, Where())
    elif found.server:
        made = launch(run.page, found.fields, Surroundings(found.environment, found.container), found.starts)
        if made is not None:
            run.launches.append((made, None))


def nested(run: Run, found: Unwrapped, where: Where) -> bool:
    """Reads the script that a word holds, such as that of ``bash -c``. Whether it could be read."""
    text = _text(run, found.nested) if found.nested else None
    if text is None or where.depth > MOST_DEPTH // 2:
        return False
    run.spend(3)
    kept, outside = run.state, run.container
    run.state, run.container = kept.copy(), found.container or outside
    export(run, found.environment)
    if found.container is not None:
        run.state.variables = {
            name: replace(each, exported=name in found.environment) for name, each in run.state.variables.items()
        }
    run.state.arguments = tuple(found.arguments)
    walk(run, text, where.deeper(background=found.background))
    run.state, run.container = kept, outside
    return True


def _text(run: Run, field: Field | None) -> Mapped | None:
    """The script within a word, with the place of each of its characters."""
    if field is None:
        return None
    if field.inner is not None:
        mapped, start, end, unescape = field.inner
        return mapped.part(start, end, unescape)
    if field.value is None or len(field.pieces) != 1 or field.pieces[0].start < 0:
        return None
    piece = field.pieces[0]
    if run.page.text[piece.start : piece.end] != piece.text:
        return None
    return Mapped(piece.text or "", range(piece.start, piece.end))


SHEBANG_EXIT = re.compile(r"#![^\n]*\bb?a?sh\s+-[a-z]*e")
