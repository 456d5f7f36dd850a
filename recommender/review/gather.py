"""Which files a review looks at, and what each is reviewed with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recommender.review import settings
from recommender.review.source import MOST_BYTES, Source, Unreadable, decoded, read

ENDINGS = (".sh", ".bash", ".py", ".yml", ".yaml", ".service")
PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
NAME = b"lmdeploy"
STDIN = "-"


@dataclass(frozen=True)
class Subject:
    """A file to review, and what its project says."""

    source: Source
    settings: settings.Settings


def subjects(paths: Iterable[str], complain: Callable[[str], None]) -> Iterator[Subject]:
    """The files, those of folders too. What cannot be read is told, and the others follow."""
    seen = set()
    for path in paths:
        for name, asked in _named(path, complain):
            if name in seen:
                continue
            seen.add(name)
            try:
                source = _stdin() if name == STDIN else read(name)
            except Unreadable as error:
                complain(f"{name}: {error}")
            except OSError as error:
                complain(f"{name}: cannot be read: {error.strerror or error}")
            except ValueError:  # a NUL in the name
                complain(f"{name}: no such name can be")
            else:
                if asked or NAME.decode() in source.whole:
                    yield Subject(source, settings.of(Path.cwd() if name == STDIN else Path(name)))


def _stdin() -> Source:
    return decoded(STDIN, sys.stdin.buffer.read(MOST_BYTES + 1))


def _named(path: str, complain: Callable[[str], None]) -> Iterator[tuple[str, bool]]:
    """A file by its name, or a folder's files that mention LMDeploy; whether it was named itself."""
    if path == STDIN or not os.path.isdir(path):  # noqa: PTH112 - Path would turn ./a into a
        yield path, True
        return

    def failed(error: OSError) -> None:
        complain(f"{error.filename}: cannot be read: {error.strerror or error}")

    for folder, folders, files in os.walk(path, onerror=failed):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in PASSED_OVER)
        for name in sorted(files):
            file = os.path.join(folder, name)  # noqa: PTH118
            if name.endswith(ENDINGS) and _mentions(file):
                yield file, False


def _mentions(file: str) -> bool:
    """Whether a regular file of a sensible size mentions LMDeploy."""
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > MOST_BYTES:  # noqa: PTH113, PTH202
            return False
        return NAME in Path(file).read_bytes()
    except OSError:
        return False


def answers(options: Mapping[str, Any]) -> dict[str, Any]:
    """The question's options that were given."""
    from recommender.review.context import ANSWERS

    return {name: value for name, value in options.items() if name in ANSWERS and value}
