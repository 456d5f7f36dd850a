"""Read answers by the response schema, and the labels to compare them with."""

import csv
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from recommender.common.errors import RequestError
from recommender.common.parse import parse_json
from recommender.common.text import did_you_mean, shorten
from recommender.common.user_file import name_in_errors, read_text
from recommender.smoke.client.checks import schema_error

TRUE, FALSE = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})
FENCED = re.compile(r"\A```(?:json)?\s*(.*?)\s*```\Z", re.DOTALL)
HEADER = ("image", "label")
LAYOUT = "write lines image,label (header optional), with the image's path inside --images"


class UnreadableAnswer(Exception):
    """An answer or a label has no value; the message says why."""


@dataclass(frozen=True, slots=True)
class Form:
    """The schema of answers, None for free text; ``enforced`` if the engine enforces it."""

    schema: Mapping[str, Any] | None
    enforced: bool

    @property
    def name(self) -> str:
        """Return the schema's only property, or an empty text."""
        names = list((self.schema or {}).get("properties", ()))
        return names[0] if len(names) == 1 else ""

    @property
    def part(self) -> Mapping[str, Any]:
        """Return the schema of the value to compare."""
        whole: Mapping[str, Any] = self.schema or {"type": "string"}
        part: Mapping[str, Any] = whole["properties"][self.name] if self.name else whole
        return part

    def value(self, text: str) -> Any:
        """Return an answer's value; raise UnreadableAnswer if it has none."""
        if self.schema is None:
            return text.strip()
        fenced = None if self.enforced else FENCED.match(text.strip())  # without enforcement, models like to fence JSON
        unfenced = fenced[1] if fenced else text
        wrong = schema_error(unfenced, self.schema)
        if wrong:
            raise UnreadableAnswer(wrong)
        value: Any = json.loads(unfenced)
        if self.name:
            if self.name not in value:
                raise UnreadableAnswer(f"{self.name} is missing")
            value = value[self.name]
        if value not in self.part.get("enum", [value]):
            raise UnreadableAnswer(f"{shorten(str(value))} is not a value of the schema")
        return value

    def label(self, text: str) -> Any:
        """Return a label's value; raise UnreadableAnswer if the schema has no such value."""
        word, kind, allowed = text.strip(), self.part.get("type", ""), self.part.get("enum")
        if kind == "boolean":
            if word.casefold() not in TRUE | FALSE:
                raise UnreadableAnswer(f"{shorten(word)} is not true, 1, yes, false, 0 or no")
            return word.casefold() in TRUE
        value = word
        if kind != "string":
            try:
                value = json.loads(word)
            except ValueError:
                raise UnreadableAnswer(f"{shorten(word)} is not JSON; answers have type {kind or 'any'}") from None
        if allowed is not None and value not in allowed:
            near = did_you_mean(word, [str(value) for value in allowed])
            raise UnreadableAnswer(f"{shorten(word)} is not an answer of the schema{near}")
        return value


def same_value(first: Any, second: Any) -> bool:
    """Return whether two values are equal; true does not equal 1."""
    return bool(first == second) and isinstance(first, bool) == isinstance(second, bool)


def read_schema(path: Path | None, otherwise: str) -> Mapping[str, Any] | None:
    """Return the schema of a file, else the default's; None for free text.

    Raise RequestError if the file is unusable.
    """
    if path is None:
        requested: Mapping[str, Any] | None = json.loads(otherwise) if otherwise else None
        return requested
    if str(path) == "none":
        return None
    repair = "name a file with a JSON schema, or none"
    with name_in_errors(f"--schema {path}", repair, f"; {repair}"):
        document = parse_json(read_text(path))
    parts = (
        document.get("properties")
        if isinstance(document, dict) and document.get("type", "object") == "object"
        else None
    )
    flat = isinstance(parts, dict) and all(
        isinstance(part, dict) and isinstance(part.get("type", ""), str) for part in parts.values()
    )
    if not flat:
        raise RequestError(f"--schema {path}: not a JSON schema of an object whose properties have one type each")
    return {"type": "object", **document}


def read_labels(path: Path, folder: Path, images: Collection[str], form: Form) -> dict[str, Any]:
    """Return label values by image; raise RequestError naming the line."""
    names: dict[str, list[str]] = {}
    for image in images:
        names.setdefault(PurePosixPath(image).name, []).append(image)
    labelled: dict[str, tuple[Any, int]] = {}
    for number, cell, text in _label_rows(path):
        where = f"--labels {path}:{number}"
        image = _find_image(cell, folder, images, names, where)
        try:
            value = form.label(text)
        except UnreadableAnswer as error:
            raise RequestError(f"{where}: {error}; {LAYOUT}") from None
        if image in labelled and not same_value(labelled[image][0], value):
            raise RequestError(f"{where}: {image} has another label on line {labelled[image][1]}; keep one")
        labelled[image] = (value, number)
    if not labelled:
        raise RequestError(f"--labels {path}: no labels; {LAYOUT}")
    return {image: value for image, (value, _) in labelled.items()}


def _label_rows(path: Path) -> list[tuple[int, str, str]]:
    """Return line number, image and label of each complete line."""
    with name_in_errors(f"--labels {path}", "name a CSV file", ", as CSV"):
        text = read_text(path).removeprefix("\ufeff")  # spreadsheets begin with a byte order mark
    # Spreadsheets pick the separator by locale.
    separator = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(text.splitlines(), delimiter=separator)
    columns, rows = (0, 1), []
    try:
        for cells in reader:
            folded = [cell.strip().casefold() for cell in cells]
            if reader.line_num == 1 and set(HEADER) <= set(folded):
                columns = (folded.index(HEADER[0]), folded.index(HEADER[1]))
            elif any(folded):
                if len(cells) <= max(columns) or (columns == (0, 1) and not folded[0]):
                    raise RequestError(f"--labels {path}:{reader.line_num}: image or label missing; {LAYOUT}")
                if folded[columns[1]]:  # an image without a label counts as unlisted
                    rows.append((reader.line_num, cells[columns[0]].strip(), cells[columns[1]]))
    except csv.Error as error:
        raise RequestError(f"--labels {path}:{reader.line_num}: {error}; {LAYOUT}") from None
    return rows


def _find_image(cell: str, folder: Path, images: Collection[str], names: Mapping[str, list[str]], where: str) -> str:
    """Return the image that a line names by path or by a unique file name."""
    path = PurePosixPath(cell.replace("\\", "/"))
    if path.is_relative_to(folder.as_posix()):  # written from where the command runs
        path = path.relative_to(folder.as_posix())
    if str(path) in images:
        return str(path)
    candidates = names.get(str(path), [])
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise RequestError(
            f"{where}: {len(candidates)} images are named {shorten(cell)}; write the path inside --images"
        )
    near = did_you_mean(str(path), images)
    if where.endswith(":1"):
        near += f" (a header line needs the columns {' and '.join(HEADER)})"
    raise RequestError(f"{where}: no image {shorten(cell)} in --images{near}")
