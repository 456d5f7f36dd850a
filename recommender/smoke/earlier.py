"""The runs of the first probe as observations. They go when runs of ``recommend smoke`` have replaced them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from recommender import records as r
from recommender.candidates import tiers
from recommender.compiling import read_record
from recommender.configuration import Configuration
from recommender.facts import Facts, gather
from recommender.request import Request
from recommender.smoke.observations import Observation
from recommender.store import Store

SETTINGS = {
    "--session-len": ("session_len", int),
    "--max-batch-size": ("max_batch_size", int),
    "--max-prefill-token-num": ("prefill_tokens", int),
    "--cache-max-entry-count": ("cache_ratio", float),
}
KV_BITS = {"0": 16, "8": 8, "4": 4}


def configured(start: r.MeasuredStart, facts: Facts) -> Configuration:
    """The configuration that a measured command line asked for."""
    words = list(start.flags)
    values = {name: kind(words[words.index(flag) + 1]) for flag, (name, kind) in SETTINGS.items()}
    if "--quant-policy" in words:
        values["kv_bits"] = KV_BITS[words[words.index("--quant-policy") + 1]]
    changed = {"kv_bits": 16, "omp_threads": start.omp_threads, **values}
    return replace(next(tiers(facts))[0], **changed)


def probed(folder: Path, store: Store) -> Iterator[Observation]:
    """The observations of every probe; of a start without its image encoder its loads only."""
    for path in sorted(folder.glob("*.yaml")):
        taken = read_record(path, r.Measurement)
        for number, start in enumerate(taken.starts):
            run = f"{taken.id}#{number}"
            bare = gather(Request(gpu=taken.gpu, model=start.model), store)
            used = {} if "--language-model-only" in start.flags else {"memory": float(start.ready_mib - taken.idle_mib)}
            yield _observation(run, taken.gpu, start, bare, 0, used)
            for load in start.loads:
                facts = _facts(taken, start, load, store)
                figures = {"latency": float(statistics.median(load.latencies_ms)), "ttft": load.ttft_ms}
                if load.concurrency > 1:
                    figures["rps"] = load.rps
                yield _observation(run, taken.gpu, start, facts, load.concurrency, figures)


def _facts(taken: r.Measurement, start: r.MeasuredStart, load: r.MeasuredLoad, store: Store) -> Facts:
    width, height = (int(side) for side in load.image.split("x")) if load.image else (0, 0)
    asked = Request(
        gpu=taken.gpu,
        model=start.model,
        concurrency=load.concurrency,
        images=1 if load.image else 0,
        image_width=width,
        image_height=height,
        output_tokens=load.output_tokens,
        cpus=taken.cpus,
    )
    facts = gather(asked, store)
    return replace(facts, prompt_tokens=load.input_tokens - (facts.input_tokens() - facts.prompt_tokens))


def _observation(
    run: str, gpu: str, start: r.MeasuredStart, facts: Facts, flight: int, measured: dict[str, float]
) -> Observation:
    kept = MappingProxyType({name: value for name, value in measured.items() if value})
    return Observation(run, start.model, gpu, run, facts, configured(start, facts), flight, kept)
