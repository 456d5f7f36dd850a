"""Write a checkpoint of real shapes with random weights (``--weights random``).

Memory and speed do not depend on weight values, so such a run needs no download. config.json and README.md mark the
folder as synthetic. Values are cut from a few seeded blocks at an offset derived from the tensor's name, so writing
runs at disk speed with little memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recommender.common.parse import parse_json
from recommender.common.units import GIB
from recommender.common.user_file import Unreadable, read_text
from recommender.smoke.weights import hf_config, layouts, phi3v, tensors, tokenizer, values
from recommender.smoke.weights.layouts import Tensor, WeightsError
from recommender.smoke.weights.tensors import planned_bytes

if TYPE_CHECKING:
    from recommender.knowledge.records import Model

MADE_BY = "lmdeploy-recommender"
FORMAT = 2
"""Increased when the same model and seed would give other bytes."""
SHARD_BYTES = 3 * 2**30
CHUNK_BYTES = 8 * 2**20
SPARE_BYTES = 64 * 2**20
"""Room for the tokenizer and the file system."""
SAY_SECONDS = 2.0

Say = Callable[[str], None]


def read_mark(folder: Path) -> dict[str, Any] | None:
    """Return the synthetic mark of a folder's config.json, or None."""
    try:
        mark = parse_json(read_text(folder / "config.json"))["synthetic"]
    except (OSError, Unreadable, KeyError, TypeError):
        return None
    return mark if isinstance(mark, dict) and mark.get("made_by") == MADE_BY else None


def ensure_checkpoint(model: Model, root: Path, seed: int = 0, say: Say = lambda _: None) -> Path:
    """Return the model's random folder under ``root``, writing it if it is missing.

    Wait for another process that writes there. Raise WeightsError if something else has that name; leave it alone.
    """
    model = layouts.as_written(model)
    files = _small_files(model, seed)
    folder = root / f"random-{model.id}-seed{seed}"
    with _report_os_errors(folder), _lock_root(root, say) as exclusive:
        if exclusive:  # no other process writes here now: remove what killed ones left
            for partial in root.glob(".random-*.partial-*"):
                shutil.rmtree(partial, ignore_errors=True)
        if os.path.lexists(folder):
            _check_same(folder, model, files)
        else:
            _write(model, folder, seed, files, say)
    return folder


# --- what belongs in the folder -------------------------------------------------------------


def _small_files(model: Model, seed: int) -> dict[str, str]:
    """Return the small files by name, which define the whole folder; or raise WeightsError."""
    if seed < 0:
        raise WeightsError(f"{model.id}: seed {seed} is negative; use 0 or more")
    layouts.check_model(model)
    mark = {"weights": "random", "seed": seed, "shapes_of": model.hub, "made_by": MADE_BY, "format": FORMAT}
    shards = _shards(model)
    index = {tensor.name: name for name, tensors in shards.items() for tensor in tensors}
    documents = {
        "config.json": hf_config.config(model, mark, tokenizer.role_ids(model)),
        "model.safetensors.index.json": {"metadata": {"total_size": planned_bytes(model)}, "weight_map": index},
        **tokenizer.tokenizer_files(model),
    }
    texts = {name: json.dumps(data, ensure_ascii=True) + "\n" for name, data in documents.items()}
    if source := hf_config.config_class(model):
        texts[hf_config.CLASS_FILE] = source
    if model.architecture == layouts.PHI3V:
        texts[phi3v.PROCESSOR_FILE] = phi3v.processor_class()
    texts["README.md"] = (
        f"# Random weights\n\nThis folder is synthetic and NOT {model.hub}: {MADE_BY} gave it that model's shapes, "
        f"random weights (seed {seed}) and a tokenizer of single bytes, to measure memory and speed without a "
        f"download. It is stored as {model.architecture}. What it answers means nothing.\n"
    )
    return texts


def _shards(model: Model) -> dict[str, list[Tensor]]:
    """Return the tensors by weight file, filling each up to the limit."""
    groups: list[list[Tensor]] = []
    room = 0
    for tensor in tensors.tensors(model):
        if tensor.bytes > room:
            groups.append([])
            room = max(SHARD_BYTES, tensor.bytes)
        groups[-1].append(tensor)
        room -= tensor.bytes
    return {f"model-{k:05d}-of-{len(groups):05d}.safetensors": group for k, group in enumerate(groups, 1)}


def _header(tensors: list[Tensor]) -> bytes:
    """Return a safetensors header with the data's offsets, padded to 8 bytes."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt", "made_by": MADE_BY, "weights": "random"}}
    at = 0
    for tensor in tensors:
        head[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + tensor.bytes]}
        at += tensor.bytes
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def _check_same(folder: Path, model: Model, files: Mapping[str, str]) -> None:
    """Raise WeightsError unless the folder is exactly what would be written."""
    if read_mark(folder) is None:
        raise WeightsError(f"{folder}: exists and was not made by {MADE_BY}; move it, or name another folder")
    try:
        same = all((folder / name).read_text(encoding="utf-8") == text for name, text in files.items()) and all(
            (folder / name).stat().st_size == len(_header(tensors)) + sum(tensor.bytes for tensor in tensors)
            for name, tensors in _shards(model).items()
        )
    except (OSError, ValueError):
        same = False
    if not same:
        raise WeightsError(
            f"{folder}: differs from what this version writes for {model.id}; remove it to write it again"
        )


# --- writing --------------------------------------------------------------------------------


@contextlib.contextmanager
def _report_os_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WeightsError(
            f"{folder}: cannot be written ({error.strerror or error}); free some space, or name a writable folder"
        ) from error


@contextlib.contextmanager
def _lock_root(root: Path, say: Say) -> Iterator[bool]:
    """Hold the root folder's lock; yield False if the file system has none."""
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process to write weights under {root}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


def _write(model: Model, folder: Path, seed: int, files: Mapping[str, str], say: Say) -> None:
    total = planned_bytes(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    if free < total + SPARE_BYTES:
        raise WeightsError(
            f"{folder}: needs {(total + SPARE_BYTES) / GIB:.2f} GiB and {folder.parent} has {free / GIB:.2f} GiB free; "
            "free some space, or name another folder"
        )
    partial = folder.parent / f".{folder.name}.partial-{os.getpid()}"
    try:
        partial.mkdir()
        _write_shards(model, partial, seed, say)
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
        partial.rename(folder)
    except BaseException:  # Ctrl-C too
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_shards(model: Model, partial: Path, seed: int, say: Say) -> None:
    blocks = values.blocks(model, seed)
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    handles: list[int] = []
    stop = threading.Event()
    try:
        jobs: list[Future[int]] = []
        for name, tensors in _shards(model).items():
            head = _header(tensors)
            at = len(head)
            handle = os.open(partial / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            handles.append(handle)
            os.ftruncate(handle, at + sum(tensor.bytes for tensor in tensors))
            os.pwrite(handle, head, 0)
            for tensor in tensors:
                jobs.append(pool.submit(_fill, handle, at, tensor, blocks[tensor.fill, tensor.dtype], seed, stop))
                at += tensor.bytes
        _wait_for_jobs(jobs, planned_bytes(model), lambda text: say(f"{model.id}: random weights, {text}"))
    finally:
        stop.set()  # all is written, or the write was interrupted
        pool.shutdown(cancel_futures=True)
        for handle in handles:
            os.close(handle)


def _wait_for_jobs(jobs: list[Future[int]], total: int, say: Say) -> None:
    done, pending = 0, set(jobs)
    while pending:
        ready, pending = wait(pending, timeout=SAY_SECONDS)
        done += sum(job.result() for job in ready)
        if pending:
            say(f"{done / 1e9:.1f} of {total / 1e9:.1f} GB written")


def _fill(handle: int, at: int, tensor: Tensor, block: memoryview, seed: int, stop: threading.Event) -> int:
    """Write one tensor by cycling through its block from its own offset."""
    size = layouts.ITEM_BYTES[tensor.dtype]
    digest = hashlib.sha256(f"{seed}:{tensor.name}".encode()).digest()
    begin = int.from_bytes(digest[:8], "little") % (len(block) // size) * size
    remaining = tensor.bytes
    while remaining and not stop.is_set():
        count = os.pwrite(handle, block[begin : begin + min(remaining, CHUNK_BYTES)], at)
        at, remaining, begin = at + count, remaining - count, (begin + count) % len(block)
    return tensor.bytes
