"""Hold the state of following a shell script, and what was found so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from recommender.review.script.model import (
    Assignment,
    Call,
    Container,
    Embedded,
    Launch,
    Loop,
    ReadProblem,
    Script,
    Span,
    Use,
    Word,
)
from recommender.review.script.source_map import Field, Piece, SourceText
from recommender.review.script.variables import Variable, Variables

if TYPE_CHECKING:
    from tree_sitter import Node

    from recommender.review.script.source_map import Mapped
    from recommender.review.script.unwrap import Unwrapped
    from recommender.review.shell.survey import Survey
    from recommender.review.shell.walker import Shell

MOST_STEPS = 25_000
MOST_DEPTH = 60


@dataclass
class Frame:
    """A loop that is being followed."""

    place: Span
    endless: bool
    pauses: bool = False

    def loop(self) -> Loop:
        """Return the loop as rules see it."""
        return Loop(self.place, self.endless, self.pauses)


class Where(NamedTuple):
    """The context of a command: in the background, failure handled, output run later, depth."""

    background: bool = False
    guarded: bool = False
    depth: int = 0
    output_may_run: bool = False
    """Its output goes to a script or to a shell, so what it prints may be run."""

    def deeper(self, background: bool = False, guarded: bool = False, output_may_run: bool = False) -> Where:
        """Return the context one construct further in."""
        return Where(
            self.background or background,
            self.guarded or guarded,
            self.depth + 1,
            self.output_may_run or output_may_run,
        )


class TooMuch(Exception):
    """The script would take too long to follow."""


@dataclass
class Run:
    """What was read so far, in a file and the scripts within it."""

    page: SourceText
    walker: Callable[[Run, Mapped, Node], Shell]
    state: Variables = field(default_factory=Variables)
    functions: dict[str, tuple[Shell, Node]] = field(default_factory=dict)
    called: dict[str, int] = field(default_factory=dict)
    aliases: dict[str, tuple[Field, Variables]] = field(default_factory=dict)
    """What each stands for, and what the script knows where it is set."""
    expanded: set[str] = field(default_factory=set)
    """The aliases that were used."""
    expanding: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    site: Span | None = None
    """The place of the outermost call of a function."""
    locals: list[dict[str, Variable | None]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    loops: dict[tuple[int, int], Frame] = field(default_factory=dict)
    launches: list[tuple[Launch, Frame | None]] = field(default_factory=list)
    assignments: dict[int, Assignment] = field(default_factory=dict)
    calls: dict[tuple[int, int], tuple[Call, Frame | None]] = field(default_factory=dict)
    surveys: list[Survey] = field(default_factory=list)
    tools: list[Launch] = field(default_factory=list)
    followed: list[tuple[int, int]] = field(default_factory=list)
    by_help: list[tuple[int, int]] = field(default_factory=list)
    """The statements whose condition looks for something in LMDeploy's help."""
    embedded: list[Embedded] = field(default_factory=list)
    unread: list[ReadProblem] = field(default_factory=list)
    elsewhere: bool = False
    """A launch is in another file, or in a text that is not written as it is read: repairs would break it."""
    exported: set[str] = field(default_factory=set)
    outer_expands: bool = False
    """A shell around the text expands its variables before the shell that runs it."""
    container: Container | None = None
    image: Word | None = None
    """That of Slurm or Apptainer around a script."""
    containers: dict[str, Container] = field(default_factory=dict)
    """Those that docker started, by name."""
    error_exit: Span | None = None
    turning: bool = False
    """The turns of a loop are being followed."""
    pipefail: bool = False
    export_all: bool = False
    steps: int = 0

    def contained(self, unwrapped: Unwrapped, place: Span) -> Container | None:
        """Return the container of a command; of docker exec, the one that was started under its name."""
        if unwrapped.container is not None:
            self.containers[unwrapped.container_name] = unwrapped.container
            return unwrapped.container
        entered = self.containers.get(unwrapped.container_name) if unwrapped.container_name else None
        return entered._replace(place=place) if entered else None

    def spend(self, steps: int = 1) -> None:
        """Count work; raise TooMuch for a text that never ends."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise TooMuch

    def follow(self, fields: Iterable[Field]) -> None:
        """Note the places of words that were understood, and of the literals that they come from."""
        for word in fields:
            self.followed.append((word.start, word.end))
            self.followed += [(piece.start, piece.end) for piece in word.pieces if piece.start >= 0]

    def start(self, server: Launch, frame: Frame | None) -> None:
        """Record a server, or a tool, that a command starts."""
        if server.starts == "tool":
            self.tools += [server] if server not in self.tools[-20:] else []
        else:
            self.launches.append((server._replace(called=self.site if self.inside else None), frame))

    def problems(self) -> tuple[ReadProblem, ...]:
        """Return the problems, each once."""
        surveyed = (problem for survey in self.surveys for problem in survey.problems)
        return tuple(dict.fromkeys((*surveyed, *self.unread)))

    def uses(self) -> tuple[Use, ...]:
        """Return the uses, each once, in the order of the text."""
        return tuple(sorted({use for survey in self.surveys for use in survey.uses}, key=lambda use: use.place))


def complete_script(script: Script, run: Run, problems: list[ReadProblem]) -> Script:
    """Return the script with all that was read."""
    launches: list[Launch] = []
    for launch, frame in run.launches:
        whole = launch._replace(loop=frame.loop() if frame and frame.endless else None)
        at = next(
            (at for at, other in enumerate(launches[-20:], max(0, len(launches) - 20)) if _same(other, whole)), None
        )
        if at is None:
            launches.append(whole)
        elif whole.loop is not None and launches[at].loop is None:
            launches[at] = whole
    assignments = (
        assignment._replace(exported=True) if assignment.name in run.exported else assignment
        for assignment in run.assignments.values()
    )
    comments = {comment.place: comment for survey in run.surveys for comment in survey.comments}
    return replace(
        script,
        launches=(*script.launches, *launches),
        comments=(*script.comments, *(comments[place] for place in sorted(comments))),
        tools=(*script.tools, *run.tools),
        followed=(*script.followed, *dict.fromkeys(run.followed)),
        by_help=(*script.by_help, *dict.fromkeys(run.by_help)),
        embedded=(*script.embedded, *dict.fromkeys(run.embedded)),
        problems=(*script.problems, *dict.fromkeys(problems), *run.problems()),
        assignments=tuple(sorted(assignments, key=lambda assignment: assignment.place)),
        uses=run.uses(),
        calls=tuple(
            call._replace(loop=frame.loop() if frame else None)
            for call, frame in sorted(run.calls.values(), key=lambda pair: pair[0].place)
        ),
        loops=tuple(sorted((frame.loop() for frame in run.loops.values()), key=lambda loop: loop.place)),
        error_exit=run.error_exit,
        repairable=script.repairable and not run.elsewhere,
    )


def _same(first: Launch, second: Launch) -> bool:
    """Return whether two launches are equal, or the same words of an array that a script runs in two ways."""
    if first == second:
        return True
    options = [[option.place for option in launch.options] for launch in (first, second)]
    if not options[0] or options[0][0].start >= first.place.start or options[0] != options[1]:
        return False
    models = [launch.model.literal if launch.model else None for launch in (first, second)]
    environments = [{name: word.value for name, word in launch.environment.items()} for launch in (first, second)]
    return models[0] == models[1] and environments[0] == environments[1]


def export(run: Run, environment: Mapping[str, Word]) -> None:
    """Export an environment to the script that follows."""
    for name, word in environment.items():
        known = run.state.variables.get(name)
        if known is None or known.word != word:
            written = (word.literal.start, word.literal.end) if word.literal else (-1, -1)
            pieces = None if word.value is None else (Piece(word.value, *written),)
            run.state.variables[name] = Variable(pieces, None, word, True)
