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

    concurrency: Count = Field(default=0, description="concurrent requests")
    rate: Rate = Field(default=0.0, description="requests/s that the client sends, where it does not wait for answers")
    input_tokens: Count = Field(default=0, description="input tokens of a request")
    output_tokens: Count = Field(default=0, description="output tokens of a request")
    rps: Rate = Field(default=0.0, description="requests/s that the server completes")
    output_tps: Rate = Field(default=0.0, description="output tokens/s of all requests")
    input_tps: Rate = Field(default=0.0, description="input tokens/s of all requests")
    total_tps: Rate = Field(default=0.0, description="input and output tokens/s")
    ttft_ms: Rate = Field(default=0.0, description="time to first token in ms")
    tpot_ms: Rate = Field(default=0.0, description="time per output token in ms")


class Benchmark(Record):
    """One published table: one page, card, model and ``tp``.

    ``version`` is LMDeploy's as the page names it. ``weights`` awq: 4 bits in groups of 128, of a model whose
    record is that of its 16-bit checkpoint.
    """

    id: Id = Field(description="name of the file")
    gpu: Id = Field(description="id of the GPU")
    tp: Annotated[int, Field(ge=1, description="GPUs that share the model")] = 1
    model: Id = Field(description="a model of the same shape")
    weights: Literal["16-bit", "awq"] = Field(default="16-bit", description="precision of the weights")
    kv_bits: Literal[16, 8, 4] = Field(default=16, description="bits of a KV cache value")
    engine: Literal["turbomind", "pytorch"] = Field(description="engine that ran")
    version: Text = Field(description="LMDeploy's version as the page names it")
    dataset: str = Field(default="", description="where the lengths come from; empty: all requests are alike")
    rows: tuple[BenchmarkRow, ...] = Field(min_length=1, description="the loads of the table")
    note: str = Field(default="", description="what the page leaves open, or does otherwise than a server")
    page: PageSource = Field(description="where the table stands")
