"""The words of compose files and Kubernetes manifests, with the variables that those replace by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from recommender.review.mapped import Field, Mapped, Page, Piece
from recommender.review.script import Word
from recommender.review.unwrap import ASSIGNED
from recommender.review.yamlnodes import Node, mapped, word

# What a compose file and what Kubernetes replace before a container sees it.
COMPOSE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<name>\w+)|\{(?P<braced>\w+)(?:(?P<sign>:?[-+?])(?P<rest>[^{}]*))?\})")
CLUSTER = re.compile(r"\$(?:(?P<dollar>\$)|\((?P<name>[\w.-]+)\))")


def variables(page: Page, node: Node | None) -> dict[str, Word]:
    """``environment`` of a service, as a map or as a list."""
    found: dict[str, Word] = {}
    for key, value in node.pairs if node else ():
        made = one_word(page, value, COMPOSE)
        if made is not None and key.value not in (None, "<<"):
            found[key.text] = made
    for each in node.items if node else ():
        field = _expanded(word(page.text, each), COMPOSE, {})
        assigned = ASSIGNED.match(field.known)
        if assigned:
            found[assigned[1]] = page.word(field.after(assigned.end(), page.text))
    return found


def one_word(
    page: Page, node: Node | None, pattern: re.Pattern[str] | None = None, known: dict[str, Word] | None = None
) -> Word | None:
    """A scalar as rules see it; None where there is none."""
    if node is None or node.kind != "scalar":
        return None
    field = word(page.text, node)
    return page.word(_expanded(field, pattern, known or {}) if pattern else field)


def words(page: Page, node: Node | None, pattern: re.Pattern[str], known: dict[str, Word]) -> list[Field]:
    """A list of words; each may hold a whole script, which is read with the places of its characters."""
    if node is None:
        return []
    if node.kind == "scalar":
        line = unescaped(mapped(page.text, node))
        return list(_blank_separated(line))
    made = []
    for each in node.items:
        if each.kind != "scalar":
            continue
        text = mapped(page.text, each)
        inner = unescaped(text)
        field = replace(_expanded(word(page.text, each), pattern, known), inner=(inner, 0, len(inner.code), False))
        made.append(field)
    return made


def _blank_separated(line: Mapped) -> Iterator[Field]:
    """The words of a line without quotes."""
    for match in re.finditer(r"\S+", line.code):
        span = line.span(*match.span())
        piece = Piece(match[0], *span) if "$" not in match[0] else Piece(None)
        yield Field((piece,), *span)


def unescaped(text: Mapped) -> Mapped:
    """A script as the container's shell sees it: ``$$`` of a compose file, or a pod's arguments, is one dollar."""
    if "$$" not in text.code:
        return text
    gone = {match.start() for match in re.finditer(r"\$\$", text.code)}
    kept = [index for index in range(len(text.code)) if index not in gone]
    return Mapped("".join(text.code[index] for index in kept), [text.at[index] for index in kept])


def _expanded(field: Field, pattern: re.Pattern[str], known: dict[str, Word]) -> Field:
    """A word with its variables replaced where the file tells them."""
    if not any("$" in (piece.text or "") for piece in field.pieces):
        return field
    pieces: list[Piece] = []
    variable = ""
    for piece in field.pieces:
        text, at = piece.text or "", 0
        for match in pattern.finditer(text):
            pieces.append(piece.cut(at, match.start()))
            pieces.append(_replaced(piece, match, known))
            at = match.end()
            found = match.groupdict()
            name = found.get("braced") or found.get("name") or ""
            variable = name if match[0] == text and len(field.pieces) == 1 else variable
        pieces.append(piece.cut(at, len(text)))
    return replace(field, pieces=tuple(each for each in pieces if each.text != ""), variable=variable)


def _replaced(piece: Piece, match: re.Match[str], known: dict[str, Word]) -> Piece:
    found = match.groupdict()
    if found.get("dollar"):
        return piece.cut(match.start(), match.start() + 1)
    name = found.get("braced") or found.get("name") or ""
    if found.get("sign") in (":-", "-") and found.get("rest"):
        return piece.cut(match.start("rest"), match.end("rest"))
    given = known.get(name)
    if given is not None and given.value is not None and given.written is not None:
        return Piece(given.value, given.written.start, given.written.end)
    return Piece(given.value if given is not None else None)
