"""What the recommender reads of a published benchmark: loads in one form, whatever form the table has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.knowledge import records


@dataclass(frozen=True, slots=True)
class PublishedLoad:
    """One load: requests in flight, tokens per request (means; 0: not published), and figures (0: not published).

    ``concurrency`` of a load with arrivals is the mean number in flight, by Little's law from its own figures.
    """

    concurrency: int
    input_tokens: int
    output_tokens: int
    rps: float
    output_tps: float
    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table without its notes; ``url`` is its page."""

    id: str
    gpu: str
    tp: int
    model: str
    weights: str
    kv_bits: int
    engine: str
    version: str
    url: str
    rows: tuple[PublishedLoad, ...]


def summarise_benchmark(benchmark: records.Benchmark) -> PublishedTable:
    """Return the loads of a published benchmark in one form."""
    return PublishedTable(
        id=benchmark.id,
        gpu=benchmark.gpu,
        tp=benchmark.tp,
        model=benchmark.model,
        weights=benchmark.weights,
        kv_bits=benchmark.kv_bits,
        engine=benchmark.engine,
        version=benchmark.version,
        url=benchmark.page.url,
        rows=tuple(map(_load, benchmark.rows)),
    )


def _load(row: records.BenchmarkRow) -> PublishedLoad:
    input_tps = row.input_tps or max(row.total_tps - row.output_tps, 0.0)
    inputs = row.input_tokens or (round(input_tps / row.rps) if row.rps else 0)
    outputs = row.output_tokens or (round(row.output_tps / row.rps) if row.rps else 0)
    latency_s = (row.ttft_ms + max(outputs - 1, 0) * row.tpot_ms) / 1e3
    return PublishedLoad(
        concurrency=row.concurrency or max(round(row.rps * latency_s), 1),
        input_tokens=inputs,
        output_tokens=outputs,
        rps=row.rps or (row.output_tps / outputs if outputs else 0.0),
        output_tps=row.output_tps or row.rps * outputs,
        ttft_ms=row.ttft_ms,
        tpot_ms=row.tpot_ms,
    )
