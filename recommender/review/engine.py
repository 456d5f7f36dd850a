"""Run the rules on a text and apply ignore comments. No output, no files."""

from __future__ import annotations

import os
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from recommender.common.errors import UnknownRule, UserError
from recommender.common.text import did_you_mean, shorten
from recommender.review import engine_support, ignores, shared_repairs
from recommender.review.case import MOST_KINDS, cases
from recommender.review.known_values import has_replicas, spread
from recommender.review.rule import Case, Check, Diagnostic, Finding, Rule, retirement
from recommender.review.same_as_recommended import ESTIMATED, weighs_recommended
from recommender.review.script import command_subset, sweeps
from recommender.review.script.model import ReadProblem, Script, Span

UNUSED, UNREAD, BAD_IGNORE = "LMD001", "LMD002", "LMD003"
SEVERITIES = ("error", "warning", "info")
ESTIMATE = "estimate"
"""What is missing for a launch that spreads its model over GPUs in a way that estimates do not cover."""
Key = tuple[str, Span, str]
"""A rule, a place and a message."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Defect(NamedTuple):
    """A rule that crashed: a bug of ours, reported with the other findings."""

    rule: str
    path: str
    error: str


class Review(NamedTuple):
    """A file's findings; ``silent`` maps a missing input to the skipped rules."""

    path: str
    script: Script
    findings: tuple[Finding, ...]
    silent: Mapping[str, frozenset[str]] = MappingProxyType({})
    defects: tuple[Defect, ...] = ()
    cases: tuple[Case, ...] = ()

    def at_severity(self, severity: str, always: Collection[str] = ()) -> Review:
        """Return the findings of a severity and above, and those of rules that are always shown."""
        kept = (
            finding for finding in self.findings if reaches(finding.severity, severity) or finding.rule.id in always
        )
        return self._replace(findings=tuple(kept))


def reaches(severity: str, least: str) -> bool:
    """Return whether a severity is this one or above."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(least)


@cache
def _registry() -> Mapping[str, tuple[Rule, str]]:
    """Return every rule and its page, by id. Raise ValueError for duplicate ids."""
    from recommender.review import rules as package

    rules: dict[str, tuple[Rule, str]] = {}
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not info.name.rpartition(".")[2].startswith("lmd"):  # a family or a shared module
            continue
        module = import_module(info.name)
        rule = module.rule
        if rule.id in rules:
            raise ValueError(f"two rules are called {rule.id}: {rules[rule.id][0].name} and {rule.name}")
        rules[rule.id] = rule, (module.__doc__ or "").strip()
    return rules


@cache
def rules() -> tuple[Rule, ...]:
    """Return all rules, sorted by id."""
    written = _registry()
    return tuple(written[name][0] for name in sorted(written))


def rule(name: str) -> Rule:
    """Return the rule with this id or name. Raise UnknownRule."""
    wanted = name.strip().casefold().replace("_", "-")
    for rule_found in rules():
        if wanted in (rule_found.id.casefold(), rule_found.name):
            return rule_found
    if retired := retirement(wanted.upper()):
        raise UnknownRule(retired)
    near = did_you_mean(name, [rule_found.id for rule_found in rules()] + [rule_found.name for rule_found in rules()])
    raise UnknownRule(f"unknown rule {shorten(name)}{near}")


def rule_ids(text: str) -> frozenset[str]:
    """Return the ids of rules by ids, names or beginnings such as LMD2, separated by commas. Raise UnknownRule."""
    found: set[str] = set()
    for name in (part.strip() for part in text.split(",")):
        begun = {
            each.id
            for each in rules()
            if name and re.fullmatch(r"(?i)lmd\d*", name) and each.id.startswith(name.upper())
        }
        found |= begun or ({rule(name).id} if name else set())
    return frozenset(found)


def page(rule: Rule) -> str:
    """Return the rule's page: its module's docstring."""
    return _registry()[rule.id][1] if rule.id in _registry() else ""


def review(
    path: str,
    text: str,
    options: Mapping[str, Any] = NOTHING,
    project: Mapping[str, Any] = NOTHING,
    without: Collection[str] = (),
    among: Iterable[Rule] | None = None,
    explicit: bool = True,
    windows: bool = False,
) -> Review:
    """Read a text and run the rules. Raise RequestError or UnknownName for options.

    ``explicit``: the user named this file, so one that starts nothing is a finding. ``windows``: the file's lines end
    with carriage returns.
    """
    from recommender.review.context import header_problem
    from recommender.review.readers.detect_kind import read

    try:
        script = replace(read(path, text, explicit=explicit), windows=windows or "\r\n" in text)
        if problem := header_problem(script):
            script = replace(script, problems=(*script.problems, ReadProblem(problem, script.place(0, 0))))
        return examine(script, options, project, without, among)
    except UserError:
        raise
    except Exception as error:  # our bug must not stop the review of other files
        if os.environ.get("RECOMMEND_DEBUG"):
            raise
        defect = Defect("the reader", path, f"{type(error).__name__}: {error}")
        return Review(path, Script(path, "command", text), (), defects=(defect,))


def examine(
    script: Script,
    options: Mapping[str, Any] = NOTHING,
    project: Mapping[str, Any] = NOTHING,
    without: Collection[str] = (),
    among: Iterable[Rule] | None = None,
) -> Review:
    """Run the rules on a script that is already read."""
    chosen = [rule_ for rule_ in (rules() if among is None else among) if rule_.id not in without]
    by_id = {rule_.id: rule_ for rule_ in chosen}
    known_cases = tuple(cases(script, options, project))
    judged = {id(case.launch) for case in known_cases}
    beyond = next((launch.place for launch in script.launches if id(launch) not in judged), None)
    if beyond is not None:
        much = f"The file starts more than {MOST_KINDS} different servers: this one and later ones are not judged."
        script = replace(script, problems=(*script.problems, ReadProblem(much, beyond)))
    run = _Run(script, known_cases, tuple(cases(script, options, project, script.tools)))
    findings = [finding for rule_ in chosen for finding in run.findings(rule_)]
    found, owners = _of_sweeps(script, options, project, chosen, known_cases)
    for key, launches in run.owners.items():
        owners.setdefault(key, set()).update(launches)
    findings = _qualified(script, [*findings, *found], owners)
    own_ignores = ignores.ignores(script, {rule_.id for rule_ in rules()} | by_id.keys())
    kept, used = ignores.apply(_distinct(findings), own_ignores)
    ran = (
        by_id.keys()
        - {name for names in run.silent.values() for name in names}
        - {defect.rule for defect in run.defects}
    )
    if UNUSED in by_id:
        kept += [Finding(by_id[UNUSED], script.path, diagnostic) for diagnostic in ignores.unused(script, used, ran)]
    if BAD_IGNORE in by_id:
        kept += [Finding(by_id[BAD_IGNORE], script.path, diagnostic) for diagnostic in ignores.bad(own_ignores)]
    kept.sort(key=_order)
    silent = {need: frozenset(names) for need, names in run.silent.items() if names}
    return Review(script.path, script, tuple(kept), silent, tuple(run.defects), known_cases)


def _of_sweeps(
    script: Script,
    options: Mapping[str, Any],
    project: Mapping[str, Any],
    chosen: Iterable[Rule],
    judged: tuple[Case, ...],
) -> tuple[list[Finding], dict[Key, set[int]]]:
    """Return findings about each model of a loop and about other branches, and errors of the values of a sweep.

    Only errors of a sweep count, because a benchmark tries extremes. Also return which launches each finding is about.
    """
    variants = sweeps.launches(script)
    models = [*sweeps.of_models(script), *sweeps.of_branches(script)]
    words = [word for launch in variants for option in launch.options for word in option.values]
    words += [launch.model for launch in variants if launch.model is not None]
    values = {place for word in words for place in (word.place, word.literal)}
    run = _Run(script, tuple(cases(script, options, project, tuple(variants), judged)), ())
    model_run = _Run(script, tuple(cases(script, options, project, tuple(models), judged)), ())
    kept: list[Finding] = []
    for rule_ in chosen if variants or models else ():
        single = rule_._replace(whole=None)
        found = (finding for finding in run.findings(single) if finding.severity == "error" and finding.place in values)
        for finding in (*found, *model_run.findings(single)):
            kept.append(Finding(rule_, script.path, finding.diagnostic._replace(fix=None)))
    return kept, model_run.owners


def _qualified(script: Script, findings: Iterable[Finding], owners: Mapping[Key, Collection[int]]) -> list[Finding]:
    """Return the findings; those about some commands of a launch say which, and have no repair that others read."""
    groups, kept = command_subset.group_commands(script), []
    for finding in findings:
        diagnostic = finding.diagnostic
        key = finding.rule.id, finding.place, finding.message
        about = command_subset.find_subset(groups, owners.get(key, ()), finding.place)
        if about is not None:
            fix = diagnostic.fix if diagnostic.fix and about.holds(place for place, _ in diagnostic.fix.edits) else None
            message = f"{diagnostic.message} This holds only {about.words}." if about.words else diagnostic.message
            diagnostic = diagnostic._replace(message=message, fix=fix)
        kept.append(finding._replace(diagnostic=diagnostic))
    return kept


def _order(finding: Finding) -> tuple[int, int, str, str]:
    place = finding.place
    return place.start, place.end, finding.rule.id, finding.message


def _distinct(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Drop duplicates, as from a function that starts two servers."""
    seen = set()
    for finding in findings:
        key = (finding.rule.id, finding.place, finding.message)
        if key not in seen:
            seen.add(key)
            yield finding


class _Run:
    """Run all rules on one file; collect findings, skipped rules and rule crashes."""

    def __init__(self, script: Script, cases: tuple[Case, ...], tools: tuple[Case, ...]) -> None:
        self.script = script
        self.cases = cases
        self.tools = tools
        self.silent: dict[str, set[str]] = {"gpu": set(), "model": set(), "load": set(), ESTIMATE: set()}
        self.defects: list[Defect] = []
        self.owners: dict[Key, set[int]] = {}
        """The launches about which each finding is."""

    def findings(self, rule: Rule) -> Iterator[Finding]:
        """Yield a rule's findings; a crash ends them."""
        try:
            for diagnostic in self._diagnostics(rule):
                kept = diagnostic if self.script.repairable else diagnostic._replace(fix=None)
                yield Finding(rule, self.script.path, kept)
        except Exception as error:
            if os.environ.get("RECOMMEND_DEBUG"):
                raise
            self.defects.append(Defect(rule.id, self.script.path, f"{type(error).__name__}: {error}"))

    def _diagnostics(self, rule: Rule) -> Iterator[Diagnostic]:
        if rule.whole is not None:
            yield from rule.whole(self.script)
        if rule.check is None:
            return
        yield from shared_repairs.settle(self.script, list(self._judged(rule, rule.check)))

    def _judged(self, rule: Rule, check: Check) -> Iterator[tuple[Case, Diagnostic]]:
        """Yield what a rule finds about each launch."""
        for case in (*self.cases, *(self.tools if rule.tools else ())):
            lacking = [need for need in rule.needs if not _is_met(need, rule, case)]
            loaded = "load" in rule.needs and has_replicas(case)
            if not lacking and ESTIMATED.issubset(rule.needs) and (loaded or spread(case) is not None):
                lacking = [ESTIMATE]
            for need in lacking:
                self.silent[need].add(rule.id)
            if lacking:
                continue
            for diagnostic in check(case):
                if not weighs_recommended(rule, case):
                    key = rule.id, diagnostic.place, diagnostic.message
                    self.owners.setdefault(key, set()).add(id(case.launch))
                    yield case, _repairable(rule, case, diagnostic)


def _is_met(need: str, rule: Rule, case: Case) -> bool:
    known: bool = getattr(case, f"{need}_known")
    return known or (need == "model" and rule.by_architecture and bool(engine_support.architecture(case)))


def _repairable(rule: Rule, case: Case, diagnostic: Diagnostic) -> Diagnostic:
    """Return a diagnostic without its repair if the release is assumed, unless every release asks for that repair."""
    fix = diagnostic.fix
    if fix is None or case.release_known or rule.check is None:
        return diagnostic
    asked = (any(found.fix == fix for found in rule.check(other)) for other in case.on_each_release())
    return diagnostic if all(asked) else diagnostic._replace(fix=None)
