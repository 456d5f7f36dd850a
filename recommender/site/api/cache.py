"""Compute the picker's answer files in parallel and cache them under ``build/`` for the next build.

The cache file is named by a digest of its inputs. A missing or unreadable one is computed again; a folder that cannot
be written is ignored.
"""

import contextlib
import gc
import gzip
import hashlib
import json
import multiprocessing
import zlib
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from recommender.knowledge.load import data_root, load
from recommender.site.api import answers

PROCESSES = 2
CHUNK = 6


def answer_files(folder: Path | None = None) -> Mapping[str, str]:
    """Return each file's text by path below ``recommendations/``. ``folder``: the cache."""
    cached = (folder or data_root() / "build" / ".cache") / f"recommendations-{digest()}.json.gz"
    with contextlib.suppress(OSError, EOFError, ValueError, zlib.error):
        files = json.loads(gzip.decompress(cached.read_bytes()))
        if isinstance(files, dict) and list(files) == [*questions()]:
            return files
    load()  # builds the index before several processes need it
    files = dict(zip(questions(), _compute(), strict=True))
    _keep(cached, files)
    return files


def questions() -> dict[str, tuple[str, str]]:
    """Return the model and GPU of each file, by path."""
    return {f"{model}/{gpu}.json": (model, gpu) for model in answers.MODELS for gpu in answers.GPUS}


def digest() -> str:
    """Return the start of a SHA-256 over the inputs of answers: knowledge, templates and code."""
    root, package = data_root(), Path(answers.__file__).parents[2]
    state = hashlib.sha256()
    for path in (
        *sorted((root / "knowledge").rglob("*.yaml")),
        *sorted(path for path in (root / "templates").iterdir() if path.is_file()),
        *sorted(package.rglob("*.py")),
    ):
        state.update(f"\0{path.name}\0".encode())
        state.update(path.read_bytes())
    return state.hexdigest()[:32]


def _compute() -> list[str]:
    """Return all texts in the order of ``questions``; in this process if no other can start."""
    asked = [*questions().values()]
    try:
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), initializer=gc.disable) as pool:
            return list(pool.map(_answer, asked, chunksize=CHUNK))
    except (OSError, ImportError, BrokenProcessPool):
        return [*map(_answer, asked)]


def _answer(question: tuple[str, str]) -> str:
    gc.collect()  # only here: collecting during an answer would take a tenth of its time
    return answers.answer_file(*question)


def _keep(cached: Path, files: Mapping[str, str]) -> None:
    """Write the cache atomically and delete older ones."""
    packed = gzip.compress(json.dumps(files, ensure_ascii=False).encode(), compresslevel=6, mtime=0)
    temporary = cached.with_suffix(".new")
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        for old in cached.parent.glob("recommendations-*"):
            old.unlink(missing_ok=True)
        temporary.write_bytes(packed)
        temporary.replace(cached)
