"""Size a fleet for a rate of arrivals: hosts, servers, their limit and their cost.

``rate_search`` gives the hosts that keep the goals at the peak; those that may be down are added.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeAlias

from recommender.choose.recommend import recommend, resolve_with_checkpoint
from recommender.choose.select import Choice, NoCandidate, choose
from recommender.common.text import count
from recommender.estimate import speed, uncertainty
from recommender.estimate.arrivals import open_server
from recommender.estimate.configuration import Configuration
from recommender.estimate.memory_items import Memory
from recommender.fleet import alternatives
from recommender.fleet.aim import Aim, time_at
from recommender.fleet.layout import Layout
from recommender.fleet.rate_search import TOP, UNBOUNDED, RateSearch, ServerState
from recommender.knowledge.store import Store
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest

CONCURRENCIES = (8, 32, 128)
"""Concurrent requests that a server may be sized for."""
MAX_HOSTS = 10_000
USUAL_RUNG = TOP - 8
"""Of the ladder of rates: 40 % of a server's capacity. What is suggested instead of a goal is kept there."""
JPEG_BYTES_PER_PIXEL = 0.35
"""Assumed for photographs as clients send them; not measured."""
BASE64 = 4 / 3
NETWORK_SHARE = 0.7
"""Share of a host's network that requests may fill."""

TAIL = "tail-open"
"""The coefficient of p99 of requests with images in an open loop."""

CORES_SHARE = 0.9
"""Share of a server's cores that it may fill."""

Limit: TypeAlias = Literal["preprocessing", "prefill on the card", "decoding steps", "CPU cores", "network"]


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

    ``at``: a server's state at the peak with all hosts up; ``down``: the same with the spare hosts down.
    ``p99_ms``: the range of p99 at ``down``. ``hosts`` includes the ``spare`` ones.
    """

    kind: HostKind
    resolved: ResolvedRequest
    config: Configuration
    memory: Memory
    holds: float
    hosts: int
    at: ServerState
    down: ServerState
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


# The site shows the same fleet in several forms.
@cache
def size_fleet(request: Request, kind: HostKind, aim: Aim, store: Store) -> SizedFleet | Unfit:
    """Return the smallest fleet of a kind that meets the goal for a workload.

    Raises UnknownName or RequestError.
    """
    resolved = resolve_with_checkpoint(_server_request(request, kind), store)
    choices: list[tuple[ResolvedRequest, Choice]] = []
    for concurrency in CONCURRENCIES:
        loaded = replace(resolved, concurrency=concurrency)
        outcome = choose(loaded, room=False)
        if isinstance(outcome, NoCandidate):
            if choices:
                break
            return Unfit(
                kind,
                alternatives.explain_misfit(resolved, outcome),
                alternatives.suggest_alternative(resolved, kind.cards, outcome),
            )
        choices.append((loaded, outcome))
    best: SizedFleet | None = None
    misfit: Unfit | None = None
    for loaded, choice in reversed(choices):  # a larger batch seldom takes more hosts
        fleet = _fleet(loaded, kind, choice, aim, best.hosts - aim.spare if best else UNBOUNDED)
        if isinstance(fleet, Unfit):
            misfit = fleet
        else:
            best = fleet or best
    return best or misfit or Unfit(kind, "nothing was tried")


def _server_request(request: Request, kind: HostKind) -> Request:
    """Return the request that one server's configuration is chosen for."""
    cpus = max(1, kind.cpus * kind.tp // kind.cards)
    return replace(
        request,
        gpu=kind.gpu,
        gpu_count=kind.tp,
        tp=kind.tp,
        cpus=cpus,
        load="",
        rps=0.0,
        goal="throughput",
        p99_ms=0.0,
        ttft_ms=0.0,
        tpot_ms=0.0,
        latency_ms=0.0,
    )


def _fleet(
    resolved: ResolvedRequest, kind: HostKind, choice: Choice, aim: Aim, below: int
) -> SizedFleet | Unfit | None:
    """Return the fewest hosts, or why none will do; None if it takes no fewer than ``below``, the spare ones apart."""
    config, host_servers = choice.best.config, servers_of(kind, choice.best.config)
    ceiling, outer = _ceiling(resolved, kind, config, aim)
    if ceiling <= 0:
        cores = (resolved.store.coefficients["server-cores"].value + 1) / CORES_SHARE
        why = f"{count(kind.cpus, 'CPU core')} cannot run {count(host_servers, 'server')}, even idle"
        return Unfit(kind, why, f"--cpus {math.ceil(cores * config.share) * (host_servers // config.share)}")
    server = open_server(resolved, config, choice.best.memory.kv_tokens)
    search = RateSearch(server, aim, _tail(resolved), host_servers, ceiling)
    needed, width = search.find(below)
    if not width:
        return _too_slow(resolved, kind, choice, search) if below == UNBOUNDED else None
    kept = search.highest_rung(width)
    sustained = search.rate(kept)
    holds, limit = (ceiling, outer) if ceiling < sustained else (sustained, choice.best.speed.limit)
    hosts = needed + aim.spare
    if hosts > MAX_HOSTS:
        why = f"{hosts:,} hosts, limited by {binding(limit)}; a plan allows at most {MAX_HOSTS:,}"
        most = (MAX_HOSTS - aim.spare) * holds * host_servers
        return Unfit(kind, why, _smaller_load(aim, most, sustained * host_servers / holds, limit))
    up, down = (search.state(number, width, kept) for number in (hosts, needed))
    p99, basis = _p99(resolved, choice, down), choice.best.speed.basis
    return SizedFleet(
        kind, resolved, config, choice.best.memory, holds, hosts, up, down, p99, limit, basis, spare=aim.spare
    )


def _ceiling(resolved: ResolvedRequest, kind: HostKind, config: Configuration, aim: Aim) -> tuple[float, Limit]:
    """Return the requests/s that a server's cores and network allow, and which of them binds."""
    bounds: tuple[tuple[float, Limit], ...] = (
        (_core_rate(resolved, config), "CPU cores"),
        (_network_rate(resolved, aim) / servers_of(kind, config), "network"),
    )
    return min(bounds)


def _tail(resolved: ResolvedRequest) -> float:
    """Return measured over simulated p99 of arrivals; requests without images were not measured so."""
    return resolved.store.coefficients[TAIL].value if resolved.images else 1.0


def _p99(resolved: ResolvedRequest, choice: Choice, state: ServerState) -> uncertainty.Range:
    """Return the range of p99; with images at least as wide as that of the measured tails."""
    ends, tail, value = choice.best.speed.p99_ms, resolved.store.coefficients[TAIL], state.p99_ms
    low, high = ends.low / ends.value, ends.high / ends.value
    if resolved.images:
        low, high = min(tail.low / tail.value, low), max(tail.high / tail.value, high)
    least = min(choice.best.speed.alone_ms.low, value)  # no answer takes less than that of a request alone
    return uncertainty.Range(value, max(value * low, least), value * high)


def _too_slow(resolved: ResolvedRequest, kind: HostKind, choice: Choice, search: RateSearch) -> Unfit:
    """Explain a goal that a server misses at any load."""
    coefficients = speed.scale_coefficients(resolved.store, resolved.request.host_scale, resolved.request.card_scale)
    alone = speed.estimate_server(resolved, choice.best.config, 1, coefficients)
    why = f"a request alone takes {alone.alone:,.0f} ms, mainly {alone.limit}"
    usual = search.figures(USUAL_RUNG, 1)
    missed = search.aim.missed(usual, search.tail)
    for goal in missed:
        if goal.figure != "latency" or alone.alone <= goal.most_ms:
            why += f"; with other arrivals {goal.words} exceeds {goal.most_ms:,.0f} ms"
    needed = [goal.written(time_at(usual, goal.figure, goal.quantile, search.tail)) for goal in missed]
    return Unfit(kind, why, " ".join(needed))


def _smaller_load(aim: Aim, rate: float, times: float, limit: Limit) -> str:
    """Return the option for a load or a network that needs fewer hosts."""
    if limit == "network":
        return f"--network {math.ceil(aim.network_gbps * times * 10) / 10:g}"
    rps = math.floor(rate / aim.peak * 100) / 100
    return f"--rps {math.floor(rps) if rps > 10 else rps:g}" if rps else ""


def binding(limit: Limit) -> str:
    """Return what limits a server, as words within a sentence."""
    return f"the {limit}" if limit in ("CPU cores", "network") else limit


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
    return Layout(recommend(request, store, room=False), fleet.hosts, fleet.spare)


def cost(fleet: SizedFleet, plan: FleetPlan) -> float | None:
    """Return the price of a million requests; None if the GPU has no price."""
    price = plan.prices.get(fleet.resolved.gpu.id)
    return None if price is None else price * fleet.cards / (plan.aim.rps * 3600) * 1e6
