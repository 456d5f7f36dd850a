"""Loosen the goals of a request as far as a prediction misses them, and write them as people do."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.choose.candidates import fewer_tiles
from recommender.choose.rate import choose_for_rate
from recommender.choose.request_change import Relaxation, RequestChange, ask
from recommender.choose.select import Candidate, Choice, excess
from recommender.estimate.speed import Speed, estimate

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.request.request import Request
    from recommender.request.resolved_request import ResolvedRequest

SLACKS = (1.0, 1.05, 1.2, 1.5)
"""Looser goals to predict if goals are missed: times are multiplied by these factors, the rate is divided by them."""
LEAST_RATE = 0.1
"""Share of the rate that can be reached, below which a lower rate is not worth an offer."""
STEPS = 20
"""Equal steps in which a rate or a time alone is tried."""


def floor_written(value: float) -> int:
    """Return a whole number of two significant digits that is not larger."""
    step: int = 10 ** max(len(str(int(value))) - 2, 0)
    return int(value) // step * step


def write_time(value: float) -> str:
    """Return a time in ms as people write a goal: two significant digits, not shorter; seconds from ten on."""
    step = 10 ** max(len(str(math.ceil(value))) - 2, 0)
    time = math.ceil(value / step) * step
    return f"{time / 1000:g}s" if time >= 10_000 else str(time)


def write_rate(value: float) -> str:
    """Return a rate as people write it: two significant digits, not higher."""
    if value >= 10:
        return str(floor_written(value))
    step = 10 ** (1 - math.floor(math.log10(value)))
    return f"{math.floor(value * step) / step:g}"


def list_missed(request: Request, speed: Speed, slack: float = 1.0) -> list[tuple[str, str, float]]:
    """Return each goal that a prediction misses, times ``slack``: its field, the option that it meets, the value."""
    missed = []
    for goal in request.time_goals:
        if (value := speed.goal_ms(goal)) > goal.most_ms:
            at = "" if goal.option == "--p99" or goal.at == "mean" else f"{goal.at}:"
            time = write_time(value * slack)
            field = goal.option.removeprefix("--") + "_ms"
            missed.append((field, f"{goal.option} {at}{time}", _read_time(time)))
    if speed.rps.value < request.planned_rps:
        rate = write_rate(speed.rps.value / request.headroom / slack)
        missed.append(("rps", f"--rps {rate}", float(rate)))
    return missed


def loosen(
    resolved: ResolvedRequest, config: Configuration, speed: Speed, slack: float
) -> list[tuple[str, str, float]]:
    """Return the goals that a prediction misses, each with a value that it meets.

    If it misses the rate, times are those at the rate that it meets: at the rate asked for, the queue grows.
    """
    missed = list_missed(resolved.request, speed, slack)
    rates = [entry for entry in missed if entry[0] == "rps"]
    if not rates or rates == missed or not resolved.rps:
        return missed
    request = replace(resolved.request, rps=rates[0][2])
    slower = replace(resolved, request=request, rps=request.planned_rps)
    times = list_missed(request, estimate(slower, config, ranged=False), slack)
    return [*(entry for entry in times if entry[0] != "rps"), *rates]


def looser_goals(resolved: ResolvedRequest, closest: Candidate | None) -> Iterator[Relaxation]:
    """Yield the request with looser goals, the smallest change first: the rate alone, the times alone, then both.

    Another rate is another simulation, and what meets it just fails to now and then, so goals somewhat looser follow.
    """
    if closest is None:
        return
    alone = [*_lower_rate(resolved, closest), *_longer_times(resolved, closest)] if resolved.rps else []
    for _, relaxation in sorted(alone, key=lambda offer: offer[0]):
        yield relaxation
    text = "the best prediction for this GPU and load" + offer_fewer_tiles(resolved, closest.config)
    for slack in SLACKS:
        missed = loosen(resolved, closest.config, closest.speed, slack)
        relaxed = ask(resolved, **{field: value for field, _, value in missed})
        rps = relaxed.request.planned_rps if resolved.rps else 0.0
        yield RequestChange(" ".join(option for _, option, _ in missed), text), replace(relaxed, rps=rps)


def _lower_rate(resolved: ResolvedRequest, closest: Candidate) -> Iterator[tuple[float, Relaxation]]:
    """Yield the highest rate that meets the times as asked, and by what it divides the rate.

    Where the rate is met and times are not, only a rate lowered by less than the times are missed by.
    """
    request = resolved.request
    late = max((closest.speed.goal_ms(goal) / goal.most_ms for goal in request.time_goals), default=0.0)
    if late <= 1:
        return
    top = min(closest.speed.rps.value / request.headroom, request.rps)
    least = top * LEAST_RATE if top < request.rps else top * max(LEAST_RATE, 1 / late)
    written = dict.fromkeys(float(write_rate(top * (1 - step / STEPS))) for step in range(STEPS))
    rates = [rate for rate in written if least < rate < request.rps]
    if rates and _meet(ask(resolved, rps=rates[-1])):
        rate = rates[bisect_left(rates, True, key=lambda rate: bool(_meet(ask(resolved, rps=rate))))]
        if met := _meet(ask(resolved, rps=rate)):
            yield (
                request.rps / rate,
                (RequestChange(f"--rps {rate:g}", "the highest rate that meets the other goals"), met[0]),
            )


def _longer_times(resolved: ResolvedRequest, closest: Candidate) -> Iterator[tuple[float, Relaxation]]:
    """Yield the shortest times at the rate as asked, where what misses the goals by the least misses the rate too.

    With them, by what they multiply the goal that is missed most.
    """
    request = resolved.request
    if not request.time_goals or closest.speed.rps.value >= request.planned_rps:
        return
    met = _meet(ask(resolved, p99_ms=0.0, ttft_ms=0.0, tpot_ms=0.0, latency_ms=0.0))
    if not met:
        return
    speed = met[1].speed
    late = max(speed.goal_ms(goal) / goal.most_ms for goal in request.time_goals)

    def loosened(share: float) -> list[tuple[str, str, float]]:
        missed = list_missed(request, speed, share)
        return [entry for entry in missed if entry[2] > getattr(request, entry[0])]

    def relaxed(share: float) -> ResolvedRequest:
        return ask(resolved, **{field: value for field, _, value in loosened(share)})

    shares = [step / STEPS for step in range(1, STEPS + 1) if step * late > STEPS]
    if shares and _meet(relaxed(shares[-1])):
        share = shares[bisect_left(shares, True, key=lambda share: bool(_meet(relaxed(share))))]
        if met := _meet(relaxed(share)):
            options = " ".join(option for _, option, _ in loosened(share))
            yield share * late, (RequestChange(options, "the best times at this rate"), met[0])


def _meet(resolved: ResolvedRequest) -> tuple[ResolvedRequest, Candidate] | None:
    """Return the case and the configuration that meet a rate and all other goals, or None."""
    case, found = choose_for_rate(resolved)
    return (case, found.best) if isinstance(found, Choice) and not excess(found.best, case.request) else None


def _read_time(text: str) -> float:
    return float(text.removesuffix("s")) * (1000 if text.endswith("s") else 1)


def offer_fewer_tiles(resolved: ResolvedRequest, config: Configuration) -> str:
    """Return a hint if clients that request fewer tiles would meet the goals."""
    for limit in () if config.max_tiles else fewer_tiles(resolved):
        if not list_missed(resolved.request, estimate(resolved, replace(config, max_tiles=limit), ranged=False)):
            return f"; clients that send max_dynamic_patch {limit} meet the goal, with less image detail"
    return ""
