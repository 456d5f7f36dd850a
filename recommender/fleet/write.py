"""Write a fleet's files into a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from recommender.common import atomic_write
from recommender.common.errors import RequestError
from recommender.common.text import masked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recommender.fleet.layout import Layout

SECRETS = ("api-keys",)
"""Files that only their owner can read."""

DIGESTS = ".written.sha256"
"""Beside the files: their digests as written, as sha256sum checks them."""


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
    digests = folder / DIGESTS
    written = set(digests.read_text("utf-8", "replace").splitlines()) if digests.is_file() else set()
    there = {name: (folder / name).read_bytes() for name in files if name not in SECRETS and (folder / name).exists()}
    return [
        folder / name
        for name, content in there.items()
        if content != files[name].encode() and _digest(name, content) not in written
    ]


def _refuse_links(files: Mapping[str, str], folder: Path) -> None:
    for name in (*files, DIGESTS):
        if name in SECRETS and (folder / name).exists():  # the user's own
            continue
        for part in (Path(name), *Path(name).parents[:-1]):
            if (link := folder / part).is_symlink():
                raise RequestError(f"-o: {masked(str(link))} is a symbolic link; remove it, or name another folder")


def _digest(name: str, content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}  {name}"


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write a form's files into a folder, each whole or not at all, and return their paths.

    Existing secrets are the user's own and stay. Raises RequestError for a link in the folder, before anything is
    written, and OSError if a file cannot be written.
    """
    _refuse_links(files, folder)
    paths = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in SECRETS:
            if path.exists():
                continue
            path.touch(mode=0o600)
        atomic_write.write(path, text)
        paths.append(path)
    written = (_digest(name, text.encode()) for name, text in files.items() if name not in SECRETS)
    atomic_write.write(folder / DIGESTS, "\n".join(written) + "\n")
    return paths
