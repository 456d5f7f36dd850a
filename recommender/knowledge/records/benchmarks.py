"""What others published of LMDeploy's speed. Shown beside predictions; no fit reads it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recommender.knowledge.records.base import Id, PageSource, Record, Text

Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0)]


class BenchmarkRow(Record):
    """One load of a published table, with the figures that the table gives; 0: not given.

    A load has a ``concurrency``, or arrivals at ``rate``. Token counts are those of every request; where lengths
    vary they are 0, and their means follow from the rates.
    """

    concurrency: Count = 0
    rate: Rate = Field(default=0.0, description="requests/s that the client sends, where it does not wait for answers")
    input_tokens: Count = 0
    output_tokens: Count = 0
    rps: Rate = Field(default=0.0, description="requests/s that the server completes")
    output_tps: Rate = Field(default=0.0, description="output tokens/s of all requests")
    input_tps: Rate = 0.0
    total_tps: Rate = Field(default=0.0, description="input and output tokens/s")
    ttft_ms: Rate = 0.0
    tpot_ms: Rate = 0.0


class Benchmark(Record):
    """One published table: one page, card, model and ``tp``.

    ``version`` is LMDeploy's as the page names it. ``weights`` awq: 4 bits in groups of 128, of a model whose
    record is that of its 16-bit checkpoint.
    """

    id: Id
    gpu: Id
    tp: Annotated[int, Field(ge=1)] = 1
    model: Id = Field(description="a model of the same shape")
    weights: Literal["16-bit", "awq"] = "16-bit"
    kv_bits: Literal[16, 8, 4] = 16
    engine: Literal["turbomind", "pytorch"]
    version: Text
    dataset: str = Field(default="", description="where the lengths come from; empty: all requests are alike")
    rows: tuple[BenchmarkRow, ...] = Field(min_length=1)
    note: str = Field(default="", description="what the page leaves open, or does otherwise than a server")
    page: PageSource
