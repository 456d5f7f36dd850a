"""Find and load the knowledge: from the compiled index, else from YAML."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from recommender.common import atomic_write
from recommender.knowledge.store import FOLDERS, Store


def data_root() -> Path:
    """Return the folder that holds ``knowledge/`` and ``templates/``: in a wheel or in a checkout."""
    package = Path(__file__).parent.parent
    packaged = package / "_data"
    return packaged if packaged.is_dir() else package.parent


def load(knowledge: Path | None = None) -> Store:
    """Return the knowledge, from the index where it is current, else from the YAML files.

    Raises KnowledgeError for a broken record.
    """
    if knowledge is not None and knowledge != data_root() / "knowledge":
        from recommender.knowledge.index import compile_index

        return Store(compile_index(knowledge))
    return _load_default()


@cache
def _load_default() -> Store:
    try:
        return Store(read_index())
    except (ValueError, KeyError, TypeError):  # truncated: compile it again
        return Store(_compile(data_root() / "knowledge"))


def read_index() -> str | bytes:
    """Return the compiled index: of the wheel, or of the checkout, where it is compiled if a record changed.

    Raises KnowledgeError for a broken record.
    """
    root = data_root()
    shipped = root / "index.json"
    if shipped.is_file():
        return shipped.read_bytes()
    try:
        return _index_of(root / "knowledge").read_bytes()
    except OSError:
        return _compile(root / "knowledge")


def _compile(knowledge: Path) -> str:
    """Compile a checkout's records and keep the index."""
    from recommender.knowledge.index import compile_index

    text = compile_index(knowledge)
    _keep(_index_of(knowledge), text)
    return text


def _index_of(knowledge: Path) -> Path:
    return knowledge.parent / "build" / "index" / f"{_digest(knowledge)}.json"


def _digest(knowledge: Path) -> str:
    """Return a SHA-256 over every record file's name, size and time of change, and the code of this folder.

    Reading hundreds of files at every start would cost four times as much.
    """
    state = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        state.update(source.read_bytes())
    for _, folder in sorted(FOLDERS.items()):
        with os.scandir(knowledge / folder) as entries:
            files = sorted((entry.name, entry.stat()) for entry in entries if entry.name.endswith(".yaml"))
        for name, at in files:
            state.update(f"\0{folder}/{name}\0{at.st_size} {at.st_mtime_ns}".encode())
    return state.hexdigest()[:32]


def _keep(index: Path, text: str) -> None:
    """Write the index atomically; a read-only checkout has none."""
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        for old in index.parent.glob("*.json"):
            old.unlink(missing_ok=True)
        atomic_write.write(index, text)
    except OSError:
        pass
