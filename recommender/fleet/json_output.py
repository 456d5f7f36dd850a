"""A plan as JSON, and its JSON Schema."""

import math
from dataclasses import dataclass
from typing import get_args

from recommender.common.units import GIB
from recommender.common.version import __version__
from recommender.estimate.configuration import Configuration
from recommender.estimate.scheduler.simulation import Quantiles, Timed
from recommender.estimate.uncertainty import Basis
from recommender.fleet.aim import Aim
from recommender.fleet.rate_search import ServerState
from recommender.fleet.sizing import RANGE_END, FleetPlan, HostKind, Limit, SizedFleet, Unfit, cost
from recommender.request.request import Quantile

FORMAT = 2


@dataclass(frozen=True)
class PlanWorkload:
    """The workload: model, release, images in pixels, tokens."""

    lmdeploy: str
    """LMDeploy release."""
    model: str
    """Id of the model."""
    model_source: str
    """Hub name or folder that the servers load."""
    images: int
    """Images of a request."""
    image_width: int
    """Pixels, of the largest size."""
    image_height: int
    """Pixels, of the largest size."""
    image_mix: str
    """Image sizes with their shares; empty: one size."""
    input_tokens: int
    """Prompt tokens with those of images of the largest size."""
    output_tokens: int
    """Answer tokens."""


@dataclass(frozen=True)
class State:
    """A server at a rate."""

    busy: float
    """Share of the server's capacity in use."""
    mean_ms: float
    """Mean latency in ms."""
    p50_ms: float
    """Median latency in ms."""
    p99_ms: float
    """99th percentile of the latency in ms."""
    rps: float
    """Requests/s that the server answers."""
    requests: float
    """Mean number of requests at the server."""
    ttft: Quantiles
    """Simulated time to first token."""
    tpot: Quantiles
    """Simulated time per output token."""


@dataclass(frozen=True)
class SlowEnd:
    """The slow end of the predicted speed, and a server there."""

    confidence: float
    """Share of predictions that are faster."""
    times_slower: float
    """Time of the slow end over the predicted one."""
    busy: float
    """Share of the server's capacity in use."""
    p99_ms: float | None
    """99th percentile of the latency in ms; null: it cannot keep up."""


@dataclass(frozen=True)
class Peak:
    """A server at the peak: with all hosts up, and with the spare hosts down, then also if servers are slower."""

    up: State
    """With all hosts up."""
    spare_down: State
    """With the spare hosts down."""
    slow_end: SlowEnd
    """With the spare hosts down and servers slower than predicted."""


@dataclass(frozen=True)
class P99:
    """A p99 in ms and its range."""

    value: float
    """Predicted ms."""
    low: float
    """Low end of the range in ms."""
    high: float | None
    """High end of the range in ms; null: slower servers cannot keep up."""


@dataclass(frozen=True)
class Fleet:
    """A fleet that meets the goal."""

    kind: HostKind
    """The hosts."""
    hosts: int
    """Number of hosts, spare ones included."""
    cards: int
    """GPUs of all hosts."""
    servers: int
    """Server processes of all hosts."""
    server_rps: float
    """Requests/s that one server sustains at the goal."""
    limit: Limit
    """What limits a server."""
    basis: Basis
    """Where the figures come from."""
    gib_a_card: float
    """GiB in use on each GPU."""
    cost_a_million: float | None
    """Price of a million requests; null: the GPU has no price."""
    p99_ms: P99
    """Latency at the peak with the spare hosts down."""
    peak: Peak
    """A server at the peak."""
    config: Configuration
    """Settings of each server."""


@dataclass(frozen=True)
class PlanJson:
    """The JSON form of a plan."""

    format: int
    made_by: str
    """This program and its version."""
    asked: PlanWorkload
    """The workload."""
    aim: Aim
    """The goal."""
    prices: dict[str, float]
    """Price per hour, by GPU."""
    fleets: tuple[Fleet, ...]
    """Fleets that meet the goal, the best first."""
    cannot: tuple[Unfit, ...]
    """Kinds of hosts that miss the goal."""
    notes: tuple[str, ...]
    """What was assumed and what speaks against the servers' settings, as sentences."""


def json_form(plan: FleetPlan) -> PlanJson:
    """Return a plan without its store, ready to be written."""
    resolved = plan.resolved
    return PlanJson(
        format=FORMAT,
        made_by=f"lmdeploy-recommender {__version__}",
        asked=PlanWorkload(
            lmdeploy=resolved.release.id,
            model=resolved.model.id,
            model_source=resolved.model_source,
            images=resolved.images,
            image_width=resolved.image_width,
            image_height=resolved.image_height,
            image_mix=resolved.request.image_mix if resolved.images else "",
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


QUANTILES: tuple[Quantile, ...] = get_args(Quantile)


def _state(state: ServerState) -> State:
    figures = state.figures
    return State(
        busy=round(state.busy, 4),
        mean_ms=round(state.mean_ms, 1),
        p50_ms=round(state.p50_ms, 1),
        p99_ms=round(state.p99_ms, 1),
        rps=round(figures.rps, 3),
        requests=round(state.requests, 3),
        ttft=_times(state, "ttft"),
        tpot=_times(state, "tpot"),
    )


def _times(state: ServerState, figure: Timed) -> Quantiles:
    """Return the quantiles of a time, the p99 as the report has it."""
    return Quantiles(**{at: round(state.tail.time(state.figures, figure, at), 1) for at in QUANTILES})
