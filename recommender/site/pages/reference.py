"""Render the reference: commands from their help, Python from docstrings, JSON schemas."""

import html
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import click

import recommender
from recommender import api
from recommender.cli import root
from recommender.commands.short_help import full_help
from recommender.knowledge.json_schema import field_docstrings
from recommender.knowledge.load import data_root
from recommender.site import markup
from recommender.site.i18n.command_help import translated_command, translated_headings
from recommender.site.pages.problems import docstring
from recommender.site.site_data import SiteData, SitePage, page


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the three pages."""
    yield page("reference/cli.md", data.t("Command line"), _commands(data))
    yield page("reference/python.md", "Python", _python(data))
    yield page("reference/schemas.md", data.t("JSON schemas"), _schemas(data))


def schema_files() -> Iterator[Path]:
    """Yield the schema files that the site publishes."""
    yield from sorted((data_root() / "knowledge" / "schema").glob("*.json"))


def commands(command: click.Command, path: str = "recommend") -> Iterator[tuple[str, click.Command]]:
    """Yield a command and its subcommands, each with its full name."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand is not None and not subcommand.hidden:
                yield from commands(subcommand, f"{path} {name}")


def _commands(data: SiteData) -> Iterator[str]:
    yield data.t("The `--help-all` of each command.")
    if not data.english:
        yield data.t("In a terminal it is in English.")
    for path, command in commands(root):
        yield markup.heading(2, path, path.replace(" ", "-"))
        yield f"```text\n{_help(data, path, command)}\n```\n"


def _help(data: SiteData, path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path, terminal_width=80, max_content_width=80)
    if data.english:
        return full_help(context)
    context.command = translated_command(context, data.t)
    return translated_headings(full_help(context), data.t)


def _python(data: SiteData) -> Iterator[str]:
    members = {name: getattr(recommender, name) for name in recommender.__all__ if name != "__version__"}
    functions = {name: member for name, member in members.items() if inspect.isfunction(member)}
    yield docstring(inspect.getdoc(api) or "", data.t)
    yield from _example(inspect.getdoc(recommender) or "")
    yield markup.heading(2, data.t("Functions"), "functions")
    for name in sorted(functions):
        yield from _member(data, name, members[name])
    yield markup.heading(2, data.t("Types and errors"), "types")
    for name in sorted(members.keys() - functions.keys()):
        yield from _member(data, name, members[name])


def _member(data: SiteData, name: str, member: Any) -> Iterator[str]:
    """A function or class: its signature, its docstring and the example in it."""
    yield markup.heading(3, name, name)
    error = inspect.isclass(member) and issubclass(member, Exception)
    shown = _plain(str(inspect.signature(member))) if not error else ""
    kind = "class" if inspect.isclass(member) else "def"
    yield f"```python\n{kind} {name}{_folded(re.sub(r'recommender[.]', '', shown))}\n```\n"
    text = inspect.getdoc(member) or ""
    yield docstring(text.partition("\n>>>")[0], data.t)
    if inspect.isclass(member) and is_dataclass(member):
        fields = field_docstrings(member).items()
        rows = ((markup.code(name), markup.text(data.t(about))) for name, about in fields)
        yield from markup.table(data.labels("Field", "Description"), rows)
    yield from _example(text)


def _example(text: str) -> Iterator[str]:
    """The doctest of a docstring, if it has one; the tests run it."""
    if ">>>" in text:
        yield f"\n```pycon\n{text[text.index('>>>') :].rstrip()}\n```\n"


def _plain(signature: str) -> str:
    """Remove the quotes of postponed annotations from a signature; keep those of values."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)


def _folded(signature: str) -> str:
    if len(signature) < 80:
        return signature
    return re.sub(r", (?=\w+:)", ",\n    ", signature).replace("(", "(\n    ", 1)


def _schemas(data: SiteData) -> Iterator[str]:
    yield data.t("JSON Schema of each kind of record and of each JSON output, generated from the types.")
    if not data.english:
        yield data.t("The descriptions of fields are in English, as in the schema files.")
    for path in schema_files():
        schema = json.loads(path.read_text("utf-8"))
        yield markup.heading(2, schema["title"], path.stem)
        yield docstring(schema.get("description", ""), data.t)
        yield f"\n[{path.name}](/reference/schema/{path.name})\n"
        required = schema.get("required", ())
        rows = (
            (
                markup.code(name),
                markup.code(_type(field)),
                data.t("yes") if name in required else "",
                _in_english(data, field.get("description", "")),
            )
            for name, field in schema["properties"].items()
        )
        yield from markup.table(data.labels("Field", "Type", "Required", "Description"), rows)


def _in_english(data: SiteData, words: str) -> str:
    """Return a field's description, which has no translation."""
    return markup.text(words) if data.english or not words else f'<span lang="en">{markup.text(words)}</span>'


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_type(choice) for choice in schema["anyOf"])
    return html.unescape(str(schema.get("type", schema.get("const", "any"))))
