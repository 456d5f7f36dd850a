"""Find the texts of Python modules as templates, as xgettext does: ``f"needs {gpus} GPUs"`` is ``needs {0} GPUs``.

So a message of the recommender needs no mark in the code to be translated, and a new one is missing in the catalogue.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from recommender.site.i18n.translation import single

WORDS = re.compile(r"[A-Za-z]{2,}\W* .*[a-z]{2}|[a-z]{2}\W* .*[A-Za-z]{2}", re.DOTALL)
"""Prose: two words."""
CODE = re.compile(r"\\|\(\?|\[\^|^[\w./]+$|^\W*$|^[.$`#]|^recommend plan|^--\w+ \w+$|\{[^}]")
"""Patterns, names and commands."""
NAMES = re.compile(r"(?=.*[a-z\d][-\d])[a-z\d._ -]+")
"""A list of names: of templates, of parsers."""
HOLES = re.compile(r"(?:\{\})+")
EDGES = " ;:,"
"""Characters that join texts and belong to none of them."""
CALLS = frozenset(
    {"compile", "pattern", "split", "get", "startswith", "endswith", "frozenset", "strip", "fullmatch", "option"}
)
"""Functions whose texts nobody reads."""


def templates(path: Path) -> list[str]:
    """Return the texts in a module's code, once each. Docstrings are none of them."""
    found = map(_numbered, _texts(ast.parse(path.read_text("utf-8"))))
    return [text for text in dict.fromkeys(found) if text]


def _numbered(template: str) -> str:
    """Return a template with its places numbered, without what joins it to others; empty if it is no prose."""
    text = single(template).strip(EDGES)
    if not WORDS.search(HOLES.sub("0", text)) or CODE.search(text) or NAMES.fullmatch(text):
        return ""
    pieces = HOLES.split(text)
    return "".join(f"{piece}{{{place}}}" for place, piece in enumerate(pieces[:-1])) + pieces[-1]


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the template of each text below a node: of a joined one whole, and of those in its places."""
    if _is_text(node):
        parts = [*_parts(node)]
        yield "".join(part if isinstance(part, str) else "{}" for part in parts)
        for part in parts:
            if not isinstance(part, str):
                yield from _texts(part)
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
        return
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in CALLS:
        return
    skipped = {"annotation", "returns", "type_comment", "decorator_list"}
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name not in skipped and isinstance(child, ast.AST):
                yield from _texts(child)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _parts(node: ast.AST) -> Iterator[str | ast.AST]:
    """Yield the pieces of a text, and what is filled in between."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _parts(value)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (*_parts(node.left), *_parts(node.right))
    else:
        yield node.value if isinstance(node, ast.FormattedValue) else node
