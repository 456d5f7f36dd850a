"""Named loads, and workloads: what requests bring and want."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from recommender.knowledge.records.base import Id, Record, Sources, Text

Count = Annotated[int, Field(ge=0)]


class NamedLoad(Record):
    """A named load: how many requests are in flight at once."""

    id: Id
    concurrency: Annotated[int, Field(ge=1)]
    summary: Text
    summary_vi: str = ""


class Workload(Record):
    """A kind of requests: what goes in and what must come out.

    Lengths are in tokens: medians, with p90 and p99 where they vary. ``prompt_tokens`` is the text alone, with the
    ``prefix_tokens`` that all requests share and, of a later turn, what was said before.
    """

    id: Id
    summary: Text
    summary_vi: str = ""
    images: Count
    image_width: Count
    image_height: Count
    prompt: Text
    prompt_tokens: Annotated[int, Field(ge=1)]
    prompt_p90: Count = 0
    prompt_p99: Count = 0
    output_tokens: Annotated[int, Field(ge=1)]
    output_p90: Count = 0
    output_p99: Count = 0
    prefix_tokens: Count = 0
    turns: Annotated[int, Field(ge=1)] = 1
    burstiness: Annotated[float, Field(gt=0)] = 1.0
    response_schema: str = Field(default="", description="JSON Schema as text; empty: free text")
    doubt: str = Field(default="", description="What the figures do not say")
    sources: Sources = Field(default_factory=Sources)
