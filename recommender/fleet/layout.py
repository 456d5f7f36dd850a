"""One host's recommendation and the number of identical hosts."""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

from recommender.choose.recommend import Recommendation, recommend
from recommender.common.text import count
from recommender.estimate import speed
from recommender.estimate.arrivals import places
from recommender.fleet.sizing import FleetPlan, SizedFleet, servers_of
from recommender.request.request import LEAST, TimeGoal

SERVED_SHARE = 0.5
"""Share of a goal's time that a request may take at a full server; it may wait in the load balancer for the rest."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Identical hosts, each with the servers of ``recommendation.config``.

    While ``spare`` of them are down, the others hold the load. The load balancer gives a server at most ``places``
    requests, and a request may wait there for ``wait_ms``, so that those it serves meet the goals; 0: there is none.
    ``burst`` requests arrive together. At the peak, ``peak`` times the mean rate, ``requests`` are at each server,
    running and waiting, and with the spare hosts down each gets ``rps``; 0: nobody planned it. ``goals`` are the
    plan's.
    """

    recommendation: Recommendation
    hosts: int = 1
    spare: int = 1
    wait_ms: float = 0.0
    places: int = 0
    burst: float = 1.0
    peak: float = 1.5
    requests: float = 0.0
    rps: float = 0.0
    goals: tuple[TimeGoal, ...] = ()

    @property
    def most_down(self) -> tuple[int, str]:
        """Return how many servers an update may take down at once, and why: the spare ones, less a host's failure."""
        spare, each = min(self.spare, self.hosts - 1), self.recommendation.config.servers
        if not spare:
            return 1, "One at a time: no host is to spare."
        if spare == 1:
            return 1, "One at a time: the spare host is kept for a failure."
        return each * (spare - 1), f"Of {spare} spare hosts, one is kept for a failure."

    def describe(self) -> str:
        """Describe the fleet and its load. Predictions in the same file are of one host with full batches."""
        config = self.recommendation.config
        fleet = f"Fleet: {count(self.servers, 'server')} on {count(self.hosts, 'host')} "
        fleet += f"with {count(config.cards, 'card')} each."
        if not self.rps:
            return fleet
        up = self.servers * (self.hosts - min(self.spare, self.hosts - 1)) / self.hosts
        goals = "".join(f", {goal.words.strip()} within {goal.most_ms:,.6g} ms" for goal in self.goals)
        peak = f"{self.rps * up:,.3g} requests/s at the peak"
        return f"{fleet} Planned for {peak}{goals}; the prediction is of full batches."

    @property
    def servers(self) -> int:
        """Servers of all hosts."""
        return self.hosts * self.recommendation.config.servers


def lay_out(fleet: SizedFleet, plan: FleetPlan) -> Layout:
    """Return one host's recommendation and the number of hosts, for the artefacts."""
    kind, config = fleet.kind, fleet.config
    concurrency = config.max_batch_size * servers_of(kind, config)
    # The words of a mix are too long for the head of a file; its lengths and its highest image count stay.
    own = replace(fleet.resolved.request, asked=())
    request = replace(own, gpu_count=kind.cards, cpus=kind.cpus, concurrency=concurrency)
    recommendation = recommend(request, plan.resolved.store, room=False)
    aim = plan.aim
    admitted, wait_ms = _admit(recommendation, fleet, aim.goals) if aim.goals else (0, 0.0)
    return Layout(
        recommendation,
        fleet.hosts,
        fleet.spare,
        wait_ms,
        admitted,
        aim.burst,
        aim.peak,
        fleet.at.requests,
        fleet.down.figures.rps,
        aim.goals,
    )


def _admit(recommendation: Recommendation, fleet: SizedFleet, goals: tuple[TimeGoal, ...]) -> tuple[int, float]:
    """Return how many requests a server gets at once, and the ms that one may wait before, so that it meets the goals.

    More requests would make a server only slower: what it finished would come too late for everybody.
    """
    config, most = recommendation.config, places(recommendation.config.max_batch_size)

    def times(requests: int) -> list[float]:
        """Return each predicted time as a share of its goal, for a server with this many requests."""
        resolved = replace(recommendation.resolved, concurrency=requests * config.servers)
        prediction = speed.estimate(resolved, config, ranged=False, kv_tokens=recommendation.memory.kv_tokens)
        return [prediction.goal_ms(goal) / goal.most_ms for goal in goals]

    def is_late(requests: int) -> bool:
        limits = [1.0 if goal.figure == "tpot" else SERVED_SHARE for goal in goals]
        return any(share > limit for share, limit in zip(times(requests), limits, strict=True))

    least = min(most, math.ceil(fleet.down.requests) + 1)
    admitted = max(least, bisect_left(range(1, most + 1), True, key=is_late))
    left = [
        (1 - share) * goal.most_ms for goal, share in zip(goals, times(admitted), strict=True) if goal.figure != "tpot"
    ]
    return admitted, max(min(left), LEAST) if left else 0.0
