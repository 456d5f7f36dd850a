"""Expand the words and variables of compose files and Kubernetes manifests."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from recommender.common.pattern import pattern
from recommender.review.readers.yaml_nodes import Node, map_scalar, word
from recommender.review.script.docker_run import ASSIGNED
from recommender.review.script.model import Word
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText, limited

# Variables that compose and Kubernetes expand before the container sees them.
COMPOSE = pattern(r"\$(?:(?P<dollar>\$)|(?P<name>\w+)|\{(?P<braced>\w+)(?:(?P<sign>:?[-+?])(?P<rest>[^{}]*))?\})")
CLUSTER = pattern(r"\$(?:(?P<dollar>\$)|\((?P<name>[\w.-]+)\))|\{\{-?\s*\.?(?:[\w-]+\.)*(?P<braced>[\w-]+)[^{}\n]*\}\}")

# Expressions of GitHub, Ansible and Helm, Azure, Terraform, CircleCI: the last name in them is the variable.
MACRO = pattern(
    r"(?:\$\{\{-?\s*|\{\{-?\s*|\$\(|\$\{(?=\w+[.}])|(?P<angle><<[ \t]*(?=\w+\.\w+[ \t]*>>)))"
    r"\.?(?:[\w\[\]'-]+\.)*(?P<name>\w+)[^{}()\n]*?(?(angle)>>|(?:-?\}\}|\)|\}))"
)

DEFAULTED = pattern(
    r"\{\{-?\s*(?:\.?[\w.]+\s*\|\s*default[\s(]*(?P<piped>\"[^\"\n]*\"|'[^'\n]*'|\d[\d.]*)"
    r"|default\s+(?P<first>\"[^\"\n]*\"|'[^'\n]*'|\d[\d.]*)\s+\.?[\w.]+)\s*\)?\s*(?:\|\s*\w+\s*)?-?\}\}"
)
"""An expression of Task or Jinja with its default."""


def default_of(expression: str) -> str | None:
    """Return the default that an expression names; None without one."""
    match = DEFAULTED.fullmatch(expression)
    return (match["piped"] or match["first"]).strip("\"'") if match else None


def variables(page: SourceText, node: Node | None, values: dict[str, Word] | None = None) -> dict[str, Word]:
    """Return a service's ``environment``, a map or a list; ``values`` are the variables that compose expands."""
    environment: dict[str, Word] = {}
    layers = reversed(list(node.layers())) if node else ()
    for key, value in (pair for layer in layers for pair in layer.pairs):
        variable = one_word(page, value, COMPOSE, values)
        if variable is not None and key.value not in (None, "<<"):
            environment[key.text] = variable
    for item in node.items if node else ():
        if item.kind == "map":  # ECS and Azure: - name: A, value: b
            name, given = item.get("name"), one_word(page, item.get("value"), COMPOSE, values)
            environment |= {name.text: given} if name is not None and name.text and given is not None else {}
            continue
        field = expand(word(page.text, item), COMPOSE, values or {})
        assigned = ASSIGNED.match(field.known_prefix)
        if assigned:
            environment[assigned[1]] = page.word(field.after(assigned.end(), page.text))
    return environment


def one_word(
    page: SourceText, node: Node | None, pattern: re.Pattern[str] | None = None, values: dict[str, Word] | None = None
) -> Word | None:
    """Return a scalar as rules see it; None if it is missing."""
    if node is None or node.kind != "scalar":
        return None
    field = word(page.text, node)
    return page.word(expand(field, pattern, values or {}) if pattern else field)


def words(page: SourceText, node: Node | None, pattern: re.Pattern[str], values: dict[str, Word]) -> list[Field]:
    """Return a list of words; each may contain a script with known places."""
    if node is None:
        return []
    if node.kind == "scalar":
        line = unescape(map_scalar(page.text, node))
        return list(_blank_separated(line))
    fields = []
    for item in node.items:
        if item.kind != "scalar":
            continue
        text = map_scalar(page.text, item)
        named = (match for match in CLUSTER.finditer(text.code) if pattern is CLUSTER and match["name"] in values)
        text = expressions(text, values) if pattern is MACRO else text
        inner = unescape(text.replaced((*match.span(), f"${{{match['name']}}}") for match in named))
        field = replace(expand(word(page.text, item), pattern, values), inner=(inner, 0, len(inner.code), False))
        fields.append(field)
    return fields


def _blank_separated(line: Mapped) -> Iterator[Field]:
    """Yield the words of a line, ignoring quotes."""
    for match in re.finditer(r"\S+", line.code):
        span = line.span(*match.span())
        piece = Piece(match[0], *span) if "$" not in match[0] else Piece(None)
        yield Field((piece,), *span)


def unescape(text: Mapped) -> Mapped:
    """Replace ``$$`` by one dollar, as the container's shell sees it."""
    gone = {match.start() for match in re.finditer(r"\$\$", text.code)}
    return text.without(gone) if gone else text


def expand(field: Field, pattern: re.Pattern[str], values: dict[str, Word]) -> Field:
    """Replace a word's variables whose values the file contains."""
    if not any("$" in (piece.text or "") or "{{" in (piece.text or "") for piece in field.pieces):
        return field
    pieces: list[Piece] = []
    variable = ""
    for piece in field.pieces:
        text, at = piece.text or "", 0
        for match in pattern.finditer(text):
            pieces.append(piece.cut(at, match.start()))
            pieces.append(_replace_variable(piece, match, values))
            at = match.end()
            groups = match.groupdict()
            name = groups.get("braced") or groups.get("name") or ""
            variable = name if match[0] == text and len(field.pieces) == 1 else variable
        pieces.append(piece.cut(at, len(text)))
    kept = limited(piece for piece in pieces if piece.text != "")
    return replace(field, pieces=(Piece(None),) if kept is None else tuple(kept), variable=variable)


def _replace_variable(piece: Piece, match: re.Match[str], values: dict[str, Word]) -> Piece:
    groups = match.groupdict()
    if groups.get("dollar"):
        return piece.cut(match.start(), match.start() + 1)
    name = groups.get("braced") or groups.get("name") or ""
    given = values.get(name)
    if given is None and groups.get("sign") in (":-", "-") and groups.get("rest"):
        return piece.cut(match.start("rest"), match.end("rest"))
    if given is None and (default := default_of(match[0])):
        at = piece.text.index(default, match.start()) if piece.text else 0
        return piece.cut(at, at + len(default))
    if given is not None and given.value is not None and given.literal is not None:
        return Piece(given.value, given.literal.start, given.literal.end)
    return Piece(given.value if given is not None else None)


def expressions(text: Mapped, values: Mapping[str, Word]) -> Mapped:
    """Replace expressions of the tool by variables of the shell, at their places."""
    return text.replaced(
        (*match.span(), (match["name"] not in values and default_of(match[0])) or f"${{{match['name']}}}")
        for match in MACRO.finditer(text.code)
        if match["name"] in values or not match[0].startswith("$(")  # a command substitution
    )


def one_line(line: Mapped, comments: bool = True) -> Mapped:
    """Join a command's lines; only in quotes is a line end more than a blank.

    Without ``comments``, a number sign begins a word, as for compose, which splits a command without a shell.
    """
    code, quote, signs = list(line.code), "", list[tuple[int, int, str]]()
    for at, char in enumerate(code):
        if char in ("'", '"') and quote in ("", char):
            quote = "" if quote else char
        elif char == "\n" and not quote:
            code[at] = " "
            if at and code[at - 1] == "\\":
                code[at - 1] = " "
        elif char == "#" and not (comments or quote) and code[at - 1 : at] in ([], [" "]):
            signs.append((at, at + 1, "\\#"))
    return Mapped("".join(code), line.at).replaced(signs)
