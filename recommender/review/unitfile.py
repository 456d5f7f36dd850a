"""Reads systemd units: the servers that their ExecStart= starts, with the variables that the unit gives them.

A file of variables is read where it stands in the unit's own folder: by its path, or by its name, since what is
/etc/lmdeploy/server.env on the host stands beside the unit until it is installed. Drop-ins are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from recommender.review.following import Frame, Run, TooMuch, Where, finished, nested
from recommender.review.launches import Surroundings, launch
from recommender.review.mapped import Field, Mapped, Page, Piece
from recommender.review.script import Place, Script, Trouble, Use
from recommender.review.unitvariables import Given, Variables, pieces_of
from recommender.review.unitwords import (
    BLANK,
    UNKNOWN,
    VARIABLE,
    Item,
    Sheet,
    Unbalanced,
    item_at,
    sheet,
    specified,
    specifiers,
)
from recommender.review.unwrap import unwrap
from recommender.store import shorten

PREFIXES = "-@:+!"
REPLACED = re.compile(r"\$(?:\$|\{(?P<name>[^{}:]*)\})")
# The words of a variable that stands alone: quotes hold blanks, a backslash keeps what follows it.
PART = re.compile(
    r"'(?P<single>[^']*)'?|\"(?P<double>(?:[^\"\\]|\\.)*)\"?|\\(?P<kept>.)|(?P<bare>[^\s'\"\\]+)", re.DOTALL
)
OF_SYSTEMD = re.compile(
    r"PATH|LANG|LC_\w+|USER|LOGNAME|HOME|SHELL|TERM|TMPDIR|(?:RUNTIME|STATE|CACHE|LOGS|CONFIGURATION|CREDENTIALS)_DIRECTORY"
    r"|INVOCATION_ID|XDG_RUNTIME_DIR|MAINPID|MANAGERPID|PIDFILE|SYSTEMD_EXEC_PID|JOURNAL_STREAM|LOG_NAMESPACE"
    r"|NOTIFY_SOCKET|(?:LISTEN|WATCHDOG|MONITOR|TRIGGER|MEMORY_PRESSURE)_\w+|FDSTORE|REMOTE_(?:ADDR|PORT)"
)
"""What systemd sets by itself."""
RESTARTS = frozenset({"always", "on-failure", "on-abnormal", "on-abort", "on-watchdog"})
"""What starts a server again that has crashed."""
LIMITS = ("StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst")
MOST_COMMANDS = 300
WORTH = 200
"""So many characters of a variable's value count as a step of the work."""


@dataclass(frozen=True)
class Command:
    """The words of a command, and where it stands."""

    fields: list[Field]
    place: Place


@dataclass
class Unit:
    """A unit while it is read."""

    run: Run
    sheet: Sheet
    known: Mapping[str, str]
    environment: dict[str, Given] = field(default_factory=dict)
    complete: bool = False
    uses: set[Use] = field(default_factory=set)

    @property
    def page(self) -> Page:
        """The file."""
        return self.run.page

    def piece(self, name: str, sign: Mapped) -> Piece:
        """The value of a variable where it is used; where all was read and nothing sets it, that is told."""
        place = self.page.place(*sign.span(0, len(sign.code)))
        if VARIABLE.fullmatch(name):
            self.uses.add(Use(name, place, False))
        given = self.environment.get(name)
        if given is None and self.complete and VARIABLE.fullmatch(name) and not OF_SYSTEMD.fullmatch(name):
            message = f"nothing here sets {shorten(name)}; unless a drop-in does, systemd puts no text in its place"
            self.sheet.trouble(self.page, sign, 0, message)
        if given is None or given.text is None:
            return Piece(None, place.start, place.end)
        self.run.spend(1 + len(given.text) // WORTH)
        return given.piece


def read(script: Script) -> Script:
    """Reads a unit."""
    unit = _unit(script)
    try:
        for command in _commands(unit):
            _start(unit, command)
    except TooMuch:
        message = "this takes too long to read; only its beginning was read"
        unit.sheet.troubles.append(Trouble(message, unit.page.place(0, 0)))
    frame = _restarts(unit)
    unit.run.launches = [(made, loop or frame) for made, loop in unit.run.launches]
    made = finished(replace(script, comments=tuple(unit.sheet.comments)), unit.run, unit.sheet.troubles)
    return replace(
        made,
        comments=tuple(sorted(made.comments, key=lambda each: each.place)),
        uses=tuple(sorted({*made.uses, *unit.uses}, key=lambda each: each.place)),
        error_exit=None,  # what ends the shell of a command does not end the restarts, which are systemd's
    )


def commands(script: Script) -> list[list[Field]]:
    """The words of each command of ExecStart=: the program, and its arguments."""
    return [each.fields for each in _commands(_unit(script))]


def _unit(script: Script) -> Unit:
    page = Page(script)
    return Unit(Run(page), sheet(page), specifiers(script.path))


def _start(unit: Unit, command: Command) -> None:
    """What a command starts: a server, or a script of a shell that may start one."""
    environment = {name: given.word for name, given in unit.environment.items()}
    found = unwrap(unit.page, command.fields, environment)
    if found.nested is not None:
        nested(unit.run, found, Where())
    elif found.server:
        around = Surroundings(found.environment, found.container, place=command.place)
        made = launch(unit.page, found.fields, around, found.starts)
        if made is not None:
            unit.run.launches.append((made, None))


def _restarts(unit: Unit) -> Frame | None:
    """Restart= as the loop that it is. It spins where it neither waits nor counts, as systemd otherwise does."""
    restart = unit.sheet.value("Restart")
    if restart is None or restart.code not in RESTARTS:
        return None
    pause = unit.sheet.value("RestartSec")
    limits = [unit.sheet.value(each, "Unit", "Service") for each in LIMITS]
    counts = all(each is None or _some(each.code) for each in limits)
    place = unit.page.place(*restart.span(0, len(restart.code)))
    return Frame(place, True, pauses=counts or pause is None or _some(pause.code))


def _some(span: str) -> bool:
    """Whether a number or a span of time is more than nothing."""
    return bool(re.search(r"[1-9]|infinity", span))


# --- commands


def _commands(unit: Unit) -> Iterator[Command]:
    """The commands of ExecStart=; an empty one takes back those before it."""
    variables = Variables(unit.page, unit.sheet, unit.known, unit.run.spend)
    unit.environment, unit.complete = variables.gathered(), variables.complete
    for setting in unit.sheet.lasting("ExecStart")[:MOST_COMMANDS]:
        try:
            yield from list(_of(unit, setting.value))
        except Unbalanced as error:
            unit.sheet.trouble(unit.page, setting.value, error.at, str(error))


def _of(unit: Unit, value: Mapped) -> Iterator[Command]:
    """The commands of one line, which lone semicolons set apart."""
    at = 0
    while (first := item_at(value, at)) is not None:
        at = first.end
        if first.text.code == ";":
            continue
        arguments: list[Item] = []
        while (item := item_at(value, at)) is not None:
            unit.run.spend()
            at = item.end
            if value.code[item.start : item.end] == ";":
                break
            arguments.append(item)
        command = _command(unit, value, first, arguments)
        if command is not None:
            yield command


def _command(unit: Unit, value: Mapped, first: Item, arguments: list[Item]) -> Command | None:
    """One command; None where it has no program."""
    code = first.text.code
    count = len(code) - len(code.lstrip(PREFIXES))
    signs, whole = code[:count], specified(Mapped(code[count:], first.text.at[count:]), unit.known)
    if not whole.code:
        return None
    _judged(unit, value, first, whole.code)
    fields = [_field(unit, value, first, whole, True)]
    for item in arguments[1 if "@" in signs else 0 :]:
        if value.code[item.start : item.end] == "\\;":
            span = value.span(item.start, item.end)
            fields.append(Field((Piece(";"),), *span))
        else:
            fields += _fields(unit, value, item, ":" not in signs)
    last = arguments[-1] if arguments else first
    return Command(fields, unit.page.place(*value.span(first.start, last.end)))


def _judged(unit: Unit, value: Mapped, first: Item, code: str) -> None:
    """What systemd does not take as a program is told; what is meant is read all the same."""
    message = ""
    if "$" in code:
        message = "systemd takes no variable as the program; write /usr/bin/env -- before it"
    elif "/" in code and not code.startswith(("/", UNKNOWN)):
        message = "systemd refuses a program by a path that is not absolute"
    if message:
        unit.sheet.trouble(unit.page, value, first.start, message, first.end)


# --- words


def _fields(unit: Unit, value: Mapped, item: Item, expand: bool) -> list[Field]:
    """A word as the program gets it: one, or any number where a variable stands alone without braces."""
    whole = specified(item.text, unit.known)
    code = whole.code
    if not expand or not code.startswith("$") or code[1:2] in ("$", "{"):
        return [_field(unit, value, item, whole, expand)]
    place = unit.page.place(*value.span(item.start, item.end))
    name = code[1:]
    piece = unit.piece(name, whole)
    if piece.text is not None:
        return list(_split(unit, piece, place, name))
    # What is no name is replaced by nothing.
    if not VARIABLE.fullmatch(name) and UNKNOWN not in name:
        return []
    return [Field((piece,), place.start, place.end, variable=name, many=True)]


def _split(unit: Unit, whole: Piece, place: Place, name: str) -> Iterator[Field]:
    """The words of a variable's value. Those of another file have no stretch of this one: nothing mends them here."""
    text, at = whole.text or "", 0
    pieces: list[Piece] = []
    for found in PART.finditer(text):
        if pieces and found.start() > at:
            yield _word(pieces, place, name)
            pieces = []
        unit.run.spend()
        group = found.lastgroup or "bare"
        piece = whole.cut(*found.span(group))
        if group == "double" and "\\" in (piece.text or ""):
            piece = Piece(re.sub(r"\\(.)", r"\1", piece.text or "", flags=re.DOTALL))
        pieces.append(piece)
        at = found.end()
    if pieces:
        yield _word(pieces, place, name)


def _word(pieces: list[Piece], place: Place, name: str) -> Field:
    real = all(piece.start >= 0 for piece in pieces)
    span = (pieces[0].start, pieces[-1].end) if real else (place.start, place.start)
    return Field(tuple(pieces), *span, variable=name)


def _field(unit: Unit, value: Mapped, item: Item, whole: Mapped, expand: bool) -> Field:
    """A word with its variables replaced, and the script that it may hold."""
    start, end = value.span(item.start, item.end)
    quoted = unit.page.text[start : start + 1] in ("'", '"')
    if not whole.code:
        return Field((Piece("", start + quoted, start + quoted),), start, end, quoted=quoted)
    pieces: list[Piece] = []
    at, variable = 0, ""
    for found in REPLACED.finditer(whole.code) if expand else ():
        pieces += pieces_of(whole.part(at, found.start()))
        at = found.end()
        if found["name"] is None:
            pieces += pieces_of(whole.part(found.start(), found.start() + 1))
        else:
            pieces.append(unit.piece(found["name"], whole.part(*found.span())))
            variable = found["name"] if found[0] == whole.code else ""
    pieces += pieces_of(whole.part(at, len(whole.code)))
    script = _script(unit, whole, expand) if any(each in whole.code for each in BLANK) else None
    inner = (script, 0, len(script.code), False) if script else None
    return Field(tuple(pieces), start, end, variable, quoted, inner=inner)


def _script(unit: Unit, whole: Mapped, expand: bool) -> Mapped | None:
    """A word as a shell would read it; None where something unknown may stand in single quotes.

    An unknown variable of the unit is one of the shell too; what only the host knows stands as ``$?``, which no
    shell's text tells either.
    """
    parts: list[str] = []
    places: list[int] = []
    at = 0
    for found in (*(REPLACED.finditer(whole.code) if expand else ()), None):
        until = found.start() if found else len(whole.code)
        for index in range(at, until):
            char = whole.code[index].replace(UNKNOWN, "$?")
            parts.append(char)
            places += [whole.at[index]] * len(char)
        at = found.end() if found else until
        new = Mapped("", ())
        if found is not None:
            new = _replacement(unit, whole.part(*found.span()), found["name"])
        parts.append(new.code)
        places += new.at
    code = "".join(parts)
    unknown = UNKNOWN in whole.code or any("${" in each and expand for each in parts)
    return None if unknown and "'" in code else Mapped(code, places)


def _replacement(unit: Unit, sign: Mapped, name: str | None) -> Mapped:
    """What stands for ``$$`` or a variable in a script; an unknown one itself."""
    if name is None:
        return sign.part(0, 1)
    given = unit.environment.get(name)
    if given is None or given.text is None:
        return sign
    piece = given.piece
    if piece.start >= 0:
        return Mapped(given.text, range(piece.start, piece.end))
    return Mapped(given.text, [sign.at[0]] * len(given.text))
