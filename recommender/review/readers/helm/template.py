"""Render a template of a Helm chart with the values beside it, each character at its place in the template.

What the values do not determine stays an unknown word, or is left out with a problem that says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recommender.common.parse import parse_yaml
from recommender.common.pattern import pattern
from recommender.common.user_file import Unreadable
from recommender.review.readers import manifest
from recommender.review.readers.helm.values import UNKNOWN, evaluate, printed
from recommender.review.script.model import ReadProblem, Script, Span
from recommender.review.script.relocation import relocate
from recommender.review.script.sibling_files import read_in
from recommender.review.script.source import STDIN
from recommender.review.script.source_map import Mapped, line_starts

ACTION = pattern(
    r"(?P<before>[ \t\n]{0,40}+(?=\{\{-))?\{\{-?\s*+"
    r"(?P<code>(?:[^{}\"`]|\"(?:[^\"\\\n]|\\.)*+\"|`[^`]*+`)*?)\s*(?P<trim>-?)\}\}"
)
COMMENT = pattern(r"\{\{-?\s*+/\*(?:[^*]|\*(?!/))*+(?:\*/\s*+-?\}\})?")
SET = pattern(r"\$(?P<name>\w+)\s*:?=\s*(?P<rest>.*)", re.DOTALL)
LOOPED = pattern(r"(?:\$(?P<key>\w+)\s*,\s*)?(?:\$(?P<value>\w+)\s*:=\s*)?(?P<rest>.*)", re.DOTALL)
BLOCKS = frozenset({"if", "with", "range", "define", "block"})
NAME = pattern(r"\w+(?:\.\w+)+")
RELEASE = {"Name": "release-name", "Namespace": "default", "Service": "Helm"}
"""What helm template takes too."""
MOST_CHARACTERS = 200_000
MOST_ACTIONS = 3000


@dataclass
class _Output:
    """The rendered text, and the places of its characters."""

    parts: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    unread: list[tuple[int, int, str]] = field(default_factory=list)
    trim: bool = False
    actions: int = 0

    def add(self, text: str, places: Sequence[int]) -> None:
        """Append a text; after a trimming action its first blanks are dropped."""
        kept = text.lstrip(" \t\n") if self.trim else text
        self.trim = self.trim and not kept
        self.parts.append(kept)
        self.places += places[len(text) - len(kept) :]


def _values_of(script: Script) -> dict[str, Any]:
    """Return the values and the names of the chart whose template this is; unknown ones if there are none."""
    folder = Path(script.path).absolute().parent
    while folder.name != "templates" and folder.parent != folder:
        folder = folder.parent
    beside = script.path != STDIN and folder.name == "templates"
    values = _read(folder.parent, "values.yaml") if beside else None
    chart = (_read(folder.parent, "Chart.yaml") if beside else None) or {}
    names = {f"{name[:1].upper()}{name[1:]}": value for name, value in chart.items() if isinstance(name, str)}
    return {"Values": UNKNOWN if values is None else values, "Chart": names or UNKNOWN}


def _read(folder: Path, name: str) -> dict[Any, Any] | None:
    source = read_in(folder, folder / name)
    try:
        found = parse_yaml(source.text) if source else None
    except Unreadable:
        return None
    return found if isinstance(found, dict) else None


def read(script: Script) -> Script:
    """Read what a template becomes. It is not repaired: values are elsewhere."""
    values = _values_of(script)
    text = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), script.text)
    output = _Output()
    root = {**values, "Release": RELEASE, "Capabilities": UNKNOWN, "Files": UNKNOWN, "Template": UNKNOWN}
    _render(text, _tree(text), {"": root, "$": root}, output)
    rendered = Mapped("".join(output.parts), output.places)
    inner = Script(script.path, "kubernetes", rendered.code, lines=line_starts(rendered.code))
    manifest_script = manifest.read(inner)

    def place(span: Span) -> Span:
        start, end = rendered.span(span.start, span.end)
        return script.place(start, max(start, end))

    unread = (ReadProblem(what, script.place(start, end)) for start, end, what in output.unread)
    followed = (place(manifest_script.place(*span)) for span in manifest_script.followed)
    return replace(
        script,
        launches=relocate(manifest_script.launches, place),
        tools=relocate(manifest_script.tools, place),
        comments=relocate(manifest_script.comments, place),
        problems=(*relocate(manifest_script.problems, place), *unread),
        followed=tuple((span.start, span.end) for span in followed),
        repairable=False,
    )


@dataclass
class _Node:
    """A text or an action with what is inside it; ``other`` follows an else."""

    start: int
    end: int
    code: str | None = None
    """None for a text; empty for what only trims the text behind it."""
    body: list[_Node] = field(default_factory=list)
    other: list[_Node] = field(default_factory=list)


def _tree(text: str) -> list[_Node]:
    """Return the texts and actions of a template, nested."""
    root: list[_Node] = []
    levels: list[tuple[list[_Node], int]] = [(root, 0)]
    at = 0
    for number, match in enumerate(ACTION.finditer(text)):
        if number > MOST_ACTIONS:
            break
        here = levels[-1][0]
        here.append(_Node(at, match.start()))
        begin, at = match.start() + len(match["before"] or ""), match.end()
        code = match["code"]
        word = code.split()[0] if code.split() else ""
        node = _Node(begin, at, code)
        if word == "end":
            del levels[max(1, len(levels) - levels[-1][1]) :]
        elif word == "else" and len(levels) > 1:
            opened = levels[-2][0][-1]
            levels[-1] = (opened.other, levels[-1][1])
            if nested := code.removeprefix("else").strip():
                inner = replace(node, code=nested)
                opened.other.append(inner)
                levels.append((inner.body, levels[-1][1] + 1))
        else:
            here.append(node)
            if word in BLOCKS:
                levels.append((node.body, 1))
        if match["trim"]:
            levels[-1][0].append(_Node(begin, at, ""))
    levels[-1][0].append(_Node(at, len(text)))
    return root


def _render(text: str, nodes: list[_Node], scope: dict[str, Any], output: _Output) -> None:
    """Write nodes with the variables at that point."""
    for node in nodes:
        if len(output.places) > MOST_CHARACTERS or output.actions > MOST_ACTIONS:
            return
        if node.code is None:
            output.add(text[node.start : node.end], range(node.start, node.end))
            continue
        output.actions += 1
        output.trim = not node.code
        _action(text, node, scope, output)


def _action(text: str, node: _Node, scope: dict[str, Any], output: _Output) -> None:
    word, _, rest = (node.code or "").partition(" ")
    assigned = SET.fullmatch(node.code or "")
    if not node.code or word in ("define", "block"):
        return  # what a chart defines is used elsewhere
    if assigned:
        scope[f"${assigned['name']}"] = evaluate(assigned["rest"], scope)
    elif word == "if":
        value = evaluate(rest, scope)
        _render(text, node.body if value is UNKNOWN or value else node.other, scope, output)
    elif word == "with":
        value = evaluate(rest, scope)
        _render(text, node.body if value else node.other, scope | {"": value}, output)
    elif word == "range":
        _range(text, node, rest, scope, output)
    else:
        _value(text, node, scope, output)


def _range(text: str, node: _Node, rest: str, scope: dict[str, Any], output: _Output) -> None:
    looped = LOOPED.fullmatch(rest)
    value = evaluate(looped["rest"], scope) if looped else UNKNOWN
    if looped is None or value is UNKNOWN:
        output.unread.append((node.start, node.end, f"not known from the chart's values: {rest[:60]}"))
        return
    listed = value if isinstance(value, list) else []
    pairs: list[tuple[Any, Any]] = list(value.items() if isinstance(value, Mapping) else enumerate(listed))
    for key, element in pairs:
        own = {"": element}
        own |= {f"${looped['key']}": key} if looped["key"] else {}
        own |= {f"${looped['value']}": element} if looped["value"] else {}
        _render(text, node.body, scope | own, output)
    if not pairs:
        _render(text, node.other, scope, output)


def _value(text: str, node: _Node, scope: dict[str, Any], output: _Output) -> None:
    """Write a value; an unknown one is a word that nothing sets, or nothing where it has a line of its own."""
    shown = printed(evaluate(node.code or "", scope))
    if shown is None:
        alone = text[: node.start].rpartition("\n")[2].strip() == text[node.end :].partition("\n")[0].strip() == ""
        name = NAME.search(node.code or "")
        shown = "" if alone or "nindent" in (node.code or "") else f"$({name[0] if name else 'UNKNOWN'})"
    output.add(shown, [node.start] * (len(shown) - 1) + [node.end - 1] * bool(shown))
