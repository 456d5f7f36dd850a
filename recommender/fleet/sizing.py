"""Size a fleet for a rate of arrivals: hosts, servers, their limit and their cost.

The load balancer deals arrivals out at random, so a server gets Poisson arrivals too. ``queueing`` gives the rate
that one server sustains at the goal; the number of hosts follows from that, the peak, and the hosts that may be down.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, TypeAlias

from recommender.choose.recommend import recommend, resolve_with_checkpoint
from recommender.choose.select import Choice, NoCandidate, choose
from recommender.common.errors import RequestError
from recommender.common.text import count
from recommender.estimate import speed, uncertainty
from recommender.estimate.configuration import Configuration
from recommender.estimate.memory import Memory
from recommender.fleet import alternatives
from recommender.fleet.layout import Layout
from recommender.fleet.queueing import MOST, Queue, steady
from recommender.knowledge.store import Store
from recommender.request.request import LEAST, Request, short
from recommender.request.resolved_request import ResolvedRequest

CONCURRENCIES = (8, 32, 128)
"""Concurrent requests that a server may be sized for."""
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Concurrencies at which a server's rate is computed; between them it is interpolated."""
BUSIEST = 0.8
"""Without a latency goal, the share of its largest rate that a server is given."""
STEPS = 18
"""Halvings in the search for the sustainable rate: fine enough for thousands of hosts."""
MAX_HOSTS = 10_000
JPEG_BYTES_PER_PIXEL = 0.35
"""Assumed for photographs as clients send them; not measured."""
BASE64 = 4 / 3
NETWORK_SHARE = 0.7
"""Share of a host's network that requests may fill."""

MOST_TIMES, MOST_SPARE, MOST_GBPS = 1000, 100, 10_000
"""Ends of the ranges of a goal: peak and burst, spare hosts, network."""

TAIL = "tail-open"
"""The coefficient of p99 in an open loop."""

CORES_SHARE = 0.9
"""Share of a server's cores that it may fill."""

Limit: TypeAlias = Literal["preprocessing", "prefill on the card", "decoding steps", "CPU cores", "network"]


@dataclass(frozen=True, slots=True)
class Aim:
    """The goal: mean requests/s, times ``peak``, in bursts; p99 in ms, 0 for none.

    ``spare`` hosts may be down. ``network_gbps``: network bandwidth of a host.
    """

    rps: float
    p99_ms: float = 0.0
    peak: float = 1.5
    burst: float = 1.0
    spare: int = 1
    network_gbps: float = 10.0

    def __post_init__(self) -> None:
        """Raise RequestError for a value that makes no sense."""
        for option, value, low, high in (
            ("--peak", self.peak, 1, MOST_TIMES),
            ("--burst", self.burst, 1, MOST_TIMES),
            ("--spare", self.spare, 0, MOST_SPARE),
            ("--network", self.network_gbps, LEAST, MOST_GBPS),
        ):
            if not low <= value <= high:  # NaN is in no range
                raise RequestError(f"{option} {short(value)}: use a number from {low:g} to {high:,}")


@dataclass(frozen=True, slots=True)
class HostKind:
    """A kind of host: its GPU and their number, GPUs per server, and CPU cores."""

    gpu: str
    cards: int
    tp: int
    cpus: int


@dataclass(frozen=True)
class SizedFleet:
    """A fleet of one kind of host. ``holds``: requests/s that a server sustains at the goal.

    ``at``: a server's steady state at the peak with all hosts up; ``down``: the same with the spare hosts down.
    ``p99_ms``: the range of p99 at ``down``. ``hosts`` includes the ``spare`` ones.
    """

    kind: HostKind
    resolved: ResolvedRequest
    config: Configuration
    memory: Memory
    holds: float
    hosts: int
    at: Queue
    down: Queue
    p99_ms: uncertainty.Range
    limit: Limit
    basis: uncertainty.Basis
    spare: int = 0

    @property
    def servers(self) -> int:
        """Servers of the fleet."""
        return self.hosts * servers_of(self.kind, self.config)

    @property
    def cards(self) -> int:
        """Cards of the fleet."""
        return self.hosts * self.kind.cards


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a kind of host misses the goal, and what would meet it; empty if nothing is known."""

    kind: HostKind
    why: str
    needed: str = ""


@dataclass(frozen=True)
class FleetPlan:
    """The fleets that meet a goal, the best first; prices are per GPU and hour.

    ``resolved`` gives the model and the request; its GPU is any of theirs.
    """

    resolved: ResolvedRequest
    aim: Aim
    prices: Mapping[str, float]
    fleets: tuple[SizedFleet, ...]
    unfit: tuple[Unfit, ...]
    notes: tuple[str, ...] = ()


def servers_of(kind: HostKind, config: Configuration) -> int:
    """Return the servers of one host."""
    return kind.cards // kind.tp * config.share


def size_fleet(request: Request, kind: HostKind, aim: Aim, store: Store) -> SizedFleet | Unfit:
    """Return the smallest fleet of a kind that meets the goal for a workload.

    Raises UnknownName or RequestError.
    """
    resolved = resolve_with_checkpoint(_server_request(request, kind), store)
    best: SizedFleet | None = None
    misfit: Unfit | None = None
    for concurrency in CONCURRENCIES:
        loaded = replace(resolved, concurrency=concurrency)
        outcome = choose(loaded)
        if isinstance(outcome, NoCandidate):
            misfit = misfit or Unfit(
                kind,
                alternatives.explain_misfit(resolved, outcome),
                alternatives.suggest_alternative(resolved, kind.cards, outcome),
            )
            break
        fleet = _fleet(loaded, kind, outcome, aim)
        if isinstance(fleet, Unfit):
            misfit = misfit or fleet
        elif best is None or fleet.hosts < best.hosts:
            best = fleet
    return best or misfit or Unfit(kind, "nothing was tried")


def _server_request(request: Request, kind: HostKind) -> Request:
    """Return the request that one server's configuration is chosen for."""
    cpus = max(1, kind.cpus * kind.tp // kind.cards)
    return replace(
        request, gpu=kind.gpu, gpu_count=kind.tp, tp=kind.tp, cpus=cpus, load="", rps=0.0, p99_ms=0.0, goal="throughput"
    )


def _fleet(resolved: ResolvedRequest, kind: HostKind, choice: Choice, aim: Aim) -> SizedFleet | Unfit:
    config, coefficients = choice.best.config, resolved.store.coefficients
    completes = curve(resolved, config)
    tail = coefficients[TAIL].value
    sustained = sustainable_rate(completes, aim, tail)
    if not sustained:
        return _too_slow(resolved, kind, choice, aim)
    host_servers = servers_of(kind, config)
    bounds: list[tuple[float, Limit]] = [
        (sustained, choice.best.speed.limit),
        (_core_rate(resolved, config), "CPU cores"),
        (_network_rate(resolved, aim) / host_servers, "network"),
    ]
    holds, limit = min(bounds)
    if holds <= 0:
        cores = (coefficients["server-cores"].value + 1) / CORES_SHARE
        why = f"{count(kind.cpus, 'CPU core')} cannot run {count(host_servers, 'server')}, even idle"
        return Unfit(kind, why, f"--cpus {math.ceil(cores * config.share) * (host_servers // config.share)}")
    peak = aim.rps * aim.peak
    hosts = max(1, math.ceil(peak / (holds * host_servers) - 1e-9)) + aim.spare
    if hosts > MAX_HOSTS:
        why = f"{hosts:,} hosts, limited by {binding(limit)}; a plan allows at most {MAX_HOSTS:,}"
        most = (MAX_HOSTS - aim.spare) * holds * host_servers
        return Unfit(kind, why, _smaller_load(aim, most, sustained * host_servers / holds, limit))
    rates = [peak / (count * host_servers) for count in (hosts, hosts - aim.spare)]
    up, down = (steady(rate, completes, burst=aim.burst, tail=tail) for rate in rates)
    if up is None or down is None:
        why = f"more than {MOST:,} requests would wait at a server, with bursts of {aim.burst:g}"
        return Unfit(kind, why, _smaller_burst(completes, rates[1], aim, tail))
    p99, basis = _p99(resolved, choice, down), choice.best.speed.basis
    return SizedFleet(
        kind, resolved, config, choice.best.memory, holds, hosts, up, down, p99, limit, basis, spare=aim.spare
    )


def _p99(resolved: ResolvedRequest, choice: Choice, queue: Queue) -> uncertainty.Range:
    """Return the range of p99, at least as wide as that of the measured tails."""
    ends, tail, value = choice.best.speed.p99_ms, resolved.store.coefficients[TAIL], queue.p99_ms
    low = min(tail.low / tail.value, ends.low / ends.value)
    high = max(tail.high / tail.value, ends.high / ends.value)
    least = min(choice.best.speed.alone_ms.low, value)  # no answer takes less than that of a request alone
    return uncertainty.Range(value, max(value * low, least), value * high)


def _too_slow(resolved: ResolvedRequest, kind: HostKind, choice: Choice, aim: Aim) -> Unfit:
    """Explain a goal that a server misses at any load."""
    completes = curve(resolved, choice.best.config)
    alone = speed.estimate_server(resolved, choice.best.config, 1, _coefficients(resolved))
    why = f"a request alone takes {alone.alone:,.0f} ms, mainly {alone.limit}"
    if alone.alone <= aim.p99_ms:
        why += f"; with other arrivals p99 exceeds {aim.p99_ms:,.0f} ms"
    rate = completes(GRID[-1]) / 2
    tail = resolved.store.coefficients[TAIL].value
    half = steady(rate, completes, burst=aim.burst, tail=tail)
    return Unfit(kind, why, f"--p99 {math.ceil(half.p99_ms)}" if half else _smaller_burst(completes, rate, aim, tail))


def _smaller_burst(completes: Callable[[float], float], rate: float, aim: Aim, tail: float) -> str:
    """Return the --burst that works; empty if none does."""
    together = int(aim.burst)
    while together > 1:
        together //= 2
        queue = steady(rate, completes, burst=together, tail=tail)
        if queue and (not aim.p99_ms or queue.p99_ms <= aim.p99_ms):
            return f"--burst {together}"
    return ""


def _smaller_load(aim: Aim, rate: float, times: float, limit: Limit) -> str:
    """Return the option for a load or a network that needs fewer hosts."""
    if limit == "network":
        return f"--network {math.ceil(aim.network_gbps * times * 10) / 10:g}"
    rps = math.floor(rate / aim.peak * 100) / 100
    return f"--rps {math.floor(rps) if rps > 10 else rps:g}" if rps else ""


def binding(limit: Limit) -> str:
    """Return what limits a server, as words within a sentence."""
    return f"the {limit}" if limit in ("CPU cores", "network") else limit


def curve(resolved: ResolvedRequest, config: Configuration) -> Callable[[float], float]:
    """Return a server's requests/s by the number of requests at it; it never falls."""
    coefficients = _coefficients(resolved)
    return line([speed.estimate_server(resolved, config, concurrency, coefficients).rps for concurrency in GRID])


def _coefficients(resolved: ResolvedRequest) -> Mapping[str, float]:
    return speed.scale_coefficients(resolved.store, resolved.request.host_scale, resolved.request.card_scale)


def line(rates: Sequence[float]) -> Callable[[float], float]:
    """Interpolate rates at ``GRID`` for any concurrency; proportional below one."""
    rates = list(accumulate(rates, max))

    def completes(concurrency: float) -> float:
        if concurrency <= 1:
            return rates[0] * concurrency
        if concurrency >= GRID[-1]:
            return rates[-1]
        place = bisect_left(GRID, concurrency)
        low, high = GRID[place - 1], GRID[place]
        return rates[place - 1] + (rates[place] - rates[place - 1]) * (concurrency - low) / (high - low)

    return completes


def sustainable_rate(completes: Callable[[float], float], aim: Aim, tail: float = 1.0) -> float:
    """Return the largest requests/s at which a server meets the goal; 0 if none."""
    low, high = 0.0, completes(GRID[-1]) * (1.0 if aim.p99_ms else BUSIEST)
    if not aim.p99_ms:
        return high
    if 1e3 / completes(1) > aim.p99_ms:
        return 0.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        queue = steady(middle, completes, burst=aim.burst, tail=tail)
        if queue and queue.p99_ms <= aim.p99_ms:
            low = middle
        else:
            high = middle
    return low


def _core_rate(resolved: ResolvedRequest, config: Configuration) -> float:
    """Return the requests/s of a server's CPU cores; negative if too few to idle."""
    coefficients = resolved.store.coefficients
    tiles = resolved.images * resolved.tiles(config.max_tiles)
    core_ms = coefficients["request-core-ms"].value + tiles * coefficients["tile-core-ms"].value
    cores = resolved.request.cpus / config.share * CORES_SHARE - coefficients["server-cores"].value
    return 1e3 * cores / core_ms


def _network_rate(resolved: ResolvedRequest, aim: Aim) -> float:
    """Return the requests/s that the network of a host brings in."""
    pixels = resolved.images * resolved.image_width * resolved.image_height
    size = pixels * JPEG_BYTES_PER_PIXEL * BASE64 + 4 * resolved.input_tokens(1)
    return aim.network_gbps * 1e9 / 8 * NETWORK_SHARE / size


def best_first(fleets: Iterable[SizedFleet], prices: Mapping[str, float]) -> list[SizedFleet]:
    """Sort fleets by price if there are any, else by GPUs, then by their memory."""

    def order(fleet: SizedFleet) -> tuple[float, ...]:
        memory = fleet.cards * fleet.resolved.gpu.memory_mib
        price = prices.get(fleet.resolved.gpu.id)
        return (price is None, (price or 0.0) * fleet.cards, fleet.cards, memory, fleet.kind.tp)

    return sorted(fleets, key=order)


def layout(fleet: SizedFleet, store: Store) -> Layout:
    """Return one host's recommendation and the number of hosts, for the artefacts."""
    kind, config = fleet.kind, fleet.config
    concurrency = config.max_batch_size * servers_of(kind, config)
    request = replace(fleet.resolved.request, gpu_count=kind.cards, cpus=kind.cpus, concurrency=concurrency)
    return Layout(recommend(request, store), fleet.hosts, fleet.spare)


def cost(fleet: SizedFleet, plan: FleetPlan) -> float | None:
    """Return the price of a million requests; None if the GPU has no price."""
    price = plan.prices.get(fleet.resolved.gpu.id)
    return None if price is None else price * fleet.cards / (plan.aim.rps * 3600) * 1e6
