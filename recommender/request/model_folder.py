"""Tell whether a model name is a folder with a checkpoint; ``checkpoint.py`` reads it."""

from __future__ import annotations

import os
from pathlib import Path

from recommender.common.text import shorten


def shorten_path(text: str) -> str:
    """Return a path made safe for one line."""
    return shorten(text, 120)


def find_folder(name: str) -> str:
    """Return the absolute path of a model name that is a folder with a config.json; empty if it is none.

    Absolute, because another program would take ``org/thing`` for a name on the hub.
    """
    try:
        path = Path(name).expanduser()
        if not (path / "config.json").is_file():
            return ""
        plain = Path(os.path.normpath(path.absolute()))
        # A link before ".." leads elsewhere than the plain path.
        return str(plain if plain.exists() and plain.samefile(path) else path.resolve())
    except (OSError, ValueError, RuntimeError):  # the last for a user without a home
        return ""


def looks_like_path(name: str) -> bool:
    """Return whether a model name can only be a path."""
    return name in (".", "..") or name.startswith(("/", "./", "../", "~"))
