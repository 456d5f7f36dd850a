"""A plan as JSON, and the schema it is published with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from recommender import __version__
from recommender.configuration import Configuration
from recommender.facts import GIB
from recommender.fleet.queueing import Queue
from recommender.fleet.sizing import Aim, Kind, Limit, Plan, Sized, Unfit, cost
from recommender.ranges import Basis, Range

FORMAT = 1


@dataclass(frozen=True)
class Asked:
    """What a request is: model, release, images in pixels, tokens."""

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
    """A server's steady state: share of what it can do, and times in ms."""

    busy: float
    mean_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Peak:
    """A server at the peak, with all hosts up and with the spare ones down."""

    up: State
    spare_down: State


@dataclass(frozen=True)
class Fleet:
    """A fleet that holds the aim. ``cost_a_million`` requests: null where the card has no price.

    ``server_rps`` is what one server holds at the goal, ``p99_ms`` its range with the spare hosts down. ``hosts`` has
    the spare ones too.
    """

    kind: Kind
    hosts: int
    cards: int
    servers: int
    server_rps: float
    limit: Limit
    basis: Basis
    gib_a_card: float
    cost_a_million: float | None
    p99_ms: Range
    peak: Peak
    config: Configuration


@dataclass(frozen=True)
class Published:
    """The JSON form of a plan. ``format`` rises when a field changes its meaning.

    ``fleets`` are in order, the best first; ``cannot`` are kinds of hosts that do not hold the aim, why, and what would
    do instead. ``prices`` are of a card and hour, by GPU.
    """

    format: int
    made_by: str
    asked: Asked
    aim: Aim
    prices: dict[str, float]
    fleets: tuple[Fleet, ...]
    cannot: tuple[Unfit, ...]
    notes: tuple[str, ...]


def published(plan: Plan) -> Published:
    """A plan without its store, ready to be written."""
    facts = plan.facts
    return Published(
        format=FORMAT,
        made_by=f"lmdeploy-recommender {__version__}",
        asked=Asked(
            lmdeploy=facts.release.id,
            model=facts.model.id,
            model_source=facts.model_source,
            images=facts.images,
            image_width=facts.image_width,
            image_height=facts.image_height,
            input_tokens=facts.input_tokens(),
            output_tokens=facts.output_tokens,
        ),
        aim=plan.aim,
        prices=dict(plan.prices),
        fleets=tuple(_fleet(each, plan) for each in plan.fleets),
        cannot=plan.unfit,
        notes=plan.notes,
    )


def _fleet(each: Sized, plan: Plan) -> Fleet:
    price = cost(each, plan)
    return Fleet(
        kind=each.kind,
        hosts=each.hosts,
        cards=each.cards,
        servers=each.servers,
        server_rps=round(each.holds, 2),
        limit=each.limit,
        basis=each.basis,
        gib_a_card=round(each.memory.total / GIB, 2),
        cost_a_million=None if price is None else round(price, 4),
        p99_ms=Range(*(round(getattr(each.p99_ms, of.name), 1) for of in fields(Range))),
        peak=Peak(_state(each.at), _state(each.down)),
        config=each.config,
    )


def _state(queue: Queue) -> State:
    times = (queue.mean_ms, queue.quantile_ms(0.5), queue.p99_ms)
    return State(round(queue.busy, 4), *(round(each, 1) for each in times))


def schema() -> dict[str, Any]:
    """The JSON Schema of what ``plan --json`` writes."""
    from pydantic import TypeAdapter

    made = TypeAdapter(Published).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made | {"title": "Plan"}
