"""Read systemd units: the servers in ExecStart=, with the unit's variables.

An EnvironmentFile is read from the unit's own folder, by path or by name: /etc/lmdeploy/server.env on the host is
in the unit's folder until it is installed. Of drop-ins beside the unit, Environment= is read.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from recommender.common.pattern import pattern
from recommender.common.text import shorten
from recommender.review.readers.unit_variables import UnitVariable, UnitVariables, pieces_of
from recommender.review.readers.unit_words import (
    BLANK,
    Unbalanced,
    UnitItem,
    UnitSheet,
    item_at,
    read_sheet,
    replace_specifiers,
    specifiers,
)
from recommender.review.script.docker_run import size_of
from recommender.review.script.model import HOSTS, Container, ReadProblem, Script, Span, Use
from recommender.review.script.sibling_files import VARIABLE
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText
from recommender.review.shell.inner_scripts import start
from recommender.review.shell.state import Frame, Run, TooMuch, complete_script
from recommender.review.shell.walker import new_run

PREFIXES = "-@:+!"
REPLACED = pattern(r"\$(?:\$|\{(?P<name>[^{}:]*)\})")
# systemd splits a lone variable into words: quotes keep blanks, a backslash keeps the next character.
PART = pattern(r"'(?P<single>[^']*)'?|\"(?P<double>(?:[^\"\\]|\\.)*)\"?|\\(?P<kept>.)|(?P<bare>[^\s'\"\\]+)", re.DOTALL)
OF_SYSTEMD = pattern(
    r"PATH|LANG|LC_\w+|USER|LOGNAME|HOME|SHELL|TERM|TMPDIR|(?:RUNTIME|STATE|CACHE|LOGS|CONFIGURATION|CREDENTIALS)_DIRECTORY"
    r"|INVOCATION_ID|XDG_RUNTIME_DIR|MAINPID|MANAGERPID|PIDFILE|SYSTEMD_EXEC_PID|JOURNAL_STREAM|LOG_NAMESPACE"
    r"|NOTIFY_SOCKET|(?:LISTEN|WATCHDOG|MONITOR|TRIGGER|MEMORY_PRESSURE)_\w+|FDSTORE|REMOTE_(?:ADDR|PORT)"
)
"""Variables that systemd sets."""
RESTARTS = frozenset({"always", "on-failure", "on-abnormal", "on-abort", "on-watchdog"})
"""Values of Restart= that restart a crashed server."""
LIMITS = ("StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst")
MOUNTS = ("PodmanArgs", "Volume", "Tmpfs", "Mount")
SHARED = pattern(r"/dev/shm|--shm-size|--ipc|--pod\b")
"""What gives a container of Podman other shared memory."""
MOST_COMMANDS = 300
WORTH = 200
"""Characters of a variable's value that count as one step of work."""


@dataclass(frozen=True)
class UnitCommand:
    """The words of a command, and its place."""

    fields: list[Field]
    place: Span


@dataclass
class Unit:
    """The state of reading one unit."""

    run: Run
    sheet: UnitSheet
    specifiers: Mapping[str, str]
    environment: dict[str, UnitVariable] = field(default_factory=dict)
    complete: bool = False
    uses: set[Use] = field(default_factory=set)

    @property
    def page(self) -> SourceText:
        """Return the file."""
        return self.run.page

    def piece(self, name: str, sign: Mapped) -> Piece:
        """Return a variable's value at its use; report one that nothing sets."""
        place = self.page.place(*sign.span(0, len(sign.code)))
        if VARIABLE.fullmatch(name):
            self.uses.add(Use(name, place, False))
        given = self.environment.get(name)
        if given is None and self.complete and VARIABLE.fullmatch(name) and not OF_SYSTEMD.fullmatch(name):
            message = f"{shorten(name)} is not set here; unless a drop-in sets it, systemd replaces it by nothing"
            self.sheet.report(self.page, sign, 0, message)
        if given is None or given.text is None:
            return Piece(None, place.start, place.end)
        self.run.spend(1 + len(given.text) // WORTH)
        return given.piece


def read(script: Script) -> Script:
    """Read a unit."""
    unit = _unit(script)
    try:
        for command in _commands(unit):
            environment = {name: given.word for name, given in unit.environment.items()}
            start(unit.run, command.fields, environment, _container(unit), command.place)
    except TooMuch:
        message = "reading takes too long; only the beginning was read"
        unit.sheet.problems.append(ReadProblem(message, unit.page.place(0, 0)))
    frame = _restarts(unit)
    unit.run.launches = [(server, loop or frame) for server, loop in unit.run.launches]
    unit_script = complete_script(replace(script, comments=tuple(unit.sheet.comments)), unit.run, unit.sheet.problems)
    return replace(
        unit_script,
        comments=tuple(sorted(unit_script.comments, key=lambda comment: comment.place)),
        uses=tuple(sorted({*unit_script.uses, *unit.uses}, key=lambda use: use.place)),
        error_exit=None,  # `set -e` in a command's shell does not end systemd's restarts
    )


def commands(script: Script) -> list[list[Field]]:
    """Return the words of each ExecStart= command: program and arguments."""
    return [command.fields for command in _commands(_unit(script))]


def _unit(script: Script) -> Unit:
    page = SourceText(script)
    return Unit(new_run(page), read_sheet(page), specifiers(script.path))


def _restarts(unit: Unit) -> Frame | None:
    """Return Restart= as a loop; it spins if it has no limit and waits only the 100 ms of the default, or less."""
    restart = unit.sheet.value("Restart")
    if restart is None or restart.code not in RESTARTS:
        return None
    pause = unit.sheet.value("RestartSec")
    limits = [unit.sheet.value(limit, "Unit", "Service") for limit in LIMITS]
    counts = all(limit is None or _is_positive(limit.code) for limit in limits)
    place = unit.page.place(*restart.span(0, len(restart.code)))
    return Frame(place, True, pauses=counts or (pause is not None and _is_positive(pause.code)))


def _image(unit: Unit) -> Mapped | None:
    return unit.sheet.value("Image", "Container")


def _container(unit: Unit) -> Container | None:
    """Return the container of a Quadlet unit of Podman."""
    image = _image(unit)
    if image is None:
        return None
    published = [setting.value for setting in unit.sheet.in_effect("PublishPort")]
    words = [
        unit.page.word(Field(tuple(pieces_of(part)), *part.span(0, len(part.code)))) for part in (image, *published)
    ]
    size = unit.sheet.value("ShmSize", "Container")
    bytes_ = size_of(size.code) if size else None
    other = any(SHARED.search(setting.value.code) for key in MOUNTS for setting in unit.sheet.in_effect(key))
    cards = [setting.value.code.rpartition("=")[2] for setting in unit.sheet.in_effect("AddDevice")]
    gpus = len(cards) if cards and all(card.isdecimal() for card in cards) else None
    known = not other and (size is None or bytes_ is not None)
    return Container(words[0].place, words[0], bytes_, known, gpus=gpus, published=tuple(words[1:]))


def _is_positive(span: str) -> bool:
    """Return whether a number or time span is above zero."""
    return bool(re.search(r"[1-9]|infinity", span))


# --- commands


def _commands(unit: Unit) -> Iterator[UnitCommand]:
    """Yield the ExecStart= commands; an empty one resets those before it."""
    variables = UnitVariables(unit.page, unit.sheet, unit.specifiers, unit.run.spend)
    unit.environment, unit.complete = variables.gather(), variables.complete
    for setting in [*unit.sheet.in_effect("ExecStart"), *unit.sheet.in_effect("Exec")][:MOST_COMMANDS]:
        try:
            yield from list(_split_commands(unit, setting.value))
        except Unbalanced as error:
            unit.sheet.report(unit.page, setting.value, error.at, str(error))


def _split_commands(unit: Unit, value: Mapped) -> Iterator[UnitCommand]:
    """Yield the commands of one line, separated by lone semicolons."""
    at = 0
    while (first := item_at(value, at)) is not None:
        at = first.end
        if first.text.code == ";":
            continue
        arguments: list[UnitItem] = []
        while (item := item_at(value, at)) is not None:
            unit.run.spend()
            at = item.end
            if value.code[item.start : item.end] == ";":
                break
            arguments.append(item)
        command = _command(unit, value, first, arguments)
        if command is not None:
            yield command


def _command(unit: Unit, value: Mapped, first: UnitItem, arguments: list[UnitItem]) -> UnitCommand | None:
    """Return one command; None if it has no program."""
    code = first.text.code
    count = len(code) - len(code.lstrip(PREFIXES))
    signs, whole = code[:count], replace_specifiers(Mapped(code[count:], first.text.at[count:]), unit.specifiers)
    if not whole.code:
        return None
    _check_program(unit, value, first, whole.code)
    fields = [_field(unit, value, first, whole, True)]
    for item in arguments[1 if "@" in signs else 0 :]:
        if value.code[item.start : item.end] == "\\;":
            span = value.span(item.start, item.end)
            fields.append(Field((Piece(";"),), *span))
        else:
            fields += _fields(unit, value, item, ":" not in signs)
    last = arguments[-1] if arguments else first
    return UnitCommand(fields, unit.page.place(*value.span(first.start, last.end)))


def _check_program(unit: Unit, value: Mapped, first: UnitItem, code: str) -> None:
    """Report a program that systemd rejects; the command is still read."""
    message = ""
    if _image(unit) is not None:  # the words of a container
        return
    if "$" in code:
        message = "systemd does not accept a variable as the program; write /usr/bin/env -- before it"
    elif "/" in code and not code.startswith(("/", HOSTS)):
        message = "systemd rejects a relative path to the program; write an absolute one"
    if message:
        unit.sheet.report(unit.page, value, first.start, message, first.end)


# --- words


def _fields(unit: Unit, value: Mapped, item: UnitItem, expand: bool) -> list[Field]:
    """Return a word's fields; a lone variable without braces may be any number."""
    whole = replace_specifiers(item.text, unit.specifiers)
    code = whole.code
    if not expand or not code.startswith("$") or code[1:2] in ("$", "{"):
        return [_field(unit, value, item, whole, expand)]
    place = unit.page.place(*value.span(item.start, item.end))
    name = code[1:]
    piece = unit.piece(name, whole)
    if piece.text is not None:
        return list(_split(unit, piece, place, name))
    # systemd replaces an invalid name by nothing.
    if not VARIABLE.fullmatch(name) and HOSTS not in name:
        return []
    return [Field((piece,), place.start, place.end, variable=name, many=True)]


def _split(unit: Unit, whole: Piece, place: Span, name: str) -> Iterator[Field]:
    """Yield the words of a variable's value; other files' words have no place here."""
    text, at = whole.text or "", 0
    pieces: list[Piece] = []
    for match in PART.finditer(text):
        if pieces and match.start() > at:
            yield _word(pieces, place, name)
            pieces = []
        unit.run.spend()
        group = match.lastgroup or "bare"
        piece = whole.cut(*match.span(group))
        if group == "double" and "\\" in (piece.text or ""):
            piece = Piece(re.sub(r"\\(.)", r"\1", piece.text or "", flags=re.DOTALL))
        pieces.append(piece)
        at = match.end()
    if pieces:
        yield _word(pieces, place, name)


def _word(pieces: list[Piece], place: Span, name: str) -> Field:
    real = all(piece.start >= 0 for piece in pieces)
    span = (pieces[0].start, pieces[-1].end) if real else (place.start, place.start)
    return Field(tuple(pieces), *span, variable=name)


def _field(unit: Unit, value: Mapped, item: UnitItem, whole: Mapped, expand: bool) -> Field:
    """Return a word with its variables replaced, and the script it may contain."""
    start, end = value.span(item.start, item.end)
    quoted = unit.page.text[start : start + 1] in ("'", '"')
    if not whole.code:
        return Field((Piece("", start + quoted, start + quoted),), start, end, quoted=quoted)
    pieces: list[Piece] = []
    at, variable = 0, ""
    for match in REPLACED.finditer(whole.code) if expand else ():
        pieces += pieces_of(whole.part(at, match.start()))
        at = match.end()
        if match["name"] is None:
            pieces += pieces_of(whole.part(match.start(), match.start() + 1))
        else:
            pieces.append(unit.piece(match["name"], whole.part(*match.span())))
            variable = match["name"] if match[0] == whole.code else ""
    pieces += pieces_of(whole.part(at, len(whole.code)))
    script = _script(unit, whole, expand) if any(blank in whole.code for blank in BLANK) else None
    inner = (script, 0, len(script.code), False) if script else None
    return Field(tuple(pieces), start, end, variable, quoted, inner=inner)


def _script(unit: Unit, whole: Mapped, expand: bool) -> Mapped | None:
    """Return a word as a shell reads it; None if single quotes hold an unknown.

    A variable unknown to the unit is left to the shell. What only the host knows becomes ``$?``, which is unknown too.
    """
    parts: list[str] = []
    places: list[int] = []
    at = 0
    for match in (*(REPLACED.finditer(whole.code) if expand else ()), None):
        until = match.start() if match else len(whole.code)
        for index in range(at, until):
            char = whole.code[index].replace(HOSTS, "$?")
            parts.append(char)
            places += [whole.at[index]] * len(char)
        at = match.end() if match else until
        new = Mapped("", ())
        if match is not None:
            new = _replacement(unit, whole.part(*match.span()), match["name"])
        parts.append(new.code)
        places += new.at
    code = "".join(parts)
    unknown = HOSTS in whole.code or any("${" in part and expand for part in parts)
    return None if unknown and "'" in code else Mapped(code, places)


def _replacement(unit: Unit, sign: Mapped, name: str | None) -> Mapped:
    """Return the text for ``$$`` or a variable; an unknown one is kept."""
    if name is None:
        return sign.part(0, 1)
    given = unit.environment.get(name)
    if given is None or given.text is None:
        return sign
    piece = given.piece
    if piece.start >= 0:
        return Mapped(given.text, range(piece.start, piece.end))
    return Mapped(given.text, [sign.at[0]] * len(given.text))
