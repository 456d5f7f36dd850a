"""What a rule is, what it is given and what it says. Each rule is a module of ``recommender.review.rules``.

The module's docstring is the rule's page: a title, what it finds, why that is wrong, how to mend it. It ends with
``RULE = Rule(...)``. A rule looks at one launch at a time, or (``whole=True``) once at the script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from recommender.facts import Facts
    from recommender.review.script import Launch, Option, Place, Script, Word

Severity = Literal["error", "warning", "info"]
Family = Literal["starts", "answers", "nothing", "costs", "safety", "operations"]


@dataclass(frozen=True)
class Fix:
    """A safe repair: the characters of each place give way to the text beside it."""

    edits: tuple[tuple[Place, str], ...]
    what: str


@dataclass(frozen=True)
class Said:
    """What a rule found: the place, one sentence of what is wrong, one of why, and a repair where one is safe."""

    place: Place
    message: str
    why: str
    fix: Fix | None = None
    severity: Severity | None = None
    """Where it differs from the rule's own."""


@dataclass(frozen=True)
class Setting:
    """A known flag or variable as the launch sets it: its record's id, its option, and the value's word.

    ``text`` is the value, "true" for a bare switch, None where only a run would tell.
    """

    id: str
    option: Option
    word: Word | None
    text: str | None


@dataclass(frozen=True)
class Case:
    """One launch under review.

    ``facts`` are those of the GPU, model, release and workload as far as they are known: ``gpu_known``,
    ``model_known`` and ``load_known`` say which were told by the options or by the script; where one is False
    the facts hold an assumption that no rule may rest on; a release that nobody told is the newest, and
    ``release_known`` is False. ``settings`` are the launch's known flags and variables, by the record's id.
    """

    script: Script
    launch: Launch
    facts: Facts
    settings: Mapping[str, Setting]
    gpu_known: bool
    model_known: bool
    load_known: bool
    release_known: bool

    def text(self, flag: str) -> str | None:
        """The value that the launch gives a flag, or None where it gives none or it cannot be known."""
        found = self.settings.get(flag)
        return found.text if found else None

    def number(self, flag: str) -> float | None:
        """The same as a number; None where it is none, or none that can be reckoned with."""
        try:
            found = float(self.text(flag) or "")
        except ValueError:
            return None
        return found if isfinite(found) else None


Check = Callable[[Case], Iterator[Said]]
WholeCheck = Callable[["Script"], Iterator[Said]]


@dataclass(frozen=True)
class Rule:
    """A rule: a stable id such as LMD101, a name in words joined by hyphens, and where its knowledge is from.

    ``sources`` are ids of records that carry the citations (``flags/session-len``, ``threads/…``,
    ``constraints/…``, ``claims/…``) or web addresses. ``needs``: gpu, model, load.
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
    """What the review prints: a rule's word about a file."""

    rule: Rule
    path: str
    said: Said

    @property
    def severity(self) -> Severity:
        """The rule's severity, or the one that this finding has of its own."""
        return self.said.severity or self.rule.severity
