"""Read the files beside a script: environment files, sourced scripts, pinned requirements.

Only regular files in the script's folder are read. A path on the host is looked for by its name: /etc/lmdeploy/x.env
is in the script's folder until it is installed.
"""

import os
import re
from pathlib import Path

from recommender.common.pattern import pattern
from recommender.common.user_file import Unreadable
from recommender.review.script.source import STDIN, Source
from recommender.review.script.source import read as read_source

ENVIRONMENT_FILE = ".env"
VARIABLE = pattern(r"[A-Za-z_][A-Za-z0-9_]*")


def read(script: str, path: str) -> Source | None:
    """Return a file that a script names, by its path in the script's folder or by its name; None if not there."""
    if script == STDIN:
        return None
    folder, name = Path(script).parent, path.rpartition("/")[2]
    inside = Path(os.path.normpath(folder.absolute() / path))
    places = [inside] if inside.is_relative_to(os.path.normpath(folder.absolute())) else []
    places += [folder / name] if name not in ("", ".", "..") else []
    return next((source for place in places if (source := read_in(folder, place)) is not None), None)


def read_in(folder: Path, file: Path) -> Source | None:
    """Return a regular file of a folder; None if it is not one, or not readable."""
    try:
        if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
            return None
        return read_source(str(file))
    except (OSError, Unreadable, ValueError, RuntimeError):  # a NUL in the name, or a link to itself
        return None


def read_environment(script: str, path: str) -> dict[str, str] | None:
    """Return the variables of an environment file; None if it is not there."""
    source = read(script, path)
    return environment_file(source.text.replace("\nexport ", "\n")) if source else None


# --- environment files

EMPTY = pattern(r"[ \t\r\n]*")
LINE = pattern(r"[^\n\r]*")
KEY = pattern(r"([^=\n\r]*)=[ \t]*")
SINGLE = pattern(r"'([^']*)(?:'|\Z)[ \t]*")
DOUBLE = pattern(r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)[ \t]*', re.DOTALL)
BARE = pattern(r"((?:[^\\\n\r]|\\.)*)(?:\\?\Z)?", re.DOTALL)


def environment_file(text: str) -> dict[str, str]:
    """Return the variables that an EnvironmentFile sets."""
    variables: dict[str, str] = {}
    at = 0
    while (at := _end(EMPTY, text, at)) < len(text):
        key = None if text[at] in "#;" else KEY.match(text, at)
        if key is None:
            at = _end(LINE, text, at)
            continue
        value, at = _value(text, key.end())
        if VARIABLE.fullmatch(key[1].rstrip(" \t")):
            variables[key[1].rstrip(" \t")] = value
    return variables


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int) -> tuple[str, int]:
    """Return a value (quoted parts, then the bare rest of the line) and its end."""
    parts: list[str] = []
    while True:
        single, double = SINGLE.match(text, at), DOUBLE.match(text, at)
        if single:
            parts.append(single[1])
            at = single.end()
        elif double:
            inner = re.sub(r"\\([\"\\`$])|\\\n", lambda match: match[1] or "", double[1])
            parts.append(inner)
            at = double.end()
        else:
            break
    bare = BARE.match(text, at)
    if bare is not None and bare[1]:
        kept = bare[1].rstrip(" \t")
        if (len(kept) - len(kept.rstrip("\\"))) % 2:  # keep the blank after a backslash
            kept = bare[1][: len(kept) + 1]
        parts.append(re.sub(r"\\(.)", lambda match: "" if match[1] in "\r\n" else match[1], kept, flags=re.DOTALL))
        at = bare.end()
    return "".join(parts), at
