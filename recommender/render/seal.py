"""Read an artefact's values, and the seal in its head that reveals later edits.

The seal is one line after the request: the format, a digest of the text without its values, and a short digest of
each value. So a file shows which of its values are as they were written, whatever the knowledge says today.
"""

import ast
import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from recommender.common.parse import parse_json
from recommender.render.head import REQUEST_LINE, HeadError, check_types, read_head

TEXT_DIGITS = 12
VALUE_DIGITS = 6
REQUEST = "request"

Key = tuple[str, int]
"""A value's name, and which of the lines of that name it is."""

SEAL = re.compile(r"^# rendered: ([a-z]+) ([0-9a-f]+)(?:\n|\Z)", re.MULTILINE)
MADE_BY = re.compile(r"^(# Made by [\w-]+) [\w.+-]+?(?=[.:]( |$))", re.MULTILINE)

_REQUEST = r"#[^\S\n]*(request):[^\n]*"
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
    r"^(?:\[(?:Unit|Service)\]|services:|apiVersion: .*|kind: .*|global|defaults|LMDEPLOY=.*|#?FRONT_ADDRESS=.*"
    r"|MOST_DOWN=.*|keysSecret: .*)$",
    re.MULTILINE,
)
"""Lines that only a fleet's files have: its compose file, units, environment files, manifests, chart, HAProxy's
configuration. The environment file of one server has none."""


class UnknownArtefact(Exception):
    """A text that recommend did not write, or whose head is broken. The message says which."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Digests of a text as it was written."""

    text: str
    values: frozenset[str]


@dataclass(frozen=True)
class ParsedArtefact:
    """A text as its format reads it: the lines of its ``values``, and the ``rest`` without them and the seal."""

    form: str
    text: str
    lines: Mapping[Key, str]
    rest: str
    sealed: Seal | None

    @cached_property
    def digest(self) -> str:
        """Digest of the text without its values."""
        return _digest(self.rest, TEXT_DIGITS)

    @cached_property
    def digests(self) -> dict[Key, str]:
        """Digest of each value."""
        return {key: _digest("\0".join((*map(str, key), line)), VALUE_DIGITS) for key, line in self.lines.items()}

    @property
    def seal(self) -> Seal:
        """The seal of the current text."""
        return Seal(self.digest, frozenset(self.digests.values()))

    @property
    def checksum_line(self) -> str:
        """The seal of the current text as the seal's line holds it."""
        return f"{self.form} {self.digest}{''.join(self.digests.values())}"

    def value(self, key: Key) -> str:
        """Return a value as people write it; empty if it is not set."""
        return _shown(self.form, self.lines[key]) if key in self.lines else ""


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def add_seal(text: str, form: str) -> str:
    """Return a text of this format with its seal after the request."""
    seal = f"\n# rendered: {read(text, form).checksum_line}"
    return REQUEST_LINE.sub(lambda request: request[0] + seal, text, count=1)


def read(text: str, form: str = "") -> ParsedArtefact:
    """Parse a text of a format, by default of the one it names itself.

    Raises UnknownArtefact.
    """
    if form == "json" or (not form and text.lstrip().startswith("{")):
        return _read_json(text)
    if not REQUEST_LINE.search(text):
        raise UnknownArtefact("not written by recommend: it has no line '# request: ...'")
    seal = SEAL.search(text)
    form = form or (seal[1] if seal and seal[1] in FORMS else _looks_like(text))
    lines: dict[Key, str] = {}

    def cut(key: Key, line: str) -> str:
        lines[key] = line
        return f"\0{key[0]}"

    rest = _replace_values(form, MADE_BY.sub(r"\1", SEAL.sub("", text, count=1), count=1), cut)
    return ParsedArtefact(form, text, lines, rest, _seal(seal[2]) if seal else None)


def _replace_values(form: str, text: str, replace: Callable[[Key, str], str]) -> str:
    """Return a text with the line of each value replaced, by its key and the line."""
    numbers: Counter[str] = Counter()

    def replacement(match: re.Match[str]) -> str:
        name = next(filter(None, match.groups()))
        numbers[name] += 1
        return replace((name, numbers[name] - 1), match[0])

    return FORMS[form].sub(replacement, text)


def _seal(digits: str) -> Seal | None:
    """Return a seal from its digits; None if it was cut short or mangled."""
    values = digits[TEXT_DIGITS:]
    if len(digits) < TEXT_DIGITS or len(values) % VALUE_DIGITS:
        return None
    starts = range(0, len(values), VALUE_DIGITS)
    return Seal(digits[:TEXT_DIGITS], frozenset(values[start : start + VALUE_DIGITS] for start in starts))


def _looks_like(text: str) -> str:
    """Return the format of a text without a seal.

    Raises UnknownArtefact for a fleet's files, which have none.
    """
    first = text.split("\n", 1)[0]
    if "python" in first:
        return "client" if "urllib.request" in text else "python"
    if first.startswith("#!") and "\nMOST_DOWN=" not in text:
        return "docker" if "docker run" in text else "bash"
    if FLEET.search(text):
        raise UnknownArtefact(
            "a file of a fleet's folder, which check cannot compare; generate the folder again and use diff"
        )
    return "env"


def keep_lines(new: ParsedArtefact, lines: Mapping[Key, str]) -> str:
    """Return a sealed text with the lines of some values replaced; its seal stays."""
    return _replace_values(new.form, new.text, lambda key, line: lines.get(key, line))


# --- JSON


def _read_json(text: str) -> ParsedArtefact:
    """Parse the JSON form: its emitted options are the values."""
    try:
        whole = parse_json(text)
        lines = {(REQUEST, 0): json.dumps(whole.pop(REQUEST), sort_keys=True)}
        emitted = [option for option in whole["options"] if option["emitted"]]
        lines |= {(str(option["name"]), 0): str(option.pop("value")) for option in emitted}
        made_by, digits = str(whole.pop("made_by")), str(whole.pop("rendered", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnknownArtefact("not written by recommend: JSON, but not as --format json writes it") from None
    if not made_by.startswith("lmdeploy-recommender "):
        raise UnknownArtefact(f"not written by recommend: it was made by {made_by[:40]!r}")
    seal = re.fullmatch(r"json ([0-9a-f]+)", digits)
    return ParsedArtefact("json", text, lines, json.dumps(whole, sort_keys=True), _seal(seal[1]) if seal else None)


def read_request(artefact: ParsedArtefact) -> dict[str, Any]:
    """Return the request that a text was made for, with the adviser it follows.

    Raises UnknownArtefact.
    """
    try:
        if artefact.form == "json":
            whole = parse_json(artefact.text)
            follow = {"follow": whole["adviser"], "with": whole["added"], "without": whole["left_out"]}
            head = whole[REQUEST] | (follow if whole["adviser"] else {})
            for name in ("replay", "asked"):  # the requests of a trace or a mix, which are never written
                if head.get(name) == []:
                    del head[name]
            return check_types(head)
        if (request := read_head(artefact.text)) is not None:
            return request
    except HeadError as error:
        raise UnknownArtefact(str(error)) from None
    except (ValueError, KeyError, TypeError):
        pass
    raise UnknownArtefact("the request in its head cannot be read; render it anew")


# --- values as people write them


def _shown(form: str, line: str) -> str:
    request = REQUEST_LINE.fullmatch(line)
    if form == "json" or request:
        return request[1] if request else line
    return _python(line) if form in ("python", "client") else _shell(line)


def _shell(line: str) -> str:
    """Return the value of ``NAME=${NAME:-value}``, ``NAME=value``, ``-e NAME=value`` or ``--option value``."""
    if line.startswith("#"):
        return ""
    line = line.strip()
    line = line[:-1].rstrip() if line.endswith("\\") else line
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
    """Return the value of ``name=value,``, ``NAME = ... or value``, ``'name': value,`` or ``os.environ.setdefault``."""
    if line.startswith("os."):
        text = line.partition(", ")[2].removesuffix(")")
    else:
        text = re.sub(r"^[^=:]*[=:] ?", "", line).removesuffix(",")
        text = re.sub(r"^(float\()?os\.environ\.get\([^()]*\) or (.*?)(?(1)\))$", r"\2", text)
    try:
        return str(ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text.strip()
