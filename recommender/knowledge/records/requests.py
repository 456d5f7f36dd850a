"""Named loads, and workloads: what requests bring and want."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from recommender.knowledge.records.base import Id, Record, Sources, Text

Count = Annotated[int, Field(ge=0)]


class NamedLoad(Record):
    """A named load: how many requests are in flight at once."""

    id: Id = Field(description="name of the file")
    concurrency: Annotated[int, Field(ge=1, description="concurrent requests")]
    summary: Text = Field(description="what it stands for")
    summary_vi: str = Field(default="", description="the same in Vietnamese")


class Workload(Record):
    """A kind of requests: what goes in and what must come out.

    Lengths are in tokens: medians, with p90 and p99 where they vary. ``prompt_tokens`` is the text alone, with the
    ``prefix_tokens`` that all requests share and, of a later turn, what was said before.
    """

    id: Id = Field(description="name of the file")
    summary: Text = Field(description="what kind of requests")
    summary_vi: str = Field(default="", description="the same in Vietnamese")
    images: Count = Field(description="images of a request")
    image_width: Count = Field(description="pixels")
    image_height: Count = Field(description="pixels")
    prompt: Text = Field(description="the question that clients send")
    prompt_tokens: Annotated[int, Field(ge=1, description="tokens of text in a prompt, median")]
    prompt_p90: Count = Field(default=0, description="90th percentile; 0: all alike")
    prompt_p99: Count = Field(default=0, description="99th percentile; 0: all alike")
    output_tokens: Annotated[int, Field(ge=1, description="tokens of an answer, median")]
    output_p90: Count = Field(default=0, description="90th percentile; 0: all alike")
    output_p99: Count = Field(default=0, description="99th percentile; 0: all alike")
    prefix_tokens: Count = Field(default=0, description="tokens that all prompts begin with")
    turns: Annotated[int, Field(ge=1, description="requests of a conversation")] = 1
    burstiness: Annotated[float, Field(gt=0, description="variation of the gaps between arrivals; 1: Poisson")] = 1.0
    response_schema: str = Field(default="", description="JSON Schema as text; empty: free text")
    doubt: str = Field(default="", description="What the figures do not say")
    sources: Sources = Field(default_factory=Sources, description="what the figures rest on")
