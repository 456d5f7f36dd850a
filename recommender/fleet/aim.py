"""What a fleet is planned for: a rate with peaks, goals for its times, and hosts that may be down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from recommender.common.errors import RequestError
from recommender.common.field_types import check_field_types, short
from recommender.estimate.scheduler.simulation import LoadFigures, Quantiles, Timed
from recommender.request.request import LEAST, Quantile, Request, TimeGoal, list_time_goals

MOST_TIMES, MOST_SPARE, MOST_GBPS = 1000, 100, 10_000
LEAST_CONFIDENCE, MOST_CONFIDENCE = 0.5, 0.99
"""Ends of the ranges of a goal: peak and burst, spare hosts, network, confidence."""


NO_GOALS: Mapping[str, Any] = {
    **dict.fromkeys(("p99_ms", "ttft_ms", "tpot_ms", "latency_ms"), 0.0),
    **dict.fromkeys(("ttft_at", "tpot_at", "latency_at"), "mean"),
}
"""Request fields that remove the goals: a fleet has to meet them, so each server is chosen without goals."""


@dataclass(frozen=True, slots=True)
class Aim:
    """The goal: mean requests/s, times ``peak``, in bursts."""

    rps: float
    """Mean requests/s of the fleet."""
    p99_ms: float = 0.0
    """Goal for the p99 of a request in ms; 0: none."""
    peak: float = 1.5
    """Peak over mean rate."""
    burst: float = 1.0
    """Arrivals that come at once."""
    spare: int = 1
    """Hosts that may be down."""
    network_gbps: float = 10.0
    """Network bandwidth of a host in Gbit/s."""
    ttft_ms: float = 0.0
    """Goal for the time to first token in ms; 0: none."""
    tpot_ms: float = 0.0
    """Goal for the time per output token in ms; 0: none."""
    latency_ms: float = 0.0
    """Goal for the latency in ms; 0: none."""
    ttft_at: Quantile = "mean"
    """Quantile that the goal is for."""
    tpot_at: Quantile = "mean"
    """Quantile that the goal is for."""
    latency_at: Quantile = "mean"
    """Quantile that the goal is for."""
    confidence: float = 0.5
    """Share of predictions that hold; 0.5: middle of the range."""

    def __post_init__(self) -> None:
        """Raise RequestError for a value that makes no sense."""
        check_field_types(self)
        for option, value, low, high in (
            ("--peak", self.peak, 1, MOST_TIMES),
            ("--burst", self.burst, 1, MOST_TIMES),
            ("--spare", self.spare, 0, MOST_SPARE),
            ("--network", self.network_gbps, LEAST, MOST_GBPS),
            ("--confidence", self.confidence, LEAST_CONFIDENCE, MOST_CONFIDENCE),
        ):
            if not low <= value <= high:  # NaN is in no range
                raise RequestError(f"{option} {short(value)}: use a number from {low:g} to {high:,}")

    @classmethod
    def of(
        cls, request: Request, peak: float, burst: float, spare: int, network_gbps: float, confidence: float = 0.5
    ) -> Aim:
        """Return the aim with the rate and the goals of a request."""
        times = (request.ttft_ms, request.tpot_ms, request.latency_ms)
        quantiles = (request.ttft_at, request.tpot_at, request.latency_at)
        return cls(request.rps, request.p99_ms, peak, burst, spare, network_gbps, *times, *quantiles, confidence)

    @property
    def goals(self) -> tuple[TimeGoal, ...]:
        """The goals that are given."""
        ttft, tpot = (self.ttft_ms, self.ttft_at), (self.tpot_ms, self.tpot_at)
        return list_time_goals(self.p99_ms, ttft, tpot, (self.latency_ms, self.latency_at))

    def missed(self, figures: LoadFigures, tail: Tail, slow: float = 1.0) -> tuple[TimeGoal, ...]:
        """Return the goals that these figures miss if the servers are ``slow`` times as slow."""
        return tuple(goal for goal in self.goals if slow * tail.time(figures, goal.figure, goal.at) > goal.most_ms)


class Tail(NamedTuple):
    """Lengthen the simulated p99: what other arrivals add to a request ``alone`` counts ``factor`` times."""

    alone: LoadFigures
    factor: float = 1.0

    def time(self, figures: LoadFigures, figure: Timed, quantile: Quantile) -> float:
        """Return a quantile of a time in ms."""
        times: Quantiles = getattr(figures, figure)
        if quantile == "p99" and figure != "tpot":
            times = times.lengthen_tail(getattr(self.alone, figure).p99, self.factor)
        return float(getattr(times, quantile))
