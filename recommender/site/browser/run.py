"""Run a command line in this process, as a terminal would: what it writes, its files and its exit code."""

from __future__ import annotations

import contextlib
import gc
import io
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recommender.cli import main

FOLDER = "files"
"""The folder that a form of several files is written to."""


@dataclass(frozen=True)
class RunOutcome:
    """What a command did. ``files`` are those that it wrote below its folder, by path."""

    code: int
    stdout: str
    stderr: str
    files: Mapping[str, str]


def run(words: Sequence[str], files: Mapping[str, str] | None = None) -> RunOutcome:
    """Run ``recommend`` in a new folder that holds these files."""
    with folder_with(files or {}) as folder, _streams() as (out, err):
        before, sys.argv = sys.argv, ["recommend", *words]
        code, collects = 0, gc.isenabled()
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
        finally:
            sys.argv = before
            if collects:  # main turns it off, and this process goes on
                gc.enable()
        written = {
            path.relative_to(folder / FOLDER).as_posix(): path.read_text("utf-8")
            for path in sorted((folder / FOLDER).rglob("*"))
            if path.is_file()
        }
    return RunOutcome(code, _text(out), _text(err), written)


@contextlib.contextmanager
def folder_with(files: Mapping[str, str]) -> Iterator[Path]:
    """Work in a new folder that holds these files."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for path, text in files.items():
            Path(name, Path(path).name).write_text(text, "utf-8")
        yield Path(name)


@contextlib.contextmanager
def _streams() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    return buffer.getvalue().decode("utf-8") if isinstance(buffer, io.BytesIO) else ""
