"""Write a fleet's files into a folder."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from recommender.common import atomic_write, folder_swap
from recommender.common.errors import RequestError
from recommender.common.text import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recommender.fleet.layout import Layout

SECRETS = ("api-keys",)
"""Files that only their owner can read."""

DIGESTS = ".written.sha256"
"""Beside the files: their digests as written, as sha256sum checks them."""


@dataclass(frozen=True, slots=True)
class Written:
    """The files that were written, and those of an earlier rendering that are obsolete.

    ``removed`` obsolete files are gone; ``kept_paths`` were edited by hand and stay. ``whole`` is false if an
    interruption could have left old files beside new ones.
    """

    paths: tuple[Path, ...]
    removed: tuple[Path, ...] = ()
    kept_paths: tuple[Path, ...] = ()
    whole: bool = True


def render_files(layout: Layout, form: str) -> dict[str, str]:
    """Return the files of a form by their path below the folder.

    Raises RequestError for what they cannot hold.
    """
    from recommender.fleet import compose, kubernetes, systemd

    forms = {"compose": compose.files, "systemd": systemd.files, "k8s": kubernetes.files}
    return forms[form](layout)


def find_work(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Return the files that writing would replace although somebody edited or made them.

    Raises RequestError for a link, which would be written through, and OSError.
    """
    _refuse_links(files, folder)
    written = set(_read_digests(folder))
    there = {name: (folder / name).read_bytes() for name in files if name not in SECRETS and (folder / name).exists()}
    return [
        folder / name
        for name, content in there.items()
        if content != files[name].encode() and _digest(name, content) not in written
    ]


def write(files: Mapping[str, str], folder: Path) -> Written:
    """Write a form's files into a folder, all of them or none, and remove those of an earlier rendering.

    What somebody added or edited stays, except a file of this form: see ``find_work``. Existing secrets are the user's
    own and stay. Where the system cannot replace a whole folder, each file is written whole. Raises RequestError for a
    link, before anything is written, and OSError if a file cannot be written.
    """
    _refuse_links(files, folder)
    where = folder.resolve()
    changes, whole = _find_changes(files, where), True
    paths = tuple(folder / name for name in files if name not in SECRETS or name in changes.texts)
    if changes.texts or changes.removed:
        with _name_folder(where, folder):
            try:
                with folder_swap.staged(where) as copy, _name_folder(copy, where):
                    changes = _find_changes(files, copy)  # another run may have written meanwhile
                    _apply(changes, copy, folder_swap.NAMES)
            except folder_swap.CannotSwap:
                whole = False
                _apply(changes, where, 1)
    else:
        folder_swap.remove_copies(where)
    removed, kept = (tuple(folder / name for name in names) for names in (changes.removed, changes.kept_names))
    return Written(paths, removed, kept, whole)


class _Changes(NamedTuple):
    """Texts to write and files to remove, by name; files of an earlier rendering that were edited, and stay."""

    texts: dict[str, str]
    removed: list[str]
    kept_names: list[str]


def _find_changes(files: Mapping[str, str], folder: Path) -> _Changes:
    earlier = {name: line for line in _read_digests(folder) if (name := line.partition("  ")[2]) not in files}
    there = [name for name in earlier if _is_plain_file(folder, name)]
    kept = [name for name in there if _digest(name, (folder / name).read_bytes()) != earlier[name]]
    lines = [_digest(name, text.encode()) for name, text in files.items() if name not in SECRETS]
    lines += [earlier[name] for name in kept]  # they are named again next time
    texts = {**files, DIGESTS: "\n".join(lines) + "\n"}
    changed = {name: text for name, text in texts.items() if not _is_there(folder / name, name, text)}
    return _Changes(changed, [name for name in there if name not in kept], kept)


@contextlib.contextmanager
def _name_folder(own: Path, user_path: Path) -> Iterator[None]:
    """Let an error name the path that the user knows."""
    try:
        yield
    except OSError as error:
        if error.filename:
            error.filename = str(error.filename).replace(str(own), str(user_path))
        raise


def _apply(changes: _Changes, folder: Path, names: int) -> None:
    """Write and remove files; a file that is replaced has at most this many names."""
    for name, text in changes.texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in SECRETS:
            path.touch(mode=0o600)
        atomic_write.write(path, text, names=names)
    for name in changes.removed:
        (folder / name).unlink()
        with contextlib.suppress(OSError):  # it holds other files
            for parent in PurePosixPath(name).parents[:-1]:
                (folder / parent).rmdir()


def _is_there(path: Path, name: str, text: str) -> bool:
    return path.exists() if name in SECRETS else path.is_file() and path.read_bytes() == text.encode()


def _is_plain_file(folder: Path, name: str) -> bool:
    """Return whether a name that a file gives is that of a file below the folder, on a path without links."""
    path = PurePosixPath(name)
    if not path.name or path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    return (folder / path).is_file() and not any((folder / part).is_symlink() for part in (path, *path.parents[:-1]))


def _read_digests(folder: Path) -> list[str]:
    digests = folder / DIGESTS
    return digests.read_text("utf-8", "replace").splitlines() if digests.is_file() else []


def _refuse_links(files: Mapping[str, str], folder: Path) -> None:
    if folder.is_symlink():
        raise RequestError(f"-o: {masked(str(folder))} is a symbolic link; name the folder that it leads to")
    for name in (*files, DIGESTS):
        if name in SECRETS and (folder / name).exists():  # the user's own
            continue
        for part in (Path(name), *Path(name).parents[:-1]):
            if (link := folder / part).is_symlink():
                raise RequestError(f"-o: {masked(str(link))} is a symbolic link; remove it, or name another folder")


def _digest(name: str, content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}  {name}"
