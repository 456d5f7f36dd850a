"""Reads a file of any kind that ``recommend review`` knows. Never runs, imports or raises anything of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import cast, get_args

from recommender.review.mapped import line_starts
from recommender.review.script import Kind, Script, Trouble

MOST_CHARACTERS = 2**20
READERS = {
    "command": "shell",
    "bash": "shell",
    "python": "pythonfile",
    "docker": "shell",
    "compose": "manifest",
    "kubernetes": "manifest",
    "systemd": "unitfile",
}
SUFFIXES: dict[str, Kind] = {
    ".sh": "bash",
    ".bash": "bash",
    ".zsh": "bash",
    ".ksh": "bash",
    ".py": "python",
    ".pyw": "python",
    ".service": "systemd",
}
DOCKERFILE = re.compile(r"(?i)^(?:.*[._-])?(?:docker|container)file(?:[._-].*)?$")
IMPORTS = re.compile(
    r"(?m)^(?:import|from)[ \t]+[\w.]+(?:[ \t]+(?:import|as)\b|[ \t]*$|,)|^\w+[ \t]*=[ \t]*(?:\w+\.)*[A-Za-z]\w*\($"
)
COMMAND = re.compile(r"\s*(?:\S*/)?(?:lmdeploy|docker|podman|sudo|nohup|exec|env|export|[A-Z_]+=\S*)\s")
UNIT = re.compile(r"(?:[ \t]*(?:[#;][^\n]*)?\n)*\[[A-Z]\w*\][ \t]*\n")
STARTS = re.compile(r"(?m)^\[Service\][ \t]*$(?:\n(?!\[).*)*?\n[ \t]*ExecStart[ \t]*=")
CONFIGS = re.compile(r"\b(?:TurbomindEngineConfig|PytorchEngineConfig|pipeline)\s*\(")


def read(path: str, text: str, kind: Kind | None = None) -> Script:
    """What a file starts. The kind is told, or seen from name, first line and content. Raises for no text."""
    kind = kind if kind is not None and kind in get_args(Kind) else kind_of(path, text)
    script = Script(path, kind, text, lines=line_starts(text))
    if len(text) > MOST_CHARACTERS:
        message = f"this has {len(text)} characters; at most {MOST_CHARACTERS} are read"
        return Script(path, kind, text, troubles=(Trouble(message, script.place(0, 0)),), lines=script.lines)
    name = READERS[kind]
    if kind == "docker" and is_dockerfile(path, text):
        name = "dockerfile"
    reader = cast(Callable[[Script], Script], import_module(f"recommender.review.{name}").read)
    try:
        return reader(script)
    except (RecursionError, MemoryError):
        message = "this is nested too deeply to read"
        return Script(path, kind, text, troubles=(Trouble(message, script.place(0, 0)),), lines=script.lines)


def kind_of(path: str, text: str) -> Kind:
    """The kind of a file by its name, its first line, or what it says."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    suffix = name[name.rfind(".") :] if "." in name else ""
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if suffix in (".yaml", ".yml"):
        return _manifest(text) or ("compose" if "compose" in name else "kubernetes")
    if is_dockerfile(path, ""):
        return "docker"
    if text.startswith("#!"):
        return "python" if "python" in text[: text.find("\n") if "\n" in text else None] else "bash"
    return _by_content(text)


def is_dockerfile(path: str, text: str) -> bool:
    """A Dockerfile by its name, or by its first instruction."""
    name = path.replace("\\", "/").rpartition("/")[2]
    first = next((line for line in text.splitlines()[:50] if line.strip() and not line.lstrip().startswith("#")), "")
    return bool(DOCKERFILE.match(name)) or bool(re.match(r"\s*(?:FROM|ARG)\s+\S+", first))


def _manifest(text: str) -> Kind | None:
    head = text[:200_000]
    if re.search(r"(?m)^\s*[\"']?apiVersion[\"']?\s*:", head):
        return "kubernetes"
    return "compose" if re.search(r"(?m)^[\"']?services[\"']?\s*:", head) else None


def _by_content(text: str) -> Kind:
    manifest = _manifest(text)
    if manifest is not None:
        return manifest
    if is_dockerfile("", text):
        return "docker"
    if UNIT.match(text) and STARTS.search(text):
        return "systemd"
    # A command may hold Python or JSON in its quotes, so the first word counts before what stands further on.
    lines = [line for line in text.splitlines()[:2000] if line.strip() and not line.lstrip().startswith("#")]
    first = lines[0] if lines else ""
    if not COMMAND.match(f"{first} ") and (IMPORTS.search(text) or CONFIGS.search(text)):
        return "python"
    if re.match(r"\s*(?:sudo\s+)?(?:docker|podman|nerdctl)\s", first):
        return "docker"
    single = [line for line, before in zip(lines, ["", *lines], strict=False) if not before.rstrip().endswith("\\")]
    return "command" if len(single) == 1 else "bash"
