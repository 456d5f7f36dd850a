"""Alerts on a fleet's goals, in the metrics that LMDeploy and HAProxy have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.knowledge.conditions import version
from recommender.request.request import TimeGoal

if TYPE_CHECKING:
    from recommender.fleet.front import Limits
    from recommender.fleet.layout import Layout

SINCE = "0.11.0"
"""From here /metrics is on by default, and has every metric of the rules: knowledge/flags/disable-metrics."""
PREFIXES_SINCE = "0.14.0"
"""From here it has the hit rate of the prefix cache."""
REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
TPOT_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    80.0,
)
HISTOGRAMS = {
    "latency": ("lmdeploy:e2e_request_latency_seconds", REQUEST_BUCKETS, "0.18.0 lmdeploy/metrics/loggers.py:349"),
    "ttft": ("lmdeploy:time_to_first_token_seconds", TTFT_BUCKETS, "0.18.0 lmdeploy/metrics/loggers.py:314"),
    "tpot": ("lmdeploy:time_per_output_token_seconds", TPOT_BUCKETS, "0.18.0 lmdeploy/metrics/loggers.py:325"),
}
CITES = {
    "schedule": "0.18.0 lmdeploy/serve/openai/api_server.py:230",
    "arrival": "0.18.0 lmdeploy/serve/core/async_engine.py:695",
    "running": "0.18.0 lmdeploy/metrics/loggers.py:177",
    "waiting": "0.18.0 lmdeploy/metrics/loggers.py:182",
    "cache": "0.18.0 lmdeploy/metrics/loggers.py:190",
    "tokens": "0.18.0 lmdeploy/metrics/loggers.py:202",
    "steps": "0.18.0 lmdeploy/serve/core/chat_runner.py:125",
    "registry": "0.18.0 lmdeploy/serve/openai/api_server.py:200",
}
FAST, SLOW = 14.4, 6.0
"""Multiples of the budget of slow requests that spend 2 % of a month's in an hour, and 5 % in six hours."""
MOST_FAST, MOST_SLOW = 0.5, 0.25
"""Shares of slow requests at which they alert at the latest: a goal for p90 has a budget of a tenth."""
LEAST_STILL_S = 120
"""A busy server that gives no token for this long hangs; metrics of the schedule are up to 10 s old."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A goal in LMDeploy's metrics. ``bucket_s``: the boundary that counts as the goal, 0 for a mean.

    ``budget``: the share of requests that may be slower. ``fast`` and ``slow``: shares at which an alert is due within
    minutes and within hours.
    """

    name: str
    metric: str
    source: str
    goal_s: float
    bucket_s: float = 0.0
    budget: float = 0.0
    fast: float = 0.0
    slow: float = 0.0

    @property
    def bucket(self) -> str:
        """The boundary as a regular expression: Prometheus versions write whole numbers differently."""
        text = repr(self.bucket_s)
        return f"{text[:-2]}|{text[:-2]}[.]0" if text.endswith(".0") else text.replace(".", "[.]")


def watched(layout: Layout) -> list[Watched]:
    """Return the goals as metrics; without any, the slow end of the predicted p99. Left out: beyond the last bucket."""
    own = layout.recommendation.request.time_goals
    predicted = TimeGoal("--p99", "latency", "p99", layout.recommendation.speed.p99_ms.high)
    goals = [_watch(goal) for goal in layout.goals or own or (predicted,)]
    return [each for each in goals if each is not None]


def _watch(goal: TimeGoal) -> Watched | None:
    metric, buckets, source = HISTOGRAMS[goal.figure]
    seconds = goal.most_ms / 1000
    name = f"{goal.words.strip()} {seconds:.4g} s"
    if goal.at == "mean":
        return Watched(name, metric, source, seconds)
    bucket = next((bound for bound in buckets if bound >= seconds), None)
    if bucket is None:
        return None
    budget = round(1 - int(goal.at[1:]) / 100, 6)
    fast, slow = (max(budget, min(times * budget, most)) for times, most in ((FAST, MOST_FAST), (SLOW, MOST_SLOW)))
    return Watched(name, metric, source, seconds, bucket, budget, round(fast, 6), round(slow, 6))


def context(layout: Layout, limits: Limits) -> dict[str, object]:
    """Return the names that the templates of alerts and dashboards see. Durations are in s."""
    release = layout.recommendation.resolved.version
    return {
        "has_metrics": release >= version(SINCE),
        "has_prefixes": release >= version(PREFIXES_SINCE),
        "watched": watched(layout) if release >= version(SINCE) else [],
        "no_goal": not layout.goals and not layout.recommendation.request.time_goals,
        "still_s": max(LEAST_STILL_S, limits.answer_s),
        "metric_cites": CITES,
        "metrics_since": SINCE,
    }
