"""Predict latency and throughput: a roofline for the GPU, host terms for the rest.

A request passes two stations. The server process prepares it in one thread: decode the image, cut it into tiles,
tokenise. The engine then runs it through one iteration for each output token; an iteration costs a decoding step and
the prefill of the requests that joined the batch meanwhile. ``closed_loop`` solves how the requests split between the
two stations. Texts under load, and all that arrive at a rate, are simulated pass by pass instead (``load_profile``).
A range covers 80 % of the held-out errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from recommender.common.fast_replace import fast_replace
from recommender.estimate import given_requests, load_profile, uncertainty
from recommender.estimate.closed_loop import Limit, ServiceTimes, find_limit, share_gpu, solve_loop, token_gap
from recommender.estimate.configuration import Configuration
from recommender.estimate.coverage import is_loaded, name_load, name_residual
from recommender.estimate.dropped_prefix_cache import as_run
from recommender.estimate.engines.engine import engine_of
from recommender.estimate.request_times import add_load, demands_of
from recommender.estimate.scheduler.passes import SimulatedAnswer
from recommender.estimate.scheduler.simulation import LoadFigures, Timed
from recommender.estimate.terms.cached_prefix import TimesByLength
from recommender.estimate.uncertainty import Basis, Range, derive_rate, find_basis, find_widening, make_range
from recommender.request.request import Quantile, TimeGoal
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge.store import Store


@dataclass(frozen=True, slots=True)
class Speed:
    """What clients see over all servers, and what limits it."""

    alone_ms: Range
    """Latency of a request without load, in ms."""
    latency_ms: Range
    """Latency under the load, in ms."""
    p99_ms: Range
    """99th percentile of the latency, in ms."""
    ttft_ms: Range
    """Time to first token, in ms."""
    token_ms: Range
    """Time between two output tokens, in ms."""
    rps: Range
    """Requests/s of all servers."""
    limit: Limit
    """What limits the requests/s."""
    basis: Basis
    """Where the figures come from."""
    coefficients: tuple[str, ...]
    """Ids of the coefficients they use."""
    profile: LoadFigures | None = None
    """Quantiles of the simulated load; null: no load, or one of images in a closed loop."""
    replayed: LoadFigures | None = None
    """The same of a trace's own requests; null: no trace."""

    def at(self, figure: Timed, quantile: Quantile) -> float:
        """Return the predicted quantile of a time in ms: from the simulated load, else log-normal."""
        if self.profile:
            return float(getattr(getattr(self.profile, figure), quantile))
        tail = max(self.p99_ms.value / self.latency_ms.value, 1.0)
        return self.range_at(figure).value * math.pow(tail, TOWARDS_P99[quantile])

    def goal_ms(self, goal: TimeGoal) -> float:
        """Return the middle prediction of what a goal is about, in ms."""
        p99 = goal.figure == "latency" and goal.at == "p99"
        return self.p99_ms.value if p99 else self.at(goal.figure, goal.at)

    def range_at(self, figure: Timed, quantile: Quantile = "mean") -> Range:
        """Return the range that a quantile of a time has in proportion: its mean's, but for the latency's p99."""
        if figure == "latency" and quantile == "p99":
            return self.p99_ms
        return {"ttft": self.ttft_ms, "tpot": self.token_ms, "latency": self.latency_ms}[figure]


TOWARDS_P99: Mapping[Quantile, float] = {"mean": 0.0, "p50": 0.0, "p90": 1.2816 / 2.3263, "p99": 1.0}
"""Of the way from the mean to the 99th percentile, on a logarithmic scale: the normal distribution's quantiles."""


class PointEstimate(NamedTuple):
    """Predicted figures without ranges, as in ``Speed``; ``first``, ``step``: TTFT and ms between tokens, no load."""

    alone: float
    latency: float
    p99: float
    ttft: float
    token: float
    rps: float
    limit: Limit
    first: float
    step: float


COEFFICIENTS = (
    "request-host-ms", "request-host-crowded-ms", "request-overhead-ms", "token-host-ms", "megapixel-host-ms",
    "tile-host-ms", "tile-host-parallel-ms", "tile-host-crowded-steps", "encoded-again", "first-token-room",
    "first-token-host", "step-ms", "step-layer-ms", "step-quantised-row-ns", "prefill-efficiency",
    "prefill-efficiency-quantised", "expert-layer-ms", "expert-efficiency-quantised", "expert-spread",
    "expert-tile-tokens", "vision-passes", "bandwidth-efficiency", "latent-read-share", "parallel-efficiency",
    "reduction-ms", "link-efficiency", "pcie-link-gb-s", "shared-step-share", "tail-alone", "tail-queue",
    "tail-open", "pytorch-request-overhead-ms", "pytorch-prompt-layer-ms", "pytorch-step-share",
    "pytorch-prompt-latent-ms", "pytorch-vision-layer-ms", "pytorch-step-latent-ms", "pytorch-image-host-ms",
)  # fmt: skip
BY_HOST = ("-host-", "request-overhead-ms", "pytorch-prompt-", "pytorch-vision-")
HOST_COEFFICIENTS = tuple(name for name in COEFFICIENTS if any(part in name for part in BY_HOST))
GPU_COEFFICIENTS = (
    "step-ms", "step-layer-ms", "step-quantised-row-ns", "prefill-efficiency", "prefill-efficiency-quantised",
    "expert-layer-ms", "expert-efficiency-quantised", "bandwidth-efficiency", "reduction-ms",
)  # fmt: skip
STEP_COEFFICIENTS = ("step-ms", "step-layer-ms", "step-quantised-row-ns", "bandwidth-efficiency")
PYTORCH_COEFFICIENTS = tuple(name for name in COEFFICIENTS if name.startswith("pytorch-"))
EXPERT_COEFFICIENTS = tuple(name for name in COEFFICIENTS if name.startswith("expert-"))
HOST_BOUND = 0.6
"""Share of the time from which handing over images decides a load: 0.64 to 1 with short answers, 0.5 with captions."""


def estimate(
    resolved: ResolvedRequest, config: Configuration, ranged: bool = True, kv_tokens: int = 0, capped: bool = True
) -> Speed:
    """Return the speed of all servers of a configuration under the request's load.

    Without ``ranged`` each range collapses to its value, which is enough to compare. ``kv_tokens`` is the size of a
    server's KV cache; 0 is no limit. ``capped``: see ``predict_load``.
    """
    coefficients = scale_coefficients(resolved.store, resolved.request.host_scale, resolved.request.card_scale)
    point, profile = predict_load(resolved, config, resolved.concurrency, coefficients, kv_tokens, capped)
    loaded = is_loaded(resolved, resolved.concurrency, config.servers)
    load, alone = name_load(resolved, loaded), name_load(resolved, False)
    host_bound = loaded and _find_host_share(resolved, config, point.rps, coefficients) >= HOST_BOUND

    def add_range(figure: str, value: float) -> Range:
        widening = find_widening(resolved, config, host_bound and figure.endswith(f"-{load}")) if ranged else 1.0
        name = name_residual(config.backend, figure)
        return make_range(resolved.store, name, value, widening) if ranged else Range(value, value, value)

    latency = add_range(f"latency-{load}", point.latency)
    figures = {
        "alone_ms": add_range(f"latency-{alone}", point.alone),
        "latency_ms": latency,
        "p99_ms": add_range(f"p99-{load}", point.p99),
        "ttft_ms": add_range(f"ttft-{load}", point.ttft),
        "token_ms": add_range(f"token-{load}", point.token),
        "rps": add_range(f"rps-{load}", point.rps) if loaded else derive_rate(latency, point.rps),
    }
    if ranged:
        first, step = add_range(f"ttft-{alone}", point.first), add_range(f"token-{alone}", point.step)
        tokens = 1 if resolved.output_lengths else resolved.output_tokens  # of several lengths, means say nothing
        figures = uncertainty.remove_impossible(figures, first, step, resolved.concurrency, tokens)
    return Speed(
        **figures,
        limit=point.limit,
        basis=find_basis(resolved, config),
        coefficients=COEFFICIENTS,
        profile=profile,
        replayed=None,
    )


def _find_host_share(
    resolved: ResolvedRequest, config: Configuration, rps: float, coefficients: Mapping[str, float]
) -> float:
    """Return for how much of the time a server hands images over one after the other."""
    return engine_of(config).image_spacing_ms(resolved, coefficients) * rps / config.servers / 1e3


def predict_load(
    resolved: ResolvedRequest,
    config: Configuration,
    concurrency: int,
    coefficients: Mapping[str, float],
    kv_tokens: int = 0,
    capped: bool = True,
) -> tuple[PointEstimate, LoadFigures | None]:
    """Return the figures of all servers, and the quantiles where the load is simulated.

    Without ``capped``, which is quicker, the requests/s of servers that do not keep up may be too many.
    """
    config = as_run(resolved, config)
    point = estimate_servers(resolved, config, concurrency, coefficients)
    if not load_profile.is_simulated(resolved, config, concurrency):
        return point, None
    times_of = partial(shared_times, concurrency=-(-concurrency // config.servers), coefficients=coefficients)
    profile = load_profile.simulate_servers(resolved, config, concurrency, coefficients, times_of, kv_tokens)
    if config.prefix_caching:  # a request alone finds its prefix too
        lone = fast_replace(resolved, rps=0.0)
        alone = load_profile.simulate_server(lone, config, 1, coefficients, times_of, kv_tokens)
        point = point._replace(alone=alone.latency.mean, first=alone.ttft.mean, step=alone.tpot.mean)
    if resolved.images and resolved.rps:
        profile = profile.lengthen_tails(point.first, point.alone, coefficients["tail-open"])
    if capped and not profile.keeps_up:  # too few requests are simulated to fill a large batch
        closed, places = fast_replace(resolved, rps=0.0), config.max_batch_size * config.servers
        most = predict_load(closed, config, places, coefficients, kv_tokens)[0].rps
        profile = profile.answer_at_most(most)
    latency = max(profile.latency.mean, point.alone)
    p99 = max(profile.latency.p99, latency, point.alone * coefficients["tail-alone"])
    profile = replace(profile, latency=replace(profile.latency, p99=p99))
    simulated = point._replace(
        latency=latency,
        p99=p99,
        ttft=max(profile.ttft.mean, point.first),
        token=max(profile.tpot.mean, point.step),
        rps=profile.rps * (1.0 if resolved.rps else profile.latency.mean / latency),
    )
    return simulated, profile


def answer_driven(
    resolved: ResolvedRequest,
    config: Configuration,
    concurrency: int,
    coefficients: Mapping[str, float],
    kv_tokens: int,
    driven: Sequence[tuple[float, int, int]],
) -> Sequence[SimulatedAnswer]:
    """Return one server's answers to the requests that a load was driven with: see ``load_profile``."""
    times_of = partial(shared_times, concurrency=max(concurrency, 1), coefficients=coefficients)
    return given_requests.answer_driven(resolved, config, concurrency, coefficients, times_of, kv_tokens, driven)


def replay(resolved: ResolvedRequest, config: Configuration, kv_tokens: int) -> LoadFigures | None:
    """Return what clients see where a trace's requests come as they did; None without such a trace."""
    request = resolved.request
    if not request.replay or resolved.images or not resolved.rps:
        return None
    config = as_run(resolved, config)
    coefficients = scale_coefficients(resolved.store, request.host_scale, request.card_scale)
    times_of = partial(shared_times, concurrency=-(-resolved.concurrency // config.servers), coefficients=coefficients)
    return given_requests.replay_trace(resolved, config, coefficients, times_of, kv_tokens)


def shared_times(
    resolved: ResolvedRequest, config: Configuration, *, concurrency: int, coefficients: Mapping[str, float]
) -> TimesByLength:
    """Return what gives demands on a loaded server, which are longer where other servers share its GPU."""
    demands = demands_of(resolved, config, coefficients)
    if config.share == 1:
        return lambda text, output: demands(text, output, True)
    batch, others, share = config.max_batch_size, config.share - 1, coefficients["shared-step-share"]
    return lambda text, output: share_gpu(demands(text, output, True), output, concurrency, batch, others, share)


@lru_cache(maxsize=32)
def read_coefficients(store: Store) -> Mapping[str, float]:
    """Return the values of the coefficients of speed, by name."""
    return {name: store.coefficients[name].value for name in COEFFICIENTS}


@lru_cache(maxsize=4096)
def scale_coefficients(store: Store, host: float, gpu: float) -> Mapping[str, float]:
    """Return the coefficients for a slower or faster host and GPU.

    ``host`` and ``gpu`` are factors on the time that each takes; 1.0 changes nothing.
    """
    scaled = dict(read_coefficients(store))
    for name in HOST_COEFFICIENTS:
        scaled[name] *= host
    for name in GPU_COEFFICIENTS:
        scaled[name] = scaled[name] / gpu if store.coefficients[name].unit == "share" else scaled[name] * gpu
    return scaled


def estimate_server(
    resolved: ResolvedRequest, config: Configuration, concurrency: int, coefficients: Mapping[str, float]
) -> PointEstimate:
    """Return the figures of one server at ``concurrency`` requests.

    Requests beyond the batch wait in line. ``coefficients`` are values by name.
    """
    later_tokens = resolved.output_tokens - 1
    demands = demands_of(resolved, config, coefficients)
    alone = demands(resolved.prompt_tokens, resolved.output_tokens, False)
    # A pass reads all weights, however short its text. The prefill of an image was measured with them.
    least = max(alone.prompt_floor, 0.0 if resolved.images else alone.step(1))
    first = alone.delay + alone.prepare + max(alone.prefill, least)
    whole = first + later_tokens * alone.step(1)
    if concurrency == 1:
        limit, tail = find_limit(alone, resolved.output_tokens, 1), whole * coefficients["tail-alone"]
        return PointEstimate(whole, whole, tail, first, alone.step(1), 1e3 / whole, limit, first, alone.step(1))
    times = add_load(alone, resolved, config, coefficients)
    spacing = engine_of(config).image_spacing_ms(resolved, coefficients)
    limit = find_limit(times, resolved.output_tokens, min(concurrency, config.max_batch_size), spacing)
    within, token = _load_server(resolved, config, times, concurrency, coefficients)
    token = max(token, alone.step(1))
    # Running the requests one after the other is always possible.
    ttft = max(min(within, concurrency * whole) - later_tokens * token, first)
    mean = ttft + later_tokens * token
    # If preprocessing is the limit, a longer prompt waits in the engine instead of before it. That must not show as a
    # gain: its first token comes no earlier than that of a prompt without text.
    bare = demands(0, resolved.output_tokens, True)
    within, gap = _load_server(resolved, config, bare, concurrency, coefficients)
    ttft = max(ttft, min(within, concurrency * whole) - later_tokens * gap)
    tail = max(whole * coefficients["tail-alone"], mean * coefficients["tail-queue"])
    return PointEstimate(whole, mean, tail, ttft, token, concurrency / mean * 1e3, limit, first, alone.step(1))


def _load_server(
    resolved: ResolvedRequest,
    config: Configuration,
    times: ServiceTimes,
    concurrency: int,
    coefficients: Mapping[str, float],
) -> tuple[float, float]:
    """Return the ms of a request at a loaded server, and between two tokens."""
    tokens, batch = resolved.output_tokens, config.max_batch_size
    if config.share > 1:
        step_share = coefficients["shared-step-share"]
        times = share_gpu(times, tokens, concurrency, batch, config.share - 1, step_share)
    loop = solve_loop(times, tokens, concurrency, batch)
    # If prompts arrive together, the first token bears all the delay that they cause each other. They arrive one by one
    # if preparing takes long compared with prefill, unless several requests end in one pass and return together. They
    # also spread out if a pass has little room for those that end in it. Only images count, however long the text.
    ending = loop.rate * loop.engine / tokens
    full = ending * (resolved.image_tokens(config.max_tiles) or resolved.input_tokens()) / config.pass_tokens
    apart = coefficients["first-token-host"] * times.prepare / max(times.prefill, 1e-9) * min(ending, 1 / ending)
    apart += coefficients["first-token-room"] * full / (1 + full**2)
    # An iteration carries at most one full prefill pass.
    slowest = times.step(min(concurrency, batch)) + times.full_pass
    return concurrency / loop.rate, min(token_gap(times, loop, tokens, 1 / (1 + apart)), slowest)


def estimate_servers(
    resolved: ResolvedRequest, config: Configuration, concurrency: int, coefficients: Mapping[str, float]
) -> PointEstimate:
    """Return the figures of all servers, with the load spread evenly.

    Times are means over all requests; p99 and limit are those of the fullest servers.
    """
    per_server, fuller = divmod(concurrency, config.servers)
    full = estimate_server(resolved, config, per_server + bool(fuller), coefficients)
    if not per_server or not fuller:  # all busy servers have the same load
        return full._replace(rps=full.rps * (fuller or config.servers))
    less = estimate_server(resolved, config, per_server, coefficients)
    rps = full.rps * fuller + less.rps * (config.servers - fuller)
    share = full.rps * fuller / rps
    names = ("latency", "ttft", "token")
    means = {name: share * getattr(full, name) + (1 - share) * getattr(less, name) for name in names}
    return full._replace(rps=rps, **means)
