"""Read the runs of the first probe as observations, until runs of ``recommend smoke`` replace them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from recommender.calibration.observations import Observation
from recommender.choose.candidates import tiers
from recommender.estimate.configuration import Configuration
from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.store import Store
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest, resolve_request

SETTINGS = {
    "--session-len": ("session_len", int),
    "--max-batch-size": ("max_batch_size", int),
    "--max-prefill-token-num": ("prefill_tokens", int),
    "--cache-max-entry-count": ("cache_ratio", float),
}
KV_BITS = {"0": 16, "8": 8, "4": 4}


def measured_configuration(start: records.MeasuredStart, resolved: ResolvedRequest) -> Configuration:
    """Return the configuration that a measured command line asked for."""
    words = list(start.flags)
    values = {name: kind(words[words.index(flag) + 1]) for flag, (name, kind) in SETTINGS.items()}
    if "--quant-policy" in words:
        values["kv_bits"] = KV_BITS[words[words.index("--quant-policy") + 1]]
    return replace(next(tiers(resolved))[0], **{"kv_bits": 16, "omp_threads": start.omp_threads, **values})


def probe_observations(folder: Path, store: Store) -> Iterator[Observation]:
    """Yield the observations of every probe; of a start without its image encoder only its loads."""
    for path in sorted(folder.glob("*.yaml")):
        probe = read_record(path, records.Measurement)
        for number, start in enumerate(probe.starts):
            run = f"{probe.id}#{number}"
            bare = resolve_request(Request(gpu=probe.gpu, model=start.model), store)
            text_only = "--language-model-only" in start.flags
            used = {} if text_only else {"memory": float(start.ready_mib - probe.idle_mib)}
            yield _observation(run, probe.gpu, start, bare, 0, used)
            for load in start.loads:
                resolved = _resolve(probe, start, load, store)
                figures = {"latency": float(statistics.median(load.latencies_ms)), "ttft": load.ttft_ms}
                if load.concurrency > 1:
                    figures["rps"] = load.rps
                yield _observation(run, probe.gpu, start, resolved, load.concurrency, figures)


def _resolve(
    probe: records.Measurement, start: records.MeasuredStart, load: records.MeasuredLoad, store: Store
) -> ResolvedRequest:
    width, height = (int(side) for side in load.image.split("x")) if load.image else (0, 0)
    request = Request(
        gpu=probe.gpu,
        model=start.model,
        concurrency=load.concurrency,
        images=1 if load.image else 0,
        image_width=width,
        image_height=height,
        output_tokens=load.output_tokens,
        cpus=probe.cpus,
    )
    resolved = resolve_request(request, store)
    return replace(resolved, prompt_tokens=load.input_tokens - (resolved.input_tokens() - resolved.prompt_tokens))


def _observation(
    run: str,
    gpu: str,
    start: records.MeasuredStart,
    resolved: ResolvedRequest,
    concurrency: int,
    measured: dict[str, float],
) -> Observation:
    kept = MappingProxyType({name: value for name, value in measured.items() if value})
    config = measured_configuration(start, resolved)
    return Observation(run, start.model, gpu, run, resolved, config, concurrency, kept)
