"""What every reader makes of a file: the servers it starts, and where each value of theirs stands.

Readers (``shell``, ``pythonfile``, ``manifest``, ``unitfile``…) never run anything of a file. A value that only a run
would tell is None, and no rule may guess it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["command", "bash", "python", "docker", "compose", "kubernetes", "systemd"]
Starts = Literal["api_server", "proxy", "pipeline"]


@dataclass(frozen=True, order=True)
class Place:
    """A stretch of the file: offsets count characters from 0, lines and columns count from 1."""

    start: int
    end: int
    line: int
    column: int


@dataclass(frozen=True)
class Word:
    """One value as it stands. ``value`` is None where only a run would tell it.

    ``place`` is where it is used; ``written`` is the literal text that gives the value, without its quotes
    (at the use, in an assignment, or the default within ``${VAR:-default}``): what a repair may replace.
    None where no single literal gives it.
    """

    raw: str
    value: str | None
    place: Place
    written: Place | None = None
    variable: str = ""
    quoted: bool = False


@dataclass(frozen=True)
class Option:
    """An option of a command line, or a keyword of a Python call; ``whole`` spans name and values.

    ``of`` is what takes a keyword: ``pipeline``, or the class, whose name stands before the dot of ``name`` too
    where it is not the engine's. Empty on a command line.
    """

    name: str
    values: tuple[Word, ...]
    place: Place
    whole: Place
    of: str = ""


@dataclass(frozen=True)
class Probe:
    """A check of a container's health. Seconds; 0 where the file does not say."""

    kind: Literal["startup", "readiness", "liveness", "healthcheck"]
    place: Place
    path: str = ""
    initial_s: float = 0.0
    period_s: float = 0.0
    timeout_s: float = 0.0
    failures: int = 0


@dataclass(frozen=True)
class Container:
    """What stands around a server in ``docker run``, a compose service or a pod."""

    place: Place
    image: Word | None = None
    shm_bytes: int | None = None
    shm_known: bool = True
    host_ipc: bool = False
    gpus: int | None = None
    published: tuple[Word, ...] = ()
    restart: Word | None = None
    probes: tuple[Probe, ...] = ()
    replicas: int | None = 1
    """How many of it there are; None where the file does not tell."""


@dataclass(frozen=True)
class Loop:
    """A loop of a shell script; ``pauses``: something in it waits, so it cannot spin."""

    place: Place
    endless: bool
    pauses: bool


@dataclass(frozen=True)
class Launch:
    """A server (or a pipeline) that the file starts.

    ``unsure``: words whose number cannot be known stand among the arguments, such as ``"$@"``, so a rule
    must not say that something is missing. ``environment`` holds what is set for it at that point.
    ``loop`` is the endless loop around it, ``background`` whether the script goes on beside it.
    """

    starts: Starts
    place: Place
    model: Word | None
    options: tuple[Option, ...]
    environment: Mapping[str, Word]
    extra: tuple[Word, ...] = ()
    unsure: bool = False
    background: bool = False
    loop: Loop | None = None
    container: Container | None = None
    engine: str = ""
    """Of a pipeline: TurbomindEngineConfig, PytorchEngineConfig or nothing."""
    instead: Word | None = None
    """What stands where ``api_server`` or ``proxy`` must stand, as in ``lmdeploy serve MODEL``."""
    guarded: bool = False
    """Its failure does not end a script under ``set -e``: it stands in a condition, or before && or ||."""


@dataclass(frozen=True)
class Assignment:
    """A variable that a shell script sets, within a function or not."""

    name: str
    word: Word
    place: Place
    exported: bool = False


@dataclass(frozen=True)
class Use:
    """An expansion of a variable; ``split``: unquoted where the shell would split it into words."""

    name: str
    place: Place
    split: bool


@dataclass(frozen=True)
class Call:
    """A simple command of a shell script that starts no server: curl, sleep, set, trap…"""

    words: tuple[Word, ...]
    place: Place
    loop: Loop | None = None


@dataclass(frozen=True)
class Comment:
    """A comment, its mark included."""

    text: str
    place: Place


@dataclass(frozen=True)
class Trouble:
    """A place that the reader could not make sense of."""

    message: str
    place: Place


@dataclass(frozen=True)
class Script:
    """A file as read. What a kind has not is empty."""

    path: str
    kind: Kind
    text: str
    launches: tuple[Launch, ...] = ()
    comments: tuple[Comment, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    uses: tuple[Use, ...] = ()
    calls: tuple[Call, ...] = ()
    loops: tuple[Loop, ...] = ()
    error_exit: Place | None = None
    """Where ``set -e`` (or its kin) stands."""
    lines: tuple[int, ...] = field(default=(0,), repr=False)
    """Offset of each line's first character."""

    def place(self, start: int, end: int) -> Place:
        """The place of a stretch of characters."""
        from bisect import bisect_right

        line = bisect_right(self.lines, start)
        return Place(start, end, line, start - self.lines[line - 1] + 1)
