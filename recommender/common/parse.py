"""Parse JSON, TOML, YAML and Python that users wrote, in bounded time and memory.

Depth and number of entries are counted before a recursive parser starts. In YAML, aliases are counted as expanded.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from recommender.common.text import one_line
from recommender.common.user_file import Unreadable

DEEPEST = 60
"""Levels of lists and maps."""
MOST_ENTRIES = 300_000
"""Entries of a JSON or TOML text."""
MOST_DOTTED = 50
"""Parts of a dotted key of TOML; its parser takes their square."""
MOST_TOKENS, MOST_BRACES = 100_000, 5_000
"""Words and signs of a Python file, and braces if it has f-strings: CPython searches each from the string's start."""

JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)', re.DOTALL)
TOML_STRING = re.compile(
    r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+\\?(?:"""|\Z)'
    r"|'''(?:[^']++|'{1,2}(?!'))*+(?:'''|\Z)"
    r'|"(?:[^"\\\n]++|\\[^\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+",
    re.DOTALL,
)
TOML_KEY = re.compile(r"[^\w\"'. \t-]+")
PYTHON_TOKEN = re.compile(r"\w++|[^\w\s]|\n")
FORMATTED = re.compile(r"(?i)\b(?:f|fr|rf|t|tr|rt)[\"']")
BRACKETS = str.maketrans({"{": "[", "}": "]"})
STEPS: Mapping[str, int] = {"[": 1, "]": -1}


def _check_depth(text: str, format_name: str) -> None:
    """Raise Unreadable for brackets, outside of strings, that are nested too deeply."""
    levels = accumulate(STEPS[sign] for sign in re.sub(r"[^\[\]]+", "", text.translate(BRACKETS)))
    if max(levels, default=0) > DEEPEST:
        raise Unreadable(f"invalid {format_name}: nested more than {DEEPEST} levels deep; fix it there")


def _check_entries(text: str, format_name: str, most: int = MOST_ENTRIES) -> None:
    if text.count(",") + text.count("[") + text.count("{") > most:
        raise Unreadable(f"invalid {format_name}: more than {most:,} entries; fix it there")


def parse_json(text: str, most_entries: int = MOST_ENTRIES) -> Any:
    """Return a JSON text's value. Raise Unreadable."""
    bare = JSON_STRING.sub("", text)
    _check_entries(bare, "JSON", most_entries)
    _check_depth(bare, "JSON")
    try:
        return json.loads(text)
    except ValueError as error:
        raise Unreadable(f"invalid JSON: {one_line(error)}; fix it there") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return a TOML text's table. Raise Unreadable."""
    import tomllib

    bare = TOML_STRING.sub(lambda found: "" if found[0][0] == "#" else '""', text)
    _check_depth(bare, "TOML")
    _check_entries(bare, "TOML")
    if any(key.count(".") > MOST_DOTTED for key in TOML_KEY.split(bare)):
        raise Unreadable(f"invalid TOML: a key has more than {MOST_DOTTED} parts; fix it there")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"invalid TOML: {one_line(error)}; fix it there") from None


def parse_python(text: str) -> ast.Module:
    """Return a Python text's tree. Raise SyntaxError or Unreadable."""
    if sum(1 for _ in PYTHON_TOKEN.finditer(text)) > MOST_TOKENS:
        raise Unreadable(f"invalid Python: more than {MOST_TOKENS:,} words and signs; fix it there")
    if text.count("{") > MOST_BRACES and FORMATTED.search(text):
        raise Unreadable(f"invalid Python: more than {MOST_BRACES:,} braces in a file with f-strings; fix it there")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError:
        raise
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("invalid Python: nested too deeply to read; fix it there") from None


# --- YAML


def parse_yaml(text: str) -> Any:
    """Return a YAML text's value. Raise Unreadable."""
    return _load(text, lambda loader: loader.get_single_data())


def duplicate_keys(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and key of each repeated key of a mapping in a YAML text. Raise Unreadable."""
    import yaml

    todo = [_load(text, lambda loader: loader.get_single_node())]
    looked: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in looked:
            continue
        looked.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if str(key.value) in seen:
                    yield key.start_mark.line + 1, str(key.value)
                seen.add(str(key.value))
                todo.append(value)
        elif isinstance(node, yaml.SequenceNode):
            todo += node.value


def _load(text: str, read: Any) -> Any:
    import yaml

    from recommender.common.yaml_loader import BoundedLoader

    try:
        loader = BoundedLoader(text)
        try:
            return read(loader)
        finally:
            loader.dispose()
    except Unreadable:
        raise
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError) as error:
        said = one_line(error).replace(' in "<unicode string>",', " at")
        if "nesting depth" in said:  # PyYAML's own limit, from 6.0.4 on
            said = "nested too deeply to read"
        raise Unreadable(f"invalid YAML: {said[:300]}; fix it there") from None
    except RecursionError:
        raise Unreadable("invalid YAML: nested too deeply to read; fix it there") from None
