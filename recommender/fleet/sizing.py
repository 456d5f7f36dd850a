"""Size a fleet for a rate of arrivals: hosts, servers, their limit and their cost.

``rate_search`` gives the hosts that keep the goals at the peak; those that may be down are added.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

from recommender.choose.select import Choice, NoCandidate, choose
from recommender.common.text import count
from recommender.estimate import uncertainty
from recommender.estimate.arrivals import OpenServer, open_server
from recommender.estimate.configuration import Configuration
from recommender.estimate.load_profile import combine
from recommender.estimate.memory_items import Memory
from recommender.fleet import alternatives
from recommender.fleet.aim import NO_GOALS, Aim, Tail
from recommender.fleet.concessions import costs_more
from recommender.fleet.cores import idle_cores, request_cores
from recommender.fleet.network import network_rate
from recommender.fleet.rate_search import EXACT, UNBOUNDED, RateSearch, ServerState, rung_at, slowed
from recommender.knowledge.store import Store
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest, resolve_with_checkpoint

CONCURRENCIES = (8, 32, 128)
"""Concurrent requests that a server may be sized for."""
MAX_HOSTS = 10_000
USUAL_RUNG = int(rung_at(0.4))
"""A suggested goal is one that many servers keep at 40 % of their capacity."""
ROUGH, LONG = 0.2, 5.0
"""Simulated requests, as a factor on the usual number: fewer to compare batches, more for the time to first token,
because few requests wait for it. Of groups a typical stretch is simulated, which needs no more."""
RANGE_END = 0.9
"""Confidence of the slow end of a range: of held-out errors, 80 % are inside."""
TAIL = "tail-open"
"""The coefficient of p99 of requests with images in an open loop."""

CORES_SHARE = 0.9
"""Share of a server's cores that it may fill."""

Limit: TypeAlias = Literal["preprocessing", "prefill on the card", "decoding steps", "CPU cores", "network"]


@dataclass(frozen=True, slots=True)
class HostKind:
    """A kind of host: its GPU and their number, GPUs per server, and CPU cores."""

    gpu: str
    """Id of the GPU."""
    cards: int
    """GPUs of a host."""
    tp: int
    """GPUs of a server."""
    cpus: int
    """CPU cores of a host."""


@dataclass(frozen=True)
class SizedFleet:
    """A fleet of one kind of host. ``holds``: requests/s that a server sustains at the goal.

    ``at``: a server's state at the peak with all hosts up; ``down``: the same with the spare hosts down.
    ``slower`` is ``down`` with servers ``slow`` times as slow, as at the slow end of the predicted speed; None if they
    are too busy. ``p99_ms``: the range of p99 at ``down``; infinite then. ``hosts`` includes the ``spare`` ones.
    ``warnings``: what speaks against the configuration.
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
    slow: float
    slower: ServerState | None
    spare: int = 0
    warnings: tuple[str, ...] = ()

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
    """The hosts."""
    why: str
    """Why they miss the goal."""
    needed: str = ""
    """What would meet it; empty: nothing is known."""


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
    searches: list[_Search] = []
    for concurrency in CONCURRENCIES:
        loaded = replace(resolved, concurrency=concurrency)
        chosen = choose(loaded, room=False)
        if isinstance(chosen, NoCandidate):
            if searches:
                break
            return Unfit(
                kind,
                alternatives.explain_misfit(resolved, chosen),
                alternatives.suggest_alternative(resolved, kind.cards, chosen),
            )
        if searches and costs_more(chosen.best.config, searches[-1].choice.best.config):
            break  # more hosts cost no accuracy
        ceiling, outer = _ceiling(resolved, kind, chosen.best.config, aim)
        if ceiling <= 0:
            return _too_few_cores(resolved, kind, chosen.best.config)
        searches.append(_Search(kind, loaded, chosen, aim, ceiling, outer))
    best, rough, hosts = searches[-1], searches[-1].rates(effort=ROUGH), UNBOUNDED
    for search in reversed(searches):  # a larger batch seldom takes more hosts
        rates = search.rates(effort=ROUGH, like=rough)
        if fewest := rates.find(below=hosts):
            best, rough, hosts = search, rates, fewest
    if hosts == UNBOUNDED:
        return _fleet(best, best.rates(), 0)
    effort = LONG if aim.burst == 1 and any(goal.figure == "ttft" for goal in aim.goals) else 1.0
    return _fleet(best, best.rates(effort=effort, like=rough), hosts)


@dataclass(frozen=True)
class _Search:
    """A configuration of a server that may be a fleet's, and the requests/s that its cores and network allow."""

    kind: HostKind
    resolved: ResolvedRequest
    choice: Choice
    aim: Aim
    ceiling: float
    outer: Limit

    @property
    def slow(self) -> float:
        """How many times as slow as predicted a server is at the slow end of the range."""
        rps = self.choice.best.speed.rps
        return rps.value / rps.low

    @cached_property
    def server(self) -> OpenServer:
        return open_server(self.resolved, self.choice.best.config, self.choice.best.memory.kv_tokens)

    def rates(self, **how: Any) -> RateSearch:
        """Return the search for a rate; ``effort`` and ``like`` as there."""
        normal = NormalDist()
        slow = math.pow(self.slow, normal.inv_cdf(self.aim.confidence) / normal.inv_cdf(RANGE_END))
        # The coefficient was measured only for requests with images.
        factor = self.resolved.store.coefficients[TAIL].value if self.resolved.images else 1.0
        tail = Tail(self.server.alone, factor)
        per_host = servers_of(self.kind, self.choice.best.config)
        return RateSearch(self.server, self.aim, tail, per_host, self.ceiling, slow, **how)


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
        **NO_GOALS,
    )


def _fleet(host_search: _Search, search: RateSearch, near: int) -> SizedFleet | Unfit:
    """Return the fewest hosts, or why none will do; ``near`` is a guess."""
    kind, aim, best = host_search.kind, host_search.aim, host_search.choice.best
    needed = search.find(near=near)
    if not needed:
        return _too_slow(host_search, search)
    sustained = search.rate(search.highest_rung(needed))
    holds, limit = (
        (host_search.ceiling, host_search.outer) if host_search.ceiling < sustained else (sustained, best.speed.limit)
    )
    hosts = needed + aim.spare
    if hosts > MAX_HOSTS:
        why = f"{hosts:,} hosts, limited by {binding(limit)}; a plan allows at most {MAX_HOSTS:,}"
        most = (MAX_HOSTS - aim.spare) * holds * search.per_host
        return Unfit(kind, why, _smaller_load(aim, most, sustained * search.per_host / holds, limit))
    up, down = search.state(hosts), search.state(needed)
    assert up is not None
    assert down is not None
    up = replace(up, figures=combine(min, up.figures, down.figures))  # a sample of few requests may contradict that
    slower = _slower(host_search, search, needed, down)
    return SizedFleet(
        kind,
        host_search.resolved,
        best.config,
        best.memory,
        holds,
        hosts,
        up,
        down,
        _p99(host_search, down, slower),
        limit,
        best.speed.basis,
        host_search.slow,
        slower,
        aim.spare,
        tuple(finding.message for finding in host_search.choice.warnings),
    )


def _slower(host_search: _Search, search: RateSearch, hosts: int, down: ServerState) -> ServerState | None:
    """Return a server's state at the slow end of its range, with the spare hosts down; None if it is too busy."""
    slowest = search if search.slow >= host_search.slow else host_search.rates(effort=ROUGH)
    slower = slowest.state(hosts, host_search.slow)
    if slower is None:
        return None
    # Few requests may be lucky: times grow at least as servers slow.
    least = slowed(down.figures, host_search.slow)
    return replace(slower, figures=combine(max, slower.figures, least))


def _too_few_cores(resolved: ResolvedRequest, kind: HostKind, config: Configuration) -> Unfit:
    servers = servers_of(kind, config)
    cores = (idle_cores(resolved, config) + 1) / CORES_SHARE
    why = f"{count(kind.cpus, 'CPU core')} cannot run {count(servers, 'server')}, even idle"
    return Unfit(kind, why, f"--cpus {math.ceil(cores * config.share) * (servers // config.share)}")


def _ceiling(resolved: ResolvedRequest, kind: HostKind, config: Configuration, aim: Aim) -> tuple[float, Limit]:
    """Return the requests/s that a server's cores and network allow, and which of them binds."""
    bounds: tuple[tuple[float, Limit], ...] = (
        (_core_rate(resolved, config), "CPU cores"),
        (network_rate(resolved, aim.network_gbps) / servers_of(kind, config), "network"),
    )
    return min(bounds)


def _p99(host_search: _Search, down: ServerState, slower: ServerState | None) -> uncertainty.Range:
    """Return the range of p99: servers as slow or fast as at their range's ends, and tails as measured.

    Its high end is infinite if slow servers are too busy.
    """
    speed, tail, value = host_search.choice.best.speed, host_search.resolved.store.coefficients[TAIL], down.p99_ms
    low, high = value * speed.rps.value / speed.rps.high, slower.p99_ms if slower else math.inf
    if host_search.resolved.images:
        shorter, longer = (
            down.tail._replace(factor=end).time(down.figures, "latency", "p99") for end in (tail.low, tail.high)
        )
        low, high = min(low, shorter), max(high, longer)
    least = min(speed.alone_ms.low, value)  # no answer takes less than that of a request alone
    return uncertainty.Range(value, max(low, least), max(high, value))


def _too_slow(host_search: _Search, search: RateSearch) -> Unfit:
    """Explain a goal that a server misses at any load."""
    usual = search.figures(USUAL_RUNG, max(search.per_host, EXACT))
    missed = search.aim.missed(usual, search.tail, search.slow)
    best = host_search.choice.best.config
    why = dict.fromkeys(
        part
        for goal in missed or search.aim.goals
        for part in alternatives.explain_miss(host_search.resolved, best, search, goal)
    )
    needed = [goal.with_time(search.slow * search.tail.time(usual, goal.figure, goal.at)) for goal in missed]
    return Unfit(host_search.kind, "; ".join(why), " ".join(needed))


def _smaller_load(aim: Aim, rate: float, times: float, limit: Limit) -> str:
    """Return the option for a load or a network that needs fewer hosts."""
    if limit == "network":
        return f"--network {math.ceil(aim.network_gbps * times * 10) / 10:g}"
    rps = math.floor(rate / aim.peak * 100) / 100
    return f"--rps {math.floor(rps) if rps > 10 else rps:g}" if rps else ""


def binding(limit: Limit) -> str:
    """Return the name of a limit as it reads within a sentence."""
    return f"the {limit}" if limit in ("CPU cores", "network") else limit


def _core_rate(resolved: ResolvedRequest, config: Configuration) -> float:
    """Return the requests/s of a server's CPU cores; negative if too few to idle."""
    cores = resolved.request.cpus / config.share * CORES_SHARE - idle_cores(resolved, config)
    return cores / request_cores(resolved, config)


def best_first(fleets: Iterable[SizedFleet], prices: Mapping[str, float]) -> list[SizedFleet]:
    """Sort fleets by price if there are any, else by GPUs, then by their memory."""

    def order(fleet: SizedFleet) -> tuple[float, ...]:
        memory = fleet.cards * fleet.resolved.gpu.memory_mib
        price = prices.get(fleet.resolved.gpu.id)
        return (price is None, (price or 0.0) * fleet.cards, fleet.cards, memory, fleet.kind.tp)

    return sorted(fleets, key=order)


def cost(fleet: SizedFleet, plan: FleetPlan) -> float | None:
    """Return the price of a million requests; None if the GPU has no price."""
    price = plan.prices.get(fleet.resolved.gpu.id)
    return None if price is None else price * fleet.cards / (plan.aim.rps * 3600) * 1e6
