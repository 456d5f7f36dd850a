"""What was written once: an artefact's values line by line, and a seal in its head that tells later edits from them.

The seal is one line behind the request: the format, a digest of the text without its values, and a short digest of
each value. So a file tells of itself which of its values are as they were written, whatever the knowledge says today.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

TEXT_DIGITS = 12
VALUE_DIGITS = 6
REQUEST = "request"

Key = tuple[str, int]
"""A value's name, and which of the lines of that name it is."""

SEAL = re.compile(r"^# rendered: ([a-z]+) ([0-9a-f]+)(?:\n|\Z)", re.MULTILINE)
HEAD = re.compile(r"^# request: (.*)\n", re.MULTILINE)
MADE_BY = re.compile(r"^(# Made by [\w-]+) [\w.+-]+?(?=[.:]( |$))", re.MULTILINE)

_REQUEST = r"# (request): .*"
# Without its mark of a comment a line of this form would be a value; with it the value is not set.
_VARIABLE = r"#?(?:export )?([A-Z][A-Z0-9_]*)=.*"
# An option in a list of words. One that only passes a variable on is no value: the variable is.
_WORDS = r'  (--[a-z][a-z0-9-]*)(?![\w-])(?! "\$[A-Z0-9_]+"$).*'
_NAMED = r"([A-Z][A-Z0-9_]*) = .*"
FORMS: Mapping[str, re.Pattern[str]] = {
    form: re.compile(f"^(?:{'|'.join(lines)})$", re.MULTILINE)
    for form, lines in {
        "bash": (_REQUEST, _VARIABLE, _WORDS),
        "env": (_REQUEST, _VARIABLE),
        "docker": (_REQUEST, _VARIABLE, r"  -e ([A-Za-z_]\w*)=.*", _WORDS),
        "python": (_REQUEST, _NAMED, r"os\.environ\.setdefault\(\W(\w+)\W, .*", r" {8}([a-z_]\w*)=.*"),
        "client": (_REQUEST, _NAMED, r" {8}'(\w+)': .*", r" {4}image\[\"(\w+)\"\] = .*"),
    }.items()
}


FLEET = re.compile(
    r"^(?:\[(?:Unit|Service)\]|services:|apiVersion: .*|kind: .*|global|defaults|LMDEPLOY=.*|#?FRONT_ADDRESS=.*)$",
    re.MULTILINE,
)
"""What stands in a fleet's compose file, units, environment files, manifests or HAProxy's configuration, and not in
the environment file of one server."""


class NotRendered(Exception):
    """A text that recommend did not write, or whose head is broken. The message says which."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Digests of a text as it was written."""

    text: str
    values: frozenset[str]


@dataclass(frozen=True)
class Rendered:
    """A text as its format reads it: ``lines`` are its values' lines, ``rest`` is all else, without the seal."""

    form: str
    text: str
    lines: Mapping[Key, str]
    rest: str
    sealed: Seal | None

    @cached_property
    def digest(self) -> str:
        """Of the text without its values."""
        return _digest(self.rest, TEXT_DIGITS)

    @cached_property
    def digests(self) -> dict[Key, str]:
        """Of each value."""
        return {key: _digest("\0".join((*map(str, key), line)), VALUE_DIGITS) for key, line in self.lines.items()}

    @property
    def seal(self) -> Seal:
        """The seal of the text as it stands."""
        return Seal(self.digest, frozenset(self.digests.values()))

    @property
    def written(self) -> str:
        """The same as its line has it."""
        return f"{self.form} {self.digest}{''.join(self.digests.values())}"

    def value(self, key: Key) -> str:
        """A value as people write it; empty where it is not set."""
        return _shown(self.form, self.lines[key]) if key in self.lines else ""


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def sealed(text: str, form: str) -> str:
    """A text of this format with its seal behind the request."""
    line = f"# rendered: {read(text, form).written}\n"
    head = HEAD.search(text)
    return text if head is None else text[: head.end()] + line + text[head.end() :]


def read(text: str, form: str = "") -> Rendered:
    """A text of a format, by default of the one it names itself. Raises NotRendered."""
    if form == "json" or (not form and text.lstrip().startswith("{")):
        return _read_json(text)
    if not HEAD.search(text):
        raise NotRendered("not an artefact of recommend: there is no line '# request: ...' in it")
    found = SEAL.search(text)
    form = form or (found[1] if found and found[1] in FORMS else _looks_like(text))
    lines: dict[Key, str] = {}
    numbers: dict[str, int] = {}

    def value(match: re.Match[str]) -> str:
        name = next(each for each in match.groups() if each)
        number = numbers[name] = numbers.get(name, -1) + 1
        lines[name, number] = match[0]
        return f"\0{name}"

    rest = FORMS[form].sub(value, MADE_BY.sub(r"\1", SEAL.sub("", text, count=1), count=1))
    return Rendered(form, text, lines, rest, _seal(found[2]) if found else None)


def _seal(digits: str) -> Seal | None:
    """A seal from its digits; None where it was cut short or mangled."""
    values = digits[TEXT_DIGITS:]
    if len(digits) < TEXT_DIGITS or len(values) % VALUE_DIGITS:
        return None
    starts = range(0, len(values), VALUE_DIGITS)
    return Seal(digits[:TEXT_DIGITS], frozenset(values[at : at + VALUE_DIGITS] for at in starts))


def _looks_like(text: str) -> str:
    """The format of a text without a seal. Raises NotRendered for a fleet's files, which have none."""
    first = text.split("\n", 1)[0]
    if "python" in first:
        return "client" if "urllib.request" in text else "python"
    if first.startswith("#!"):
        return "docker" if "docker run" in text else "bash"
    if FLEET.search(text):
        raise NotRendered("a file of a fleet's folder, which check leaves alone: write the folder anew and compare")
    return "env"


def with_lines(new: Rendered, kept: Mapping[Key, str]) -> str:
    """A sealed text with some of its values' lines taken from another; the seal stays that of its own."""
    numbers: dict[str, int] = {}

    def value(match: re.Match[str]) -> str:
        name = next(each for each in match.groups() if each)
        number = numbers[name] = numbers.get(name, -1) + 1
        return kept.get((name, number), match[0])

    return FORMS[new.form].sub(value, new.text)


# --- JSON


def _read_json(text: str) -> Rendered:
    """The JSON form: its emitted options are the values."""
    try:
        whole = json.loads(text)
        lines = {(REQUEST, 0): json.dumps(whole.pop(REQUEST), sort_keys=True)}
        given = [each for each in whole["options"] if each["emitted"]]
        lines |= {(str(each["name"]), 0): str(each.pop("value")) for each in given}
        made_by, digits = str(whole.pop("made_by")), str(whole.pop("rendered", ""))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise NotRendered("not an artefact of recommend: JSON, but not of the form that --format json writes") from None
    if not made_by.startswith("lmdeploy-recommender "):
        raise NotRendered(f"not an artefact of recommend: it was made by {made_by[:40]!r}")
    found = re.fullmatch(r"json ([0-9a-f]+)", digits)
    return Rendered("json", text, lines, json.dumps(whole, sort_keys=True), _seal(found[1]) if found else None)


def head(found: Rendered) -> dict[str, Any]:
    """The request that a text was made for, with whom it follows. Raises NotRendered."""
    try:
        if found.form == "json":
            whole = json.loads(found.text)
            follow = {"follow": whole["adviser"], "with": whole["added"], "without": whole["left_out"]}
            made = whole[REQUEST] | (follow if whole["adviser"] else {})
        else:
            made = json.loads(found.lines[REQUEST, 0].removeprefix("# request: "))
        if isinstance(made, dict):
            return made
    except (ValueError, RecursionError, KeyError, TypeError):
        pass
    raise NotRendered("the request in its head cannot be read; render it anew")


# --- values as people write them


def _shown(form: str, line: str) -> str:
    if form == "json":
        return line
    if line.startswith("# request: "):
        return line.removeprefix("# request: ")
    return _python(line) if form in ("python", "client") else _shell(line)


def _shell(line: str) -> str:
    """Of ``NAME=${NAME:-value}``, ``NAME=value``, ``-e NAME=value`` or ``--option value``."""
    if line.startswith("#"):
        return ""
    line = re.sub(r"\s*\\$", "", line.strip())
    if line.startswith("--"):
        _, _, text = line.replace("=", " ", 1).partition(" ")
        text = text or "true"
    else:
        name, _, text = re.sub(r"^(export|-e) ", "", line).partition("=")
        text = re.sub(rf"^\$\{{{name}:-(.*)\}}$", r"\1", text, flags=re.DOTALL)
    try:
        return " ".join(shlex.split(text, comments=True))
    except ValueError:
        return text


def _python(line: str) -> str:
    """Of ``name=value,``, ``NAME = ... or value``, ``'name': value,`` or ``os.environ.setdefault(name, value)``."""
    if line.startswith("os."):
        text = line.partition(", ")[2].removesuffix(")")
    else:
        text = re.sub(r"^\s*[^=:]*[=:] ?", "", line).removesuffix(",")
        text = re.sub(r"^(float\()?os\.environ\.get\([^()]*\) or (.*?)(?(1)\))$", r"\2", text)
    try:
        return str(ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text.strip()
