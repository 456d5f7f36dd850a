"""Define rules and findings. Each rule is a module of ``recommender.review.rules``.

The module's docstring is the rule's page: a title, then "What it does", "Why", "Bad" and "Good". The module defines
``rule``: a function under one of the decorators below. The module's name gives the rule's id and name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from recommender.review.case import Case
from recommender.review.launch_settings import LaunchSetting

if TYPE_CHECKING:
    from recommender.review.script.model import Script, Span

__all__ = ["Case", "LaunchSetting"]

RETIRED: Mapping[str, str] = MappingProxyType({"LMD611": "SC2086", "LMD612": "SC2034", "LMD613": "SC2034"})
"""Ids of deleted rules, never given again, with the rule of ShellCheck that covers each."""

Severity = Literal["error", "warning", "info"]
Family = Literal["starts", "answers", "nothing", "costs", "safety", "operations"]
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "0": "operations",
        "1": "starts",
        "2": "answers",
        "3": "nothing",
        "4": "costs",
        "5": "safety",
        "6": "operations",
    }
)
"""The family of a rule by the first digit of its id."""


def retirement(rule_id: str) -> str:
    """Return the error for a retired rule's id; empty for any other id."""
    return f"{rule_id} was retired; use ShellCheck {RETIRED[rule_id]}" if rule_id in RETIRED else ""


class Fix(NamedTuple):
    """A repair: each place is replaced by its text.

    ``unsafe``: it changes what the server may do, so it needs ``--unsafe``. ``follows``: rules that then ask for more.
    """

    edits: tuple[tuple[Span, str], ...]
    description: str
    unsafe: bool = False
    follows: tuple[str, ...] = ()


class Diagnostic(NamedTuple):
    """What a rule reports: place, what is wrong, why, and a repair if one is safe."""

    place: Span
    message: str
    why: str
    fix: Fix | None = None
    severity: Severity | None = None
    """Where it differs from the rule's own."""
    sources: tuple[str, ...] = ()
    """What this finding rests on; else the rule's first source."""


Diagnostics = Iterator[Diagnostic]
Check = Callable[[Case], Diagnostics]
OptionCheck = Callable[[Case, LaunchSetting], Diagnostics]
WholeCheck = Callable[["Script"], Diagnostics]


class Rule(NamedTuple):
    """A rule with a stable id such as LMD101, and a name of hyphenated words.

    ``sources`` are ids of records with citations (``flags/session-len``, ``threads/…``, ``constraints/…``,
    ``claims/…``) or web addresses. ``needs``: gpu, model, load.
    """

    id: str
    name: str
    family: Family
    severity: Severity
    sources: tuple[str, ...]
    check: Check | None = None
    whole: WholeCheck | None = None
    needs: tuple[str, ...] = ()
    tools: bool = False
    """Whether it also checks the other commands of LMDeploy."""
    by_architecture: bool = False
    """Of the model it needs only the architecture, which the model's name tells."""


def declare(
    module: str,
    severity: Severity,
    *,
    check: Check | None = None,
    whole: WholeCheck | None = None,
    sources: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    family: Family | None = None,
    tools: bool = False,
    by_architecture: bool = False,
) -> Rule:
    """Return the rule of a module: ``….lmd101_unknown_option`` is LMD101, unknown-option.

    The family is that of the id's first digit unless ``family`` is given.
    """
    number, _, name = module.rpartition(".")[2].partition("_")
    family = family or FAMILIES[number[3]]
    return Rule(
        number.upper(), name.replace("_", "-"), family, severity, sources, check, whole, needs, tools, by_architecture
    )


def launch_rule(
    severity: Severity, *, sources: tuple[str, ...], needs: tuple[str, ...] = ()
) -> Callable[[Check], Rule]:
    """Make a module's rule of a function that checks one launch."""
    return lambda check: declare(check.__module__, severity, check=check, sources=sources, needs=needs)


def option_rule(
    option: str, severity: Severity, *, sources: tuple[str, ...], needs: tuple[str, ...] = ()
) -> Callable[[OptionCheck], Rule]:
    """Make a module's rule of a function that checks one launch if it sets ``option``, a record's id."""

    def decorate(check: OptionCheck) -> Rule:
        def check_option(case: Case) -> Diagnostics:
            return check(case, case.settings[option]) if option in case.settings else iter(())

        return declare(check.__module__, severity, check=check_option, sources=sources, needs=needs)

    return decorate


def script_rule(severity: Severity, *, sources: tuple[str, ...]) -> Callable[[WholeCheck], Rule]:
    """Make a module's rule of a function that checks a script once."""
    return lambda whole: declare(whole.__module__, severity, whole=whole, sources=sources)


class Finding(NamedTuple):
    """A rule's diagnostic about a file."""

    rule: Rule
    path: str
    diagnostic: Diagnostic

    @property
    def place(self) -> Span:
        """Return where it points."""
        return self.diagnostic.place

    @property
    def message(self) -> str:
        """Return what is wrong."""
        return self.diagnostic.message

    @property
    def fix(self) -> Fix | None:
        """Return the repair, if one is safe."""
        return self.diagnostic.fix

    @property
    def sources(self) -> tuple[str, ...]:
        """Return what the finding rests on."""
        return self.diagnostic.sources or self.rule.sources[:1]

    @property
    def severity(self) -> Severity:
        """Return the diagnostic's own severity, else the rule's."""
        return self.diagnostic.severity or self.rule.severity
