"""Create small safe repairs of an option; None if the layout is unclear.

A repair keeps its surroundings. It removes a whole line of a continued command, an option in a line with the blanks
before it, and an item of a YAML list with its line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.rule import Fix

if TYPE_CHECKING:
    from recommender.review.rule import LaunchSetting
    from recommender.review.script.model import GivenOption, Launch, Script, Span, Word

ITEM = pattern(r"[ \t]*-[ \t]+")
QUOTES = "\"'"


def rename(script: Script, option: GivenOption, name: str) -> Fix | None:
    """Return the repair that renames an option; None if its name is in another file, or in a longer text."""
    if not _is_written(script, option):
        return None
    return Fix(((option.place, name),), f"write {name}")


def _is_written(script: Script, option: GivenOption) -> bool:
    return script.text[option.place.start : option.place.end] in (option.name, option.name.rpartition(".")[2])


def give(word: Word | None, text: str, description: str) -> Fix | None:
    """Return the repair that replaces a value; None if its literal is unknown."""
    if word is None or word.literal is None:
        return None
    return Fix(((word.literal, text),), description)


def give_setting(setting: LaunchSetting, text: str) -> Fix | None:
    """Return the repair that replaces a setting's value."""
    return give(setting.word, text, f"{setting.option.name} {text}")


def remove(script: Script, option: GivenOption) -> Fix | None:
    """Return the repair that removes an option; None if the layout is unclear."""
    offsets = _python(script, option) if script.kind == "python" else _words(script, option)
    if offsets is None or not _is_written(script, option):
        return None
    unused = (_assignment(script, word) for word in option.values)
    places = [script.place(*offsets), *(place for place in unused if place is not None)]
    return Fix(tuple((place, "") for place in places), f"remove {option.name}")


def _assignment(script: Script, word: Word) -> Span | None:
    """Return the line that sets a variable, if nothing but this word uses it."""
    set_here = [each for each in script.assignments if each.name == word.variable]
    used = [use for use in script.uses if use.name == word.variable]
    if not word.variable or len(set_here) != 1 or len(used) > 1 or set_here[0].exported:
        return None
    start, end = set_here[0].place.start, set_here[0].place.end
    first, last = _line(script.text, start, end)
    alone = not script.text[first:start].strip() and not script.text[end:last].split("#")[0].strip()
    return script.place(first, min(last + 1, len(script.text))) if alone else None


def _line(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the start of the first line and the end of the last."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    return first, len(text) if last < 0 else last


def _words(script: Script, option: GivenOption) -> tuple[int, int] | None:
    text, whole = script.text, option.whole
    start, end = whole.start, whole.end
    if end <= start or end > len(text):
        return None
    first, last = _line(text, start, end)
    before, after = text[first:start], text[end:last]
    if script.kind in ("compose", "kubernetes", "docker") and ("[" in before or _is_item(text[first:last])):
        return _items(text, first, last, before, after)
    if option.values and not _plain(text[start:end]):
        return None
    if before.strip():
        return _inline(text, start, end)
    if after.strip() == "\\":
        return first, min(last + 1, len(text))
    if after.strip():
        return start, end + len(after) - len(after.lstrip())
    previous = text[:first].rstrip(" \t\n")
    if previous.endswith("\\"):  # last line of a continued command: drop the previous backslash
        return len(previous[:-1].rstrip(" \t")), last
    return first, min(last + 1, len(text))


def _plain(text: str) -> bool:
    """Return whether an option and its values are contiguous."""
    return not re.search(r"[;&|#]|\$\(|`", text)


def _inline(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the range of an option within a line, with the blanks before it."""
    if text[start - 1] == "(":  # first of an array: remove the blanks after it
        while end < len(text) and text[end] in " \t":
            end += 1
        return start, end
    if not text[start - 1].isspace():
        return None
    if end < len(text) and not (text[end].isspace() or text[end] in ")\"';&|"):
        return None
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    return start, end


def _is_item(lines: str) -> bool:
    return all(ITEM.match(line) for line in lines.splitlines())


def _items(text: str, first: int, last: int, before: str, after: str) -> tuple[int, int] | None:
    """Return the range of YAML list items on lines of their own."""
    if not _is_item(text[first:last]) or ITEM.fullmatch(before.rstrip(QUOTES)) is None or after.strip(QUOTES + " \t"):
        return None
    return first, min(last + 1, len(text))


def _python(script: Script, option: GivenOption) -> tuple[int, int] | None:
    """Return the range of a call's keyword, with its comma."""
    text, start, end = script.text, option.whole.start, option.whole.end
    comma = re.compile(r"[ \t]*,").match(text, end)
    if comma:
        first, last = _line(text, start, comma.end())
        if not text[first:start].strip() and not text[comma.end() : last].strip():
            return first, min(last + 1, len(text))
        blanks = re.compile(r"[ \t]*").match(text, comma.end())
        return start, blanks.end() if blanks else comma.end()
    ahead = text[:start].rstrip()
    if ahead.endswith(","):
        return len(ahead) - 1, end
    return (start, end) if ahead.endswith("(") else None


def switch_after_model(script: Script, launch: Launch, name: str) -> Fix | None:
    """Return the unsafe repair that adds a switch after the model; None if the layout is unclear."""
    word = launch.model
    if word is None or script.kind == "python":
        return None
    text, end = script.text, word.place.end
    first, last = _line(text, word.place.start, end)
    put = f" {name}"
    if script.kind in ("docker", "compose", "kubernetes"):
        if "[" in text[first : word.place.start]:
            return None
        item = ITEM.match(text, first)
        if item:
            end, put = last, f"\n{item[0]}{name}"
    if end < len(text) and text[end] in "\"'":
        end += 1
    if put.startswith(" ") and end < len(text) and not (text[end].isspace() or text[end] in ")\\;&|"):
        return None
    return Fix(((script.place(end, end), put),), f"add {name}", unsafe=True)


def before(place: Span) -> Span:
    """Return the empty range before a place."""
    return place._replace(end=place.start)
