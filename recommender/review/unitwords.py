"""The syntax of systemd's units: settings, the words of their values, specifiers, and files of variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from recommender.review.mapped import Mapped, Page
from recommender.review.script import Comment, Trouble

BLANK = " \t\r\n"
UNKNOWN = "\0"
"""Stands in a text for what only the host knows; no unit holds this character."""
SECTION = re.compile(r"\[([^\[\]]+)\]")
NAME = re.compile(r"[A-Za-z][\w-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ESCAPE = re.compile(
    r"\\(?:(?P<sign>[abfnrtv\\\"'s])|x(?P<hex>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))"
)
PLAIN = re.compile(r"[^ \t\r\n'\"\\]+")
WITHIN = re.compile(r"[^'\"\\]+")
SIGNS: Mapping[str, str] = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
SPECIFIER = re.compile("%([A-Za-z0-9%])")
"""Before any other character the sign stands for itself."""
UNIT_NAME = re.compile(r"(?P<prefix>[^@/]+)(?:@(?P<instance>[^/]*))?\.service")
ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
HIGHEST = 0x10FFFF
MOST_TROUBLES = 50


@dataclass(frozen=True)
class Setting:
    """A setting of a unit; its value is one line, whatever number of lines it has in the file."""

    section: str
    name: str
    value: Mapped


@dataclass
class Sheet:
    """A unit's settings and comments, and the lines that are neither."""

    settings: list[Setting] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)

    def service(self, name: str) -> Iterator[Setting]:
        """The settings of a name in [Service]."""
        return (each for each in self.settings if each.section == "Service" and each.name == name)

    def lasting(self, name: str) -> list[Setting]:
        """Those of a name that may be given several times: an empty one takes back all before it."""
        found: list[Setting] = []
        for each in self.service(name):
            found.append(each)
            if not each.value.code:
                found.clear()
        return found

    def value(self, name: str, *sections: str) -> Mapped | None:
        """The value of a setting that counts once; None where it has none."""
        where = sections or ("Service",)
        found = [each.value for each in self.settings if each.name == name and each.section in where]
        return found[-1] if found and found[-1].code else None

    def trouble(self, page: Page, value: Mapped, start: int, message: str, end: int | None = None) -> None:
        """Says what could not be made sense of, from a character of a value on; of a place once."""
        place = page.place(*value.span(start, len(value.code) if end is None else end))
        if len(self.troubles) < MOST_TROUBLES and all(each.place.start != place.start for each in self.troubles):
            self.troubles.append(Trouble(message, place))


class Unbalanced(Exception):
    """A quote that nothing closes; where it stands in the value."""

    def __init__(self, at: int) -> None:
        """``at`` counts the characters of the value."""
        super().__init__("this quote is not closed, so systemd passes over the whole setting")
        self.at = at


def sheet(page: Page) -> Sheet:
    """Takes a unit's text apart."""
    made = Sheet()
    section = ""
    for line in _lines(page, made.comments):
        code = line.code
        if code.startswith("["):
            found = SECTION.fullmatch(code)
            section = found[1] if found else ""
            if not found:
                made.trouble(page, line, 0, "this is no section, so systemd refuses the unit")
            continue
        name, equals, _ = code.partition("=")
        name = name.rstrip(BLANK)
        if not equals or not NAME.fullmatch(name):
            hint = "; a line that goes on ends in a backslash, with nothing behind it"
            made.trouble(page, line, 0, f"this is no setting, so systemd passes over it{hint}")
            continue
        start = code.index("=") + 1
        start += len(code) - start - len(code[start:].lstrip(BLANK))
        made.settings.append(Setting(section, name, Mapped(code[start:], line.at[start:])))
    return made


def _lines(page: Page, comments: list[Comment]) -> Iterator[Mapped]:
    """The lines that are not empty and no comments, those joined that go on, without the blanks around them."""
    parts: list[str] = []
    places: list[int] = []
    text, at = Mapped.whole(page.text).code, 0
    while at < len(text):
        start, end = at, text.find("\n", at)
        end = len(text) if end < 0 else end
        code, at = text[start:end], end + 1
        bare = code.strip(BLANK)
        if bare[:1] in ("#", ";") and bare:
            first = start + code.index(bare[0])
            comments.append(Comment(page.text[first : first + len(bare)], page.place(first, first + len(bare))))
            continue
        on = (len(code) - len(code.rstrip("\\"))) % 2 == 1
        parts.append(f"{code[:-1]} " if on else code)
        places += range(start, end)
        if not on:
            yield from _stripped("".join(parts), places)
            parts, places = [], []
    yield from _stripped("".join(parts), places)


def _stripped(code: str, places: list[int]) -> Iterator[Mapped]:
    whole = code.rstrip(BLANK)
    first = len(whole) - len(whole.lstrip(BLANK))
    if whole:
        yield Mapped(whole[first:], places[first : len(whole)])


# --- words


@dataclass(frozen=True)
class Item:
    """A word of a value: where it stands there, and its text without quotes and escapes."""

    start: int
    end: int
    text: Mapped


def items(value: Mapped, at: int = 0) -> Iterator[Item]:
    """The words of a value. Raises Unbalanced where a quote is not closed."""
    while (item := item_at(value, at)) is not None:
        yield item
        at = item.end


def item_at(value: Mapped, at: int) -> Item | None:
    """The next word; None behind the last. Raises Unbalanced where a quote is not closed."""
    code = value.code
    while at < len(code) and code[at] in BLANK:
        at += 1
    if at >= len(code):
        return None
    start, quote, opened = at, "", at
    chars: list[str] = []
    places: list[int] = []
    while at < len(code) and (quote or code[at] not in BLANK):
        plain = (WITHIN if quote else PLAIN).match(code, at)
        char, taken = (plain[0], len(plain[0])) if plain else (code[at], 1)
        if char == "\\":
            char, taken = _escaped(code, at)
        elif char in ("'", '"') and quote in ("", char):
            quote, opened, char = ("" if quote else char), at, ""
        chars.append(char)
        places += value.at[at : at + taken] if plain else [value.at[at]] * len(char)
        at += taken
    if quote:
        raise Unbalanced(opened)
    return Item(start, at, Mapped("".join(chars), places))


def _escaped(code: str, at: int) -> tuple[str, int]:
    """What a backslash and the characters behind it stand for, and how many they are; of an unknown one itself."""
    found, kept = ESCAPE.match(code, at), code[at : at + 2]
    if found is None:
        return kept, len(kept)
    if found["sign"]:
        return SIGNS.get(found["sign"], found["sign"]), 2
    number = int(found["octal"], 8) if found["octal"] else int(found["hex"] or found["short"] or found["long"], 16)
    if not 0 < number <= HIGHEST or 0xD800 <= number < 0xE000 or (found["octal"] and number > 0xFF):
        return kept, len(kept)
    return chr(number), len(found[0])


# --- specifiers


def specifiers(path: str) -> Mapping[str, str]:
    """What the name of a unit's file tells of its specifiers. A template's instance is unknown."""
    name = path.rpartition("/")[2]
    found = UNIT_NAME.fullmatch(name)
    if found is None:
        return {"%": "%"}
    prefix, instance = found["prefix"], found["instance"]
    last = prefix.rpartition("-")[2]
    known = {"%": "%", "p": prefix, "P": _plain(prefix), "j": last, "J": _plain(last)}
    if instance == "":
        return known
    whole = name if instance is None else f"{prefix}@{instance}.service"
    known |= {"n": whole, "N": whole.removesuffix(".service")}
    return known | {"i": instance or "", "I": _plain(instance or "")}


def _plain(text: str) -> str:
    """A name without the escapes of systemd-escape."""
    return ESCAPED.sub(lambda found: chr(int(found[1], 16)), text.replace("-", "/"))


def specified(text: Mapped, known: Mapping[str, str]) -> Mapped:
    """A word with its specifiers replaced: by what they stand for, or by the mark of the unknown."""
    if "%" not in text.code:
        return text
    parts: list[str] = []
    places: list[int] = []
    at = 0
    for found in SPECIFIER.finditer(text.code):
        new = known.get(found[1], UNKNOWN)
        parts += [text.code[at : found.start()], new]
        places += [*text.at[at : found.start()], *[text.at[found.start()]] * len(new)]
        at = found.end()
    return Mapped("".join([*parts, text.code[at:]]), [*places, *text.at[at:]])


# --- files of variables

EMPTY = re.compile(r"[ \t\r\n]*")
LINE = re.compile(r"[^\n\r]*")
KEY = re.compile(r"([^=\n\r]*)=[ \t]*")
SINGLE = re.compile(r"'([^']*)(?:'|\Z)[ \t]*")
DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)[ \t]*', re.DOTALL)
BARE = re.compile(r"((?:[^\\\n\r]|\\.)*)(?:\\?\Z)?", re.DOTALL)


def environment_file(text: str) -> dict[str, str]:
    """What a file of EnvironmentFile= sets."""
    found: dict[str, str] = {}
    at = 0
    while (at := _end(EMPTY, text, at)) < len(text):
        key = None if text[at] in "#;" else KEY.match(text, at)
        if key is None:
            at = _end(LINE, text, at)
            continue
        value, at = _value(text, key.end())
        if VARIABLE.fullmatch(key[1].rstrip(" \t")):
            found[key[1].rstrip(" \t")] = value
    return found


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> tuple[str, int]:
    """Quoted parts, then whatever stands bare up to the line's end; and where that is."""
    parts: list[str] = []
    while True:
        single, double = SINGLE.match(text, at), DOUBLE.match(text, at)
        if single:
            parts.append(single[1])
            at = single.end()
        elif double:
            inner = re.sub(r"\\([\"\\`$])|\\\n", lambda found: found[1] or "", double[1])
            parts.append(inner)
            at = double.end()
        else:
            break
    bare = BARE.match(text, at)
    if bare is not None and bare[1]:
        kept = bare[1].rstrip(" \t")
        if (len(kept) - len(kept.rstrip("\\"))) % 2:  # the blank behind a backslash stays
            kept = bare[1][: len(kept) + 1]
        parts.append(re.sub(r"\\(.)", lambda found: "" if found[1] in "\r\n" else found[1], kept, flags=re.DOTALL))
        at = bare.end()
    return "".join(parts), at
