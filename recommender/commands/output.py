"""Write what ``-o`` names: a file or a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recommender.common.errors import RequestError
from recommender.common.exit_codes import MACHINE, fail
from recommender.common.text import masked

if TYPE_CHECKING:
    from pathlib import Path

    from recommender.fleet.layout import Layout


def write_file(name: str, text: str, *, executable: bool, force: bool) -> None:
    """Write a file atomically; exit with one line where it cannot be written.

    Without ``force`` only a file is replaced whose seal shows that nobody edited it.
    """
    from pathlib import Path

    from recommender.common import atomic_write

    if not force:
        require_no_work("-o", Path(name), text)
    try:
        atomic_write.write(Path(name), text, executable=executable)
    except OSError as error:
        fail(f"-o: cannot write {masked(name)}: {error.strerror or error}; name a file in a writable folder", MACHINE)


def require_no_work(option: str, path: Path, text: str) -> None:
    """Exit with one line if replacing a file by a text may lose somebody's work."""
    from recommender.common.user_file import Unreadable, read_text
    from recommender.render import seal

    try:
        if not path.is_file() or not path.stat().st_size or (there := read_text(path)) == text:
            return
        kept = seal.read(there)
    except (OSError, Unreadable, seal.UnknownArtefact):
        kept = None
    shown = masked(str(path))
    if kept is None or kept.sealed is None:
        why = "it exists and has no seal of recommend, so it may be your own work; name another file, or add --force"
        fail(f"{option} {shown}: {why}", MACHINE)
    if kept.sealed != kept.seal:
        why = f"edited by hand; recommend check {shown} shows the edits, --force overwrites them"
        fail(f"{option} {shown}: {why}", MACHINE)


def write_folder(layout: Layout, form: str, name: str, *, force: bool) -> None:
    """Write a fleet's files into a folder and print their paths; exit with one line where it cannot be written.

    Without ``force`` no file is replaced that somebody edited or made. Files that went, stayed or lost edits are named
    on stderr. Raises RequestError if no folder is named.
    """
    from pathlib import Path

    from recommender.fleet import write

    if name in ("", "-"):
        raise RequestError(f"--format {form} writes several files; name a folder for them, such as -o fleet")
    texts, folder = write.render_files(layout, form), Path(name)
    try:
        work = write.find_work(texts, folder)
        if work and not force:
            more = f" and {len(work) - 1} more" if len(work) > 1 else ""
            told = "edited by hand, or not written by recommend; name another folder, or add --force to overwrite"
            fail(f"-o {masked(str(work[0]))}{more}: {told}", MACHINE)
        written = write.write(texts, folder)
    except OSError as error:
        shown = masked(str(error.filename or name))
        why = "a file" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror or error
        fail(f"-o: cannot write {shown}: {why}; name a writable folder", MACHINE)
    for path in written.paths:
        click.echo(path)
    for paths, what in (
        (work, "overwritten, with the edits in it"),
        (written.removed, "removed: this fleet does not have it"),
        (written.kept_paths, "kept, because it was edited by hand; this fleet does not use it"),
    ):
        for path in paths:
            click.echo(f"{masked(str(path))}: {what}", err=True)
    if not written.whole:
        told = "each file was written whole, but not the folder in one step"
        click.echo(f"{masked(name)}: {told}; it is a mount point, or holds much else", err=True)
    try:
        Path.cwd()
    except OSError:
        click.echo("this shell is in the folder that was replaced; run: cd .", err=True)
