"""Write a fleet's files into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recommender.common import atomic_write
from recommender.common.errors import RequestError
from recommender.common.text import masked

if TYPE_CHECKING:
    from recommender.fleet.layout import Layout

SECRETS = ("api-keys",)
"""Files that only their owner can read."""


def render_files(layout: Layout, form: str) -> dict[str, str]:
    """Return the files of a form by their path below the folder.

    Raises RequestError for what they cannot hold.
    """
    from recommender.fleet import compose, kubernetes, systemd

    forms = {"compose": compose.files, "systemd": systemd.files, "k8s": kubernetes.files}
    return forms[form](layout)


def write(layout: Layout, form: str, folder: str) -> list[Path]:
    """Write a form's files into a folder, each whole or not at all, and return their paths.

    Existing secrets are the user's own and stay. Raises RequestError if no folder is named or a link is in the way,
    before anything is written; OSError if a file cannot be written.
    """
    if folder in ("", "-"):
        raise RequestError(f"--format {form} writes several files; name a folder for them, such as -o fleet")
    paths, made = [], render_files(layout, form)
    made = {name: text for name, text in made.items() if name not in SECRETS or not (Path(folder) / name).exists()}
    for name in made:
        for part in (Path(name), *Path(name).parents[:-1]):
            if (link := Path(folder) / part).is_symlink():
                raise RequestError(f"-o: {masked(str(link))} is a symbolic link; remove it, or name another folder")
    for name, text in made.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in SECRETS:
            path.touch(mode=0o600)
        atomic_write.write(path, text)
        paths.append(path)
    return paths
