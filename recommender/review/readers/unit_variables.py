"""Gather a systemd unit's variables, its own and those of files in its folder."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from recommender.common.pattern import pattern
from recommender.review.readers.unit_words import (
    Unbalanced,
    UnitItem,
    UnitSetting,
    UnitSheet,
    items,
    read_sheet,
    replace_specifiers,
)
from recommender.review.script import sibling_files
from recommender.review.script.model import HOSTS, Script, Word
from recommender.review.script.source import STDIN
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText, line_starts

WILD = pattern(r"[*?\[]")
MOST_FILES = 256


@dataclass(frozen=True)
class UnitVariable:
    """A variable's value (None: unknown) and its characters' offsets in the unit."""

    text: str | None
    word: Word
    at: Sequence[int] = ()

    @property
    def piece(self) -> Piece:
        """Return the value as a part of a word."""
        text = self.text
        if text and len(self.at) == len(text) and self.at[-1] - self.at[0] + 1 == len(text):
            return Piece(text, self.at[0], self.at[-1] + 1)
        return Piece(text)


def pieces_of(text: Mapped) -> Iterator[Piece]:
    """Yield a text's pieces; the mark of the unknown is one of its own."""
    at = 0
    for part in re.split(f"({HOSTS})", text.code):
        span = text.span(at, at + len(part))
        if part:
            yield Piece(None, *span) if part == HOSTS else Piece(part, *span)
        at += len(part)


@dataclass
class UnitVariables:
    """Gather the variables of a unit; ``spend`` counts the work."""

    page: SourceText
    sheet: UnitSheet
    specifiers: Mapping[str, str]
    spend: Callable[[int], None]
    complete: bool = True
    """Whether every file that the unit names could be read."""

    def gather(self) -> dict[str, UnitVariable]:
        """Return all variables: files override the unit, which overrides the manager."""
        variables: dict[str, UnitVariable] = {}
        for setting in self.sheet.service("PassEnvironment"):
            for item in self._items(setting):
                word = self.page.word(Field((Piece(None),), *setting.value.span(item.start, item.end)))
                variables[item.text.code] = UnitVariable(None, word)
        for setting in self.sheet.in_effect("Environment"):
            for item in self._items(setting):
                self._add_assignment(setting, item, variables)
        for name, text in _dropped_in(self.page.script):
            self.spend(1)
            variables[name] = UnitVariable(text, Word(name, text, self.page.place(0, 0), variable=name))
        for setting in self.sheet.in_effect("EnvironmentFile"):
            self._add_file(setting, variables)
        for setting in self.sheet.in_effect("UnsetEnvironment"):
            for item in self._items(setting):
                name, equals, value = item.text.code.partition("=")
                if name in variables and (not equals or variables[name].text == value):
                    del variables[name]
        return variables

    def _items(self, setting: UnitSetting) -> Iterator[UnitItem]:
        try:
            for item in items(setting.value):
                self.spend(1)
                yield item
        except Unbalanced as error:
            self.sheet.report(self.page, setting.value, error.at, str(error))

    def _add_assignment(self, setting: UnitSetting, item: UnitItem, variables: dict[str, UnitVariable]) -> None:
        """Read ``NAME=value`` of Environment=."""
        name, equals, rest = item.text.code.partition("=")
        if not equals or not sibling_files.VARIABLE.fullmatch(name):
            return
        count = len(item.text.code) - len(rest)
        value = replace_specifiers(Mapped(rest, item.text.at[count:]), self.specifiers)
        end = setting.value.span(item.start, item.end)[1]
        quoted = self.page.text[end - 1 : end] in ("'", '"')
        end -= quoted
        start = min(item.text.at[count], end) if rest else end
        word = self.page.word(Field(tuple(pieces_of(value)) or (Piece("", end, end),), start, end, quoted=quoted))
        variables[name] = UnitVariable(word.value, word, value.at)

    # --- files

    def _add_file(self, setting: UnitSetting, variables: dict[str, UnitVariable]) -> None:
        """Read an EnvironmentFile; a missing one may set anything."""
        code = setting.value.code.removeprefix("-")
        path = replace_specifiers(Mapped(code, range(len(code))), self.specifiers).code
        if not path.startswith(("/", HOSTS)):
            message = "systemd ignores this file: the path must be absolute"
            self.sheet.report(self.page, setting.value, 0, message)
            return
        place = self.page.place(*setting.value.span(0, len(setting.value.code)))
        raw = self.page.text[place.start : place.end]
        texts = _texts(self.page.script, path)
        if texts is None:
            self.complete = False
            for name, given in variables.items():
                variables[name] = UnitVariable(None, given.word._replace(value=None, literal=None))
        for name, text in (texts or {}).items():
            self.spend(1)
            variables[name] = UnitVariable(text, Word(raw, text, place, variable=name))


def _dropped_in(script: Script) -> Iterator[tuple[str, str | None]]:
    """Yield what the drop-ins in the folder beside a unit set, ``NAME.service.d/*.conf``; None if only the host knows.

    An ``Environment=`` that resets those before it is not followed.
    """
    unit = Path(script.path)
    for path in _matching(unit.with_name(f"{unit.name}.d"), "*.conf") if script.path != STDIN else ():
        source = sibling_files.read_in(unit.parent, path)
        if source is None:
            continue
        page = SourceText(Script(str(path), "systemd", source.text, lines=line_starts(source.text)))
        for setting in read_sheet(page).in_effect("Environment"):
            with suppress(Unbalanced):
                for item in items(setting.value):
                    name, equals, text = item.text.code.partition("=")
                    if equals and sibling_files.VARIABLE.fullmatch(name):
                        yield name, None if "%" in text else text


def _texts(script: Script, path: str) -> dict[str, str | None] | None:
    """Return what an EnvironmentFile sets; None if it is not in the unit's folder.

    A name that is partly unknown matches several files: values on which they differ are unknown.
    """
    unit = script.path
    if unit == STDIN:
        return None
    folder, name = Path(unit).parent, path.rpartition("/")[2]
    if HOSTS not in path and not WILD.search(path):
        source = None if path in script.environment_files else sibling_files.read(unit, path)
        text = source.text if source else script.environment_files.get(path)
        return None if text is None else dict(sibling_files.environment_file(text))
    pattern = name.replace(HOSTS, "*")
    if (HOSTS in name and WILD.search(name)) or not pattern.strip("*"):
        return None
    sources = [sibling_files.read_in(folder, file) for file in _matching(folder, pattern)]
    texts = [sibling_files.environment_file(source.text) if source else None for source in sources]
    good = [text for text in texts if text is not None]
    if not good or len(good) < len(texts):
        return None
    names = {key: None for text in good for key in text}
    if HOSTS not in name:
        return {name: next(text[name] for text in reversed(good) if name in text) for name in names}
    values = {name: {text.get(name) for text in good} for name in names}
    return {name: found.pop() if len(found) == 1 else None for name, found in values.items()}


def _matching(folder: Path, pattern: str) -> list[Path]:
    """Return the folder's files that match; none if there are too many."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if fnmatchcase(entry.name, pattern))
    except OSError:
        return []
    return [folder / name for name in names] if len(names) <= MOST_FILES else []
