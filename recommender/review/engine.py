"""Runs the rules over a file's text: finds them, asks each what it needs, sorts and ignores. No output, no files."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

from recommender.review import ignores
from recommender.review.case import cases
from recommender.review.rule import Case, Finding, Rule, Said
from recommender.review.script import Script
from recommender.store import did_you_mean, shorten

UNUSED, UNREAD, BAD_IGNORE = "LMD001", "LMD002", "LMD003"
SEVERITIES = ("error", "warning", "info")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class UnknownRule(Exception):
    """No rule has this id. The message lists near matches."""


@dataclass(frozen=True)
class Defect:
    """A rule that failed on odd input: a mistake of ours, told beside the other rules' findings."""

    rule: str
    path: str
    error: str


@dataclass(frozen=True)
class Review:
    """What a file's review found. ``silent``: the rules that did not run, by what they would have needed."""

    path: str
    script: Script
    findings: tuple[Finding, ...]
    silent: Mapping[str, frozenset[str]] = field(default_factory=dict)
    defects: tuple[Defect, ...] = ()
    cases: tuple[Case, ...] = ()


@cache
def _written() -> Mapping[str, tuple[Rule, str]]:
    """Every rule with its page, by id. Raises ValueError where two have the same id."""
    from recommender.review import rules as package

    found: dict[str, tuple[Rule, str]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("lmd"):  # what several rules share stands beside them
            continue
        module = import_module(f"{package.__name__}.{info.name}")
        rule = module.RULE
        if rule.id in found:
            raise ValueError(f"two rules are called {rule.id}: {found[rule.id][0].name} and {rule.name}")
        found[rule.id] = rule, (module.__doc__ or "").strip()
    return found


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by id."""
    found = _written()
    return tuple(found[each][0] for each in sorted(found))


def rule(name: str) -> Rule:
    """The rule of an id or a name as people write it. Raises UnknownRule with near matches."""
    wanted = name.strip().casefold().replace("_", "-")
    for each in rules():
        if wanted in (each.id.casefold(), each.name):
            return each
    near = did_you_mean(name, [each.id for each in rules()] + [each.name for each in rules()])
    raise UnknownRule(f"unknown rule {shorten(name)}{near}")


def page(rule: Rule) -> str:
    """The rule's page: the docstring of its module."""
    return _written()[rule.id][1] if rule.id in _written() else ""


def review(
    path: str,
    text: str,
    options: Mapping[str, Any] = NOTHING,
    project: Mapping[str, Any] = NOTHING,
    without: Collection[str] = (),
    among: Iterable[Rule] | None = None,
) -> Review:
    """Reads a text and runs the rules, but for those ``without``. Raises RequestError or UnknownName for options."""
    from recommender.review.reader import read

    try:
        script = read(path, text)
    except Exception as error:  # a mistake of ours must not keep the other files from their review
        if os.environ.get("RECOMMEND_DEBUG"):
            raise
        defect = Defect("the reader", path, f"{type(error).__name__}: {error}")
        return Review(path, Script(path, "command", text), (), defects=(defect,))
    return examine(script, options, project, without, among)


def examine(
    script: Script,
    options: Mapping[str, Any] = NOTHING,
    project: Mapping[str, Any] = NOTHING,
    without: Collection[str] = (),
    among: Iterable[Rule] | None = None,
) -> Review:
    """The same of a script that was read."""
    chosen = [each for each in (rules() if among is None else among) if each.id not in without]
    by_id = {each.id: each for each in chosen}
    told = tuple(cases(script, options, project))
    run = _Run(script, told)
    found = [finding for each in chosen for finding in run.findings(each)]
    said = ignores.ignores(script, {each.id for each in rules()} | by_id.keys())
    kept, used = ignores.apply(_once(found), said)
    ran = by_id.keys() - {name for names in run.silent.values() for name in names} - {each.rule for each in run.defects}
    if UNUSED in by_id:
        kept += [Finding(by_id[UNUSED], script.path, each) for each in ignores.unused(script, used, ran)]
    if BAD_IGNORE in by_id:
        kept += [Finding(by_id[BAD_IGNORE], script.path, each) for each in ignores.bad(said)]
    kept.sort(key=_order)
    silent = {need: frozenset(names) for need, names in run.silent.items() if names}
    return Review(script.path, script, tuple(kept), silent, tuple(run.defects), told)


def _order(finding: Finding) -> tuple[int, int, str, str]:
    place = finding.said.place
    return place.start, place.end, finding.rule.id, finding.said.message


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Without what is said twice, as of a function that starts two servers."""
    seen = set()
    for each in findings:
        key = (each.rule.id, each.said.place, each.said.message)
        if key not in seen:
            seen.add(key)
            yield each


def _agreed(rule: Rule, case: Case) -> bool:
    from recommender.review.agreed import agreed

    return agreed(rule, case)


class _Run:
    """One file's run: what fell silent and what failed is collected beside the findings."""

    def __init__(self, script: Script, told: tuple[Case, ...]) -> None:
        self.script = script
        self.told = told
        self.silent: dict[str, set[str]] = {"gpu": set(), "model": set(), "load": set()}
        self.defects: list[Defect] = []

    def findings(self, rule: Rule) -> Iterator[Finding]:
        """What a rule says; a rule that fails says no more."""
        try:
            for said in self._said(rule):
                yield Finding(rule, self.script.path, said)
        except Exception as error:
            if os.environ.get("RECOMMEND_DEBUG"):
                raise
            self.defects.append(Defect(rule.id, self.script.path, f"{type(error).__name__}: {error}"))

    def _said(self, rule: Rule) -> Iterator[Said]:
        if rule.whole is not None:
            yield from rule.whole(self.script)
        if rule.check is None:
            return
        for case in self.told:
            lacking = [need for need in rule.needs if not getattr(case, f"{need}_known")]
            for need in lacking:
                self.silent[need].add(rule.id)
            if not lacking:
                yield from (said for said in rule.check(case) if not _agreed(rule, case))
