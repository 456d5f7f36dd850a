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

    option: Id = Field(description="id of the option")
    value: str = Field(description="the advised value, as text")
    up_to: str = Field(default="", description="upper end where a range was advised")
    final: bool = Field(default=True, description="false: said in passing, not in the adviser's own configuration")
    reason: str = Field(default="", description="the adviser's reason, in English")
    reason_vi: str = Field(default="", description="the same in Vietnamese")
    places: tuple[Place, ...] = Field(min_length=1, description="where the adviser says it")


class Figure(Record):
    """A figure that an adviser claims. Equal ends are one number; with the unit 'words' it is a text."""

    kind: Literal["vram", "weights", "kv-cache", "concurrency", "throughput", "latency", "instances"] = Field(
        description="what the figure is about"
    )
    low: float = Field(default=0.0, description="lower end, in unit")
    high: float = Field(default=0.0, description="upper end, in unit")
    unit: Literal["GB", "MB", "ms", "count", "words"] = Field(
        description="unit of low and high; count: a number of things"
    )
    words: str = Field(default="", description="the figure as text, where unit is words")
    about: str = Field(default="", description="what it is about, as the adviser says")
    places: tuple[Place, ...] = Field(min_length=1, description="where the adviser says it")


class Adviser(Record):
    """Who advised what."""

    id: Id = Field(description="name of the file")
    name: Text = Field(description="name that is shown")
    kind: Literal["chatbot", "script", "guide", "comparison"] = Field(description="what gave the advice")
    language: Literal["en", "vi"] = Field(description="language of the advice")
    approach: Text = Field(description="its approach in one sentence")
    approach_vi: str = Field(default="", description="the same in Vietnamese")
    best_for: Text = Field(description="what it suits best")
    best_for_vi: str = Field(default="", description="the same in Vietnamese")
    trade_off: Text = Field(description="what it costs")
    trade_off_vi: str = Field(default="", description="the same in Vietnamese")
    model: str = Field(default="", description="model that it advises for; empty: unnamed")
    settings: tuple[Setting, ...] = Field(min_length=1, description="options that it sets or mentions")
    figures: tuple[Figure, ...] = Field(default=(), description="figures that it claims")
    places: tuple[Place, ...] = Field(min_length=1, description="where its advice stands")


class Disagreement(Record):
    """Seeds 000 and 001 say different things of the same adviser's setting; 001 is the source."""

    id: Id = Field(description="name of the file")
    adviser: Id = Field(description="id of the adviser")
    option: Id = Field(description="id of the option")
    kind: Literal["value", "reason"] = Field(description="what the two texts differ in")
    table_says: Text = Field(description="what the comparison's table says")
    answer_says: str = Field(description="empty: the adviser's answer gives none")
    note: Text = Field(description="which one counts, and why")
    places: tuple[Place, ...] = Field(min_length=1, description="where both stand")


class Scenario(Record):
    """A usage scenario of the comparison and the advisers it picks for it."""

    id: Id = Field(description="name of the file")
    title: Text = Field(description="the scenario")
    title_vi: str = Field(default="", description="the same in Vietnamese")
    picks: tuple[Id, ...] = Field(min_length=1, description="ids of the picked advisers, the first best")
    reasons: tuple[Text, ...] = Field(min_length=1, description="the comparison's reasons")
    places: tuple[Place, ...] = Field(min_length=1, description="where they stand")


class ComparedRuns(Record):
    """Two sides of measured launches that differ in what a claim is about.

    A run stands for its launch: all its starts count, at every load that both sides measured. What they show is
    computed from them (``claim_measurements``), so that no adverse load can be left out.
    """

    change: Text = Field(description="what ``of`` has instead of what ``than`` has")
    figure: Literal["requests/s", "latency", "first token"] = Field(description="what is compared")
    says: Literal["more", "less", "same"] = Field(description="what the statement expects of ``of``")
    of: tuple[Id, ...] = Field(min_length=1, description="ids of the runs of one side")
    than: tuple[Id, ...] = Field(min_length=1, description="ids of the runs of the other side")
    where: tuple[str, ...] = Field(
        default=(), description="conditions on request.…: the loads that the verdict is about; empty: all"
    )


class Claim(Record):
    """One checkable statement and its verdict."""

    id: Id = Field(description="name of the file")
    statement: Text = Field(description="one sentence that is true or false")
    advisers: tuple[Id, ...] = Field(default=(), description="ids of the advisers who say it")
    places: tuple[Place, ...] = Field(default=(), description="where they say it")
    options: tuple[Id, ...] = Field(default=(), description="ids of the options that it is about")
    when: tuple[str, ...] = Field(
        default=(),
        description="conditions on lmdeploy, gpu, model and request: the answers that it concerns; empty: all",
    )
    verdict: Verdict = Field(description="what the sources show")
    since: Version = Field(default="0.7.0", description="first release that the verdict is for")
    until: VersionOrOpen = Field(default="", description="first release that it is no longer for; empty: open")
    because: Text = Field(description="why, from the sources")
    comparisons: tuple[ComparedRuns, ...] = Field(default=(), description="measured runs that show it")
    sources: Sources = Field(description="what the verdict rests on")


class Thread(Record):
    """A public thread, or a page of LMDeploy's documentation, about a failure that users meet.

    ``since`` and ``until`` are the releases in which it can be met.
    """

    id: Id = Field(description="name of the file")
    title: Text = Field(description="as it stands over the thread")
    thread: PageSource = Field(description="its address, the day it was opened, what its maintainers said")
    posted: Annotated[str, Field(pattern=r"^(\d{4}-\d{2}-\d{2})?$")] = Field(
        default="", description="the day it was begun; empty for a page of documentation"
    )
    symptom: Text = Field(description="what the user sees")
    error: str = Field(default="", description="at most eight words of the log that tell it; empty: none tells it")
    cause: Text = Field(description="why it happens")
    remedy: Text = Field(description="what to do")
    options: tuple[Id, ...] = Field(default=(), description="ids of the options concerned")
    since: Version = Field(default="0.7.0", description="first release in which it happens")
    until: VersionOrOpen = Field(default="", description="first release without it; empty: open")
    code: tuple[CodeSource, ...] = Field(default=(), description="where cause or remedy stand in LMDeploy")
