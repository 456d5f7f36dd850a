"""All of the picker's files: made in parallel, and kept under ``build/`` for the next build.

The kept ones are named by a digest of what they follow from. What is not there or cannot be read is made anew, and a
folder that cannot be written is gone without.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import hashlib
import json
import multiprocessing
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from recommender.site import states
from recommender.store import data_root, load

PROCESSES = 2
CHUNK = 6


def slices(folder: Path | None = None) -> Mapping[str, str]:
    """Every file's text by its path below ``recommendations/``. ``folder``: where they are kept."""
    kept = (folder or data_root() / "build" / ".cache") / f"recommendations-{digest()}.json.gz"
    with contextlib.suppress(OSError, EOFError, ValueError, zlib.error):
        found = json.loads(gzip.decompress(kept.read_bytes()))
        if isinstance(found, dict) and list(found) == [path for path, _ in paths()]:
            return found
    load()  # so that its index is there before several processes ask for it
    made = dict(zip((path for path, _ in paths()), _made(), strict=True))
    _keep(kept, made)
    return made


def paths() -> Iterator[tuple[str, tuple[str, str]]]:
    """The path of each file, with its model and its card."""
    return ((f"{model}/{gpu}.json", (model, gpu)) for model in states.MODELS for gpu in states.GPUS)


def digest() -> str:
    """SHA-256 over all that an answer follows from: the knowledge, the templates and the steps of the pipeline."""
    root, package = data_root(), Path(states.__file__).parent.parent
    state = hashlib.sha256()
    for path in (
        *sorted((root / "knowledge").rglob("*.yaml")),
        *sorted(each for each in (root / "templates").iterdir() if each.is_file()),
        *sorted(package.glob("*.py")),
        Path(states.__file__),
    ):
        state.update(f"\0{path.name}\0".encode())
        state.update(path.read_bytes())
    return state.hexdigest()[:32]


def _made() -> list[str]:
    """All texts, in the order of ``paths``; where no further process can be had, by this one."""
    asked = [each for _, each in paths()]
    try:
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), initializer=gc.disable) as pool:
            return list(pool.map(_one, asked, chunksize=CHUNK))
    except (OSError, ImportError, BrokenProcessPool):
        return [_one(each) for each in asked]


def _one(asked: tuple[str, str]) -> str:
    gc.collect()  # only here: collecting while an answer is made costs a tenth of it
    return states.slice_of(*asked)


def _keep(kept: Path, made: Mapping[str, str]) -> None:
    """Writes the cache whole or not at all, and drops older ones."""
    packed = gzip.compress(json.dumps(made, ensure_ascii=False).encode(), compresslevel=6, mtime=0)
    temporary = kept.with_suffix(".new")
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        for old in kept.parent.glob("recommendations-*"):
            old.unlink(missing_ok=True)
        temporary.write_bytes(packed)
        temporary.replace(kept)
