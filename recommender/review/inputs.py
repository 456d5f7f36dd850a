"""Find the files to review and their project settings."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recommender.common.errors import SettingsError
from recommender.common.user_file import Unreadable, read_bytes
from recommender.review import settings
from recommender.review.readers.detect_kind import is_named_kind
from recommender.review.script.source import STDIN, Source, read_argument

_ENDINGS = """
    .sh .bash .zsh .slurm .sbatch .py .ipynb .yml .yaml .json .jsonc .service .container .conf .ini .mk .tf .tfvars .hcl
    .nomad .bat .cmd .ps1 .js .mjs .cjs .jsx .ts .mts .tsx .go .rs .java .kt .kts .groovy
"""
ENDINGS = tuple(_ENDINGS.split())
FOLDERS = frozenset({".github", ".gitlab", ".azure", ".circleci", ".ci", ".devcontainer", ".buildkite", ".vscode"})
"""Hidden folders with workflows and tasks."""
PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
NAME = b"lmdeploy"


class Subject(NamedTuple):
    """A file to review, and its project settings."""

    source: Source
    settings: settings.Settings
    explicit: bool = True
    """The user named the file, rather than a folder that holds it."""
    folder: str = ""


def subjects(paths: Iterable[str], complain: Callable[[str], None]) -> Iterator[Subject]:
    """Yield the files, also those in folders; report unreadable ones and go on."""
    seen, broken = set[str](), set[str]()
    for path in paths:
        for name, asked in _files(path, complain):
            if name in seen:
                continue
            seen.add(name)
            try:
                source = read_argument(name)
                if asked or NAME.decode() in source.whole:
                    yield Subject(source, settings.of(Path.cwd() if name == STDIN else Path(name)), asked, path)
            except SettingsError as error:
                if str(error) not in broken:  # once, however many files it is about
                    complain(str(error))
                broken.add(str(error))
            except Unreadable as error:
                complain(f"{name}: {error}")
            except OSError as error:
                complain(f"{name}: cannot be read: {error.strerror or error}")


def _files(path: str, complain: Callable[[str], None]) -> Iterator[tuple[str, bool]]:
    """Yield file names, each with whether the user named it."""
    if path == STDIN or not os.path.isdir(path):  # noqa: PTH112 - Path would turn ./a into a
        yield path, True
        return

    def failed(error: OSError) -> None:
        complain(f"{error.filename}: cannot be read: {error.strerror or error}")

    for folder, folders, files in os.walk(path, onerror=failed):
        folders[:] = sorted(
            folder for folder in folders if folder in FOLDERS or not (folder.startswith(".") or folder in PASSED_OVER)
        )
        for name in sorted(files):
            file = os.path.join(folder, name)  # noqa: PTH118
            if (name.endswith(ENDINGS) or is_named_kind(name)) and _mentions(file):
                yield file, False


def _mentions(file: str) -> bool:
    """Return whether a regular file of sensible size mentions LMDeploy."""
    try:
        return NAME in read_bytes(file)
    except (OSError, Unreadable):
        return False


def answers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that describe the request and are set."""
    from recommender.review.context import ANSWERS

    return {name: value for name, value in options.items() if name in ANSWERS and value}
