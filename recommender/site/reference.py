"""Reference pages: the commands from their own help, the Python functions from their docstrings, the JSON schemas."""

from __future__ import annotations

import html
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from recommender.cli import root
from recommender.site import markup as m
from recommender.site.book import Book, Page, page
from recommender.site.caution import docstring
from recommender.store import data_root

API = {
    "store": ("load", "Store", "UnknownName", "KnowledgeError"),
    "request": ("Request", "RequestError"),
    "pipeline": ("recommend", "recommend_adviser", "Recommendation", "NothingFits"),
    "render": ("render",),
    "report": ("report",),
    "publish": ("published", "command"),
    "beside": ("beside", "Beside"),
    "about": ("about", "resolve_option", "About"),
    "changes": ("diff", "Diff"),
    "measured": ("figures", "Figures"),
    "review.engine": ("review", "rules", "page", "Review"),
}
"""What other programs may call, by module."""


def pages(book: Book) -> Iterator[Page]:
    """The three pages."""
    yield page("reference/cli.md", "Command line", _commands())
    yield page("reference/python.md", "Python", _python())
    yield page("reference/schemas.md", "JSON schemas", _schemas())


def schema_files() -> Iterator[Path]:
    """The schemas that the site has as files beside the page."""
    yield from sorted((data_root() / "knowledge" / "schema").glob("*.json"))


def commands(command: click.Command, path: str = "recommend") -> Iterator[tuple[str, click.Command]]:
    """A command and those below it, with the words that call each."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from commands(found, f"{path} {name}")


def _commands() -> Iterator[str]:
    yield "What each command prints for `--help`."
    for path, command in commands(root):
        yield m.heading(2, path, path.replace(" ", "-"))
        context = click.Context(command, info_name=path, terminal_width=80, max_content_width=80)
        yield f"```text\n{command.get_help(context)}\n```\n"


def _python() -> Iterator[str]:
    yield (
        "The functions behind the commands. They take no clock, network or file beside the knowledge: the same "
        "request gives the same answer.\n"
    )
    yield (
        "```python\n"
        "from recommender.pipeline import recommend\n"
        "from recommender.render import render\n"
        "from recommender.request import Request\n\n"
        'print(render(recommend(Request(gpu="A100-80G", load="single")), "bash"))\n'
        "```\n"
    )
    for name, members in API.items():
        module = import_module(f"recommender.{name}")
        yield m.heading(2, f"recommender.{name}", name.replace(".", "-"))
        yield docstring(inspect.getdoc(module) or "")
        for member in members:
            yield from _member(f"{name}-{member}".replace(".", "-"), getattr(module, member), member)


def _member(anchor: str, found: Any, name: str) -> Iterator[str]:
    yield m.heading(3, name, anchor)
    error = inspect.isclass(found) and issubclass(found, Exception)
    shown = _plain(str(inspect.signature(found))) if not error else ""
    kind = "class" if inspect.isclass(found) else "def"
    yield f"```python\n{kind} {name}{_folded(re.sub(r'recommender[.]', '', shown))}\n```\n"
    yield docstring(inspect.getdoc(found) or "")


def _plain(signature: str) -> str:
    """A signature without the quotes of annotations that are read late; those of values stay."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)


def _folded(signature: str) -> str:
    """A signature, a parameter a line where it is long."""
    if len(signature) < 80:
        return signature
    return re.sub(r", (?=\w+:)", ",\n    ", signature).replace("(", "(\n    ", 1)


def _schemas() -> Iterator[str]:
    yield "JSON Schema of each kind of record and of the JSON outputs, made from the record types."
    for path in schema_files():
        known = json.loads(path.read_text("utf-8"))
        yield m.heading(2, known["title"], path.stem)
        yield docstring(known.get("description", ""))
        yield f"\n[{path.name}](/reference/schema/{path.name})\n"
        required = known.get("required", ())
        rows = (
            (m.code(name), m.code(_type(of)), "yes" if name in required else "", m.text(of.get("description", "")))
            for name, of in known["properties"].items()
        )
        yield from m.table(("Field", "Type", "Needed", "What it is"), rows)


def _type(of: Mapping[str, Any]) -> str:
    """A property's type in a few words."""
    if "$ref" in of:
        return str(of["$ref"]).rpartition("/")[2]
    if "items" in of:
        return f"list of {_type(of['items'])}"
    if "enum" in of:
        return " | ".join(map(str, of["enum"]))
    if "anyOf" in of:
        return " | ".join(_type(each) for each in of["anyOf"])
    return html.unescape(str(of.get("type", of.get("const", "any"))))
