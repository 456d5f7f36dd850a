"""Latency and throughput of one server: a roofline for the card, host terms per step, tile and request.

A request passes two stations. The server process prepares it in one thread
(decode the picture, cut it into tiles, tokenise). The engine then carries it
through one iteration per output token; an iteration costs a decoding step and
the prefill of what joined the batch meanwhile. With so many requests always in
flight, the split between the two stations is a birth-death chain, solved
exactly; what it says of both stations gives every other figure, by Little's law.

The coefficients are fitted, and each range reaches as far to either side as four
fifths of the errors at runs that a fit had not seen (``recommend knowledge fit``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from recommender import shapes
from recommender.configuration import Configuration
from recommender.facts import Facts
from recommender.ranges import Basis, Range, basis_of, ranged_by, rate_of, widening
from recommender.reductions import reduced, reduced_seeing
from recommender.stations import Terms, shared, stations

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.store import Store

Limit: TypeAlias = Literal["preprocessing", "prefill on the card", "decoding steps"]


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
    basis: Basis
    coefficients: tuple[str, ...]


class Figures(NamedTuple):
    """The middle of each figure of one server: times in ms, ``rps`` requests a second; and what limits it."""

    alone: float
    latency: float
    p99: float
    ttft: float
    token: float
    rps: float
    limit: Limit


COEFFICIENTS = (
    "request-host-ms",
    "request-host-crowded-ms",
    "request-overhead-ms",
    "megapixel-host-ms",
    "tile-host-ms",
    "tile-host-parallel-ms",
    "tile-host-crowded-ms",
    "extra-pass-steps",
    "first-token-share",
    "step-ms",
    "step-layer-ms",
    "step-quantised-row-ns",
    "prefill-efficiency",
    "prefill-efficiency-quantised",
    "vision-passes",
    "bandwidth-efficiency",
    "parallel-efficiency",
    "reduction-ms",
    "link-efficiency",
    "pcie-link-gb-s",
    "shared-step-share",
    "tail-alone",
    "tail-queue",
)
HOST = tuple(name for name in COEFFICIENTS if "-host-" in name or name == "request-overhead-ms")
CARD = (
    "step-ms",
    "step-layer-ms",
    "step-quantised-row-ns",
    "prefill-efficiency",
    "prefill-efficiency-quantised",
    "bandwidth-efficiency",
    "reduction-ms",
)
MANY = 2**20
"""More tokens than any mixture has experts."""
CROWDED_FROM = 0.75
"""Share of the cores from which OMP_NUM_THREADS makes every tile's threads wait for each other under load."""


def estimate(facts: Facts, config: Configuration, ranged: bool = True) -> Speed:
    """The speed of all servers of a configuration under the request's load.

    Without ``ranged`` the ends of each range are its middle: enough to compare.
    """
    flight = -(-facts.concurrency // config.servers)
    c = scaled(facts.store, facts.request.host_scale, facts.request.card_scale)
    got = spread(facts, config, facts.concurrency, c)
    widen = widening(facts, config) if ranged else 1.0
    load = "load" if flight > 1 else "alone"

    def figure(name: str, value: float) -> Range:
        return ranged_by(facts.store, name, value, widen) if ranged else Range(value, value, value)

    latency = figure(f"latency-{load}", got.latency)
    rps = figure("rps-load", got.rps) if flight > 1 else rate_of(latency, got.rps)
    return Speed(
        alone_ms=figure("latency-alone", got.alone),
        latency_ms=latency,
        p99_ms=figure(f"p99-{load}", got.p99),
        ttft_ms=figure(f"ttft-{load}", got.ttft),
        token_ms=figure(f"token-{load}", got.token),
        rps=rps,
        limit=got.limit,
        basis=basis_of(facts, config),
        coefficients=COEFFICIENTS,
    )


@lru_cache(maxsize=32)
def values(store: Store) -> Mapping[str, float]:
    """The coefficients of speed by name."""
    return {name: store.coefficients[name].value for name in COEFFICIENTS}


@lru_cache(maxsize=4096)
def scaled(store: Store, host: float, card: float) -> Mapping[str, float]:
    """The coefficients where the host's and the card's work take so many times as long."""
    known = values(store)
    shares = {name: known[name] / card for name in CARD if store.coefficients[name].unit == "share"}
    times = {name: known[name] * card for name in CARD if store.coefficients[name].unit != "share"}
    return {**known, **{name: known[name] * host for name in HOST}, **shares, **times}


def _limit(terms: Terms, out: int, batch: int) -> Limit:
    """The station that a request takes most of: where more load would queue."""
    parts: dict[Limit, float] = {
        "preprocessing": terms.prepare,
        "prefill on the card": terms.prefill,
        "decoding steps": out * terms.step(batch) / batch,
    }
    return max(parts, key=lambda part: parts[part])


def figures(facts: Facts, config: Configuration, flight: int, c: Mapping[str, float]) -> Figures:
    """The middle figures of one server with ``flight`` requests at it; those beyond the batch wait in line.

    ``c`` holds the coefficients by name.
    """
    out = facts.output_tokens
    alone = _terms(facts, config, False, c)
    first = c["request-overhead-ms"] + alone.prepare + alone.prefill
    whole = first + (out - 1) * alone.step(1)
    if flight == 1:
        limit = _limit(alone, out, 1)
        return Figures(whole, whole, whole * c["tail-alone"], first, alone.step(1), 1e3 / whole, limit)
    terms = _terms(facts, config, True, c)
    limit = _limit(terms, out, min(flight, config.max_batch_size))
    within, token = _loaded(terms, config, flight, out, c)
    token = max(token, alone.step(1))
    # One after the other is always possible.
    ttft = max(min(within, flight * whole) - (out - 1) * token, first)
    mean = ttft + (out - 1) * token
    # Where preparing is the limit, a longer prompt waits in the engine instead of before it. No gain to rely on: its
    # first token comes no earlier than that of a prompt without text.
    bare, gap = _loaded(_terms(replace(facts, prompt_tokens=0), config, True, c), config, flight, out, c)
    ttft = max(ttft, min(bare, flight * whole) - (out - 1) * gap)
    tail = max(whole * c["tail-alone"], mean * c["tail-queue"])
    return Figures(whole, mean, tail, ttft, token, flight / mean * 1e3, limit)


def _loaded(terms: Terms, config: Configuration, flight: int, out: int, c: Mapping[str, float]) -> tuple[float, float]:
    """Time at one server with ``flight`` requests at it, and of it that between two tokens; ms."""
    batch = config.max_batch_size
    if config.share > 1:
        terms = shared(terms, out, flight, batch, config.share - 1, c["shared-step-share"])
    chain = stations(terms, out, flight, batch)
    # Of what other requests add in the engine, a share falls before the first token, the rest between tokens.
    added = max(chain.engine - terms.prefill - out * terms.step(1), 0.0)
    later = (1 - c["first-token-share"]) * added / max(out - 1, 1)
    # No iteration takes more than one full pass besides its own step.
    slowest = terms.step(min(flight, batch)) + terms.full_pass
    return flight / chain.rate, min(terms.step(1) + later, slowest)


def spread(facts: Facts, config: Configuration, flight: int, c: Mapping[str, float]) -> Figures:
    """The middle figures of all servers, the requests in flight spread over them as evenly as whole ones can be.

    Times are means over the requests; p99 and the limit are those of the servers that have one more.
    """
    each, fuller = divmod(flight, config.servers)
    got = figures(facts, config, each + bool(fuller), c)
    if not each or not fuller:  # those with a request, all alike
        return got._replace(rps=got.rps * (fuller or config.servers))
    other = figures(facts, config, each, c)
    rps = got.rps * fuller + other.rps * (config.servers - fuller)
    share = got.rps * fuller / rps

    def mixed(one: float, two: float) -> float:
        return share * one + (1 - share) * two

    return got._replace(
        latency=mixed(got.latency, other.latency),
        ttft=mixed(got.ttft, other.ttft),
        token=mixed(got.token, other.token),
        rps=rps,
    )


def _terms(facts: Facts, config: Configuration, loaded: bool, c: Mapping[str, float]) -> Terms:
    tp, max_tiles = config.tp, config.max_tiles
    inputs, text = facts.input_tokens(max_tiles), facts.model.text
    ranks = 1 + (tp - 1) * c["parallel-efficiency"]
    rate = _rate(facts.gpu, facts.model) * 1e9 * ranks  # operations a ms
    quantised = bool(facts.model.quantization) and facts.model.quantization[0].bits == 4
    dense = rate * c["prefill-efficiency-quantised" if quantised else "prefill-efficiency"]
    bandwidth = facts.gpu.bandwidth_gb_s * 1e6 * c["bandwidth-efficiency"]  # bytes a ms
    tiles = facts.tiles(max_tiles)
    see = _tile_flops(facts.model) / (rate * c["prefill-efficiency"])
    see += _tile_bytes(facts.model) * c["vision-passes"] / (bandwidth * ranks)
    see *= facts.images * tiles
    met = reduced(facts, tp, inputs, c) + facts.images * reduced_seeing(facts, tp, tiles, c)
    # A pass holds the budget at most, and no more than a session.
    budget = min(config.prefill_tokens, config.session_len)
    passes = -(-inputs // budget)
    context = inputs + facts.output_tokens // 2
    head = shapes.head_bytes(facts.model, tp)
    linear, expert, experts = _read_bytes(facts.model, tp)
    slow = c["step-quantised-row-ns"] * _inner_rows(facts.model, tp) / 1e6 if quantised else 0.0
    read = linear / bandwidth
    longest = max(inputs, budget)
    images = facts.image_tokens(max_tiles)
    # Of a full pass, as if it were of images alone: what it costs does not depend on how long this text is.
    full = _text_flops(facts.model, longest) / dense / longest + (see / images if images else 0.0)
    made = Terms(
        prepare=_prepare(facts, config, loaded, c),
        prefill=_text_flops(facts.model, inputs) / dense + see + met,
        step_base=c["step-ms"]
        + c["step-layer-ms"] * text.layers
        + max(slow, read)
        + head / bandwidth
        + reduced(facts, tp, 1, c),
        step_row=_kv_read_bytes(facts.model, config.kv_bits, context, tp) / bandwidth + _row_flops(facts.model) / dense,
        full_pass=budget * full + reduced(facts, tp, budget, c),
        expert_row=expert / bandwidth,
        expert_most=experts / bandwidth,
        expert_hidden=max(slow - read, 0.0),
    )
    return made._replace(prefill=made.prefill + (passes - 1) * c["extra-pass-steps"] * made.step(1))


def _prepare(facts: Facts, config: Configuration, loaded: bool, c: Mapping[str, float]) -> float:
    """Work of the server process on one request, of which it does one after the other."""
    work = c["request-host-ms"]
    if not facts.images:
        return work
    tile = c["tile-host-ms"] + c["tile-host-parallel-ms"] / config.omp_threads
    if loaded:
        share = config.omp_threads / facts.request.cpus
        crowded = min(max((share - CROWDED_FROM) / (1 - CROWDED_FROM), 0.0), 1.0)
        tile += crowded * c["tile-host-crowded-ms"]
        work += crowded * c["request-host-crowded-ms"]
    megapixels = facts.image_width * facts.image_height / 1e6
    return work + facts.images * (facts.tiles(config.max_tiles) * tile + megapixels * c["megapixel-host-ms"])


@lru_cache(maxsize=256)
def _rate(gpu: r.Gpu, model: r.Model) -> float:
    """Peak dense TFLOP/s at the 16-bit type the model computes in."""
    rates = {rate.precision: rate.tera for rate in gpu.rates}
    wanted: Literal["bf16", "fp16"] = "bf16" if model.text.dtype == "bfloat16" else "fp16"
    return rates.get(wanted, rates.get("fp16", next(iter(rates.values()))))


@lru_cache(maxsize=4096)
def _inner_rows(model: r.Model, tp: int) -> int:
    return shapes.inner_rows(model, tp)


@lru_cache(maxsize=4096)
def _read_bytes(model: r.Model, tp: int) -> tuple[float, int, int]:
    """Bytes of the linear layers that a step reads: without routed experts, of one token's experts, of all experts."""
    none, one, all_ = (shapes.decode_bytes(model, tp, batch) for batch in (0, 1, MANY))
    return none - shapes.head_bytes(model, tp), one - none, all_ - none


@lru_cache(maxsize=4096)
def _kv_read_bytes(model: r.Model, kv_bits: int, context: int, tp: int) -> int:
    return shapes.kv_read_bytes(model, kv_bits, context, tp)


@lru_cache(maxsize=4096)
def _text_flops(model: r.Model, tokens: int) -> float:
    return shapes.prefill_flops(model, tokens)


@lru_cache(maxsize=256)
def _row_flops(model: r.Model) -> float:
    """Arithmetic of one more token in a pass, its attention to what came before left out."""
    return shapes.prefill_flops(model, 1)


@lru_cache(maxsize=256)
def _tile_flops(model: r.Model) -> float:
    return shapes.vision_flops_per_tile(model)


@lru_cache(maxsize=256)
def _tile_bytes(model: r.Model) -> int:
    """Bytes of the patches of one tile, each as wide as the encoder, once for each of its layers."""
    return sum(
        each.layers * (each.image // each.patch) ** 2 * each.hidden * shapes.BYTES_16_BIT for each in model.vision
    )
