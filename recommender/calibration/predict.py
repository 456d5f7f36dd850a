"""Predict the loads of a recorded run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.common.units import MIB
from recommender.estimate import memory, speed
from recommender.knowledge import run_figures
from recommender.request.lengths import write_lengths
from recommender.request.load_lengths import resolve_lengths
from recommender.request.request import read_mix

if TYPE_CHECKING:
    from recommender.choose.recommend import Setup
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge import records
    from recommender.request.resolved_request import ResolvedRequest


def resolve_load(
    setup: Setup,
    concurrency: int,
    images: int,
    width: int,
    height: int,
    cpus: int = 0,
    rps: float = 0.0,
) -> ResolvedRequest:
    """Return a setup's resolved request under another load, with images of one size.

    ``concurrency`` 0: requests arrive at ``rps``. ``cpus`` are those of the host where not 0.
    """
    resolved = setup.resolved
    return replace(
        resolved,
        request=replace(resolved.request, cpus=cpus) if cpus else resolved.request,
        concurrency=concurrency or resolved.concurrency,
        rps=rps,
        images=images,
        image_width=width if images else 0,
        image_height=height if images else 0,
        image_sizes=(),
    )


def resolve_phase(setup: Setup, run: records.SmokeRun, phase: records.Phase) -> ResolvedRequest:
    """Return a setup's resolved request under the load of a run's phase."""
    width, height = (int(side) for side in phase.image.split("x")) if phase.image else (0, 0)
    rps = 0.0 if phase.concurrency else phase.arrivals_rps
    resolved = resolve_load(setup, phase.concurrency, phase.images, width, height, run.cores, rps)
    if phase.streamed and not phase.images:  # every so many, so that repeats have the same share
        every = round(len(run_figures.numbers(phase.latencies_ms)) / len(run_figures.numbers(phase.ttft_ms)))
        resolved = replace(resolved, streamed_share=1 / every)
    return _with_drawn(resolved, phase.drawn) if phase.drawn else resolved


def _with_drawn(resolved: ResolvedRequest, drawn: records.DrawnLoad) -> ResolvedRequest:
    """Return the request with the lengths, prefix, turns and arrivals that a phase was driven with."""
    prompts, outputs = (write_lengths(sorted(run_figures.numbers(text))) for text in (drawn.prompts, drawn.outputs))
    request = replace(
        resolved.request,
        workload="",
        prompt_tokens=0,
        prompt_p99=0,
        output_tokens=0,
        output_p99=0,
        input_lengths=prompts,
        output_lengths=outputs,
        prefix_tokens=drawn.prefix_tokens,
        repeated_share=0.0,
        turns=drawn.turns,
        max_context=drawn.max_context,
    )
    lengths = resolve_lengths(request, resolved.store.workloads["text"], resolved.model)
    return replace(
        resolved,
        request=request,
        burstiness=drawn.burstiness,
        image_sizes=read_mix(drawn.image_mix),
        **lengths.fields(),
    )


def with_free_memory(resolved: ResolvedRequest, run: records.SmokeRun) -> ResolvedRequest:
    """Return the request with the memory that was free on a run's GPUs, of which the KV cache is a share.

    Only for a request with ``--vram``: it plans for a shared GPU, and the run's may have had more free.
    """
    free = (run.memory_mib - run.idle_mib) * MIB
    return replace(resolved, available_bytes=free) if resolved.request.vram_gib else resolved


def with_server_layout(run: records.SmokeRun, config: Configuration) -> Configuration:
    """Return a run's configuration with what its command does not say: threads, servers, and of those on a GPU."""
    if not any(setting.startswith("OMP_NUM_THREADS=") for setting in run.environment):  # one for each core
        config = replace(config, omp_threads=run.cores)
    if run.copies > 1:
        return replace(config, servers=run.copies, share=run.copies)
    if run.servers:
        return replace(config, servers=run.servers, share=run.share, max_tiles=run.max_tiles)
    servers = run.gpu_count // config.tp if config.proxy_url else 1
    return replace(config, servers=max(servers, 1))


def is_predictable(run: records.SmokeRun) -> bool:
    """Return whether the estimates cover a run: one server, one a GPU, or several a GPU under CUDA MPS.

    Runs that keep GPUs from reaching each other are not covered: whether NCCL obeys depends on its version.
    """
    isolated = {"NCCL_P2P_DISABLE=1", "NCCL_WIN_ENABLE=0"} & set(run.environment)
    return run.kind != "python" and (run.copies == 1 or run.mps) and not isolated


def predict_phase(setup: Setup, run: records.SmokeRun, phase: records.Phase) -> speed.Speed:
    """Predict the speed of a run under the load of a phase; arrivals of requests with images are not covered."""
    resolved = with_free_memory(resolve_phase(setup, run, phase), run)
    config = with_server_layout(run, setup.config)
    return speed.estimate(resolved, config, kv_tokens=cache_of(resolved, config))


def cache_of(resolved: ResolvedRequest, config: Configuration) -> int:
    """Return the tokens of a server's KV cache; 0 where a load is too alike for it to matter."""
    return memory.estimate(resolved, config).kv_tokens if needs_simulation(resolved) else 0


def needs_simulation(resolved: ResolvedRequest) -> bool:
    """Return whether only the simulation predicts a load: its lengths vary, its prompts repeat, or it arrives."""
    return resolved.varies or bool(resolved.rps)
