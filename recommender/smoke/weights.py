"""Writes a checkpoint with a model record's real shapes and random weights (``--weights random``).

Memory and speed do not depend on what the weights are, so a smoke run with them needs no download. The
folder says in config.json and README.md that it is synthetic. Values are cut from a few seeded blocks at
an offset that the tensor's name decides, so that writing runs at the disk's speed and holds no tensor in
memory. Every weight is symmetric around zero: a mean of half a step in 4-bit weights is enough to grow one
direction from layer to layer until 16-bit floats overflow.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recommender.smoke import hubconfig, layout, tokenizer
from recommender.smoke.layout import Tensor, WeightsError, planned_bytes

if TYPE_CHECKING:
    from recommender.records import Model

__all__ = ["Checkpoint", "WeightsError", "ensure", "planned_bytes", "synthetic", "write"]

MADE_BY = "lmdeploy-recommender"
FORMAT = 1
"""Raised when the same model and seed would give other bytes."""
SHARD_BYTES = 3 * 2**30
BLOCK_ITEMS = 4_194_301
"""A prime: no matrix is so wide that its rows would repeat after a few turns of the block."""
CHUNK_BYTES = 8 * 2**20
SPARE_BYTES = 64 * 2**20
"""Room for the tokenizer and the file system's own needs."""
SAY_SECONDS = 2.0
DEVIATION = 0.02
"""Of every weight: normalised inputs of 1,000 to 30,000 values then give outputs of 0.6 to 3.5."""
GIB = 2**30

Say = Callable[[str], None]


def _silent(_: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete synthetic folder. ``seconds`` is 0.0 where it was there already."""

    folder: Path
    bytes: int
    seconds: float
    seed: int


def synthetic(folder: Path) -> dict[str, Any] | None:
    """The synthetic mark of a folder's config.json; None where it has none or is no model folder."""
    try:
        mark = json.loads((folder / "config.json").read_text(encoding="utf-8"))["synthetic"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return mark if isinstance(mark, dict) and mark.get("made_by") == MADE_BY else None


def ensure(model: Model, root: Path, seed: int = 0, say: Say = _silent) -> Checkpoint:
    """The model's random folder under ``root``: the complete one that is there, else written now.

    Waits for another process that writes there. A folder of that name that is something else is left
    alone. Raises WeightsError.
    """
    files = _plan(model, seed)
    folder = root / f"random-{model.id}-seed{seed}"
    with _errors_of(folder), _locked(root, say) as alone:
        if os.path.lexists(folder):
            _check_same(folder, model, files)
            return Checkpoint(folder, planned_bytes(model), 0.0, seed)
        if alone:  # what a killed process left behind: nobody else writes here now
            for rest in root.glob(f".{folder.name}.partial-*"):
                shutil.rmtree(rest, ignore_errors=True)
        return _write(model, folder, seed, files, say)


def write(model: Model, folder: Path, seed: int = 0, say: Say = _silent) -> Checkpoint:
    """Writes the checkpoint into a folder that must not exist yet. Raises WeightsError.

    Until it is complete it has another name; whatever ends the writing early leaves nothing behind.
    """
    files = _plan(model, seed)
    with _errors_of(folder):
        if os.path.lexists(folder):
            raise WeightsError(f"{folder}: is there already; remove it, or name another folder")
        return _write(model, folder, seed, files, say)


# --- what belongs in the folder -------------------------------------------------------------


def _plan(model: Model, seed: int) -> dict[str, str]:
    """The text of every small file by name; they decide the whole folder. Raises WeightsError."""
    if seed < 0:
        raise WeightsError(f"{model.id}: seed {seed} is negative; take 0 or more")
    layout.check(model)
    mark = {"weights": "random", "seed": seed, "shapes_of": model.hub, "made_by": MADE_BY, "format": FORMAT}
    shards = _shards(model)
    index = {tensor.name: name for name, tensors in shards.items() for tensor in tensors}
    found = {
        "config.json": hubconfig.config(model, mark, tokenizer.ids(model)),
        "model.safetensors.index.json": {"metadata": {"total_size": planned_bytes(model)}, "weight_map": index},
        **tokenizer.files(model),
    }
    texts = {name: json.dumps(data, ensure_ascii=True) + "\n" for name, data in found.items()}
    if source := hubconfig.config_class(model):
        texts[hubconfig.CLASS_FILE] = source
    texts["README.md"] = (
        f"# Random weights\n\nThis folder is synthetic and NOT {model.hub}: {MADE_BY} gave it that model's shapes, "
        f"random weights (seed {seed}) and a tokenizer of single bytes, to measure memory and speed without a "
        "download. What it answers means nothing.\n"
    )
    return texts


def _shards(model: Model) -> dict[str, list[Tensor]]:
    """The tensors by weight file: as many in each as fit under the limit, none split."""
    groups: list[list[Tensor]] = []
    room = 0
    for tensor in layout.tensors(model):
        if tensor.bytes > room:
            groups.append([])
            room = max(SHARD_BYTES, tensor.bytes)
        groups[-1].append(tensor)
        room -= tensor.bytes
    return {f"model-{k:05d}-of-{len(groups):05d}.safetensors": group for k, group in enumerate(groups, 1)}


def _header(tensors: list[Tensor]) -> bytes:
    """The head of a safetensors file with the data's offsets, padded to 8 bytes."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt", "made_by": MADE_BY, "weights": "random"}}
    at = 0
    for tensor in tensors:
        head[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + tensor.bytes]}
        at += tensor.bytes
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def _check_same(folder: Path, model: Model, files: Mapping[str, str]) -> None:
    """Raises WeightsError unless the folder is just what would be written."""
    if synthetic(folder) is None:
        raise WeightsError(f"{folder}: is there and not made by {MADE_BY}; move it, or name another place")
    try:
        same = all((folder / name).read_text(encoding="utf-8") == text for name, text in files.items()) and all(
            (folder / name).stat().st_size == len(_header(tensors)) + sum(each.bytes for each in tensors)
            for name, tensors in _shards(model).items()
        )
    except (OSError, ValueError):
        same = False
    if not same:
        raise WeightsError(f"{folder}: is not what this version writes for {model.id}; remove it to have it made anew")


# --- writing --------------------------------------------------------------------------------


@contextlib.contextmanager
def _errors_of(folder: Path) -> Iterator[None]:
    """Turns what the file system says into one line."""
    try:
        yield
    except OSError as error:
        raise WeightsError(
            f"{folder}: cannot be written ({error.strerror or error}); free space, or name a place you may write to"
        ) from error


@contextlib.contextmanager
def _locked(root: Path, say: Say) -> Iterator[bool]:
    """Holds the root folder's lock, which leaves no file behind; False where the file system has none."""
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that writes weights under {root}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


def _write(model: Model, folder: Path, seed: int, files: Mapping[str, str], say: Say) -> Checkpoint:
    began = time.monotonic()
    total = planned_bytes(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    if free < total + SPARE_BYTES:
        raise WeightsError(
            f"{folder}: needs {(total + SPARE_BYTES) / GIB:.2f} GiB and {folder.parent} has {free / GIB:.2f} GiB free; "
            "free some, or name another place"
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
    return Checkpoint(folder, total, time.monotonic() - began, seed)


def _write_shards(model: Model, partial: Path, seed: int, say: Say) -> None:
    blocks = _blocks(model, seed)
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
        _follow(jobs, planned_bytes(model), lambda text: say(f"{model.id}: random weights, {text}"))
    finally:
        stop.set()  # nothing is left to write, or nobody wants it any more
        pool.shutdown(cancel_futures=True)
        for handle in handles:
            os.close(handle)


def _follow(jobs: list[Future[int]], total: int, say: Say) -> None:
    """Waits for the jobs, says how far they are every few seconds, and raises the first one's error."""
    done, pending = 0, set(jobs)
    while pending:
        ready, pending = wait(pending, timeout=SAY_SECONDS)
        done += sum(job.result() for job in ready)
        if pending:
            say(f"{done / 1e9:.1f} of {total / 1e9:.1f} GB written")


def _fill(handle: int, at: int, tensor: Tensor, block: memoryview, seed: int, stop: threading.Event) -> int:
    """Writes one tensor: from its own place in the block on, round and round."""
    size = layout.ITEM_BYTES[tensor.dtype]
    digest = hashlib.sha256(f"{seed}:{tensor.name}".encode()).digest()
    begin = int.from_bytes(digest[:8], "little") % (len(block) // size) * size
    left = tensor.bytes
    while left and not stop.is_set():
        count = os.pwrite(handle, block[begin : begin + min(left, CHUNK_BYTES)], at)
        at, left, begin = at + count, left - count, (begin + count) % len(block)
    return tensor.bytes


# --- values ---------------------------------------------------------------------------------


def _blocks(model: Model, seed: int) -> dict[tuple[str, str], memoryview]:
    """What tensors are cut from, by kind of value and data type.

    Made from the generator's raw bits with integer arithmetic: its documented stream is the same
    everywhere, which NumPy does not promise of its distributions.
    """
    kind = {"float16": "F16", "bfloat16": "BF16"}[model.text.dtype]
    found = {
        ("normal", kind): _floats(_bell(seed), kind),
        ("ones", kind): _floats(np.ones(2**18, np.float32), kind),
        ("tenths", kind): _floats(np.full(2**18, 0.1, np.float32), kind),
    }
    if model.quantization:
        found["nibbles", "I32"] = _nibbles(_raw(seed, 1))
        found["zeros", "I32"] = np.full(2**18, 0x88888888, np.uint32)
        found["scales", "F16"] = _floats(_scales(seed), "F16")
    return {key: values.view(np.uint8).data for key, values in found.items()}


def _raw(seed: int, stream: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Random 32-bit words of a block."""
    bits = np.random.PCG64(np.random.SeedSequence((seed, stream))).random_raw((BLOCK_ITEMS + 1) // 2)
    return np.asarray(bits, dtype="<u8").view("<u4")[:BLOCK_ITEMS]


def _bell(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Values around zero with the deviation of weights: the sum of four random bytes, which is nearly normal."""
    words = _raw(seed, 0)
    pairs = (words & 0x00FF00FF) + ((words >> 8) & 0x00FF00FF)
    sums = (pairs & 0xFFFF) + (pairs >> 16)
    deviation = (4 * (256**2 - 1) / 12) ** 0.5
    return (sums.astype(np.float32) - np.float32(510)) * np.float32(DEVIATION / deviation)


def _nibbles(words: np.ndarray[Any, np.dtype[np.uint32]]) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Eight 4-bit values of 1 to 15 in each word, symmetric around the zero point 8: each 0 becomes an 8."""
    some = words | (words >> 1)
    some |= some >> 2
    eights = (~some & np.uint32(0x11111111)) << np.uint32(3)
    found: np.ndarray[Any, np.dtype[np.uint32]] = np.bitwise_or(words, eights)
    return found


def _scales(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A step for each group of 4-bit values that gives weights their deviation, a quarter more or less."""
    step = DEVIATION / (2 * sum(k * k for k in range(1, 8)) / 16) ** 0.5
    spread = (_raw(seed, 2) & 0xFF).astype(np.float32) / np.float32(510)
    return (np.float32(0.75) + spread) * np.float32(step)


def _floats(values: np.ndarray[Any, np.dtype[np.float32]], kind: str) -> np.ndarray[Any, np.dtype[Any]]:
    """As 16-bit floats; bfloat16 is the upper half of a 32-bit one, cut towards zero."""
    if kind == "F16":
        return values.astype("<f2")
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
