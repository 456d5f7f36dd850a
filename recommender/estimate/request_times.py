"""What a request asks of a server: the times of its preprocessing, its prefill and its decoding steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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


DemandsOf = Callable[[int, int, bool], ServiceTimes]
"""What gives a request's demands by the tokens of its text and its answer, and whether the server is loaded."""


def estimate_times(
    resolved: ResolvedRequest, config: Configuration, loaded: bool, coefficients: Mapping[str, float]
) -> ServiceTimes:
    """Return one request's demands on a server: the mean over the image sizes, where they differ.

    ``loaded``: other requests compete for the host's cores.
    """
    return demands_of(resolved, config, coefficients)(resolved.prompt_tokens, resolved.output_tokens, loaded)


def demands_of(resolved: ResolvedRequest, config: Configuration, coefficients: Mapping[str, float]) -> DemandsOf:
    """Return what gives the demands of requests that are alike but for their lengths."""
    if not resolved.image_sizes:
        return _fixed_demands(resolved, config, coefficients)
    demands_by_size = [_fixed_demands(own, config, coefficients) for own, _ in resolved.each_size()]
    shares = [share for _, share in resolved.each_size()]

    def mean(text: int, output: int, loaded: bool) -> ServiceTimes:
        times_by_size = [demands(text, output, loaded) for demands in demands_by_size]
        return ServiceTimes(*(math.fsum(map(mul, shares, times)) for times in zip(*times_by_size, strict=True)))

    return mean


def add_load(
    alone: ServiceTimes, resolved: ResolvedRequest, config: Configuration, coefficients: Mapping[str, float]
) -> ServiceTimes:
    """Return the demands of a request where others compete for the host's cores: only its preprocessing differs."""
    if resolved.image_sizes:
        return estimate_times(resolved, config, True, coefficients)
    return alone._replace(prepare=_prepare_ms(resolved, config, alone.step(1), coefficients))


@dataclass(frozen=True, slots=True)
class _Demands:
    """What no length changes in the demands of a request whose images have one size; a call adds what lengths do.

    ``dense`` is in FLOP a ms; ``encode`` and ``exchanged`` are the ms of all images, ``others`` the tokens beside text.
    """

    resolved: ResolvedRequest
    config: Configuration
    coefficients: Mapping[str, float]
    dense: float
    encode: float
    exchanged: float
    experts: ExpertTimes
    common: ServiceTimes
    step_row: Callable[[int], float]
    others: int
    full_tokens: int

    def __call__(self, text: int, output: int, loaded: bool) -> ServiceTimes:
        resolved, config, experts, inputs = self.resolved, self.config, self.experts, text + self.others
        exchange = estimate_pass_ms(resolved, config.tp, inputs, self.coefficients) + self.exchanged
        exchange += inputs * experts.token + experts.whole_pass
        times = self.common._replace(
            prefill=model_shape.prefill_flops(resolved.model, inputs) / self.dense + self.encode + exchange,
            step_row=self.step_row(inputs + output // 2),
            full_pass=self.common.full_pass if inputs <= self.full_tokens else self.full_pass(inputs),
        )
        running = -(-resolved.concurrency // config.servers) - 1 if loaded else 0
        passes = -(-inputs // (self.full_tokens + engine_of(config).spare_tokens(config, running)))
        if passes > 1:
            again, part = times.encoded_again, times.prefill / passes
            further = (times.step(1) + again if again else times.further_pass(part)) + experts.whole_pass
            times = times._replace(prefill=times.prefill + (passes - 1) * further)
        if loaded and resolved.images:
            return times._replace(prepare=_prepare_ms(resolved, config, times.step(1), self.coefficients))
        return times

    def full_pass(self, longest: int) -> float:
        """Return the ms of a full pass, where the longest of its prompt and its budget has so many tokens."""
        resolved, config, experts = self.resolved, self.config, self.experts
        # It is priced as if it held images only, so that its cost does not depend on the length of this text.
        token_ms = model_shape.prefill_flops(resolved.model, longest) / self.dense / longest
        token_ms += self.encode / resolved.image_tokens(config.max_tiles) if self.encode else 0.0
        exchange = estimate_pass_ms(resolved, config.tp, self.full_tokens, self.coefficients)
        return self.full_tokens * (token_ms + experts.token) + experts.whole_pass + exchange


def _fixed_demands(resolved: ResolvedRequest, config: Configuration, coefficients: Mapping[str, float]) -> _Demands:
    """Return what gives the demands of requests whose images have one size."""
    model, tp, engine = resolved.model, config.tp, engine_of(config)
    ranks = 1 + (tp - 1) * coefficients["parallel-efficiency"] if tp > 1 else 1.0
    peak = _peak_tflops(resolved.gpu, model) * 1e9 * ranks  # FLOP a ms
    dense = peak * coefficients["prefill-efficiency-quantised" if _is_4_bit(model) else "prefill-efficiency"]
    bandwidth = resolved.gpu.bandwidth_gb_s * 1e6 * coefficients["bandwidth-efficiency"]  # bytes a ms
    encode = exchanged = 0.0
    if resolved.images:
        tiles = resolved.tiles(config.max_tiles)
        encode = vision_shape.vision_flops_per_tile(model) / (peak * coefficients["prefill-efficiency"])
        encode += vision_shape.vision_bytes_per_tile(model) * coefficients["vision-passes"] / (bandwidth * ranks)
        encode *= resolved.images * tiles
        exchanged = resolved.images * estimate_image_ms(resolved, tp, tiles, coefficients)
    experts = estimate_experts(model, tp, peak, dense, bandwidth, coefficients)
    step_base, step_hidable, step_row = _step_times(resolved, config, dense, bandwidth, coefficients)
    common = ServiceTimes(
        prepare=_prepare_ms(resolved, config, 0.0, coefficients),
        prefill=0.0,
        step_base=step_base,
        step_row=0.0,
        full_pass=0.0,
        step_hidable=step_hidable,
        expert_most=experts.most,
        expert_missed=experts.missed,
        expert_spread=experts.spread,
        expert_pass=experts.whole_pass,
        expert_launches=experts.launches,
        prompt_floor=engine.prompt_launch_ms(resolved, coefficients),
        encoded_again=encode * engine.encoded_again(resolved.version, coefficients) if encode else 0.0,
        delay=engine.request_overhead_ms(coefficients),
    )
    others, full = (
        resolved.input_tokens(config.max_tiles) - resolved.prompt_tokens,
        engine.prompt_tokens(resolved, config),
    )
    parts = resolved, config, coefficients, dense, encode, exchanged, experts
    demands = _Demands(*parts, common, step_row, others, full)
    return replace(demands, common=common._replace(full_pass=demands.full_pass(full)))


def _step_times(
    resolved: ResolvedRequest,
    config: Configuration,
    dense: float,
    bandwidth: float,
    coefficients: Mapping[str, float],
) -> tuple[float, float, Callable[[int], float]]:
    """Return ``step_base``, ``step_hidable``, and what gives ``step_row`` after so many tokens of context.

    ``dense`` is in FLOP a ms, ``bandwidth`` in bytes a ms.
    """
    model, tp, engine = resolved.model, config.tp, engine_of(config)
    head = model_shape.head_bytes(model, tp)
    read = (model_shape.decode_bytes(model, tp, 0) - head) / bandwidth
    rate = bandwidth * (engine.latent_read_share(coefficients) if model.text.latent else 1.0)
    rows_ns = coefficients["step-quantised-row-ns"] if _is_4_bit(model) else 0.0
    hidable = max(rows_ns * model_shape.inner_rows(model, tp) / 1e6, read)
    transfers, row = (estimate_pass_ms(resolved, tp, tokens, coefficients) for tokens in (0, 1))
    base = engine.step_launch_ms(model, coefficients) + hidable + head / bandwidth + transfers
    states = 2 * state_bytes(model, tp)  # those of linear attention are read and written
    # One more token in the pass, without its attention to earlier tokens: that is bound by memory.
    alone = model_shape.prefill_flops(model, 1) / dense

    def step_row(context: int) -> float:
        context_bytes = model_shape.kv_read_bytes(model, config.kv_bits, context, tp) + states
        return context_bytes / rate + alone + row - transfers

    return base, hidable, step_row


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
        crowded = min((threads / resolved.request.cpus - CROWDED_FROM) / (1 - CROWDED_FROM), 1.0)
        if crowded > 0:
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
