"""Insert an option or a variable in the author's layout: a command line, a list, a YAML block, a Python call."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from recommender.review.edits import ITEM

if TYPE_CHECKING:
    from recommender.choose.reasons import Explanation
    from recommender.review.fix import Stretch
    from recommender.review.rule import Case
    from recommender.review.script.model import Span

LITERALS = {"true": "True", "false": "False"}
QUOTES = ("'", '"')
TEXT_ENDS = ("", " ", "\n", "\t", ")", ";", "&", "|")


def spelled(case: Case, name: str, value: str, switch: bool) -> str:
    """Return an option as the launch would spell it."""
    flag = case.resolved.store.flags.get(name)
    if flag is None:
        return f"{name} {value}"
    if case.launch.starts == "pipeline":
        fields = flag.fields
        return f"{fields[0].field if fields else name}={LITERALS.get(value, value)}"
    return flag.option if switch else f"{flag.option} {value}"


def option(case: Case, explanation: Explanation) -> Stretch | None:
    """Return the insertion of an option after the last one; None if the layout is unclear."""
    if case.launch.starts == "pipeline":
        return _keyword(case, explanation)
    parts = _parts(case)
    if not parts or (explanation.switch and explanation.value != "true"):
        return None
    text, last = case.script.text, parts[-1]
    words = [case.resolved.store.flags[explanation.option].option, *([] if explanation.switch else [explanation.value])]
    joined = any(text.startswith("=", given.place.end) for given in case.launch.options)
    words = ["=".join(words)] if joined else words
    quote = text[last.end : last.end + 1] if text[last.end : last.end + 1] in QUOTES else ""
    end = last.end + len(quote)
    if not quote and text[end - 1 : end] in QUOTES and text[end : end + 1] not in TEXT_ENDS[:2]:
        quote = text[end - 1]  # the place of a word in a list includes its quotes
    first = text.rfind("\n", 0, last.start) + 1
    item = ITEM.match(text, first)
    if item and item.end() + len(quote) >= last.start and text[end : end + 1] in ("", "\n", "\r", " "):
        return end, end, "".join(f"\n{item[0]}{_quoted(word, quote)}" for word in words)
    opened = last.start - (text[last.start - 1 : last.start] in QUOTES)
    if _in_list(text, opened, end):
        before = text[text.rfind(",", 0, last.start) + 1 : opened] if len(parts) > 1 else " "
        gap = before if before.strip() == "" else " "
        return end, end, "".join(f",{gap if at == 0 else ' '}{quote}{word}{quote}" for at, word in enumerate(words))
    if quote or case.script.kind == "python" or text[end : end + 1] not in TEXT_ENDS:
        return None
    return end, end, f"{_gap(case, parts)}{' '.join(words)}"


def _quoted(word: str, quote: str) -> str:
    """Quote an item as its neighbour; a number in YAML needs quotes."""
    return f"{quote}{word}{quote}" if quote or not re.fullmatch(r"[\d.]+", word) else f'"{word}"'


def _in_list(text: str, start: int, end: int) -> bool:
    """Return whether a word is an element of a list in brackets."""
    before, after = text[:start].rstrip()[-1:], text[end:].lstrip()[:1]
    return before in ("[", ",", "(") and after in (",", "]", ")") and text[start : start + 1] in QUOTES


def _parts(case: Case) -> list[Span]:
    """Return the places of the model and the options within the command, in order; of Python, of its first list.

    What a program adds to a list may be added in a branch only.
    """
    given = [option.whole for option in case.launch.options]
    model = [case.launch.model.place] if case.launch.model else []
    parts = sorted({*given, *model}, key=lambda part: part.end)
    if case.script.kind == "python":
        inside = [part for part in parts if part.start >= case.launch.place.start]
        gaps = (case.script.text[part.end : after.start] for part, after in pairwise(inside))
        ends = next((at for at, gap in enumerate(gaps, 1) if "]" in gap), len(inside))
        parts = inside[:ends]
    return parts


def _gap(case: Case, parts: list[Span]) -> str:
    """Return the blanks and line ends between the last two parts."""
    last = parts[-1]
    before = [part for part in parts if part.end <= last.start]
    between = case.script.text[before[-1].end : last.start] if before else " "
    return between if re.fullmatch(r"[ \t]+|[ \t]*+\\?\n[ \t]+", between) else " "


def _keyword(case: Case, explanation: Explanation) -> Stretch | None:
    """Return the insertion of a keyword in the call of the engine's class; None without one."""
    text = case.script.text
    keywords = (option for option in case.launch.options if option.callee == case.launch.engine)
    given = [option.whole for option in keywords if text.startswith(f"{option.name}=", option.whole.start)]
    fields = [
        field for field in case.resolved.store.flags[explanation.option].fields if field.config == case.launch.engine
    ]
    if not given or not case.launch.engine or not fields:
        return None
    last = max(given, key=lambda place: place.end)
    first = text.rfind("\n", 0, last.start) + 1
    indent = text[first : last.start]
    gap = f"\n{indent}" if len(given) > 1 and indent.strip() == "" else " "
    return last.end, last.end, f",{gap}{fields[0].field}={LITERALS.get(explanation.value, explanation.value)}"


def variable(case: Case, name: str, value: str) -> Stretch | None:
    """Return the insertion of a variable above the command; None if the layout is unclear."""
    text, place, kind = case.script.text, case.launch.place, case.script.kind
    start = text.rfind("\n", 0, place.start) + 1
    indent = text[start : place.start]
    if kind == "bash" and not case.launch.container and not indent.strip() and not text[:start].endswith("\\\n"):
        return start, start, f"{indent}export {name}={value}\n"
    if kind == "systemd" and not case.launch.container and indent.startswith("ExecStart="):
        return start, start, f"Environment={name}={value}\n"
    if kind in ("compose", "kubernetes") and case.launch.environment:
        return _beside(case, name, value)
    return None


def _beside(case: Case, name: str, value: str) -> Stretch | None:
    """Return the insertion of a variable below those of a container, on lines of their own."""
    text = case.script.text
    last = max(case.launch.environment.values(), key=lambda word: word.place.end)
    end = text.find("\n", last.place.end)
    end = len(text) if end < 0 else end
    first = text.rfind("\n", 0, last.place.start) + 1
    line = text[first:end]
    known = next(key for key, word in case.launch.environment.items() if word is last)
    shapes = {
        rf"(\s*){known}:\s.*": f"\\1{name}: {_quoted(value, '')}",
        rf"(\s*-\s+)[\"']?{known}=.*": f"\\1{name}={value}",
        rf"(\s*-\s+)\{{\s*name:\s*{known},\s*value:.*\}}": f"\\1{{name: {name}, value: {_quoted(value, '')}}}",
    }
    for shape, new in shapes.items():
        if match := re.fullmatch(shape, line):
            return end, end, "\n" + match.expand(new)
    return None
