"""Model a file as rules see it: its servers, and the place of each value.

Readers never run anything in a file. A value that depends on a run is None, and no rule may guess it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal[
    "command",
    "bash",
    "python",
    "docker",
    "compose",
    "kubernetes",
    "systemd",
    "steps",
    "lines",
    "hcl",
    "markdown",
    "program",
    "other",
]
"""``steps``: YAML or JSON of any tool. ``lines``: a line is a command, as in a Makefile. ``program``: texts of a
language without a parser here. ``other``: not read."""
Starts = Literal["api_server", "proxy", "pipeline", "tool"]
ENGINES = ("TurbomindEngineConfig", "PytorchEngineConfig")


class Span(NamedTuple):
    """A range of the file: offsets from 0, lines and columns from 1, in characters."""

    start: int
    end: int
    line: int
    column: int


class Word(NamedTuple):
    """One value as written. ``value`` is None if it depends on a run.

    ``place`` is where it is used; ``literal`` is the one that defines the value, without its quotes
    (at the use, in an assignment, or the default within ``${VAR:-default}``): what a repair may replace.
    None if no single literal defines it.
    """

    raw: str
    value: str | None
    place: Span
    literal: Span | None = None
    variable: str = ""
    quoted: bool = False


class GivenOption(NamedTuple):
    """A command-line option or a keyword of a Python call; ``whole`` includes values.

    ``callee`` is the function or class of a keyword: ``pipeline`` or a class name, which also precedes the dot of
    ``name`` unless it is the engine's. Empty on a command line.
    """

    name: str
    values: tuple[Word, ...]
    place: Span
    whole: Span
    callee: str = ""


class Probe(NamedTuple):
    """A container's health check. Times in seconds; 0 if the file does not say."""

    kind: Literal["startup", "readiness", "liveness", "healthcheck"]
    place: Span
    path: str = ""
    port: Word | None = None
    initial_s: float = 0.0
    period_s: float = 0.0
    timeout_s: float = 0.0
    failures: int = 0
    awaited: bool = False
    """Another service starts only once it succeeds, and not at all if it fails first."""


class Container(NamedTuple):
    """The container around a server: ``docker run``, compose service or pod."""

    place: Span
    image: Word | None = None
    shm_bytes: int | None = None
    shm_known: bool = True
    host_ipc: bool = False
    gpus: int | None = None
    devices: tuple[str, ...] = ()
    """Which GPUs of the host, if it names them."""
    without_gpus: bool = False
    """No option of the command that starts it asks for a GPU or another device."""
    published: tuple[Word, ...] = ()
    targets: tuple[Word, ...] = ()
    """Ports of the container, where others expect the server."""
    services: tuple[Word, ...] = ()
    """Ports to which the Services of the file lead."""
    restart: Word | None = None
    probes: tuple[Probe, ...] = ()
    serves: bool = False
    """Its pod belongs to a workload that a Service sends requests to."""
    replicas: int | None = 1
    """The number of replicas; None if unknown."""


class Loop(NamedTuple):
    """A loop of a shell script; ``pauses``: something in it waits."""

    place: Span
    endless: bool
    pauses: bool


class Launch(NamedTuple):
    """A server (or a pipeline) that the file starts.

    ``unsure``: the arguments include an unknown number of words, such as ``"$@"``, so no rule may report a missing
    one. ``environment`` is what is set for it at that point. ``loop`` is the endless loop around it;
    ``background``: the script continues while it runs.
    """

    starts: Starts
    place: Span
    model: Word | None
    options: tuple[GivenOption, ...]
    environment: Mapping[str, Word]
    extra: tuple[Word, ...] = ()
    unsure: bool = False
    background: bool = False
    loop: Loop | None = None
    container: Container | None = None
    engine: str = ""
    """Of a pipeline: TurbomindEngineConfig, PytorchEngineConfig or nothing."""
    instead: Word | None = None
    """The word in place of ``api_server`` or ``proxy``, as in ``lmdeploy serve MODEL``."""
    guarded: bool = False
    """Its failure does not end a script with ``set -e``: it is in a condition, or before && or ||."""
    unread: tuple[Word, ...] = ()
    """Words whose number or text the file does not determine, such as ``"$@"``."""
    command: str = ""
    """Of a tool: its words after lmdeploy, such as ``lite auto_awq``."""
    called: Span | None = None
    """Where the script calls the function that starts it."""
    alternatives: tuple["Launch", ...] = ()
    """The same with what other branches of the file, or other combinations of a matrix, give it."""
    more: bool = False
    """Branches make more commands of it than the alternatives."""
    turns: tuple["Launch", ...] = ()
    """The same in each turn of a loop that calls the function around it."""
    installed: Word | None = None
    """The release that a matrix installs for it."""
    image: Word | None = None
    """The image of Slurm, Apptainer and the like in which it runs, with the host's network and memory."""


class Assignment(NamedTuple):
    """A variable that a shell script sets, within a function or not."""

    name: str
    word: Word
    place: Span
    exported: bool = False


class Use(NamedTuple):
    """An expansion of a variable; ``split``: the shell would split it into words."""

    name: str
    place: Span
    split: bool


class Call(NamedTuple):
    """A simple shell command that starts no server: curl, sleep, set, trap…"""

    words: tuple[Word, ...]
    place: Span
    loop: Loop | None = None


class Comment(NamedTuple):
    """A comment, including its mark."""

    text: str
    place: Span


class ReadProblem(NamedTuple):
    """A place that the reader did not understand; ``listed``: the file lists the values."""

    message: str
    place: Span
    listed: bool = False


MADE_BY, HEAD = "lmdeploy-recommender", 500
"""The mark of a generated file, and the number of characters in which it occurs."""
HOSTS = "\0"
"""Stands for what only the host knows, in the text of a unit: no unit contains this character."""


class Embedded(NamedTuple):
    """A file within a file: its name and range, and what the shell replaces before it is written."""

    name: str
    start: int
    end: int
    changes: tuple[tuple[int, int, str], ...] = ()
    container: Container | None = None
    """In which it runs."""


@dataclass(frozen=True, eq=False)
class Script:
    """A file as read; fields that its kind lacks are empty. Hashed by identity, so that functions can cache by it."""

    path: str
    kind: Kind
    text: str
    launches: tuple[Launch, ...] = ()
    tools: tuple[Launch, ...] = ()
    """Other commands of LMDeploy: chat, lite, convert, check_env."""
    followed: tuple[tuple[int, int], ...] = ()
    """Ranges that were read as commands; a mention of a server elsewhere was not followed."""
    by_help: tuple[tuple[int, int], ...] = ()
    """Statements that a script runs by what LMDeploy's help lists."""
    embedded: tuple[Embedded, ...] = ()
    """Files within the file, as in a here-document."""
    environment_files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment files that the file around writes, by their paths."""
    comments: tuple[Comment, ...] = ()
    problems: tuple[ReadProblem, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    uses: tuple[Use, ...] = ()
    calls: tuple[Call, ...] = ()
    loops: tuple[Loop, ...] = ()
    error_exit: Span | None = None
    """The place of ``set -e`` or an equivalent."""
    repairable: bool = True
    """Each launch is written in this file as it is read."""
    windows: bool = False
    """Its lines end with carriage returns."""
    lines: tuple[int, ...] = field(default=(0,), repr=False)
    """Offset of each line's first character."""

    def place(self, start: int, end: int) -> Span:
        """Return the place of a range of characters."""
        from bisect import bisect_right

        line = bisect_right(self.lines, start)
        return Span(start, end, line, start - self.lines[line - 1] + 1)

    @property
    def generated(self) -> bool:
        """Return whether ``recommend`` wrote the file; such a file documents its variables."""
        return MADE_BY in self.text[:HEAD]
