"""``recommend schema``: the JSON schema of a command's ``--json`` output, or of a kind of record."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from recommender.commands.short_help import ShortCommand
from recommender.common.errors import RequestError

if TYPE_CHECKING:
    from pydantic import BaseModel

HELP = """\b
Examples:
  recommend schema
  recommend schema recommendation > recommendation.json
  recommend --gpu A100-80G --json -q | python -m json.tool
"""
OUTPUTS = {
    "recommendation": ("recommend --json, recommend estimate --json", "render.json_output", "RecommendationJson"),
    "nothing-fits": ("recommend --json where nothing fits", "render.no_fit_json", "NoFit"),
    "compare": ("recommend compare --json", "lookup.comparison_text", "ComparisonJson"),
    "explain": ("recommend explain --json", "lookup.option_text", "OptionInfo"),
    "diff": ("recommend diff --json", "lookup.release_diff_text", "Diff"),
    "list": ("recommend list --json", "lookup.listing", "ListJson"),
    "review": ("recommend review --format json", "review.output.json_output", "ReviewJson"),
    "check": ("recommend check --json", "render.drift_text", "CheckJson"),
    "plan": ("recommend plan --json", "fleet.json_output", "PlanJson"),
    "smoke": ("recommend smoke --json", "smoke.json_output", "SmokeJson"),
    "campaign": ("recommend campaign --ranking --json", "smoke.campaign.sweep", "CampaignJson"),
    "knowledge-check": ("recommend knowledge check --json", "maintenance.json_output", "KnowledgeCheck"),
    "bench-prompt": ("recommend bench-prompt --json", "smoke.bench.json_output", "ScriptComparisonJson"),
}
"""By an output's schema: the command that prints it, the module that has its type and ``FORMAT``, and the type."""
EVIDENCE = {"smoke-run": "recommend smoke --save-evidence"}
SAME = {"recommend": "recommendation", "estimate": "recommendation"}
"""Other names of a schema, so that every command's name is one."""


def _names() -> dict[str, str]:
    """Return the text of each schema that was shipped, by name."""
    from recommender.knowledge.load import data_root

    files = (data_root() / "knowledge" / "schema").glob("*.json")
    return {path.stem: path.read_text("utf-8") for path in sorted(files, key=lambda path: path.stem)}


def _complete(_context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    return [name for name in _names() if name.startswith(prefix)]


@click.command("schema", cls=ShortCommand, epilog=HELP)
@click.argument("name", required=False, shell_complete=_complete)
def command(name: str | None) -> None:
    """Print the JSON schema of an output or of a kind of record; without NAME list them."""
    from recommender import __version__
    from recommender.common import terminal
    from recommender.common.text import did_you_mean, shorten

    known = _names()
    if name is None:
        told = EVIDENCE | {output: text for output, (text, *_) in OUTPUTS.items()}
        terminal.show(
            f"{output:<17}{told.get(output, f'a record: {output}')}, version {__version__}" for output in known
        )
        return
    name = SAME.get(name, name)
    if name not in known:
        raise RequestError(f"unknown schema {shorten(name)}{did_you_mean(name, known)}")
    click.echo(known[name], nl=False)


def schemas() -> dict[str, str]:
    """Return the text of every file of knowledge/schema/, by name: one for each record type and each JSON output."""
    from recommender.knowledge.index import TYPES
    from recommender.knowledge.json_schema import output_schema

    made: dict[str, dict[str, Any]] = {}
    kinds: dict[str, type[BaseModel]] = {kebab(kind.__name__): kind for kind in TYPES.values()}
    for name, kind in sorted(kinds.items()):
        made[name] = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | kind.model_json_schema()
    for name, (_, place, output) in OUTPUTS.items():
        module, title = import_module(f"recommender.{place}"), "".join(map(str.capitalize, name.split("-")))
        made[name] = output_schema(getattr(module, output), title, module.FORMAT)
    return {f"{name}.json": _write(schema) for name, schema in made.items()}


def _write(schema: dict[str, Any]) -> str:
    """Return a schema as JSON with one line for each field and definition."""
    parts = {name: schema[name] for name in ("$schema", "title") if name in schema} | _without_titles(schema)
    lines = []
    for name, value in parts.items():
        written = _compact(value)
        if name in ("$defs", "properties"):
            inner = ",\n".join(f"  {_compact(key)}: {_compact(part)}" for key, part in value.items())
            written = f"{{\n{inner}\n }}"
        lines.append(f" {_compact(name)}: {written}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _without_titles(schema: Any, *, fields: bool = False) -> Any:
    """Return a schema without pydantic's titles: they repeat the names of fields and definitions.

    ``fields``: the keys are names of fields or definitions, of which one may be called title.
    """
    if isinstance(schema, list):
        return [_without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_titles(value, fields=not fields and name in ("properties", "$defs"))
        for name, value in schema.items()
        if fields or name != "title"
    }


def kebab(name: str) -> str:
    """Return the name of a class with dashes and small letters."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
