"""Names what went wrong from how a server ended and what its log says."""

from __future__ import annotations

import itertools
import re
import signal
from pathlib import Path

from recommender.smoke.failures import Failure
from recommender.smoke.readback import FALLBACK, plain

TAIL_BYTES = 256 * 1024
# The scheduler writes this where a request waits for KV blocks: nothing is out of memory.
WAITS = re.compile(r"scheduler\.cc:\d+\]")
NUMBER = re.compile(r"[0-9a-f]*\d[0-9a-f.]*")
# What the server writes of every request that went well, or that it refused with a reason, tells nothing.
ANSWERED = re.compile(r'"(GET|POST) \S+ HTTP/1\.1" (200 OK|400 Bad Request)')
MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|cudaErrorMemoryAllocation|bad_alloc|MiB free on GPU .* MiB may be needed", re.I
)
SERVES = re.compile(r"Uvicorn running on (\S+)")
# What stands in a log where each failure is the cause; the first that is found names it.
AT_START = (
    ("port-taken", re.compile(r"address already in use|something listens (on port|at)", re.I)),
    ("other-release", re.compile(r"LMDeploy \S+ is installed; this script is for")),
    (
        "machine",
        re.compile(
            r"LMDeploy is not installed|No module named '?lmdeploy|no nvidia-smi|lmdeploy: (command )?not found"
        ),
    ),
    (
        "model",
        re.compile(
            r"no config\.json in that folder|is not a folder with config\.json|does not appear to have a file named"
            r"|is not a local folder and is not a valid model identifier|Repository Not Found|LocalEntryNotFoundError"
            r"|OfflineModeIsEnabled|Unrecognized model in|'dict' object has no attribute|trust_remote_code"
            r"|not supported by turbomind|unsupported (model|architecture)|Error no file named|SafetensorError"
            r"|is not supported",
            re.I,
        ),
    ),
)


def tail(path: Path, lines: int) -> tuple[str, ...]:
    """The last lines of a log that hold something, without colours; a long line is cut."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = plain(file.read().decode("utf-8", "replace"))
    except OSError:
        return ()
    shown = ("".join(c if c.isprintable() else "?" for c in line.rstrip()[:300]) for line in text.split("\n"))
    kept = [line for line in shown if line.strip() and not ANSWERED.search(line)]
    # A line that is printed over and over, with other numbers, is worth one: its last.
    runs = [list(alike)[-1] for _, alike in itertools.groupby(kept, lambda line: NUMBER.sub("#", line))]
    return tuple(runs[-lines:])


class News:
    """Whether a growing log says anything new.

    A server that hangs may go on printing: the same line again and again (no KV block is free), or
    one for every poll. Lines that differ in numbers only count once, but for those of a progress bar.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read, self._seen = path, 0, set[str]()

    def any(self) -> bool:
        """True where something new was said since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except OSError:
            return False
        self._read += len(text)
        lines = plain(text.decode("utf-8", "replace")).split("\n")
        said = {line if "%" in line else NUMBER.sub("#", line) for line in lines if line.strip()}
        fresh = said - self._seen
        self._seen |= fresh
        return bool(fresh)


def out_of_memory(lines: tuple[str, ...]) -> str:
    """The line that speaks of memory that ran out; empty where none does."""
    return next((line.strip() for line in reversed(lines) if MEMORY.search(line) and not WAITS.search(line)), "")


def how(status: int) -> str:
    """An exit status in words."""
    if status < 0:
        try:
            return f"by {signal.Signals(-status).name}"
        except ValueError:
            return f"by signal {-status}"
    return f"with status {status}"


def ended_at_start(lines: tuple[str, ...], status: int) -> Failure:
    """The failure of a server that ended before it was ready."""
    memory = out_of_memory(lines)
    if memory:
        return Failure("out-of-memory", f"the server ended {how(status)}: {memory}", lines)
    for name, pattern in AT_START:
        line = next((each for each in reversed(lines) if pattern.search(each)), "")
        if line:
            return Failure(name, f"the server ended {how(status)}: {line.strip()}", lines)
    if any(FALLBACK.search(each) for each in lines):
        return Failure(
            "pytorch-fallback", f"LMDeploy fell back to the PyTorch engine, which ended {how(status)}", lines
        )
    last = f": {lines[-1].strip()}" if lines else ", and its log is empty"
    return Failure("start-failed", f"the server ended {how(status)} before it was ready{last}", lines)


def hung_at_start(lines: tuple[str, ...], waited_s: float, silent_s: float) -> Failure:
    """The failure of a server that neither gets ready nor says anything."""
    begun = any("Warm-up lengths" in line or (WAITS.search(line) and MEMORY.search(line)) for line in lines)
    warming = begun and not any("Warm-up finished" in line for line in lines)
    why = "; the warm-up began and never ended, as with a KV cache too small for it" if warming else ""
    serves = next((found[1] for found in map(SERVES.search, reversed(lines)) if found), "")
    if serves:
        why = f"; it says that it serves on {serves}, but where it was asked it lists no model"
    return Failure(
        "hang-at-start",
        f"not ready after {waited_s:.0f} s, and its log says nothing new for {silent_s:.0f} s{why}",
        lines,
    )


def ended_later(lines: tuple[str, ...], status: int, said: str) -> Failure:
    """The failure of a server that was ready and is gone."""
    memory = out_of_memory(lines)
    if memory:
        return Failure("out-of-memory-image", f"the server ended {how(status)} ({said}): {memory}", lines)
    return Failure("server-died", f"the server ended {how(status)}: {said}", lines)
