"""Folders of files: a fleet's artefacts on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from recommender import files
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.fleet.layout import Layout

SECRETS = ("api-keys",)
"""Files that only their owner may read."""


def made(layout: Layout, form: str) -> dict[str, str]:
    """The files of a form by their path below the folder. Raises RequestError for what they cannot hold."""
    from recommender.fleet import compose, kubernetes, systemd

    forms: Mapping[str, Callable[[Layout], dict[str, str]]] = {
        "compose": compose.files,
        "systemd": systemd.files,
        "k8s": kubernetes.files,
    }
    return forms[form](layout)


def write(layout: Layout, form: str, folder: str) -> list[Path]:
    """Writes a form's files into a folder, each whole or not at all, and returns their paths.

    Secrets that are there already are somebody's own: they stay. Raises RequestError where no folder is named,
    OSError where one cannot be written.
    """
    if not folder:
        raise RequestError(f"--format {form} writes several files: name a folder for them, such as -o fleet")
    texts, paths = made(layout, form), []
    for name, text in texts.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in SECRETS:
            if path.exists():
                continue
            path.touch(mode=0o600)
        files.write(path, text)
        paths.append(path)
    return paths
