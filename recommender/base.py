"""A knowledge folder as the linters see it: every record that can be read, typed, and what cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from recommender import records as r
from recommender.compiling import REPAIRS, TYPES, read_record
from recommender.extracted import Facts, MaintenanceError, load_extracted
from recommender.store import FOLDERS, KnowledgeError

FACTS = "extracted/api_server.json"
TEMPLATES = "templates-for-contributors"
OUTPUT = "recommendation.json"
REVIEW = "review.json"
PLAN = "plan.json"
OUTPUTS = (OUTPUT, REVIEW, PLAN)
R = TypeVar("R", bound=r.Record)


@dataclass(frozen=True)
class Problem:
    """Something wrong in one field of one file, and how to repair it."""

    file: str
    field: str
    message: str
    repair: str

    def __str__(self) -> str:
        return f"{self.file}: {self.field}: {self.message}: {self.repair}"


@dataclass(frozen=True, eq=False)
class Base:
    """A knowledge folder with every record that could be read; ``unread`` tells of the others.

    ``names`` are the ids of all files of a kind, those that could not be read too: what refers
    to a broken record is not broken itself.
    """

    folder: Path
    kinds: Mapping[str, Mapping[str, r.Record]]
    unread: tuple[Problem, ...]
    names: Mapping[str, frozenset[str]]

    def records(self) -> Iterator[tuple[str, r.Record]]:
        """Every record with its file, in a fixed order."""
        for kind, found in self.kinds.items():
            yield from ((file_of(kind, name), record) for name, record in found.items())

    def every(self, record_type: type[R]) -> Iterator[tuple[str, R]]:
        """Every record of a type with its file, in a fixed order."""
        yield from ((file, record) for file, record in self.records() if isinstance(record, record_type))

    def parts(self) -> Iterator[tuple[str, str, r.Record]]:
        """Every record and every record within one, with the file and the field that holds it."""
        for file, record in self.records():
            yield from ((file, where, part) for where, part in _parts(record, ""))

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of every record's file that is text at all."""
        found = {}
        for kind, names in self.names.items():
            for name in sorted(names):
                try:
                    path = self.folder / FOLDERS[kind] / f"{name}.yaml"
                    found[file_of(kind, name)] = path.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    continue  # told among the unread
        return found

    @cached_property
    def facts(self) -> Facts | None:
        """What was extracted from the wheels; None where that file cannot be read."""
        try:
            return load_extracted(self.folder / FACTS)
        except MaintenanceError:
            return None


def read(knowledge: Path) -> Base:
    """Reads every record, and goes on after a broken one. MaintenanceError where there is no such folder."""
    if not knowledge.is_dir():
        raise MaintenanceError(f"{knowledge}: no such folder; name the folder that holds releases/, flags/ and so on")
    found: dict[str, dict[str, r.Record]] = {}
    names: dict[str, frozenset[str]] = {}
    unread: list[Problem] = []
    for kind, folder in FOLDERS.items():
        found[kind] = {}
        paths = sorted((knowledge / folder).glob("*.yaml"))
        names[kind] = frozenset(path.stem for path in paths)
        for path in paths:
            try:
                found[kind][path.stem] = read_record(path, TYPES[kind])
            except (KnowledgeError, TypeError, OSError) as error:
                unread += _unread(file_of(kind, path.stem), str(path), error)
    return Base(knowledge, found, tuple(unread), names)


def _unread(file: str, path: str, error: Exception) -> Iterator[Problem]:
    """The problems of a record that could not be read: all fields, where the type says which."""
    cause = error.__context__  # of which the error itself tells the first only
    if isinstance(cause, ValidationError):
        for each in cause.errors(include_url=False, include_context=False):
            repair = REPAIRS.get(each["type"], "mend the value")
            yield Problem(file, _dotted(each["loc"]), one_line(each["msg"]), repair)
        return
    what, _, repair = one_line(error).removeprefix(f"{path}: ").partition("; ")
    yield Problem(file, "(whole file)", what, repair or "mend the YAML there; quote text that holds ': ' or ' #'")


def _dotted(loc: tuple[int | str, ...]) -> str:
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in loc)
    return "".join(parts).lstrip(".") or "(whole file)"


def one_line(text: object) -> str:
    """A message without its line breaks."""
    return " ".join(str(text).split())


def file_of(kind: str, name: str) -> str:
    """The file of a record as problems name it."""
    return f"knowledge/{FOLDERS[kind]}/{name}.yaml"


def under(where: str, name: str) -> str:
    """The path of a field of a record that stands in a field."""
    return f"{where}.{name}" if where else name


def _parts(value: object, where: str) -> Iterator[tuple[str, r.Record]]:
    if isinstance(value, r.Record):
        yield where, value
        for name in type(value).model_fields:
            yield from _parts(getattr(value, name), under(where, name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if isinstance(item, r.Record):
                yield from _parts(item, f"{where}[{index}]")


def schemas() -> dict[str, str]:
    """The text of every file of knowledge/schema/, by name: one a record type, and the JSON outputs'."""
    from recommender.fleet.published import schema as planned
    from recommender.publish import schema as published
    from recommender.review.machine import schema as reviewed

    made: dict[str, dict[str, Any]] = {}
    kinds: dict[str, type[BaseModel]] = {_kebab(kind.__name__): kind for kind in TYPES.values()}
    for name, kind in sorted(kinds.items()):
        made[name] = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | kind.model_json_schema()
    outputs = {OUTPUT: published(), REVIEW: reviewed(), PLAN: planned()}
    written = {f"{name}.json": each for name, each in made.items()} | outputs
    return {name: json.dumps(each, indent=2) + "\n" for name, each in written.items()}


def stale_schemas(folder: Path) -> dict[str, str]:
    """The schema files that do not say what the types say, with the text they should have.

    Versions of pydantic write 0 or 0.0 of the same limit, and describe dataclasses or do not, so
    contents are compared, not bytes, and those of the JSON outputs without descriptions.
    """
    stale = {}
    for name, text in schemas().items():
        try:
            kept, made = json.loads((folder / name).read_text(encoding="utf-8")), json.loads(text)
            for each in (kept, made) if name in OUTPUTS else ():
                for part in (each, *each.get("$defs", {}).values()):
                    part.pop("description", None)
            current = kept == made
        except (OSError, ValueError, AttributeError):
            current = False
        if not current:
            stale[name] = text
    return stale


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
