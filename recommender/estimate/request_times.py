"""What a request asks of a server: the times of its preprocessing, its prefill and its decoding steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Literal

from recommender.estimate import model_shape, vision_shape
from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.configuration import Configuration
from recommender.estimate.engines.engine import engine_of
from recommender.estimate.linear_attention import state_bytes
from recommender.estimate.terms.all_reduce import estimate_image_ms, estimate_pass_ms
from recommender.estimate.terms.expert_times import ExpertTimes, estimate_experts
from recommender.knowledge.quantization import only_experts
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge import records

CROWDED_FROM = 0.75
"""OMP_NUM_THREADS as a share of the cores from which preprocessing threads delay each other."""
CROWDED_THREADS, CROWDED_GROWTH = 16, 1.25
"""Up to this many threads crowding adds a constant time to a request; beyond, the time grows with this power.

With a thread for each core a request of one tile alone took about 10 ms more on 16 cores, 78 and 89 on 64
(h100-x4-2026-11-26-internvl-tp-2-vision, h100-x4-2026-11-26-internvl-vision).
"""


def estimate_times(
    resolved: ResolvedRequest, config: Configuration, loaded: bool, coefficients: Mapping[str, float]
) -> ServiceTimes:
    """Return one request's demands on a server: the mean over the image sizes, where they differ.

    ``loaded``: other requests compete for the host's cores.
    """
    if not resolved.image_sizes:
        return _fixed_times(resolved, config, loaded, coefficients)
    times_by_size = [_fixed_times(own, config, loaded, coefficients) for own, _ in resolved.each_size()]
    shares = [share for _, share in resolved.each_size()]
    return ServiceTimes(*(math.fsum(map(mul, shares, times)) for times in zip(*times_by_size, strict=True)))


def add_load(
    alone: ServiceTimes, resolved: ResolvedRequest, config: Configuration, coefficients: Mapping[str, float]
) -> ServiceTimes:
    """Return the demands of a request where others compete for the host's cores: only its preprocessing differs."""
    if resolved.image_sizes:
        return estimate_times(resolved, config, True, coefficients)
    return alone._replace(prepare=_prepare_ms(resolved, config, alone.step(1), coefficients))


def _fixed_times(
    resolved: ResolvedRequest, config: Configuration, loaded: bool, coefficients: Mapping[str, float]
) -> ServiceTimes:
    """Return the demands of a request whose images have one size."""
    model, tp = resolved.model, config.tp
    inputs, tiles = resolved.input_tokens(config.max_tiles), resolved.tiles(config.max_tiles)
    ranks = 1 + (tp - 1) * coefficients["parallel-efficiency"]
    peak = _peak_tflops(resolved.gpu, model) * 1e9 * ranks  # FLOP a ms
    dense = peak * coefficients["prefill-efficiency-quantised" if _is_4_bit(model) else "prefill-efficiency"]
    bandwidth = resolved.gpu.bandwidth_gb_s * 1e6 * coefficients["bandwidth-efficiency"]  # bytes a ms
    encode = vision_shape.vision_flops_per_tile(model) / (peak * coefficients["prefill-efficiency"])
    encode += vision_shape.vision_bytes_per_tile(model) * coefficients["vision-passes"] / (bandwidth * ranks)
    encode *= resolved.images * tiles
    exchange = estimate_pass_ms(resolved, tp, inputs, coefficients)
    exchange += resolved.images * estimate_image_ms(resolved, tp, tiles, coefficients)
    full_tokens = engine_of(config).prompt_tokens(resolved, config)
    longest = max(inputs, full_tokens)
    image_tokens = resolved.image_tokens(config.max_tiles)
    # A full pass is priced as if it held images only, so that its cost does not depend on the length of this text.
    token_ms = model_shape.prefill_flops(model, longest) / dense / longest
    token_ms += encode / image_tokens if image_tokens else 0.0
    experts = estimate_experts(model, tp, peak, dense, bandwidth, coefficients)
    exchange += inputs * experts.token + experts.whole_pass
    full_pass = full_tokens * (token_ms + experts.token) + experts.whole_pass
    times = ServiceTimes(
        prepare=0.0,
        prefill=model_shape.prefill_flops(model, inputs) / dense + encode + exchange,
        full_pass=full_pass + estimate_pass_ms(resolved, tp, full_tokens, coefficients),
        expert_pass=experts.whole_pass,
        prompt_floor=engine_of(config).prompt_launch_ms(resolved, coefficients),
        delay=engine_of(config).request_overhead_ms(coefficients),
        encoded_again=encode * engine_of(config).encoded_again(resolved.version, coefficients),
        **_step_times(resolved, config, inputs + resolved.output_tokens // 2, dense, bandwidth, coefficients, experts),
    )
    others = -(-resolved.concurrency // config.servers) - 1 if loaded else 0
    passes = max(-(-inputs // (full_tokens + engine_of(config).spare_tokens(config, others))), 1)
    again, part = times.encoded_again, times.prefill / passes
    further = (times.step(1) + again if again else times.further_pass(part)) + experts.whole_pass
    prepare = _prepare_ms(resolved, config, times.step(1) if loaded else 0.0, coefficients)
    return times._replace(prepare=prepare, prefill=times.prefill + (passes - 1) * further)


def _step_times(
    resolved: ResolvedRequest,
    config: Configuration,
    context: int,
    dense: float,
    bandwidth: float,
    coefficients: Mapping[str, float],
    experts: ExpertTimes,
) -> dict[str, float]:
    """Return the demands of a decoding step after ``context`` tokens.

    ``dense`` is in FLOP a ms, ``bandwidth`` in bytes a ms.
    """
    model, tp = resolved.model, config.tp
    head = model_shape.head_bytes(model, tp)
    read = (model_shape.decode_bytes(model, tp, 0) - head) / bandwidth
    # States of linear attention are read and written.
    context_bytes = model_shape.kv_read_bytes(model, config.kv_bits, context, tp) + 2 * state_bytes(model, tp)
    rate = bandwidth * (engine_of(config).latent_read_share(coefficients) if model.text.latent else 1.0)
    rows_ns = coefficients["step-quantised-row-ns"] if _is_4_bit(model) else 0.0
    kernels = rows_ns * model_shape.inner_rows(model, tp) / 1e6
    transfers, row = (estimate_pass_ms(resolved, tp, tokens, coefficients) for tokens in (0, 1))
    return {
        "step_base": engine_of(config).step_launch_ms(model, coefficients)
        + max(kernels, read)
        + head / bandwidth
        + transfers,
        # One more token in the pass, without its attention to earlier tokens: that is bound by memory.
        "step_row": context_bytes / rate + model_shape.prefill_flops(model, 1) / dense + row - transfers,
        "step_hidable": max(kernels, read),
        "expert_most": experts.most,
        "expert_missed": experts.missed,
        "expert_spread": experts.spread,
        "expert_launches": experts.launches,
    }


def _prepare_ms(
    resolved: ResolvedRequest, config: Configuration, step: float, coefficients: Mapping[str, float]
) -> float:
    """Return the ms that the server process works on one request; it prepares one request at a time.

    ``step`` is the ms of a decoding step at the same time; 0: the request is alone. If a tile's threads need every
    core, one of them waits for the engine's thread, which keeps its core until a step ends. Images that keep their
    shape (Qwen2.5-VL) are prepared with few threads: one thread for each core changed nothing.
    """
    request = coefficients["request-host-ms"]
    if not resolved.images:
        return request
    threads, tiles = config.omp_threads, resolved.images * resolved.tiles(config.max_tiles)
    tile = coefficients["tile-host-ms"] + coefficients["tile-host-parallel-ms"] / threads
    if not resolved.model.vision[0].pixels:
        crowded = min(max((threads / resolved.request.cpus - CROWDED_FROM) / (1 - CROWDED_FROM), 0.0), 1.0)
        tile += crowded * coefficients["tile-host-crowded-steps"] * step
        growth = math.pow(max(threads / CROWDED_THREADS, 1.0), CROWDED_GROWTH)
        request += crowded * growth * coefficients["request-host-crowded-ms"]
    decode = resolved.image_width * resolved.image_height / 1e6 * coefficients["megapixel-host-ms"]
    return request + tiles * tile + resolved.images * decode


@lru_cache(maxsize=256)
def _peak_tflops(gpu: records.Gpu, model: records.Model) -> float:
    """Return the peak dense TFLOP/s of the 16-bit type that the model computes in."""
    rates = {rate.precision: rate.tera for rate in gpu.rates}
    wanted: Literal["bf16", "fp16"] = "bf16" if model.text.dtype == "bfloat16" else "fp16"
    return rates.get(wanted, rates.get("fp16", next(iter(rates.values()))))


def _is_4_bit(model: records.Model) -> bool:
    """Return whether the layers that every token passes have 4-bit weights."""
    return bool(model.quantization) and model.quantization[0].bits == 4 and not only_experts(model)
