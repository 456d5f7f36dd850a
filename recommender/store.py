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
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from recommender import files

if TYPE_CHECKING:
    from recommender import records as r


class KnowledgeError(Exception):
    """A record is broken. The message names the file, the field and the repair."""


class UnknownName(Exception):
    """Nothing is known by this name. The message lists near matches."""


class Plain:
    """A record read back from the index: it was validated when that was made, so it is only attributes.

    Immutable, compared by identity. Building the checked types at every start
    would cost a third of a run.
    """

    __slots__ = ("__dict__",)

    def __init__(self, fields: dict[str, Any]) -> None:
        """Takes the fields of one JSON object; lists become tuples."""
        self.__dict__.update({name: tuple(value) if type(value) is list else value for name, value in fields.items()})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"records are immutable; {name} cannot be set")


class Ran(Protocol):
    """What the recommender itself reads of a run; ``compiling.read_record`` gives the whole of it."""

    @property
    def id(self) -> str: ...
    @property
    def gpu(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def mps(self) -> bool: ...
    @property
    def batch(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def session(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def loads(self) -> tuple[RanLoad, ...]: ...


class RanLoad(Protocol):
    """One closed-loop load of a run: what went in, requests a second, and the median in ms."""

    @property
    def concurrency(self) -> int: ...
    @property
    def image(self) -> str: ...
    @property
    def pixels(self) -> int: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def rps(self) -> float: ...
    @property
    def p50_ms(self) -> float: ...


class Store:
    """All records by kind and id. Shared and constant; caches are keyed by the store itself."""

    releases: Mapping[str, r.Release]
    flags: Mapping[str, r.Flag]
    environment: Mapping[str, r.Parameter]
    client: Mapping[str, r.Parameter]
    gpus: Mapping[str, r.Gpu]
    models: Mapping[str, r.Model]
    loads: Mapping[str, r.Workload]
    requests: Mapping[str, r.RequestShape]
    constraints: Mapping[str, r.Constraint]
    advisers: Mapping[str, r.Adviser]
    disagreements: Mapping[str, r.Disagreement]
    scenarios: Mapping[str, r.Scenario]
    claims: Mapping[str, r.Claim]
    threads: Mapping[str, r.Thread]
    coefficients: Mapping[str, r.Coefficient]
    residuals: Mapping[str, r.Residuals]
    evidence: Mapping[str, Ran]
    probes: Mapping[str, Named]

    def __init__(self, index: str | bytes) -> None:
        """Reads an index that ``compiling.compile_index`` made. Raises ValueError for a broken one."""
        kinds = json.loads(index, object_hook=Plain)
        for kind in FOLDERS:
            setattr(self, kind, MappingProxyType(vars(vars(kinds)[kind])))

    def options(self) -> Iterator[r.Option]:
        """Every flag, environment variable and request field, in a fixed order."""
        yield from self.flags.values()
        yield from self.environment.values()
        yield from self.client.values()


FOLDERS: Mapping[str, str] = {
    "releases": "releases",
    "flags": "flags",
    "environment": "environment",
    "client": "client",
    "gpus": "gpus",
    "models": "models",
    "loads": "workloads/loads",
    "requests": "workloads/requests",
    "constraints": "constraints",
    "advisers": "advisers",
    "disagreements": "disagreements",
    "scenarios": "scenarios",
    "claims": "claims",
    "threads": "threads",
    "coefficients": "coefficients",
    "residuals": "residuals",
    "evidence": "evidence",
    "probes": "evidence/earlier",
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
        from recommender.compiling import compile_index

        return Store(compile_index(knowledge))
    return _load_default()


@cache
def _load_default() -> Store:
    root = data_root()
    shipped = root / "index.json"
    if shipped.is_file():
        return Store(shipped.read_bytes())
    knowledge = root / "knowledge"
    index = root / "build" / "index" / f"{_digest(knowledge)}.json"
    try:
        return Store(index.read_bytes())
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, not readable, or cut short by a full disk: made anew
    from recommender.compiling import compile_index

    text = compile_index(knowledge)
    _keep(index, text)
    return Store(text)


def _digest(knowledge: Path) -> str:
    """SHA-256 over every record file's name and bytes, the record types and the compiler."""
    state = hashlib.sha256()
    for name in ("records.py", "compiling.py"):
        state.update(Path(__file__).with_name(name).read_bytes())
    for _, folder in sorted(FOLDERS.items()):
        with os.scandir(knowledge / folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".yaml"))
        for name in names:
            path = f"{knowledge}/{folder}/{name}"
            # Hundreds of files at every start: Path.open costs twice as much, a buffer a fifth.
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123
                state.update(f"\0{folder}/{name}\0".encode())
                state.update(file.read())
    return state.hexdigest()[:32]


def _keep(index: Path, text: str) -> None:
    """Writes the index atomically; a read-only checkout simply goes without."""
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        for old in index.parent.glob("*.json"):
            old.unlink(missing_ok=True)
        files.write(index, text)
    except OSError:
        pass


PART = "-mig-"
"""In the id of a slice of a GPU."""


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


def names(known: Mapping[str, N], extra: Mapping[str, str]) -> dict[str, N]:
    """Records by every name they go by, as ``normal`` writes it; ``extra`` maps further names to ids."""
    by_name = {normal(alias): item for item in known.values() for alias in (item.id, *item.aliases)}
    return by_name | {normal(alias): known[item] for alias, item in extra.items()}


def resolve(kind: str, name: str, by_name: Mapping[str, N]) -> N:
    """The record of a name as people write it. Raises UnknownName with near matches."""
    found = by_name.get(normal(name))
    if found is None:
        shown = sorted({alias for item in by_name.values() for alias in (item.id, *item.aliases)})
        plain = sorted({item.id for item in by_name.values() if PART not in item.id})
        raise UnknownName(f"unknown {kind} {shorten(name)}{did_you_mean(name, shown, plain)}")
    return found


def did_you_mean(name: str, known: Iterable[str], usual: Iterable[str] = ()) -> str:
    """``: did you mean a, b?`` or, where nothing is near, the first few known names, or of the usual ones."""
    shown = {normal(item): item for item in known}
    near = [shown[key] for key in difflib.get_close_matches(normal(name)[:80], shown, n=3, cutoff=0.5)]
    if near:
        return f": did you mean {', '.join(near)}?"
    return f": known are {', '.join((list(usual) or list(shown.values()))[:12])}"


def shorten(text: str, limit: int = 60) -> str:
    """A user's text made safe for one line of an error message."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return repr(shown if len(shown) <= limit else shown[:limit] + "...")
