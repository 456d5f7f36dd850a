"""Name the failure behind a server's exit status and log."""

import itertools
import re
import signal
import time
from pathlib import Path

from recommender.common.text import masked
from recommender.smoke.failures import Failure
from recommender.smoke.process.readback import FALLBACK, strip_colours

TAIL_BYTES = 256 * 1024
# The scheduler writes this when a request waits for KV blocks: no memory is missing.
WAITS = re.compile(r"scheduler\.cc:\d+\]")
NUMBER = re.compile(r"[0-9a-f]*\d[0-9a-f.]*")
# Access lines of requests that succeeded or were refused with a reason are noise.
ANSWERED = re.compile(r'"(GET|POST) \S+ HTTP/1\.1" (200 OK|400 Bad Request)')
MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|cudaErrorMemoryAllocation|bad_alloc|MiB free on GPU .* MiB may be needed"
    r"|No enough gpu memory for state",
    re.I,
)
SERVES = re.compile(r"Uvicorn running on (\S+)")
# A traceback names a place; the line after it is source code, whose words are not the log's.
FRAME = re.compile(r'File "[^"]+", line \d+, in ')
RAISED = re.compile(r"^[\s|]*(?:\w+: +)?([\w.]*(?:Error|Exception))\b")
# Transformers prints this notice about models that load without problems.
NOTICE = "It has no effect here and is ignored"
# A process raises this after the PyTorch engine's process ended; the log has the cause above it.
FOLLOWS = "RPCServerDeadError"
# Log patterns of each failure at start-up; the first match names it.
AT_START = (
    ("port-taken", re.compile(r"address already in use|something listens (on port|at)", re.I)),
    ("other-release", re.compile(r"LMDeploy \S+ is installed; this script is for")),
    ("cache-too-small", re.compile(r"No enough gpu memory for (runtime|kv cache)")),
    (
        "machine",
        re.compile(
            r"LMDeploy is not installed|No module named '?(lmdeploy|triton)|no nvidia-smi"
            r"|lmdeploy: (command )?not found|Failed to find C compiler|triton>=\S+ is required"
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
    """Return a log's last non-empty lines, without colours, cut at 300 characters."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = strip_colours(file.read().decode("utf-8", "replace"))
    except OSError:
        return ()
    masked_lines = (masked(line.rstrip()[:300]) for line in text.split("\n"))
    kept = [line for line in masked_lines if line.strip() and not ANSWERED.search(line)]
    # Lines that differ only in numbers are repeats: keep the last.
    runs = [list(group)[-1] for _, group in itertools.groupby(kept, lambda line: NUMBER.sub("#", line))]
    return tuple(runs[-lines:])


class LogWatch:
    """Watch a growing log for new lines.

    A hanging server may print the same line repeatedly (no free KV block) or one for each poll. Lines that differ
    only in numbers therefore count once, except those of a progress bar.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read, self._seen = path, 0, set[str]()
        self._heard = time.monotonic()

    def silent_s(self, now: float) -> float:
        """Return the seconds for which the log has had no new lines."""
        self._heard = now if self.has_news() else self._heard
        return now - self._heard

    def has_news(self) -> bool:
        """Return whether the log has new lines since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except OSError:
            return False
        self._read += len(text)
        lines = strip_colours(text.decode("utf-8", "replace")).split("\n")
        normalised = {line if "%" in line else NUMBER.sub("#", line) for line in lines if line.strip()}
        fresh = normalised - self._seen
        self._seen |= fresh
        return bool(fresh)


def out_of_memory(lines: tuple[str, ...]) -> str:
    """Return the line that reports memory running out, or an empty text."""
    return next((line.strip() for line in reversed(lines) if MEMORY.search(line) and not WAITS.search(line)), "")


def describe_exit(status: int) -> str:
    """Return an exit status in words."""
    if status < 0:
        try:
            return f"by {signal.Signals(-status).name}"
        except ValueError:
            return f"by signal {-status}"
    return f"with status {status}"


def up_to_cause(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the log without source code and, if the engine's process ended, up to the error that ended it."""
    told = tuple(line for before, line in itertools.pairwise(("", *lines)) if not FRAME.search(before))
    raised = {number: found[1] for number, line in enumerate(told) if (found := RAISED.match(line))}
    causes = [number for number, error in raised.items() if not error.endswith(FOLLOWS)]
    follows = any(error.endswith(FOLLOWS) for error in raised.values())
    return told[: causes[-1] + 1] if causes and follows else told


def startup_failure(lines: tuple[str, ...], status: int) -> Failure:
    """Return the failure of a server that ended before it was ready."""
    lines = up_to_cause(lines)
    memory = out_of_memory(lines)
    if memory:
        return Failure("out-of-memory", f"the server ended {describe_exit(status)}: {memory}", lines)
    for name, pattern in AT_START:
        line = next((line for line in reversed(lines) if pattern.search(line) and NOTICE not in line), "")
        if line:
            return Failure(name, f"the server ended {describe_exit(status)}: {line.strip()}", lines)
    if any(FALLBACK.search(line) for line in lines):
        return Failure(
            "pytorch-fallback", f"LMDeploy fell back to the PyTorch engine, which ended {describe_exit(status)}", lines
        )
    last = f": {lines[-1].strip()}" if lines else ", and its log is empty"
    return Failure("start-failed", f"the server ended {describe_exit(status)} before it was ready{last}", lines)


def startup_hang(lines: tuple[str, ...], waited_s: float, silent_s: float) -> Failure:
    """Return the failure of a server that is not ready and logs nothing."""
    begun = any("Warm-up lengths" in line or (WAITS.search(line) and MEMORY.search(line)) for line in lines)
    warming = begun and not any("Warm-up finished" in line for line in lines)
    why = "; the warm-up began and never ended, as with a KV cache too small for it" if warming else ""
    serves = next((match[1] for match in map(SERVES.search, reversed(lines)) if match), "")
    if serves:
        why = f"; its log says it serves on {serves}, but the expected URL lists no model"
    return Failure(
        "hang-at-start",
        f"not ready after {waited_s:.0f} s, and no new log line for {silent_s:.0f} s{why}",
        lines,
    )


def later_failure(lines: tuple[str, ...], status: int, message: str) -> Failure:
    """Return the failure of a server that ended after it was ready."""
    memory = out_of_memory(lines)
    if memory:
        return Failure("out-of-memory-image", f"the server ended {describe_exit(status)} ({message}): {memory}", lines)
    return Failure("server-died", f"the server ended {describe_exit(status)}: {message}", lines)
