"""Parse systemd unit syntax: settings, words, specifiers, environment files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from recommender.common.pattern import pattern
from recommender.review.script.model import HOSTS, Comment, ReadProblem
from recommender.review.script.source_map import LONGEST_WORD, Mapped, SourceText

BLANK = " \t\r\n"
SECTION = pattern(r"\[([^\[\]]+)\]")
NAME = pattern(r"[A-Za-z][\w-]*")
ESCAPE = pattern(
    r"\\(?:(?P<sign>[abfnrtv\\\"'s])|x(?P<hex>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))"
)
PLAIN = pattern(r"[^ \t\r\n'\"\\]+")
WITHIN = pattern(r"[^'\"\\]+")
SIGNS: Mapping[str, str] = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
SPECIFIER = pattern("%([A-Za-z0-9%])")
"""Before any other character, the percent sign is literal."""
UNIT_NAME = pattern(r"(?P<prefix>[^@/]+)(?:@(?P<instance>[^/]*))?\.service")
ESCAPED = pattern(r"\\x([0-9a-fA-F]{2})")
HIGHEST = 0x10FFFF
MOST_PROBLEMS = 50


@dataclass(frozen=True)
class UnitSetting:
    """A setting of a unit; its value is one line, however many it has in the file."""

    section: str
    name: str
    value: Mapped


@dataclass
class UnitSheet:
    """A unit's settings, comments, and unreadable lines."""

    settings: list[UnitSetting] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    problems: list[ReadProblem] = field(default_factory=list)

    def service(self, name: str) -> Iterator[UnitSetting]:
        """Yield the settings of a name in [Service], and in the [Container] of a Quadlet unit."""
        where = ("Service", "Container")
        return (setting for setting in self.settings if setting.section in where and setting.name == name)

    def in_effect(self, name: str) -> list[UnitSetting]:
        """Return a repeatable setting's entries since the last empty one."""
        settings: list[UnitSetting] = []
        for setting in self.service(name):
            settings.append(setting)
            if not setting.value.code:
                settings.clear()
        return settings

    def value(self, name: str, *sections: str) -> Mapped | None:
        """Return the value of a setting that counts once; None if unset."""
        where = sections or ("Service",)
        values = [setting.value for setting in self.settings if setting.name == name and setting.section in where]
        return values[-1] if values and values[-1].code else None

    def report(self, page: SourceText, value: Mapped, start: int, message: str, end: int | None = None) -> None:
        """Report a problem from a character of a value on; once per place."""
        place = page.place(*value.span(start, len(value.code) if end is None else end))
        if len(self.problems) < MOST_PROBLEMS and all(problem.place.start != place.start for problem in self.problems):
            self.problems.append(ReadProblem(message, place))


class Unbalanced(Exception):
    """A quote is not closed; ``at`` is its offset in the value."""

    def __init__(self, at: int) -> None:
        """``at`` counts the characters of the value."""
        super().__init__("this quote is not closed, so systemd ignores the whole setting")
        self.at = at


def read_sheet(page: SourceText) -> UnitSheet:
    """Parse a unit's text."""
    unit_sheet = UnitSheet()
    section = ""
    for line in _lines(page, unit_sheet.comments):
        code = line.code
        if code.startswith("["):
            section_line = SECTION.fullmatch(code)
            section = section_line[1] if section_line else ""
            if not section_line:
                unit_sheet.report(page, line, 0, "this is not a section, so systemd rejects the unit")
            continue
        name, equals, _ = code.partition("=")
        name = name.rstrip(BLANK)
        if not equals or not NAME.fullmatch(name):
            hint = "; end a continued line with a backslash and nothing after it"
            unit_sheet.report(page, line, 0, f"this is not a setting, so systemd ignores it{hint}")
            continue
        start = code.index("=") + 1
        start += len(code) - start - len(code[start:].lstrip(BLANK))
        unit_sheet.settings.append(UnitSetting(section, name, Mapped(code[start:], line.at[start:])))
    return unit_sheet


def _lines(page: SourceText, comments: list[Comment]) -> Iterator[Mapped]:
    """Yield the non-empty, non-comment lines, joined and stripped."""
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
class UnitItem:
    """A word of a value: its range, and its text without quotes and escapes."""

    start: int
    end: int
    text: Mapped


def items(value: Mapped, at: int = 0) -> Iterator[UnitItem]:
    """Yield the words of a value. Raise Unbalanced for an unclosed quote."""
    while (item := item_at(value, at)) is not None:
        yield item
        at = item.end


def item_at(value: Mapped, at: int) -> UnitItem | None:
    """Return the next word; None at the end. Raise Unbalanced."""
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
        char, count = (plain[0], len(plain[0])) if plain else (code[at], 1)
        if char == "\\":
            char, count = _escaped(code, at)
        elif char in ("'", '"') and quote in ("", char):
            quote, opened, char = ("" if quote else char), at, ""
        chars.append(char)
        places += value.at[at : at + count] if plain else [value.at[at]] * len(char)
        at += count
    if quote:
        raise Unbalanced(opened)
    return UnitItem(start, at, Mapped("".join(chars), places))


def _escaped(code: str, at: int) -> tuple[str, int]:
    """Return what an escape means and its length; an unknown one is kept."""
    escape, kept = ESCAPE.match(code, at), code[at : at + 2]
    if escape is None:
        return kept, len(kept)
    if escape["sign"]:
        return SIGNS.get(escape["sign"], escape["sign"]), 2
    number = int(escape["octal"], 8) if escape["octal"] else int(escape["hex"] or escape["short"] or escape["long"], 16)
    if not 0 < number <= HIGHEST or 0xD800 <= number < 0xE000 or (escape["octal"] and number > 0xFF):
        return kept, len(kept)
    return chr(number), len(escape[0])


# --- specifiers


def specifiers(path: str) -> Mapping[str, str]:
    """Return the specifiers that a unit's file name determines.

    The instance of a template is unknown.
    """
    name = path.rpartition("/")[2]
    match = UNIT_NAME.fullmatch(name)
    if match is None:
        return {"%": "%"}
    prefix, instance = match["prefix"], match["instance"]
    last = prefix.rpartition("-")[2]
    known = {"%": "%", "p": prefix, "P": _plain(prefix), "j": last, "J": _plain(last)}
    if instance == "":
        return known
    whole = name if instance is None else f"{prefix}@{instance}.service"
    known |= {"n": whole, "N": whole.removesuffix(".service")}
    return known | {"i": instance or "", "I": _plain(instance or "")}


def _plain(text: str) -> str:
    """Undo systemd-escape in a name."""
    return ESCAPED.sub(lambda match: chr(int(match[1], 16)), text.replace("-", "/"))


def replace_specifiers(text: Mapped, values: Mapping[str, str]) -> Mapped:
    """Replace a word's specifiers, unknown ones by the mark of the unknown."""
    if "%" not in text.code:
        return text
    parts: list[str] = []
    places: list[int] = []
    at, left = 0, LONGEST_WORD
    for match in SPECIFIER.finditer(text.code):
        new = values.get(match[1], HOSTS)
        left -= len(new)
        new = new if left > 0 else HOSTS
        parts += [text.code[at : match.start()], new]
        places += [*text.at[at : match.start()], *[text.at[match.start()]] * len(new)]
        at = match.end()
    return Mapped("".join([*parts, text.code[at:]]), [*places, *text.at[at:]])
