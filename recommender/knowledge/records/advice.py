"""What people advise, claim and report."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recommender.knowledge.records.base import (
    CodeSource,
    Id,
    PageSource,
    Place,
    Record,
    Sources,
    Text,
    Verdict,
    Version,
    VersionOrOpen,
)


class Setting(Record):
    """One setting of an adviser: which option, its value, why, and where it stands."""

    option: Id
    value: str
    up_to: str = Field(default="", description="upper end where a range was advised")
    final: bool = Field(default=True, description="false: said in passing, not in the adviser's own configuration")
    reason: str = ""
    reason_vi: str = ""
    places: tuple[Place, ...] = Field(min_length=1)


class Figure(Record):
    """A memory, load or speed figure an adviser claims. Equal ends: one number. Unit 'words' puts it in text."""

    kind: Literal["vram", "weights", "kv-cache", "concurrency", "throughput", "latency", "instances"]
    low: float = 0.0
    high: float = 0.0
    unit: Literal["GB", "MB", "ms", "count", "words"]
    words: str = ""
    about: str = ""
    places: tuple[Place, ...] = Field(min_length=1)


class Adviser(Record):
    """Who advised what."""

    id: Id
    name: Text
    kind: Literal["chatbot", "script", "guide", "comparison"]
    language: Literal["en", "vi"]
    approach: Text
    approach_vi: str = ""
    best_for: Text
    best_for_vi: str = ""
    trade_off: Text
    trade_off_vi: str = ""
    model: str = ""
    settings: tuple[Setting, ...] = Field(min_length=1)
    figures: tuple[Figure, ...] = ()
    places: tuple[Place, ...] = Field(min_length=1)


class Disagreement(Record):
    """Seeds 000 and 001 say different things of the same adviser's setting; 001 is the source."""

    id: Id
    adviser: Id
    option: Id
    kind: Literal["value", "reason"]
    table_says: Text
    answer_says: str = Field(description="empty: the adviser's answer gives none")
    note: Text
    places: tuple[Place, ...] = Field(min_length=1)


class Scenario(Record):
    """A usage scenario of the comparison and the advisers it picks for it."""

    id: Id
    title: Text
    title_vi: str = ""
    picks: tuple[Id, ...] = Field(min_length=1)
    reasons: tuple[Text, ...] = Field(min_length=1)
    places: tuple[Place, ...] = Field(min_length=1)


class ComparedRuns(Record):
    """Two sides of measured launches that differ in what a claim is about.

    A run stands for its launch: all its starts count, at every load that both sides measured. What they show is
    computed from them (``claim_measurements``), so that no adverse load can be left out.
    """

    change: Text = Field(description="what ``of`` has instead of what ``than`` has")
    figure: Literal["requests/s", "latency", "first token"]
    says: Literal["more", "less", "same"] = Field(description="what the statement expects of ``of``")
    of: tuple[Id, ...] = Field(min_length=1)
    than: tuple[Id, ...] = Field(min_length=1)
    where: tuple[str, ...] = Field(
        default=(), description="conditions on request.…: the loads that the verdict is about; empty: all"
    )


class Claim(Record):
    """One checkable statement and its verdict."""

    id: Id
    statement: Text
    advisers: tuple[Id, ...] = ()
    places: tuple[Place, ...] = ()
    options: tuple[Id, ...] = ()
    when: tuple[str, ...] = Field(
        default=(),
        description="conditions on lmdeploy, gpu, model and request: the answers that it concerns; empty: all",
    )
    verdict: Verdict
    since: Version = "0.7.0"
    until: VersionOrOpen = ""
    because: Text
    comparisons: tuple[ComparedRuns, ...] = ()
    sources: Sources


class Thread(Record):
    """A public thread, or a page of LMDeploy's documentation, about a failure that users meet.

    ``since`` and ``until`` are the releases in which it can be met.
    """

    id: Id
    title: Text = Field(description="as it stands over the thread")
    thread: PageSource = Field(description="its address, the day it was opened, what its maintainers said")
    posted: Annotated[str, Field(pattern=r"^(\d{4}-\d{2}-\d{2})?$")] = Field(
        default="", description="the day it was begun; empty for a page of documentation"
    )
    symptom: Text
    error: str = Field(default="", description="at most eight words of the log that tell it; empty: none tells it")
    cause: Text
    remedy: Text
    options: tuple[Id, ...] = ()
    since: Version = "0.7.0"
    until: VersionOrOpen = ""
    code: tuple[CodeSource, ...] = Field(default=(), description="where cause or remedy stand in LMDeploy")
