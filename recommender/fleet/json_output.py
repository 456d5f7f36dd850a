"""A plan as JSON, and its JSON Schema."""

import math
from dataclasses import astuple, dataclass
from typing import Any

from recommender.common.units import GIB
from recommender.common.version import __version__
from recommender.estimate.configuration import Configuration
from recommender.estimate.scheduler.simulation import Quantiles
from recommender.estimate.uncertainty import Basis
from recommender.fleet.aim import Aim
from recommender.fleet.rate_search import ServerState
from recommender.fleet.sizing import RANGE_END, FleetPlan, HostKind, Limit, SizedFleet, Unfit, cost
from recommender.knowledge.json_schema import output_schema

FORMAT = 2


@dataclass(frozen=True)
class Asked:
    """The workload: model, release, images in pixels, tokens."""

    lmdeploy: str
    model: str
    model_source: str
    images: int
    image_width: int
    image_height: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class State:
    """A server at a rate: share of its capacity in use, and times in ms. ``requests``: mean number of them at it.

    ``mean_ms``, ``p50_ms`` and ``p99_ms`` are those of the latency; ``ttft`` and ``tpot`` are simulated times.
    """

    busy: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    rps: float
    requests: float
    ttft: Quantiles
    tpot: Quantiles


@dataclass(frozen=True)
class SlowEnd:
    """The slow end of the predicted speed: how many times as slow as predicted, and how busy a server then is.

    ``confidence``: share of predictions that are faster. ``p99_ms`` is null if the servers cannot keep up.
    """

    confidence: float
    times_slower: float
    busy: float
    p99_ms: float | None


@dataclass(frozen=True)
class Peak:
    """A server at the peak: with all hosts up, and with the spare hosts down, then also if servers are slower."""

    up: State
    spare_down: State
    slow_end: SlowEnd


@dataclass(frozen=True)
class P99:
    """A p99 in ms and its range."""

    value: float
    low: float
    high: float | None


@dataclass(frozen=True)
class Fleet:
    """A fleet that meets the goal. ``cost_a_million`` requests: null if the GPU has no price.

    ``server_rps``: requests/s that one server sustains at the goal. ``p99_ms``: with the spare hosts down; ``low`` and
    ``high`` are its range, ``high`` null where slower servers cannot keep up.
    ``hosts`` includes the spare ones.
    """

    kind: HostKind
    hosts: int
    cards: int
    servers: int
    server_rps: float
    limit: Limit
    basis: Basis
    gib_a_card: float
    cost_a_million: float | None
    p99_ms: P99
    peak: Peak
    config: Configuration


@dataclass(frozen=True)
class Published:
    """The JSON form of a plan. ``format`` rises when a field changes its meaning.

    ``fleets`` are sorted, the best first. ``cannot``: kinds of hosts that miss the goal, why, and what would meet it.
    ``prices`` are per GPU and hour, by GPU.
    """

    format: int
    made_by: str
    asked: Asked
    aim: Aim
    prices: dict[str, float]
    fleets: tuple[Fleet, ...]
    cannot: tuple[Unfit, ...]
    notes: tuple[str, ...]


def published(plan: FleetPlan) -> Published:
    """Return a plan without its store, ready to be written."""
    resolved = plan.resolved
    return Published(
        format=FORMAT,
        made_by=f"lmdeploy-recommender {__version__}",
        asked=Asked(
            lmdeploy=resolved.release.id,
            model=resolved.model.id,
            model_source=resolved.model_source,
            images=resolved.images,
            image_width=resolved.image_width,
            image_height=resolved.image_height,
            input_tokens=resolved.input_tokens(),
            output_tokens=resolved.output_tokens,
        ),
        aim=plan.aim,
        prices=dict(plan.prices),
        fleets=tuple(_fleet(fleet, plan) for fleet in plan.fleets),
        cannot=plan.unfit,
        notes=plan.notes,
    )


def _fleet(fleet: SizedFleet, plan: FleetPlan) -> Fleet:
    price, p99 = cost(fleet, plan), fleet.p99_ms
    return Fleet(
        kind=fleet.kind,
        hosts=fleet.hosts,
        cards=fleet.cards,
        servers=fleet.servers,
        server_rps=round(fleet.holds, 2),
        limit=fleet.limit,
        basis=fleet.basis,
        gib_a_card=round(fleet.memory.total / GIB, 2),
        cost_a_million=None if price is None else round(price, 4),
        p99_ms=P99(round(p99.value, 1), round(p99.low, 1), _finite(p99.high)),
        peak=Peak(_state(fleet.at), _state(fleet.down), _slow_end(fleet)),
        config=fleet.config,
    )


def _slow_end(fleet: SizedFleet) -> SlowEnd:
    p99 = _finite(fleet.slower.p99_ms) if fleet.slower else None
    return SlowEnd(RANGE_END, round(fleet.slow, 3), round(fleet.down.busy * fleet.slow, 4), p99)


def _finite(ms: float) -> float | None:
    return round(ms, 1) if math.isfinite(ms) else None


def _state(state: ServerState) -> State:
    figures = state.figures
    return State(
        busy=round(state.busy, 4),
        mean_ms=round(state.mean_ms, 1),
        p50_ms=round(state.p50_ms, 1),
        p99_ms=round(state.p99_ms, 1),
        rps=round(figures.rps, 3),
        requests=round(state.requests, 3),
        ttft=_rounded(figures.ttft),
        tpot=_rounded(figures.tpot),
    )


def _rounded(times: Quantiles) -> Quantiles:
    return Quantiles(*(round(time, 1) for time in astuple(times)))


def schema() -> dict[str, Any]:
    """Return the JSON Schema of what ``plan --json`` writes."""
    return output_schema(Published, "Plan", FORMAT)
