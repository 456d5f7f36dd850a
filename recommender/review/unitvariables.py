"""The variables of a systemd unit: those it sets itself, and those of files that stand in its own folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from recommender.review.mapped import Field, Mapped, Page, Piece
from recommender.review.script import Word
from recommender.review.source import Unreadable
from recommender.review.source import read as read_source
from recommender.review.unitwords import (
    UNKNOWN,
    VARIABLE,
    Item,
    Setting,
    Sheet,
    Unbalanced,
    environment_file,
    items,
    specified,
)

STDIN = "-"
WILD = re.compile(r"[*?\[]")
MOST_FILES = 256


@dataclass(frozen=True)
class Given:
    """A variable's value, None where it is unknown, and where in the unit its characters stand."""

    text: str | None
    word: Word
    at: Sequence[int] = ()

    @property
    def piece(self) -> Piece:
        """The value as a part of a word."""
        text = self.text
        if text and len(self.at) == len(text) and self.at[-1] - self.at[0] + 1 == len(text):
            return Piece(text, self.at[0], self.at[-1] + 1)
        return Piece(text)


def pieces_of(text: Mapped) -> Iterator[Piece]:
    """The pieces of a text, in which the mark of the unknown may stand."""
    at = 0
    for part in re.split(f"({UNKNOWN})", text.code):
        span = text.span(at, at + len(part))
        if part:
            yield Piece(None, *span) if part == UNKNOWN else Piece(part, *span)
        at += len(part)


@dataclass
class Variables:
    """Gathers the variables of a unit, of which ``spend`` counts the work."""

    page: Page
    sheet: Sheet
    known: Mapping[str, str]
    spend: Callable[[int], None]
    complete: bool = True
    """Whether every file that the unit names could be read."""

    def gathered(self) -> dict[str, Given]:
        """All variables: what the manager passes on, above it those of the unit, above them those of files."""
        found: dict[str, Given] = {}
        for setting in self.sheet.service("PassEnvironment"):
            for item in self._items(setting):
                word = self.page.word(Field((Piece(None),), *setting.value.span(item.start, item.end)))
                found[item.text.code] = Given(None, word)
        for setting in self.sheet.lasting("Environment"):
            for item in self._items(setting):
                self._assigned(setting, item, found)
        for setting in self.sheet.lasting("EnvironmentFile"):
            self._file(setting, found)
        for setting in self.sheet.lasting("UnsetEnvironment"):
            for item in self._items(setting):
                name, equals, value = item.text.code.partition("=")
                if name in found and (not equals or found[name].text == value):
                    del found[name]
        return found

    def _items(self, setting: Setting) -> Iterator[Item]:
        try:
            for item in items(setting.value):
                self.spend(1)
                yield item
        except Unbalanced as error:
            self.sheet.trouble(self.page, setting.value, error.at, str(error))

    def _assigned(self, setting: Setting, item: Item, found: dict[str, Given]) -> None:
        """``NAME=value`` of Environment=."""
        name, equals, rest = item.text.code.partition("=")
        if not equals or not VARIABLE.fullmatch(name):
            return
        count = len(item.text.code) - len(rest)
        value = specified(Mapped(rest, item.text.at[count:]), self.known)
        end = setting.value.span(item.start, item.end)[1]
        quoted = self.page.text[end - 1 : end] in ("'", '"')
        end -= quoted
        start = min(item.text.at[count], end) if rest else end
        word = self.page.word(Field(tuple(pieces_of(value)) or (Piece("", end, end),), start, end, quoted=quoted))
        found[name] = Given(word.value, word, value.at)

    # --- files

    def _file(self, setting: Setting, found: dict[str, Given]) -> None:
        """What a file sets. One that is not here may set anything."""
        code = setting.value.code.removeprefix("-")
        path = specified(Mapped(code, range(len(code))), self.known).code
        if not path.startswith(("/", UNKNOWN)):
            message = "systemd takes only an absolute path here, so it passes over this file"
            self.sheet.trouble(self.page, setting.value, 0, message)
            return
        place = self.page.place(*setting.value.span(0, len(setting.value.code)))
        raw = self.page.text[place.start : place.end]
        texts = _texts(self.page.script.path, path)
        if texts is None:
            self.complete = False
            found |= {name: _unknown(given) for name, given in found.items()}
        for name, text in (texts or {}).items():
            self.spend(1)
            found[name] = Given(text, Word(raw, text, place, variable=name))


def _unknown(given: Given) -> Given:
    return Given(None, replace(given.word, value=None, written=None))


def _texts(unit: str, path: str) -> dict[str, str | None] | None:
    """What the file of a path sets, of which only the unit's own folder is read; None where it is not there.

    Where part of its name is unknown it is one of several: what these do not all say alike is unknown.
    """
    if unit == STDIN:
        return None
    folder, name = Path(unit).parent, path.rpartition("/")[2]
    if UNKNOWN not in path and not WILD.search(path):
        inside = _inside(folder, path)
        found = _read(folder, inside) if inside else None
        found = _read(folder, folder / name) if found is None and name not in ("", ".", "..") else found
        return dict(found) if found is not None else None
    pattern = name.replace(UNKNOWN, "*")
    if (UNKNOWN in name and WILD.search(name)) or not pattern.strip("*"):
        return None
    texts = [_read(folder, each) for each in _matching(folder, pattern)]
    good = [each for each in texts if each is not None]
    if not good or len(good) < len(texts):
        return None
    names = {each: None for text in good for each in text}
    if UNKNOWN not in name:
        return {each: next(text[each] for text in reversed(good) if each in text) for each in names}
    return {each: good[0][each] if _alike(good, each) else None for each in names}


def _alike(texts: list[dict[str, str]], name: str) -> bool:
    return all(name in each and each[name] == texts[0].get(name) for each in texts)


def _matching(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder whose names match; none where they are too many."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(each.name for each in entries if fnmatchcase(each.name, pattern))
    except OSError:
        return []
    return [folder / each for each in names] if len(names) <= MOST_FILES else []


def _inside(folder: Path, path: str) -> Path | None:
    """An absolute path that lies in the folder by its text alone, so that nothing else is looked at."""
    found = Path(os.path.normpath(path))
    return found if found.is_relative_to(os.path.normpath(folder.absolute())) else None


def _read(folder: Path, file: Path) -> dict[str, str] | None:
    """What a regular file of the folder sets; None where there is none that can be read."""
    try:
        if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
            return None
        return environment_file(read_source(str(file)).text)
    except (OSError, Unreadable, ValueError, RuntimeError):  # a NUL in the name, a link that leads to itself
        return None
