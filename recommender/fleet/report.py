"""Format a plan for an 80-column terminal."""

import math
from collections.abc import Iterable, Iterator
from typing import get_args

from recommender.common.terminal import wrap
from recommender.common.text import count
from recommender.common.units import GIB
from recommender.estimate.scheduler.simulation import Timed
from recommender.fleet.aim import Aim
from recommender.fleet.rate_search import ServerState
from recommender.fleet.sizing import RANGE_END, FleetPlan, HostKind, SizedFleet, Unfit, binding, cost, servers_of
from recommender.render.summary import describe_sizes, rate
from recommender.request.request import Quantile

TIED = "\N{CURRENCY SIGN}"
SHORT = {"prefill on the card": "prefill", "decoding steps": "decoding"}


def lines(plan: FleetPlan) -> Iterator[str]:
    """Yield the lines of a plan."""
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


def _head(plan: FleetPlan) -> Iterator[str]:
    resolved, aim = plan.resolved, plan.aim
    most = "up to " if resolved.mean_images < resolved.images else ""
    images = f", {most}{resolved.images} x {describe_sizes(resolved)}" if resolved.images else ""
    goal = "".join(
        f", {goal.words} within {goal.most_ms:{',.0f' if goal.most_ms >= 1 else 'g'}} ms" for goal in aim.goals
    )
    sure = f", at a confidence of {aim.confidence:.0%}" if aim.confidence > 0.5 else ""
    burst = f" in bursts of {aim.burst:g}" if aim.burst > 1 else ""
    down = f"with {count(aim.spare, 'host')} down" if aim.spare else "with every host up"
    kinds = [*(fleet.kind for fleet in plan.fleets), *(misfit.kind for misfit in plan.unfit)]
    cpus = {kind.cpus for kind in kinds}
    cores = (
        f"{cpus.pop()} CPU cores"
        if len(cpus) == 1
        else f"{max(kind.cpus / kind.cards for kind in kinds):g} CPU cores per GPU"
    )
    yield from wrap(
        f"{aim.rps:,g} requests/s{burst} of {resolved.model.hub}{images}, "
        f"{count(resolved.output_tokens, 'output token')}"
        f"{' on average' if resolved.request.asked else ''}{goal}{sure}; peak: {aim.peak:g} times that, {down}. "
        f"LMDeploy {resolved.release.id}. Per host: {cores}, {aim.network_gbps:g} Gbit/s."
    )


def name_of(kind: HostKind) -> str:
    """Return a kind of host as the command line writes it, with the GPUs of a server if they are several."""
    return f"{kind.gpu}:{kind.cards}" + (f" tp {kind.tp}" if kind.tp > 1 else "")


def _money(amount: float | None) -> str:
    """Format an amount of money in at most nine columns."""
    if amount is None:
        return "-"
    return f"{amount:,.2f}" if amount < 1e5 else f"{amount:,.0f}" if amount < 1e7 else f"{amount:.2e}"


def _table(plan: FleetPlan) -> Iterator[str]:
    costs = [cost(fleet, plan) for fleet in plan.fleets]
    priced = any(price is not None for price in costs)
    width = max(8, *(len(name_of(fleet.kind)) for fleet in plan.fleets))
    yield f"  {'HOST':<{width}} {'hosts':>6}{'GPUs':>7}{'servers':>8}{'each/s':>8}{'busy':>6}{'p99 ms':>8}  " + (
        f"{'per 1M':>9}" if priced else "limit"
    )
    for fleet, price in zip(plan.fleets, costs, strict=True):
        last = f"{_money(price):>9}" if priced else SHORT.get(fleet.limit, fleet.limit)
        counts = f"{fleet.hosts:>6,}{fleet.cards:>7,}{fleet.servers:>8,}"
        yield (
            f"  {name_of(fleet.kind):<{width}} {counts}{rate(fleet.holds):>8}"
            f"{fleet.down.busy:>6.0%} {fleet.p99_ms.value:>7,.0f}  {last}"
        )
    yield from _indented(
        f"{'hosts: including spares; ' if plan.aim.spare else ''}each/s: requests/s that one server sustains"
        f"{' at the goal' if plan.aim.goals else ''}; busy, p99: one server at the peak"
        f"{', with the spare hosts down' if plan.aim.spare else ''}"
        + ("; per 1M: price of a million requests." if priced else ".")
    )


def _indented(text: str) -> list[str]:
    return wrap(text, "  ", "  ")


def _best(plan: FleetPlan) -> Iterator[str]:
    fleet = plan.fleets[0]
    config, kind, up, p99 = fleet.config, fleet.kind, fleet.at, fleet.p99_ms
    yield f"{'FEWEST GPUS' if cost(fleet, plan) is None else 'CHEAPEST'}: {name_of(kind)}"
    takes = f"{fleet.memory.total / GIB:,.1f} GiB"
    subject = (
        f"The {config.share} that share a GPU under CUDA MPS take {takes} of it. A server"
        if config.share > 1
        else f"A server takes {takes} of its GPU,"
        if kind.tp == 1
        else f"A server takes {takes} of each of its {kind.tp} GPUs,"
    )
    yield from _indented(
        f"{count(fleet.hosts, 'host')} with {count(servers_of(kind, config), 'server')} each. "
        f"{subject} runs {config.max_batch_size} requests at once, and is limited by {binding(fleet.limit)}."
    )
    spare = plan.aim.spare
    down = f". With {spare:,} down: {fleet.down.busy:.0%} busy, p99 {p99.value:,.0f} ms" if spare else ""
    ends = f"{p99.low:,.0f} to {p99.high:,.0f}" if math.isfinite(p99.high) else f"from {p99.low:,.0f}"
    yield from _indented(
        f"Peak with all hosts up: {up.busy:.0%} busy, p50 {up.p50_ms:,.0f} ms, "
        f"p99 {up.p99_ms:,.0f} ms{down} ({ends}; {fleet.basis})."
    )
    yield from _indented(_slow_end(fleet, plan.aim))
    then = f" with {count(spare, 'host')} down" if spare else ""
    if any(goal.figure == "latency" and goal.at != "p99" for goal in plan.aim.goals):
        yield from _indented(f"Latency{then}: {_spread(fleet.down, 'latency', plan.aim)}.")
    yield from _indented(f"TTFT{then}: {_spread(fleet.down, 'ttft', plan.aim)}.")
    if fleet.resolved.output_tokens > 1:
        yield from _indented(f"TPOT{then}: {_spread(fleet.down, 'tpot', plan.aim)}.")
    needed = fleet.hosts - spare
    if spare > max(2, needed):
        yield from _indented(f"Most hosts are spare: the peak needs {count(needed, 'host')}.")


def _slow_end(fleet: SizedFleet, aim: Aim) -> str:
    """Say what happens if servers are as slow as at the end of their range."""
    busy = fleet.down.busy * fleet.slow
    then = f"If servers are {fleet.slow:.2f} times as slow as predicted ({RANGE_END:.0%} are faster): {busy:.0%} busy"
    if fleet.slower is None:
        what = "they do not keep up"
    elif missed := aim.missed(fleet.slower.figures, fleet.slower.tail):
        goal = missed[0]
        what = f"{goal.words} {_time(fleet.slower, goal.figure, goal.at)}, which misses the goal"
    else:
        return f"{then}, p99 {fleet.slower.p99_ms:,.0f} ms."
    mend = f"size for it with --confidence {RANGE_END:g}" if aim.confidence < RANGE_END else "plan more hosts"
    return f"{then}, {what}: {mend}, or measure one server."


def _spread(state: ServerState, figure: Timed, aim: Aim) -> str:
    """Return p50 and p99 of a time, and what the goals for it are about."""
    asked = {"p50", "p99", *(goal.at for goal in aim.goals if goal.figure == figure)}
    return ", ".join(f"{at} {_time(state, figure, at)}" for at in get_args(Quantile) if at in asked)


def _time(state: ServerState, figure: Timed, at: Quantile) -> str:
    ms = state.tail.time(state.figures, figure, at)
    return f"{ms:,.{0 if ms >= 100 else 1}f} ms"


def _cannot(unfit: Iterable[Unfit]) -> Iterator[str]:
    """Yield a line for each reason and remedy, with all kinds of hosts that share them."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, misfit in _tightest(unfit):
        names.setdefault((misfit.why, misfit.needed), []).append(name)
    for (why, needed), kinds in names.items():
        # Commands to copy stay on one line.
        would = f"; {needed.replace(' ', TIED)} would do" if needed else ""
        for line in wrap(f"{', '.join(kinds)}: {why[0].upper()}{why[1:]}{would}.", "  ", "    "):
            yield line.replace(TIED, " ")


def _tightest(unfit: Iterable[Unfit]) -> Iterator[tuple[str, Unfit]]:
    """Yield each kind by name; of those that lack memory, only the largest server."""
    rows: dict[tuple[object, ...], list[Unfit]] = {}
    for misfit in unfit:
        kind = misfit.kind
        own = misfit.needed if " GiB" in misfit.why else kind
        rows.setdefault((kind.gpu, kind.cards, own), []).append(misfit)
    for alike in rows.values():
        largest = max(alike, key=lambda misfit: misfit.kind.tp)
        kind = largest.kind
        yield (name_of(kind) if len(alike) == 1 else f"{kind.gpu}:{kind.cards} up to tp {kind.tp}"), largest
