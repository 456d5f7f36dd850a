"""Latency and throughput of one server: a roofline for the card, host terms per step, tile and request.

A request passes two stations. The server process prepares it in one thread
(decode the picture, cut it into tiles, tokenise). The engine then carries it
through one iteration per output token; an iteration costs a step of the host or
of the card, whichever is longer, and the prefill of what joined the batch
meanwhile. With so many requests always in flight, the split between the two
stations is a birth-death chain, solved exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from recommender import shapes
from recommender.configuration import Configuration
from recommender.facts import Facts
from recommender.memory import kv_token_bytes, running

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.store import Store

Limit: TypeAlias = Literal[
    "decoding steps of the host", "preprocessing", "prefill on the card", "decoding steps of the card"
]


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted figure: middle and ends."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Range:
        """The same range in another unit."""
        return Range(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Speed:
    """What clients see, in ms and requests a second over all servers, and what limits it."""

    alone_ms: Range
    latency_ms: Range
    p99_ms: Range
    ttft_ms: Range
    token_ms: Range
    rps: Range
    limit: Limit
    basis: Literal["modelled from measurements on the same GPU", "extrapolated from datasheets"]
    coefficients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """Demands of one request on one server, in ms; ``step_host`` and ``step_card`` are of one iteration."""

    prepare: float
    prefill: float
    overhead: float
    step_host: float
    step_card: float

    @property
    def step(self) -> float:
        """One iteration without prefill: the longer of host and card."""
        return max(self.step_host, self.step_card)


COEFFICIENTS = (
    "request-host-ms",
    "request-overhead-ms",
    "megapixel-host-ms",
    "tile-host-ms",
    "tile-host-parallel-ms",
    "tile-host-crowded-ms",
    "extra-pass-steps",
    "step-host-ms",
    "step-layer-host-ms",
    "step-layer-quantised-ms",
    "prefill-efficiency",
    "prefill-efficiency-quantised",
    "vision-efficiency",
    "bandwidth-efficiency",
    "parallel-efficiency",
    "tail-alone",
    "tail-queue",
)


def estimate(facts: Facts, config: Configuration, ranged: bool = True) -> Speed:
    """The speed of all servers of a configuration under the request's load.

    Without ``ranged`` the ends of each range are its middle: enough to compare, at a third of the work.
    """
    flight = -(-facts.concurrency // config.servers)
    each = running(facts, config)
    middle = _figures(facts, config, flight, 0)
    slow = _figures(facts, config, flight, 1) if ranged else middle
    fast = _figures(facts, config, flight, -1) if ranged else middle

    def figure(index: int) -> Range:
        ends = sorted((slow[index], fast[index]))
        return Range(middle[index], min(ends[0], middle[index]), max(ends[1], middle[index]))

    terms = _terms(facts, config, each, 0)
    same = facts.gpu.id in _measured(facts.store)
    return Speed(
        alone_ms=figure(0),
        latency_ms=figure(1),
        p99_ms=figure(2),
        ttft_ms=figure(3),
        token_ms=figure(4),
        rps=figure(5).scaled(config.servers),
        limit=_limit(terms, facts, each),
        basis="modelled from measurements on the same GPU" if same else "extrapolated from datasheets",
        coefficients=COEFFICIENTS,
    )


@lru_cache(maxsize=8)
def _measured(store: Store) -> frozenset[str]:
    """The GPUs that the coefficients were fitted on: a run on another card changes no estimate."""
    cited = {each for coefficient in store.coefficients.values() for each in coefficient.sources.evidence}
    return frozenset(each.gpu for kind in (store.evidence, store.probes) for each in kind.values() if each.id in cited)


def _limit(terms: Terms, facts: Facts, batch: int) -> Limit:
    steps = facts.output_tokens * terms.step / batch
    parts = {"preprocessing": terms.prepare, "prefill on the card": terms.prefill}
    name = max(parts, key=lambda part: parts[part])
    if steps > parts[name]:
        return "decoding steps of the host" if terms.step_host >= terms.step_card else "decoding steps of the card"
    return "preprocessing" if name == "preprocessing" else "prefill on the card"


def _figures(facts: Facts, config: Configuration, flight: int, end: int) -> tuple[float, ...]:
    """Alone, mean, p99, time to first token, per token (ms) and requests a second of one server.

    ``flight`` requests are at the server; those beyond the batch wait in line.
    """
    batch = min(flight, config.max_batch_size)
    alone = _terms(facts, config, 1, end)
    loaded = _terms(facts, config, batch, end)
    out = facts.output_tokens
    alone_ms = alone.prepare + alone.overhead + alone.prefill + out * alone.step
    rate = throughput(loaded, out, batch)
    mean = max(flight / rate, alone_ms)
    token = loaded.step + loaded.prefill * min(batch - 1, rate * loaded.step * 1e-3 * out) / out
    coefficient = facts.store.coefficients
    tail = alone_ms * _end(coefficient["tail-alone"], end) + (mean - alone_ms) * _end(coefficient["tail-queue"], end)
    first = max(mean - (out - 1) * token, alone.prepare + alone.prefill + alone.step)
    return alone_ms, mean, tail, first, token, min(rate, flight / mean) * 1e3


def throughput(terms: Terms, out: int, flight: int) -> float:
    """Requests a ms with ``flight`` requests always in flight at one server.

    ``out`` output tokens each. Birth-death chain over the number in the engine:
    the preparing thread feeds it one at a time, the engine completes n requests
    every ``out`` iterations, each iteration carrying n/out prefills.
    """
    return _throughput(terms.prepare, terms.prefill, terms.step, out, flight)


@lru_cache(maxsize=65536)
def _throughput(prepare: float, prefill: float, step: float, out: int, flight: int) -> float:
    feed = 1 / max(prepare, 1e-6)
    weight, total, done = 1.0, 1.0, 0.0
    for n in range(1, flight + 1):
        complete = n / (out * step + n * prefill)
        weight *= feed / complete
        total += weight
        done += weight * complete
        if total > 1e200:
            weight, total, done = weight / total, 1.0, done / total
    return done / total


def _terms(facts: Facts, config: Configuration, batch: int, end: int) -> Terms:
    tp, max_tiles = config.tp, config.max_tiles
    c = _ends(facts.store, end)
    inputs = facts.input_tokens(max_tiles)
    rate = _rate(facts.gpu, facts.model) * 1e9  # operations a ms
    ranks = 1 + (tp - 1) * c["parallel-efficiency"]
    step_host = c["step-host-ms"] + c["step-layer-host-ms"] * facts.model.text.layers
    quantised = bool(facts.model.quantization) and facts.model.quantization[0].bits == 4
    reached = c["prefill-efficiency-quantised" if quantised else "prefill-efficiency"]
    compute = _text_flops(facts.model, inputs) / (rate * reached * ranks)
    see = facts.images * facts.tiles(max_tiles) * _tile_flops(facts.model) / (rate * c["vision-efficiency"] * ranks)
    # A pass holds the budget at most, and no more than a session.
    passes = -(-inputs // min(config.prefill_tokens, config.session_len))
    context = inputs + facts.output_tokens // 2
    moved = shapes.decode_bytes(facts.model, tp) + batch * context * kv_token_bytes(facts.model, config.kv_bits, tp)
    pixels = facts.image_width * facts.image_height / 1e6
    tile = c["tile-host-ms"] + c["tile-host-parallel-ms"] / config.omp_threads
    if batch > 1 and config.omp_threads >= facts.request.cpus > 1:
        tile += c["tile-host-crowded-ms"]  # every thread pool wants every core
    step_card = max(
        moved / (facts.gpu.bandwidth_gb_s * 1e6 * c["bandwidth-efficiency"]),
        c["step-layer-quantised-ms"] * facts.model.text.layers if quantised else 0.0,
    )
    return Terms(
        prepare=c["request-host-ms"] + facts.images * (facts.tiles(max_tiles) * tile + pixels * c["megapixel-host-ms"]),
        prefill=compute + see + (passes - 1) * c["extra-pass-steps"] * max(step_host, step_card),
        overhead=c["request-overhead-ms"],
        step_host=step_host,
        step_card=step_card,
    )


@lru_cache(maxsize=32)
def _ends(store: Store, end: int) -> Mapping[str, float]:
    return {name: _end(store.coefficients[name], end) for name in COEFFICIENTS}


def _end(coefficient: r.Coefficient, end: int) -> float:
    """The middle (0), or the end that makes things slower (1) or faster (-1)."""
    if end == 0:
        return coefficient.value
    better_high = coefficient.unit == "share"
    return coefficient.high if (end > 0) != better_high else coefficient.low


@lru_cache(maxsize=256)
def _rate(gpu: r.Gpu, model: r.Model) -> float:
    """Peak dense TFLOP/s at the 16-bit type the model computes in."""
    rates = {rate.precision: rate.tera for rate in gpu.rates}
    wanted: Literal["bf16", "fp16"] = "bf16" if model.text.dtype == "bfloat16" else "fp16"
    return rates.get(wanted, rates.get("fp16", next(iter(rates.values()))))


@lru_cache(maxsize=4096)
def _text_flops(model: r.Model, tokens: int) -> float:
    return shapes.prefill_flops(model, tokens)


@lru_cache(maxsize=256)
def _tile_flops(model: r.Model) -> float:
    return shapes.vision_flops_per_tile(model)
