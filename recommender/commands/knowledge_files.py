"""Options and files of the maintenance commands."""

from __future__ import annotations

from pathlib import Path

import click

from recommender.common import atomic_write
from recommender.common.errors import MaintenanceError
from recommender.knowledge.load import data_root
from recommender.knowledge.store import FOLDERS
from recommender.options import PATH

knowledge_option = click.option(
    "--knowledge", "folder", metavar="DIR", type=PATH, help="The knowledge folder. [that of this checkout]"
)
wheels_option = click.option(
    "--wheels",
    metavar="DIR",
    type=PATH,
    help="Folder of LMDeploy wheels; missing ones are downloaded into it. [a user cache]",
)


def knowledge_of(folder: Path | None) -> Path:
    """Return the given knowledge folder, or that of this checkout. Raises MaintenanceError."""
    place = folder if folder is not None else data_root() / "knowledge"
    if not any((place / name).is_dir() for name in FOLDERS.values()):
        raise MaintenanceError(f"{place}: not a knowledge folder; name the one that holds releases/, flags/ and so on")
    return place


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically, and its folders. Raises MaintenanceError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write.write(path, text)
    except OSError as error:
        raise MaintenanceError(f"{path}: cannot be written: {error.strerror or error}") from error
