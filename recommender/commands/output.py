"""Write what ``-o`` names: a file or a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recommender.common.exits import MACHINE, fail
from recommender.common.text import masked

if TYPE_CHECKING:
    from pathlib import Path

    from recommender.fleet.layout import Layout


def write_file(name: str, text: str, *, executable: bool, force: bool) -> None:
    """Write a file atomically; exit with one line where it cannot be written.

    Without ``force`` a file keeps edits by hand.
    """
    from pathlib import Path

    from recommender.common import atomic_write

    if not force and _is_edited(Path(name)):
        shown = masked(name)
        fail(f"-o {shown}: edited by hand; recommend check {shown} shows the edits, --force overwrites them", MACHINE)
    try:
        atomic_write.write(Path(name), text, executable=executable)
    except OSError as error:
        fail(f"-o: cannot write {masked(name)}: {error.strerror or error}; name a file in a writable folder", MACHINE)


def _is_edited(path: Path) -> bool:
    """Return whether a file is one of ours that was edited by hand."""
    from recommender.common.user_file import Unreadable, read_text
    from recommender.render import seal

    try:
        kept = seal.read(read_text(path))
    except (OSError, Unreadable, seal.UnknownArtefact):
        return False
    return kept.sealed is not None and kept.sealed != kept.seal


def write_folder(layout: Layout, form: str, name: str) -> None:
    """Write a fleet's files into a folder and print their paths; exit with one line where it cannot be written."""
    from recommender.fleet import write

    try:
        paths = write.write(layout, form, name)
    except OSError as error:
        shown = masked(str(error.filename or name))
        why = "a file" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror or error
        fail(f"-o: cannot write {shown}: {why}; name a writable folder", MACHINE)
    for path in paths:
        click.echo(path)
