"""Every rule against its table: what it finds and what stands beside it, its page, its sources, its repairs."""

from __future__ import annotations

import atexit
import importlib
import json
import pkgutil
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from recommender.review import engine, rules
from recommender.review.rule import Fix, Rule
from recommender.store import FOLDERS, load

TABLES = Path(__file__).parent / "reviews" / "rules"
OWN_TESTS = frozenset({"LMD001", "LMD002", "LMD003"})  # of ignores and of the reader, which have tests of their own
NAMES = {
    "bash": "serve.sh",
    "command": "-",
    "python": "serve.py",
    "compose": "docker-compose.yaml",
    "kubernetes": "deployment.yaml",
    "docker": "Dockerfile",
}
RULES = [each for each in engine.rules() if each.id not in OWN_TESTS]
IDS = [each.id for each in RULES]


@cache
def table(rule_id: str) -> tuple[dict[str, Any], ...]:
    """The rows of a rule's table."""
    return tuple(yaml.safe_load((TABLES / f"{rule_id}.yaml").read_text("utf-8")))


@cache
def checkpoint(config: str) -> str:
    """A folder with a config.json, for a model that no record knows."""
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-"))
    (folder / "config.json").write_text(config, encoding="utf-8")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


def reviewed(rule: Rule, row: dict[str, Any], text: str | None = None) -> engine.Review:
    """What one rule finds in a row's text, or in another text in its place."""
    name = row.get("path") or NAMES[row.get("kind", "bash")]
    context = row.get("context", {})
    if "config" in row:
        context = context | {"model": checkpoint(json.dumps(row["config"]))}
    return engine.review(name, text or row["text"], context, among=(rule,))


def edited(text: str, fix: Fix) -> str:
    """A text after a repair."""
    for place, new in sorted(fix.edits, key=lambda edit: edit[0], reverse=True):
        text = text[: place.start] + new + text[place.end :]
    return text


def modules() -> Iterator[Any]:
    """The rules' modules."""
    for info in pkgutil.iter_modules(rules.__path__):
        if info.name.startswith("lmd"):
            yield importlib.import_module(f"{rules.__name__}.{info.name}")


def test_there_are_rules_enough_and_no_id_twice() -> None:
    """At least 45 rules, each id once and of its family."""
    families = {"1": "starts", "2": "answers", "3": "nothing", "4": "costs", "5": "safety", "6": "operations"}
    assert len(RULES) >= 45
    assert len({each.name for each in RULES}) == len(RULES)
    for each in RULES:
        assert re.fullmatch(r"LMD[1-6]\d\d", each.id)
        assert each.family == families[each.id[3]], each.id
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", each.name)
        assert (each.check is None) != (each.whole is None), each.id


def test_every_rule_has_a_table_and_every_table_a_rule() -> None:
    """No rule without cases, no cases without a rule."""
    assert {path.stem for path in TABLES.glob("*.yaml")} == set(IDS)


@pytest.mark.parametrize("module", list(modules()), ids=lambda module: module.RULE.id)
def test_every_page_says_what_why_and_how(module: Any) -> None:
    """A rule's docstring is its page: a title, prose, and an example of each kind; its file is named after it."""
    page = (module.__doc__ or "").strip()
    title, _, rest = page.partition("\n")
    assert title
    assert not title.endswith("."), "a title, not a sentence"
    assert rest.startswith("\n")
    assert len(rest) > 200
    assert re.search(r"^Bad\b.*:$", rest, re.MULTILINE)
    assert re.search(r"^Good\b", rest, re.MULTILINE)
    assert all(len(line) <= 120 for line in page.splitlines())
    name = module.__name__.rpartition(".")[2]
    assert name.startswith(module.RULE.id.casefold() + "_")


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_every_source_is_there(rule: Rule) -> None:
    """A source is a record that exists or an address."""
    store = load()
    assert rule.sources
    kinds = {"requests": "requests", "loads": "loads"} | {kind: kind for kind in FOLDERS}
    for source in rule.sources:
        kind, _, name = source.partition("/")
        assert source.startswith("https://") or name in getattr(store, kinds[kind]), source


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_hit_and_near_miss_stand_beside_each_other(rule: Rule) -> None:
    """At least two texts in which the rule finds something, and two that come near."""
    rows = table(rule.id)
    assert all(row.keys() <= {"text", "kind", "path", "context", "config", "finds", "severity"} for row in rows)
    assert sum(bool(row["finds"]) for row in rows) >= 2
    assert sum(not row["finds"] for row in rows) >= 2


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_the_rule_finds_what_its_table_says(rule: Rule) -> None:
    """The findings' places are the pieces of text that the table lists, no more and no less."""
    for number, row in enumerate(table(rule.id)):
        found = reviewed(rule, row)
        assert not found.defects, (number, found.defects)
        text = found.script.text
        places = [text[each.said.place.start : each.said.place.end] for each in found.findings]
        assert places == row["finds"], f"row {number}: {row['text']}"
        if "severity" in row:
            assert {each.severity for each in found.findings} == {row["severity"]}, f"row {number}"
        for each in found.findings:
            assert each.said.message
            assert each.said.why
            assert "\n" not in each.said.message + each.said.why


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_repair_mends_what_it_claims(rule: Rule) -> None:
    """After a finding's repair the finding is gone, everything is read as before, and the repair is not asked again."""
    for number, row in enumerate(table(rule.id)):
        found = reviewed(rule, row)
        for each in found.findings:
            if each.said.fix is None:
                continue
            text = edited(found.script.text, each.said.fix)
            assert text != found.script.text
            after = reviewed(rule, row, text)
            assert len(after.findings) < len(found.findings), f"row {number}: {text}"
            assert len(after.script.launches) == len(found.script.launches), f"row {number}: {text}"
            assert len(after.script.troubles) <= len(found.script.troubles), f"row {number}: {text}"
