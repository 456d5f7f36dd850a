"""A plan as text of 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recommender.facts import GIB
from recommender.fleet.sizing import Aim, Sized, Unfit, cost, servers_of
from recommender.render import count
from recommender.terminal import plain, wrap

FORMAT = 1
SHORT = {"prefill on the card": "prefill", "decoding steps": "decoding"}


def best_first(fleets: Iterable[Sized], aim: Aim, prices: Mapping[str, float]) -> list[Sized]:
    """By price where there are any, else by cards, then by their memory."""

    def order(fleet: Sized) -> tuple[float, ...]:
        price = cost(fleet, aim.rps, prices)
        return (not price, price, fleet.cards, fleet.cards * fleet.facts.gpu.memory_mib, fleet.kind.tp)

    return sorted(fleets, key=order)


def lines(fleets: Sequence[Sized], unfit: Sequence[Unfit], aim: Aim, prices: Mapping[str, float]) -> Iterator[str]:
    """The plan for people."""
    if fleets:
        facts = fleets[0].facts
        images = f", {facts.images} x {facts.image_width}x{facts.image_height}" if facts.images else ""
        goal = f", 99 % within {aim.p99_ms:,.0f} ms" if aim.p99_ms else ""
        yield from wrap(
            f"{aim.rps:g} requests/s of {facts.model.hub}{images}, {facts.output_tokens} tokens out{goal}; "
            f"{aim.peak:g} times that at the peak with {count(aim.spare, 'host')} down. LMDeploy {facts.release.id}."
        )
        yield ""
        yield from _table(fleets, aim, prices)
        yield ""
        yield from _best(fleets[0])
    if unfit:
        yield from ([""] if fleets else []) + ["CANNOT"]
        for each in unfit:
            needed = f"; {each.needed} would do" if each.needed else ""
            yield from wrap(f"{_name(each)}: {each.why}{needed}", "  ", "    ")


def _name(each: Sized | Unfit) -> str:
    kind = each.kind
    return f"{kind.gpu}:{kind.cards}" + (f" tp {kind.tp}" if kind.tp > 1 else "")


def _table(fleets: Sequence[Sized], aim: Aim, prices: Mapping[str, float]) -> Iterator[str]:
    priced = any(cost(each, aim.rps, prices) for each in fleets)
    wide = max(8, *(len(_name(each)) for each in fleets))
    yield f"  {'HOST':<{wide}} {'hosts':>6}{'cards':>6}{'servers':>8}{'each/s':>8}{'busy':>6}{'p99 ms':>8}  " + (
        f"{'a million':>9}" if priced else "limit"
    )
    for each in fleets:
        last = f"{cost(each, aim.rps, prices):>9,.2f}" if priced else SHORT.get(each.limit, each.limit)
        yield (
            f"  {_name(each):<{wide}} {each.hosts:>6,}{each.cards:>6,}{each.servers:>8,}{each.holds:>8,.1f}"
            f"{each.down.busy:>6.0%}{each.p99_ms.value:>8,.0f}  {last}"
        )
    yield from wrap(
        "each/s: what one server holds at the goal. busy and p99: at the peak with the spare hosts down"
        + ("; a million: requests, at the prices given." if priced else "."),
        "  ",
        "  ",
    )


def _best(fleet: Sized) -> Iterator[str]:
    gib = fleet.memory.total / GIB
    config, kind = fleet.config, fleet.kind
    yield f"THE FIRST: {_name(fleet)}"
    yield from wrap(
        f"{count(fleet.hosts, 'host')} with {count(servers_of(kind, config), 'server')} each, of "
        f"{count(kind.tp, 'card')}{', two on a card under CUDA MPS' if config.share > 1 else ''}; a server takes "
        f"{gib:,.1f} GiB a card, runs {config.max_batch_size} at once and is limited by {fleet.limit}.",
        "  ",
        "  ",
    )
    up = fleet.at
    yield from wrap(
        f"At the peak with all hosts up: {up.busy:.0%} busy, median {up.quantile_ms(0.5):,.0f} ms, 99 % within "
        f"{up.quantile_ms(0.99):,.0f} ms. With the spare down: 99 % within {fleet.p99_ms.value:,.0f} ms "
        f"({fleet.p99_ms.low:,.0f} to {fleet.p99_ms.high:,.0f}; {fleet.basis}).",
        "  ",
        "  ",
    )


def as_json(fleets: Sequence[Sized], unfit: Sequence[Unfit], aim: Aim, prices: Mapping[str, float]) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "format": FORMAT,
        "aim": plain(aim),
        "fleets": [_fleet(each, aim, prices) for each in fleets],
        "cannot": [{"kind": plain(each.kind), "why": each.why, "needed": each.needed} for each in unfit],
    }


def _fleet(each: Sized, aim: Aim, prices: Mapping[str, float]) -> dict[str, Any]:
    queues = {"up": each.at, "spare_down": each.down}
    return {
        "kind": plain(each.kind),
        "hosts": each.hosts,
        "cards": each.cards,
        "servers": each.servers,
        "server_rps": round(each.holds, 2),
        "limit": each.limit,
        "basis": each.basis,
        "gib_a_card": round(each.memory.total / GIB, 2),
        "cost_a_million": round(cost(each, aim.rps, prices), 4),
        "p99_ms": {"value": each.p99_ms.value, "low": each.p99_ms.low, "high": each.p99_ms.high},
        "peak": {
            name: {
                "busy": round(queue.busy, 4),
                "mean_ms": round(queue.mean_ms, 1),
                "p50_ms": round(queue.quantile_ms(0.5), 1),
                "p99_ms": round(queue.quantile_ms(0.99), 1),
            }
            for name, queue in queues.items()
        },
        "config": plain(each.config),
    }
