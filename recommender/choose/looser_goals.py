"""Loosen the goals of a request as far as a prediction misses them, and write them as people do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.choose.candidates import fewer_tiles
from recommender.estimate.speed import Speed, estimate

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.request.request import Request
    from recommender.request.resolved_request import ResolvedRequest


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


def _read_time(text: str) -> float:
    return float(text.removesuffix("s")) * (1000 if text.endswith("s") else 1)


def offer_fewer_tiles(resolved: ResolvedRequest, config: Configuration) -> str:
    """Return a hint if clients that request fewer tiles would meet the goals."""
    for limit in () if config.max_tiles else fewer_tiles(resolved):
        if not list_missed(resolved.request, estimate(resolved, replace(config, max_tiles=limit), ranged=False)):
            return f"; clients that send max_dynamic_patch {limit} meet the goal, with less image detail"
    return ""
