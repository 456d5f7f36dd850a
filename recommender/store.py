"""Loads the knowledge once and resolves names to records.

The YAML files are compiled into one JSON index. A wheel ships the index; in a
checkout it is kept under ``build/``, named by the digest of the files it was
made from, so that a stale one is never read.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from recommender import records as r

R = TypeVar("R", bound=r.Record)


class KnowledgeError(Exception):
    """A record is broken. The message names the file, the field and the repair."""


class UnknownName(Exception):
    """Nothing is known by this name. The message lists near matches."""


class Store(r.Record):
    """All records by kind and id. Treat it as constant: it is shared."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    releases: dict[str, r.Release]
    flags: dict[str, r.Flag]
    environment: dict[str, r.Parameter]
    client: dict[str, r.Parameter]
    gpus: dict[str, r.Gpu]
    models: dict[str, r.Model]
    loads: dict[str, r.Workload]
    requests: dict[str, r.RequestShape]
    constraints: dict[str, r.Constraint]
    advisers: dict[str, r.Adviser]
    disagreements: dict[str, r.Disagreement]
    scenarios: dict[str, r.Scenario]
    claims: dict[str, r.Claim]
    coefficients: dict[str, r.Coefficient]
    evidence: dict[str, r.Measurement]

    # Caches are keyed by the store itself; comparing thousands of records would defeat them.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def options(self) -> Iterator[r.Option]:
        """Every flag, environment variable and request field, in a fixed order."""
        yield from self.flags.values()
        yield from self.environment.values()
        yield from self.client.values()


FOLDERS: Mapping[str, tuple[str, type[r.Record]]] = {
    "releases": ("releases", r.Release),
    "flags": ("flags", r.Flag),
    "environment": ("environment", r.Parameter),
    "client": ("client", r.Parameter),
    "gpus": ("gpus", r.Gpu),
    "models": ("models", r.Model),
    "loads": ("workloads/loads", r.Workload),
    "requests": ("workloads/requests", r.RequestShape),
    "constraints": ("constraints", r.Constraint),
    "advisers": ("advisers", r.Adviser),
    "disagreements": ("disagreements", r.Disagreement),
    "scenarios": ("scenarios", r.Scenario),
    "claims": ("claims", r.Claim),
    "coefficients": ("coefficients", r.Coefficient),
    "evidence": ("evidence", r.Measurement),
}


def data_root() -> Path:
    """The folder that holds ``knowledge/`` and ``templates/``: in a wheel or in a checkout."""
    packaged = Path(__file__).parent / "_data"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent


def load(knowledge: Path | None = None) -> Store:
    """The knowledge, from the index where it is current, else from the YAML files.

    Raises KnowledgeError for a broken record.
    """
    if knowledge is not None:
        return TypeAdapter(Store).validate_python(_validated(knowledge))
    return _load_default()


@cache
def _load_default() -> Store:
    root = data_root()
    shipped = root / "index.json"
    if shipped.is_file():
        return Store.model_validate_json(shipped.read_bytes())
    knowledge = root / "knowledge"
    index = root / "build" / "index" / f"{_digest(knowledge)}.json"
    if index.is_file():
        try:
            return Store.model_validate_json(index.read_bytes())
        except ValidationError:
            index.unlink(missing_ok=True)  # cut short by a full disk, say
    text = compile_index(knowledge)
    _keep(index, text)
    return Store.model_validate_json(text)


def compile_index(knowledge: Path) -> str:
    """All records as one JSON text, each validated. Raises KnowledgeError."""
    plain = {
        kind: {name: record.model_dump(mode="json", exclude_defaults=True) for name, record in records.items()}
        for kind, records in _validated(knowledge).items()
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _validated(knowledge: Path) -> dict[str, dict[str, r.Record]]:
    return {
        kind: {path.stem: read_record(path, kind_type) for path in _files(knowledge / folder)}
        for kind, (folder, kind_type) in FOLDERS.items()
    }


def read_record(path: Path, kind: type[R]) -> R:
    """One YAML file as a record. Raises KnowledgeError with file, field and repair."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{path}: not readable as YAML: {_one_line(error)}") from None
    try:
        record = kind.model_validate_json(json.dumps(raw, default=str, allow_nan=False))
    except ValidationError as error:
        raise KnowledgeError(f"{path}: {_explain(error)}") from None
    except ValueError as error:
        raise KnowledgeError(f"{path}: {_one_line(error)}; write a finite number") from None
    if getattr(record, "id", path.stem) != path.stem:
        raise KnowledgeError(f"{path}: id is {getattr(record, 'id', '')!r}; name the file after it, or mend the id")
    return record


REPAIRS = {
    "extra_forbidden": "remove it, or mend its spelling (see recommender/records.py)",
    "missing": "add it",
    "string_type": "put the value in quotes",
    "int_type": "write a whole number without quotes",
    "float_type": "write a number without quotes",
    "bool_type": "write true or false",
    "literal_error": "use one of the allowed words",
    "string_pattern_mismatch": "write it in the form of the pattern",
}


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "(whole file)"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{field}: {_one_line(first['msg'])}: {REPAIRS.get(first['type'], 'mend the value')}{more}"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _digest(knowledge: Path) -> str:
    """SHA-256 over the names and bytes of every record file and of the record types."""
    state = hashlib.sha256(Path(r.__file__).read_bytes())
    for _, (folder, _type) in sorted(FOLDERS.items()):
        with os.scandir(knowledge / folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".yaml"))
        for name in names:
            path = f"{knowledge}/{folder}/{name}"
            with open(path, "rb") as file:  # noqa: PTH123 - 300 files at every start: Path.open costs twice as much
                state.update(f"\0{folder}/{name}\0".encode())
                state.update(file.read())
    return state.hexdigest()[:32]


def _keep(index: Path, text: str) -> None:
    """Writes the index atomically; a read-only checkout simply goes without."""
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        for old in index.parent.glob("*.json"):
            old.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=index.parent, encoding="utf-8", delete=False) as file:
            file.write(text)
        Path(file.name).replace(index)
    except OSError:
        pass


class Named(Protocol):
    """A record that people call by several names."""

    @property
    def id(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...


N = TypeVar("N", bound=Named)


def normal(name: str) -> str:
    """A name without case, blanks, dashes and underscores, as names are compared."""
    return name.casefold().translate({ord(c): None for c in " -_"})


def resolve(kind: str, name: str, known: Mapping[str, N], extra: Mapping[str, str] | None = None) -> N:
    """The record of a name as people write it; ``extra`` maps further names to ids.

    Raises UnknownName with near matches.
    """
    by_name = {normal(alias): item for item in known.values() for alias in (item.id, *item.aliases)}
    by_name |= {normal(alias): known[item] for alias, item in (extra or {}).items()}
    found = by_name.get(normal(name))
    if found is None:
        shown = [alias for item in known.values() for alias in (item.id, *item.aliases)]
        raise UnknownName(f"unknown {kind} {shorten(name)}{did_you_mean(name, shown)}")
    return found


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``: did you mean a, b?`` or, where nothing is near, the first few known names."""
    shown = {normal(item): item for item in known}
    near = [shown[key] for key in difflib.get_close_matches(normal(name)[:80], shown, n=3, cutoff=0.5)]
    if near:
        return f": did you mean {', '.join(near)}?"
    return f": known are {', '.join(list(shown.values())[:12])}"


def shorten(text: str, limit: int = 60) -> str:
    """A user's text made safe for one line of an error message."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return repr(shown if len(shown) <= limit else shown[:limit] + "...")
