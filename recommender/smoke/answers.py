"""What an answer is: its value by the response schema, and the labels that it is held against."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from recommender.request import RequestError
from recommender.smoke.checks import nonconformity
from recommender.store import did_you_mean, shorten

TRUE, FALSE = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})
FENCED = re.compile(r"\A```(?:json)?\s*(.*?)\s*```\Z", re.DOTALL)
HEADER = ("image", "label")
LAYOUT = "write lines of image,label (with such a header line or without), the image as its path inside --images"


class Unread(Exception):
    """An answer has no value; the text says why."""


@dataclass(frozen=True, slots=True)
class Form:
    """The schema that answers follow; None: any text. ``held``: the engine is made to follow it."""

    schema: Mapping[str, Any] | None
    held: bool

    @property
    def name(self) -> str:
        """The property whose value is the answer's; empty where the schema has several, or none."""
        names = list((self.schema or {}).get("properties", ()))
        return names[0] if len(names) == 1 else ""

    @property
    def part(self) -> Mapping[str, Any]:
        """The schema of the value that answers are compared by."""
        whole: Mapping[str, Any] = self.schema or {"type": "string"}
        part: Mapping[str, Any] = whole["properties"][self.name] if self.name else whole
        return part

    def value(self, text: str) -> Any:
        """The value of an answer's text: of the one property, else all of it. Raises Unread."""
        if self.schema is None:
            return text.strip()
        fenced = None if self.held else FENCED.match(text.strip())  # a free model likes to put JSON into a fence
        plain = fenced[1] if fenced else text
        wrong = nonconformity(plain, self.schema)
        if wrong:
            raise Unread(wrong)
        value: Any = json.loads(plain)
        if self.name:
            if self.name not in value:
                raise Unread(f"{self.name} is missing")
            value = value[self.name]
        if value not in self.part.get("enum", [value]):
            raise Unread(f"{shorten(str(value))} is none of the schema's values")
        return value

    def label(self, text: str) -> Any:
        """The value that a label's text means. Raises Unread."""
        word, kind, known = text.strip(), self.part.get("type", ""), self.part.get("enum")
        if kind == "boolean":
            if word.casefold() not in TRUE | FALSE:
                raise Unread(f"{shorten(word)} is neither true, 1 or yes nor false, 0 or no")
            return word.casefold() in TRUE
        value = word
        if kind != "string":
            try:
                value = json.loads(word)
            except ValueError:
                raise Unread(f"{shorten(word)} is no JSON value; answers are of type {kind or 'any'}") from None
        if known is not None and value not in known:
            near = did_you_mean(word, [str(each) for each in known])
            raise Unread(f"{shorten(word)} is no answer of the schema{near}")
        return value


def same(one: Any, other: Any) -> bool:
    """Whether two values are one: equal, and true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def schema(path: Path | None, otherwise: str) -> Mapping[str, Any] | None:
    """The JSON schema in a file, else the text of another; None for the word none, and without any: free text.

    Raises RequestError.
    """
    if path is None:
        own: Mapping[str, Any] | None = json.loads(otherwise) if otherwise else None
        return own
    if str(path) == "none":
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"--schema {path}: {error.strerror}; name a file with a JSON schema, or none") from None
    except ValueError:
        raise RequestError(f"--schema {path}: not JSON; name a file with a JSON schema, or none") from None
    parts = found.get("properties") if isinstance(found, dict) and found.get("type", "object") == "object" else None
    plain = isinstance(parts, dict) and all(
        isinstance(each, dict) and isinstance(each.get("type", ""), str) for each in parts.values()
    )
    if not plain:
        raise RequestError(f"--schema {path}: no JSON schema of an object with properties of one type each")
    return {"type": "object", **found}


def labels(path: Path, folder: Path, images: Collection[str], form: Form) -> dict[str, Any]:
    """The values of a label file by image, of those that have one. Raises RequestError with the line."""
    names: dict[str, list[str]] = {}
    for image in images:
        names.setdefault(PurePosixPath(image).name, []).append(image)
    found: dict[str, tuple[Any, int]] = {}
    for number, cell, text in _rows(path):
        where = f"--labels {path}:{number}"
        image = _image(cell, folder, images, names, where)
        try:
            value = form.label(text)
        except Unread as error:
            raise RequestError(f"{where}: {error}; {LAYOUT}") from None
        if image in found and not same(found[image][0], value):
            raise RequestError(f"{where}: {image} has another label on line {found[image][1]}; keep one of them")
        found[image] = (value, number)
    if not found:
        raise RequestError(f"--labels {path}: no label in it; {LAYOUT}")
    return {image: value for image, (value, _) in found.items()}


def _rows(path: Path) -> list[tuple[int, str, str]]:
    """Line number, image and label of every line that has both."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets begin with a byte order mark
    except OSError as error:
        raise RequestError(f"--labels {path}: {error.strerror}; name a CSV file") from None
    except UnicodeDecodeError:
        raise RequestError(f"--labels {path}: not a text in UTF-8; save it as CSV in UTF-8") from None
    # A spreadsheet writes what its country's numbers leave free.
    separator = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(text.splitlines(), delimiter=separator)
    columns, made = (0, 1), []
    try:
        for cells in reader:
            plain = [cell.strip().casefold() for cell in cells]
            if reader.line_num == 1 and set(HEADER) <= set(plain):
                columns = (plain.index(HEADER[0]), plain.index(HEADER[1]))
            elif any(plain):
                if len(cells) <= max(columns) or (columns == (0, 1) and not plain[0]):
                    raise RequestError(f"--labels {path}:{reader.line_num}: an image and a label are needed; {LAYOUT}")
                if plain[columns[1]]:  # an image without a label counts as one that is not listed
                    made.append((reader.line_num, cells[columns[0]].strip(), cells[columns[1]]))
    except csv.Error as error:
        raise RequestError(f"--labels {path}:{reader.line_num}: {error}; {LAYOUT}") from None
    return made


def _image(cell: str, folder: Path, images: Collection[str], names: Mapping[str, list[str]], where: str) -> str:
    """The image that a line names: by its path inside the folder, or by a file name that only one has."""
    plain = PurePosixPath(cell.replace("\\", "/"))
    if plain.is_relative_to(folder.as_posix()):  # written from where the command runs
        plain = plain.relative_to(folder.as_posix())
    if str(plain) in images:
        return str(plain)
    alike = names.get(str(plain), [])
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise RequestError(f"{where}: {len(alike)} images are called {shorten(cell)}; write the path inside --images")
    near = did_you_mean(str(plain), images)
    if where.endswith(":1"):
        near += f" (a header line has the words {' and '.join(HEADER)})"
    raise RequestError(f"{where}: no image {shorten(cell)} in --images{near}")
