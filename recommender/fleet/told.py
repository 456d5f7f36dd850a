"""A plan as text of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from recommender.facts import GIB
from recommender.fleet.sizing import Kind, Plan, Sized, Unfit, binding, cost, counted, servers_of
from recommender.terminal import wrap

TIED = "\N{CURRENCY SIGN}"
SHORT = {"prefill on the card": "prefill", "decoding steps": "decoding"}


def best_first(plan: Iterable[Sized], rps: float, prices: Mapping[str, float]) -> list[Sized]:
    """By price where there are any, else by cards, then by their memory."""

    def order(fleet: Sized) -> tuple[float, ...]:
        memory = fleet.cards * fleet.facts.gpu.memory_mib
        price = prices.get(fleet.facts.gpu.id)
        return (price is None, (price or 0.0) * fleet.cards, fleet.cards, memory, fleet.kind.tp)

    return sorted(plan, key=order)


def lines(plan: Plan) -> Iterator[str]:
    """The plan for people."""
    yield from _head(plan)
    if plan.fleets:
        yield ""
        yield from _table(plan)
        yield ""
        yield from _best(plan)
    if plan.unfit:
        yield from ("", "CANNOT")
        yield from _cannot(plan.unfit)
    if plan.notes:
        yield from ("", "NOTES")
        for note in plan.notes:
            yield from wrap(note, "  ", "    ")


def _head(plan: Plan) -> Iterator[str]:
    facts, aim = plan.facts, plan.aim
    images = f", {facts.images} x {facts.image_width}x{facts.image_height}" if facts.images else ""
    goal = f", 99% within {aim.p99_ms:{',.0f' if aim.p99_ms >= 1 else 'g'}} ms" if aim.p99_ms else ""
    burst = f", {aim.burst:g} at a time," if aim.burst > 1 else ""
    down = f"with {counted(aim.spare, 'host')} down" if aim.spare else "with every host up"
    kinds = [*(each.kind for each in plan.fleets), *(each.kind for each in plan.unfit)]
    cpus, a_card = {each.cpus for each in kinds}, max(each.cpus / each.cards for each in kinds)
    cores = f"{max(cpus)} CPU cores" if len(cpus) == 1 else f"{a_card:g} CPU cores a card"
    yield from wrap(
        f"{aim.rps:,g} requests/s{burst} of {facts.model.hub}{images}, {counted(facts.output_tokens, 'token')} out"
        f"{goal}; {aim.peak:g} times that at the peak {down}. LMDeploy {facts.release.id}. "
        f"A host has {cores} and {aim.network_gbps:g} Gbit/s."
    )


def _name(kind: Kind) -> str:
    return f"{kind.gpu}:{kind.cards}" + (f" tp {kind.tp}" if kind.tp > 1 else "")


def _money(amount: float | None) -> str:
    """At most nine columns."""
    if amount is None:
        return "-"
    return f"{amount:,.2f}" if amount < 1e5 else f"{amount:,.0f}" if amount < 1e7 else f"{amount:.2e}"


def _table(plan: Plan) -> Iterator[str]:
    costs = [cost(each, plan) for each in plan.fleets]
    priced = any(each is not None for each in costs)
    wide = max(8, *(len(_name(each.kind)) for each in plan.fleets))
    yield f"  {'HOST':<{wide}} {'hosts':>6}{'cards':>7}{'servers':>8}{'each/s':>8}{'busy':>6}{'p99 ms':>8}  " + (
        f"{'a million':>9}" if priced else "limit"
    )
    for each, price in zip(plan.fleets, costs, strict=True):
        last = f"{_money(price):>9}" if priced else SHORT.get(each.limit, each.limit)
        yield (
            f"  {_name(each.kind):<{wide}} {each.hosts:>6,}{each.cards:>7,}{each.servers:>8,}{each.holds:>8,.1f}"
            f"{each.down.busy:>6.0%} {each.p99_ms.value:>7,.0f}  {last}"
        )
    yield from wrap(
        f"{'hosts: with the spare; ' if plan.aim.spare else ''}each/s: what a server holds"
        f"{' at the goal' if plan.aim.p99_ms else ''}; busy, p99: of a server at the peak"
        f"{' with the spare down' if plan.aim.spare else ''}"
        + ("; a million: requests, at the prices given." if priced else "."),
        "  ",
        "  ",
    )


def _best(plan: Plan) -> Iterator[str]:
    fleet = plan.fleets[0]
    config, kind, up, down = fleet.config, fleet.kind, fleet.at, fleet.p99_ms
    yield f"{'FEWEST CARDS' if cost(fleet, plan) is None else 'CHEAPEST'}: {_name(kind)}"
    on = (
        f"of the card that {config.share} share under CUDA MPS"
        if config.share > 1
        else "of its card"
        if kind.tp == 1
        else f"of each of its {kind.tp} cards"
    )
    yield from wrap(
        f"{counted(fleet.hosts, 'host')} with {counted(servers_of(kind, config), 'server')} each. A server takes "
        f"{fleet.memory.total / GIB:,.1f} GiB {on}, runs {config.max_batch_size} requests at once and is limited by "
        f"{binding(fleet.limit)}.",
        "  ",
        "  ",
    )
    spare = plan.aim.spare
    lost = f" With {spare:,} down: {fleet.down.busy:.0%} busy, 99% within {down.value:,.0f} ms" if spare else ""
    goal = plan.aim.p99_ms
    missed = " The upper end misses the goal: measure a server before you rely on it." if 0 < goal < down.high else ""
    yield from wrap(
        f"At the peak with all hosts up: {up.busy:.0%} busy, half of the answers within {up.quantile_ms(0.5):,.0f} ms, "
        f"99% within {up.p99_ms:,.0f} ms{'.' if lost else ''}{lost} ({down.low:,.0f} to {down.high:,.0f}; "
        f"{fleet.basis}).{missed}",
        "  ",
        "  ",
    )
    needed = fleet.hosts - spare
    if spare > max(2, needed):
        yield from wrap(f"Most of it is spare: the peak takes {counted(needed, 'host')}.", "  ", "  ")


def _cannot(unfit: Iterable[Unfit]) -> Iterator[str]:
    """Kinds for which the same holds share a line."""
    said: dict[tuple[str, str], list[str]] = {}
    for name, each in _tightest(unfit):
        said.setdefault((each.why, each.needed), []).append(name)
    for (why, needed), names in said.items():
        # What is to be copied stays on one line.
        would = f"; {needed.replace(' ', TIED)} would do" if needed else ""
        for line in wrap(f"{', '.join(names)}: {why[0].upper()}{why[1:]}{would}.", "  ", "    "):
            yield line.replace(TIED, " ")


def _tightest(unfit: Iterable[Unfit]) -> Iterator[tuple[str, Unfit]]:
    """Of servers of one host that lack memory only the largest: those of fewer cards lack more."""
    rows: dict[tuple[object, ...], list[Unfit]] = {}
    for each in unfit:
        kind = each.kind
        own = each.needed if " GiB" in each.why else kind
        rows.setdefault((kind.gpu, kind.cards, own), []).append(each)
    for alike in rows.values():
        last = max(alike, key=lambda each: each.kind.tp)
        kind = last.kind
        yield (_name(kind) if len(alike) == 1 else f"{kind.gpu}:{kind.cards} up to tp {kind.tp}"), last
