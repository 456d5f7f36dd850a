"""LMDeploy's releases and options."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recommender.knowledge.records.base import Date, Engine, Id, Record, Sources, Text, Version, VersionOrOpen


class Release(Record):
    """One LMDeploy release on the package index and what it needs. Ranges are PEP 440 specifiers."""

    id: Version = Field(description="the release")
    published: Date = Field(description="day it was published")
    python: Text = Field(description="Python versions that it accepts")
    torch: Text = Field(description="torch versions that it accepts")
    transformers: Text = Field(description="transformers versions that it accepts")
    cuda: Text = Field(description="CUDA major version its Linux wheel links, from its requirements")
    architectures: tuple[Text, ...] = Field(
        default=(), description="GPU architectures in the TurboMind binary, e.g. sm_80; empty if nobody read them"
    )
    images: tuple[Text, ...] = Field(
        default=(), description="endings of the container tags that its workflow pushes, the usual first; empty: unread"
    )
    repository: bool = Field(
        default=True, description="whether the public repository had its tag when read; false: its C++ is unread"
    )
    note: str = Field(default="", description="what else is worth knowing")
    sources: Sources = Field(description="where it was read")


class EngineField(Record):
    """The field of a configuration class that an option fills, with the releases that have it (half-open)."""

    config: Literal[
        "TurbomindEngineConfig", "PytorchEngineConfig", "VisionConfig", "SpeculativeConfig", "ChatTemplateConfig"
    ] = Field(description="class of the configuration")
    field: Text = Field(description="name of the field")
    since: Version = Field(description="first release that has it")
    until: VersionOrOpen = Field(default="", description="first release without it; empty: open")


Number = Annotated[str, Field(pattern=r"^(-?[0-9]+(\.[0-9]+)?)?$")]
"""A number as text; empty: none."""


class Accepted(Record):
    """The values of an option that LMDeploy accepts. ``option_values`` checks them."""

    type: Literal["str", "int", "float", "bool", "json"] = Field(
        default="str", description="what the value is parsed as; bool is a switch without a value"
    )
    choices: tuple[str, ...] = Field(default=(), description="accepted values; empty: any")
    minimum: Number = Field(default="", description="the smallest number that is accepted")
    above: Number = Field(default="", description="the largest number that is too small")
    maximum: Number = Field(default="", description="the largest number that is accepted")
    zero: Annotated[str, Field(pattern=r"^(default|[0-9]+)?$")] = Field(
        default="", description="the number that a command line's 0 stands for, or default: the option's default"
    )


class Era(Accepted):
    """A half-open range of releases in which nothing about an option changed."""

    since: Version = Field(description="first release of the era")
    until: VersionOrOpen = Field(default="", description="first release after it; empty: open")
    default: str = Field(description="the text argparse would parse; empty for None; lists joined by spaces")
    read_by: tuple[Engine, ...] = Field(min_length=1, description="who reads the value")
    note: str = Field(default="", description="what differs from the eras around it")
    sources: Sources = Field(description="where it was read")


class Effect(Record):
    """What turning an option changes, in words; each says which way and how strongly."""

    memory: Text = Field(description="effect on GPU memory")
    latency: Text = Field(description="effect on the latency")
    throughput: Text = Field(description="effect on requests/s")
    accuracy: Text = Field(description="effect on the answers")


class Reason(Record):
    """Why a setting has its value: the first whose conditions all hold is shown.

    ``when`` and the {names} in ``text`` are facts of the case (see GUIDELINES.md).
    """

    when: tuple[Text, ...] = Field(default=(), description="conditions on facts of the case; empty: always")
    text: Text = Field(description="the reason that is shown")
    brief: str = Field(default="", max_length=90, description="instead of the option's")
    sources: Sources = Field(default_factory=Sources, description="what it rests on")


class Encoding(Record):
    """How a decided value is written on the command line, e.g. kv_bits 8 as quant policy 8."""

    value: str = Field(description="the decided value")
    text: str = Field(description="how it is written")


class Option(Record):
    """What flags, environment variables and request fields share."""

    id: Id = Field(description="name of the file")
    summary: Text = Field(description="what it does")
    setting: str = Field(default="", description="the decided value it carries; empty: always left at its default")
    emit: Literal["always", "changed", "never"] = Field(
        default="changed", description="changed: only where the value differs from the default"
    )
    encodings: tuple[Encoding, ...] = Field(default=(), description="decided values that are written otherwise")
    brief: str = Field(default="", max_length=90, description="the reason in about five words, for a table")
    unset: str = Field(default="", max_length=10, description="what holds where the default is empty, for a table")
    reasons: tuple[Reason, ...] = Field(default=(), description="why it has its value, by case")
    sources: Sources = Field(default_factory=Sources, description="what it rests on")


class Flag(Option):
    """One option of ``lmdeploy serve api_server`` over all covered releases."""

    option: Annotated[str, Field(pattern=r"^--[a-z0-9-]+$", description="name on the command line")]
    topic: Literal[
        "server", "model", "engine", "memory", "scheduling", "parallelism", "vision", "logging", "security", "decoding"
    ] = Field(description="section of the reference")
    summary_vi: str = Field(default="", description="the summary in Vietnamese")
    effect: Effect = Field(description="what it changes")
    changes_throughput: bool = Field(
        description="whether another value can change requests/s; estimate warns if it ignores such an option"
    )
    choose: Text = Field(description="how to choose the value")
    fields: tuple[EngineField, ...] = Field(default=(), description="fields of the Python configuration")
    eras: tuple[Era, ...] = Field(min_length=1, description="its form by release")


class Parameter(Option, Accepted):
    """An environment variable of the server process, or a field of each request."""

    name: Text = Field(description="name of the variable or field")
    kind: Literal["environment", "client"] = Field(description="environment: of the server; client: of a request")
    default: str = Field(default="", description="value where it is not given")
    effect: Effect = Field(description="what it changes")
    choose: Text = Field(description="how to choose the value")
