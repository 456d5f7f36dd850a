"""What a fleet is planned for: a rate with peaks, goals for its times, and hosts that may be down."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from recommender.common.errors import RequestError
from recommender.estimate.scheduler.simulation import LoadFigures, Timed
from recommender.request.request import LEAST, Quantile, Request, short

MOST_TIMES, MOST_SPARE, MOST_GBPS = 1000, 100, 10_000
"""Ends of the ranges of a goal: peak and burst, spare hosts, network."""


class TimeGoal(NamedTuple):
    """The most ms of a quantile of a time, and the option that asks for it."""

    option: str
    figure: Timed
    quantile: Quantile
    most_ms: float

    @property
    def words(self) -> str:
        """The name of the time within a sentence."""
        name = {"ttft": " TTFT", "tpot": " TPOT", "latency": ""}[self.figure]
        return f"{self.quantile}{name}" if self.quantile != "mean" else f"the mean{name or ' latency'}"

    def written(self, ms: float) -> str:
        """Return the option with another time."""
        at = "" if self.option == "--p99" or self.quantile == "mean" else f"{self.quantile}:"
        return f"{self.option} {at}{math.ceil(ms)}"


@dataclass(frozen=True, slots=True)
class Aim:
    """The goal: mean requests/s, times ``peak``, in bursts; times in ms, 0 for none.

    ``p99_ms`` is that of a whole request. ``ttft_at`` and so on say which quantile a goal means. ``spare`` hosts may be
    down. ``network_gbps``: network bandwidth of a host.
    """

    rps: float
    p99_ms: float = 0.0
    peak: float = 1.5
    burst: float = 1.0
    spare: int = 1
    network_gbps: float = 10.0
    ttft_ms: float = 0.0
    tpot_ms: float = 0.0
    latency_ms: float = 0.0
    ttft_at: Quantile = "mean"
    tpot_at: Quantile = "mean"
    latency_at: Quantile = "mean"

    def __post_init__(self) -> None:
        """Raise RequestError for a value that makes no sense."""
        for option, value, low, high in (
            ("--peak", self.peak, 1, MOST_TIMES),
            ("--burst", self.burst, 1, MOST_TIMES),
            ("--spare", self.spare, 0, MOST_SPARE),
            ("--network", self.network_gbps, LEAST, MOST_GBPS),
        ):
            if not low <= value <= high:  # NaN is in no range
                raise RequestError(f"{option} {short(value)}: use a number from {low:g} to {high:,}")

    @classmethod
    def of(cls, request: Request, peak: float, burst: float, spare: int, network_gbps: float) -> Aim:
        """Return the aim with the rate and the goals of a request."""
        times = (request.ttft_ms, request.tpot_ms, request.latency_ms)
        quantiles = (request.ttft_at, request.tpot_at, request.latency_at)
        return cls(request.rps, request.p99_ms, peak, burst, spare, network_gbps, *times, *quantiles)

    @property
    def goals(self) -> tuple[TimeGoal, ...]:
        """The goals that are given."""
        every = (
            TimeGoal("--p99", "latency", "p99", self.p99_ms),
            TimeGoal("--ttft", "ttft", self.ttft_at, self.ttft_ms),
            TimeGoal("--tpot", "tpot", self.tpot_at, self.tpot_ms),
            TimeGoal("--latency", "latency", self.latency_at, self.latency_ms),
        )
        return tuple(goal for goal in every if goal.most_ms)

    def missed(self, figures: LoadFigures, tail: float) -> tuple[TimeGoal, ...]:
        """Return the goals that figures miss; ``tail`` as in ``time_at``."""
        return tuple(goal for goal in self.goals if time_at(figures, goal.figure, goal.quantile, tail) > goal.most_ms)


def time_at(figures: LoadFigures, figure: Timed, quantile: Quantile, tail: float = 1.0) -> float:
    """Return a quantile of a time in ms; ``tail`` is measured over simulated p99, of answers and of their beginning."""
    longer = tail if quantile == "p99" and figure != "tpot" else 1.0
    return longer * float(getattr(getattr(figures, figure), quantile))
