"""How many cards hold a rate of arrivals: for each kind of card, servers, hosts, what binds and what it costs.

A server gets its share of the arrivals, which the front deals out by chance: Poisson stays Poisson. The rate that
one server holds at the goal follows from ``queueing``; the hosts from that, from the peak, and from those that may
be down.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, TypeAlias

from recommender import ranges, speed
from recommender.choose import Choice, Nothing, choose
from recommender.configuration import Configuration
from recommender.facts import Facts
from recommender.fleet import remedy
from recommender.fleet.layout import Layout
from recommender.fleet.queueing import MOST, Queue, steady
from recommender.memory import Memory
from recommender.pipeline import recommend, understand
from recommender.request import Request
from recommender.store import Store

FLIGHTS = (8, 32, 128)
"""Requests in flight that a server may be laid out for."""
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Where the rate of a server is computed; between them it is a line."""
BUSIEST = 0.8
"""Where no latency is asked for, a server is given this share of what it can do."""
STEPS = 18
"""Halvings in the search for the rate that a server holds: fine enough for thousands of hosts."""
MAX_HOSTS = 10_000
JPEG_BYTES_PER_PIXEL = 0.35
"""Assumed: photographs as clients send them; nobody measured it here."""
BASE64 = 4 / 3
NETWORK_SHARE = 0.7
"""Share of a host's network that requests may fill."""

TAIL = "tail-open"
"""The coefficient of 99 % in an open loop."""

CORES_SHARE = 0.9
"""Share of a server's cores that it may fill."""

Limit: TypeAlias = Literal["preprocessing", "prefill on the card", "decoding steps", "CPU cores", "network"]


@dataclass(frozen=True, slots=True)
class Aim:
    """What the fleet must hold: requests a second on average, times ``peak``, ``burst`` at a time, p99 in ms or 0.

    ``spare`` hosts may be down; ``network_gbps`` is what a host's network carries.
    """

    rps: float
    p99_ms: float = 0.0
    peak: float = 1.5
    burst: float = 1.0
    spare: int = 1
    network_gbps: float = 10.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Hosts of so many cards of one GPU, their CPU cores, and how many cards a server takes."""

    gpu: str
    cards: int
    tp: int
    cpus: int


@dataclass(frozen=True)
class Sized:
    """A fleet of one kind. ``holds``: requests a second of a server at the goal; ``at``: a server's steady state.

    ``at`` is taken at the peak with all hosts up, ``down`` with the spare ones down. ``p99_ms``: its range at ``down``.
    ``hosts`` has the ``spare`` ones too.
    """

    kind: Kind
    facts: Facts
    config: Configuration
    memory: Memory
    holds: float
    hosts: int
    at: Queue
    down: Queue
    p99_ms: ranges.Range
    limit: Limit
    basis: ranges.Basis
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
    """Why a kind cannot be the answer, and what would do instead; empty where nothing is known to."""

    kind: Kind
    why: str
    needed: str = ""


@dataclass(frozen=True)
class Plan:
    """The kinds that hold an aim, the best first, and those that cannot; prices are a card and hour, by GPU.

    ``facts`` say the model and what a request is; their card is any of them.
    """

    facts: Facts
    aim: Aim
    prices: Mapping[str, float]
    fleets: tuple[Sized, ...]
    unfit: tuple[Unfit, ...]
    notes: tuple[str, ...] = ()


def servers_of(kind: Kind, config: Configuration) -> int:
    """Servers of one host."""
    return kind.cards // kind.tp * config.share


def sized(request: Request, kind: Kind, aim: Aim, store: Store) -> Sized | Unfit:
    """The smallest fleet of a kind that holds the aim. ``request`` says the model and what a request is.

    Raises UnknownName or RequestError for what cannot be understood.
    """
    facts = understand(_of(request, kind), store)
    best: Sized | None = None
    why: Unfit | None = None
    for flight in FLIGHTS:
        outcome = choose(replace(facts, concurrency=flight))
        if isinstance(outcome, Nothing):
            why = why or Unfit(kind, remedy.reason(facts, outcome), remedy.elsewhere(facts, kind.cards, outcome))
            break
        made = _fleet(replace(facts, concurrency=flight), kind, outcome, aim)
        if isinstance(made, Unfit):
            why = why or made
        elif best is None or made.hosts < best.hosts:
            best = made
    return best or why or Unfit(kind, "nothing was tried")


def _of(request: Request, kind: Kind) -> Request:
    """The request that one server's layout is chosen for."""
    cpus = max(1, kind.cpus * kind.tp // kind.cards)
    return replace(
        request, gpu=kind.gpu, gpu_count=kind.tp, tp=kind.tp, cpus=cpus, load="", rps=0.0, p99_ms=0.0, goal="throughput"
    )


def _fleet(facts: Facts, kind: Kind, choice: Choice, aim: Aim) -> Sized | Unfit:
    config = choice.best.config
    completes = curve(facts, config)
    tail = facts.store.coefficients[TAIL].value
    held = rate_held(completes, aim, tail)
    if not held:
        return _too_slow(facts, kind, choice, aim)
    each = servers_of(kind, config)
    bounds: list[tuple[float, Limit]] = [
        (held, choice.best.speed.limit),
        (_cores(facts, config), "CPU cores"),
        (_network(facts, aim) / each, "network"),
    ]
    holds, limit = min(bounds)
    if holds <= 0:
        cores = (facts.store.coefficients["server-cores"].value + 1) / CORES_SHARE
        why = f"{counted(kind.cpus, 'CPU core')} do not carry {counted(each, 'server')} that wait for work"
        return Unfit(kind, why, f"--cpus {math.ceil(cores * config.share) * (each // config.share)}")
    peak = aim.rps * aim.peak
    hosts = math.ceil(peak / (holds * each) - 1e-9) + aim.spare
    if hosts > MAX_HOSTS:
        why = f"{hosts:,} hosts, limited by {binding(limit)}; a plan has {MAX_HOSTS:,} at most"
        return Unfit(kind, why, _less(aim, (MAX_HOSTS - aim.spare) * holds * each, held * each / holds, limit))
    up, left = (_at(completes, peak / (count * each), aim, tail) for count in (hosts, hosts - aim.spare))
    if up is None or left is None:
        why = f"more than {MOST:,} requests would wait at a server, as they come {aim.burst:g} at a time"
        return Unfit(kind, why, _rarer(completes, peak / ((hosts - aim.spare) * each), aim, tail))
    p99, basis = _p99(facts, choice, left), choice.best.speed.basis
    return Sized(kind, facts, config, choice.best.memory, holds, hosts, up, left, p99, limit, basis, spare=aim.spare)


def _p99(facts: Facts, choice: Choice, queue: Queue) -> ranges.Range:
    """The range of 99 %: that of the tails that were measured, and wider where closed loops are told less well."""
    ends, tail, value = choice.best.speed.p99_ms, facts.store.coefficients[TAIL], queue.p99_ms
    low = min(tail.low / tail.value, ends.low / ends.value)
    high = max(tail.high / tail.value, ends.high / ends.value)
    return ranges.Range(value, value * low, value * high)


def _too_slow(facts: Facts, kind: Kind, choice: Choice, aim: Aim) -> Unfit:
    """A goal that a server does not keep however little it has to do."""
    completes = curve(facts, choice.best.config)
    alone = speed.figures(facts, choice.best.config, 1, _known(facts))
    why = f"a request alone takes {alone.alone:,.0f} ms, mainly {alone.limit}"
    if alone.alone <= aim.p99_ms:
        why += f"; with those that arrive beside it 99% within {aim.p99_ms:,.0f} ms cannot be held"
    rate = completes(GRID[-1]) / 2
    tail = facts.store.coefficients[TAIL].value
    half = _at(completes, rate, aim, tail)
    return Unfit(kind, why, f"--p99 {math.ceil(half.p99_ms)}" if half else _rarer(completes, rate, aim, tail))


def _rarer(completes: Callable[[float], float], rate: float, aim: Aim, tail: float) -> str:
    """How many requests may arrive together; empty where not even single ones may."""
    together = int(aim.burst)
    while together > 1:
        together //= 2
        queue = _at(completes, rate, replace(aim, burst=together), tail)
        if queue and (not aim.p99_ms or queue.p99_ms <= aim.p99_ms):
            return f"--burst {together}"
    return ""


def _less(aim: Aim, rate: float, times: float, limit: Limit) -> str:
    """A load or a network with which the hosts are no longer too many."""
    if limit == "network":
        return f"--network {math.ceil(aim.network_gbps * times * 10) / 10:g}"
    rps = math.floor(rate / aim.peak * 100) / 100
    return f"--rps {math.floor(rps) if rps > 10 else rps:g}" if rps else ""


def binding(limit: Limit) -> str:
    """What binds, within a sentence."""
    return f"the {limit}" if limit in ("CPU cores", "network") else limit


def counted(number: int, thing: str) -> str:
    """A number of things, with commas, in the singular or the plural."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _at(completes: Callable[[float], float], rate: float, aim: Aim, tail: float) -> Queue | None:
    return steady(rate, completes, burst=aim.burst, tail=tail)


def curve(facts: Facts, config: Configuration) -> Callable[[float], float]:
    """Requests that one server completes a second with so many at it; never less for more."""
    known = _known(facts)
    return line([speed.figures(facts, config, flight, known).rps for flight in GRID])


def _known(facts: Facts) -> Mapping[str, float]:
    return speed.scaled(facts.store, facts.request.host_scale, facts.request.card_scale)


def line(rates: Sequence[float]) -> Callable[[float], float]:
    """The rate at any number in flight from those at ``GRID``; it never falls, and is shared out below one."""
    rates = list(accumulate(rates, max))

    def completes(flight: float) -> float:
        if flight <= 1:
            return rates[0] * flight
        if flight >= GRID[-1]:
            return rates[-1]
        place = bisect_left(GRID, flight)
        low, high = GRID[place - 1], GRID[place]
        return rates[place - 1] + (rates[place] - rates[place - 1]) * (flight - low) / (high - low)

    return completes


def rate_held(completes: Callable[[float], float], aim: Aim, tail: float = 1.0) -> float:
    """The largest rate a second at which a server meets the goal; 0 where it never does."""
    low, high = 0.0, completes(GRID[-1]) * (1.0 if aim.p99_ms else BUSIEST)
    if not aim.p99_ms:
        return high
    if 1e3 / completes(1) > aim.p99_ms:
        return 0.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        found = _at(completes, middle, aim, tail)
        if found and found.p99_ms <= aim.p99_ms:
            low = middle
        else:
            high = middle
    return low


def _cores(facts: Facts, config: Configuration) -> float:
    """Requests a second that a server's CPU cores carry; below 0 where they do not even carry the idle server."""
    known = facts.store.coefficients
    work = known["request-core-ms"].value + facts.images * facts.tiles(config.max_tiles) * known["tile-core-ms"].value
    cores = facts.request.cpus / config.share * CORES_SHARE - known["server-cores"].value
    return 1e3 * cores / work


def _network(facts: Facts, aim: Aim) -> float:
    """Requests a second that the network of a host brings in; no limit for text."""
    pixels = facts.images * facts.image_width * facts.image_height
    size = pixels * JPEG_BYTES_PER_PIXEL * BASE64 + 4 * facts.input_tokens(1)
    return aim.network_gbps * 1e9 / 8 * NETWORK_SHARE / size


def layout(fleet: Sized, store: Store) -> Layout:
    """What the artefacts of a fleet are written from: the recommendation for one host, and the number of hosts."""
    kind, config = fleet.kind, fleet.config
    a_host = servers_of(kind, config)
    request = replace(
        fleet.facts.request, gpu_count=kind.cards, cpus=kind.cpus, concurrency=config.max_batch_size * a_host
    )
    return Layout(recommend(request, store), fleet.hosts, fleet.spare)


def cost(fleet: Sized, plan: Plan) -> float | None:
    """Money a million requests at the average rate; None where the card has no price."""
    price = plan.prices.get(fleet.facts.gpu.id)
    return None if price is None else price * fleet.cards / (plan.aim.rps * 3600) * 1e6
