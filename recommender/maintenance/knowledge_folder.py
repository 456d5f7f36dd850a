"""Read a knowledge folder for the linters: the readable records, and the problems of the others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from recommender.common.errors import KnowledgeError, MaintenanceError
from recommender.common.text import one_line
from recommender.common.user_file import Unreadable, read_text
from recommender.knowledge.index import REPAIRS, TYPES, read_record
from recommender.knowledge.records import Record
from recommender.knowledge.store import FOLDERS
from recommender.maintenance.wheel_facts import WheelFacts, load_extracted

FACTS = "extracted/api_server.json"
FITS = "extracted/fit_folds.json"
TEMPLATES = "templates-for-contributors"
RecordType = TypeVar("RecordType", bound=Record)


@dataclass(frozen=True)
class Problem:
    """Something wrong in one field of one file, and how to repair it."""

    file: str
    """The file, below the repository."""
    field: str
    """The field; empty: the whole file."""
    message: str
    """What is wrong."""
    repair: str
    """How to repair it."""

    def __str__(self) -> str:
        return f"{self.file}: {self.field}: {self.message}: {self.repair}"


@dataclass(frozen=True, eq=False)
class KnowledgeFolder:
    """A knowledge folder with every record that could be read; ``unread`` are the problems of the others.

    ``names`` are the ids of all files of a kind, also of those that could not be read: a reference
    to a broken record is not broken itself.
    """

    folder: Path
    kinds: Mapping[str, Mapping[str, Record]]
    unread: tuple[Problem, ...]
    names: Mapping[str, frozenset[str]]
    schemas: Mapping[str, str] = field(default_factory=dict)

    def records(self) -> Iterator[tuple[str, Record]]:
        """Yield every record with its file, in a fixed order."""
        for kind, by_name in self.kinds.items():
            yield from ((file_of(kind, name), record) for name, record in by_name.items())

    def records_of(self, record_type: type[RecordType]) -> Iterator[tuple[str, RecordType]]:
        """Yield every record of a type with its file, in a fixed order."""
        yield from ((file, record) for file, record in self.records() if isinstance(record, record_type))

    @cached_property
    def parts(self) -> tuple[tuple[str, str, Record], ...]:
        """Return every record and every record within one, with the file and the field that holds it."""
        return tuple((file, where, part) for file, record in self.records() for where, part in _parts(record, ""))

    @cached_property
    def texts(self) -> dict[str, str]:
        """Return the text of each record's file that can be read, by file."""
        texts = {}
        for kind, names in self.names.items():
            for name in sorted(names):
                try:
                    path = self.folder / FOLDERS[kind] / f"{name}.yaml"
                    texts[file_of(kind, name)] = read_text(path)
                except (OSError, Unreadable):
                    continue  # reported among the unread
        return texts

    @cached_property
    def facts(self) -> WheelFacts | None:
        """Return the facts extracted from the wheels, or None if that file cannot be read."""
        try:
            return load_extracted(self.folder / FACTS)
        except MaintenanceError:
            return None


def read(knowledge: Path, schemas: Mapping[str, str] | None = None) -> KnowledgeFolder:
    """Read every record, and go on after a broken one. Raises MaintenanceError where there is no such folder."""
    if not knowledge.is_dir():
        raise MaintenanceError(f"{knowledge}: no such folder; name the folder that holds releases/, flags/ and so on")
    kinds: dict[str, dict[str, Record]] = {}
    names: dict[str, frozenset[str]] = {}
    unread: list[Problem] = []
    for kind, folder in FOLDERS.items():
        kinds[kind] = {}
        paths = sorted((knowledge / folder).glob("*.yaml"))
        names[kind] = frozenset(path.stem for path in paths)
        for path in paths:
            try:
                kinds[kind][path.stem] = read_record(path, TYPES[kind])
            except (KnowledgeError, TypeError, OSError) as error:
                unread += _unread(file_of(kind, path.stem), str(path), error)
    return KnowledgeFolder(knowledge, kinds, tuple(unread), names, schemas or {})


def _unread(file: str, path: str, error: Exception) -> Iterator[Problem]:
    """Yield the problems of an unreadable record; all invalid fields if its type names them."""
    cause = error.__context__  # the error itself names only the first field
    if isinstance(cause, ValidationError):
        details = cause.errors(include_url=False, include_context=False)
        inner = {detail["loc"][:-depth] for detail in details for depth in range(1, len(detail["loc"]))}
        for detail in (detail for detail in details if detail["type"] != "too_short" or detail["loc"] not in inner):
            repair = REPAIRS.get(detail["type"], "fix the value")
            yield Problem(file, _dotted(detail["loc"]), one_line(detail["msg"]), repair)
        return
    what, _, repair = one_line(error).removeprefix(f"{path}: ").partition("; ")
    yield Problem(file, "(whole file)", what, repair or "fix the record")


def _dotted(loc: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).lstrip(".") or "(whole file)"


def file_of(kind: str, name: str) -> str:
    """Return the file of a record as problems name it."""
    return f"knowledge/{FOLDERS[kind]}/{name}.yaml"


def join_fields(outer: str, inner: str) -> str:
    """Return the path of a field within a field; ``outer`` is empty for the record itself."""
    return f"{outer}.{inner}" if outer else inner


def _parts(record: Record, where: str) -> Iterator[tuple[str, Record]]:
    yield where, record
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, Record):
            yield from _parts(value, join_fields(where, name))
        elif isinstance(value, tuple) and any(isinstance(item, Record) for item in value):
            for index, item in enumerate(value):
                if isinstance(item, Record):
                    yield from _parts(item, f"{join_fields(where, name)}[{index}]")
