"""Define rules and findings. Each rule is a module of ``recommender.review.rules``.

The module's docstring is the rule's page: a title, then "What it does", "Why", "Bad" and "Good". The module ends with
``RULE = Rule(...)``. A rule checks one launch at a time, or (``whole=True``) the script once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from recommender.review.case import Case
from recommender.review.launch_settings import LaunchSetting

if TYPE_CHECKING:
    from recommender.review.script.model import Script, Span

__all__ = ["Case", "LaunchSetting"]

RETIRED: Mapping[str, str] = MappingProxyType({"LMD611": "SC2086", "LMD612": "SC2034", "LMD613": "SC2034"})
"""Ids of deleted rules, never given again, with the rule of ShellCheck that covers each."""

Severity = Literal["error", "warning", "info"]
Family = Literal["starts", "answers", "nothing", "costs", "safety", "operations"]


def retirement(rule_id: str) -> str:
    """Return what to tell a user who names a retired rule; empty for any other id."""
    return f"{rule_id} was retired; use ShellCheck {RETIRED[rule_id]}" if rule_id in RETIRED else ""


@dataclass(frozen=True)
class Fix:
    """A safe repair: each place is replaced by its text."""

    edits: tuple[tuple[Span, str], ...]
    what: str


@dataclass(frozen=True)
class Diagnostic:
    """What a rule reports: place, what is wrong, why, and a repair if one is safe."""

    place: Span
    message: str
    why: str
    fix: Fix | None = None
    severity: Severity | None = None
    """Where it differs from the rule's own."""


Check = Callable[[Case], Iterator[Diagnostic]]
WholeCheck = Callable[["Script"], Iterator[Diagnostic]]


@dataclass(frozen=True)
class Rule:
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


@dataclass(frozen=True)
class Finding:
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
    def severity(self) -> Severity:
        """Return the diagnostic's own severity, else the rule's."""
        return self.diagnostic.severity or self.rule.severity
