"""One host's recommendation and the number of identical hosts."""

from dataclasses import dataclass, replace

from recommender.choose.recommend import Recommendation, recommend
from recommender.fleet.aim import Aim
from recommender.fleet.sizing import FleetPlan, SizedFleet, servers_of
from recommender.request.request import LEAST, TimeGoal


@dataclass(frozen=True, slots=True)
class Layout:
    """Identical hosts, each with the servers of ``recommendation.config``.

    While ``spare`` of them are down, the others hold the load. A request may wait ``wait_ms`` in the load balancer
    within the goals; 0: there is none. ``burst`` requests arrive together. At the peak, ``peak`` times the mean rate,
    ``requests`` are at each server, running and waiting, and with the spare hosts down each gets ``rps``; 0: nobody
    planned it. ``goals`` are the plan's.
    """

    recommendation: Recommendation
    hosts: int = 1
    spare: int = 1
    wait_ms: float = 0.0
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

    @property
    def servers(self) -> int:
        """Servers of all hosts."""
        return self.hosts * self.recommendation.config.servers


def lay_out(fleet: SizedFleet, plan: FleetPlan) -> Layout:
    """Return one host's recommendation and the number of hosts, for the artefacts."""
    kind, config = fleet.kind, fleet.config
    concurrency = config.max_batch_size * servers_of(kind, config)
    request = replace(fleet.resolved.request, gpu_count=kind.cards, cpus=kind.cpus, concurrency=concurrency)
    made = recommend(request, plan.resolved.store, room=False)
    aim = plan.aim
    wait_ms = _wait_ms(fleet, aim)
    return Layout(
        made,
        fleet.hosts,
        fleet.spare,
        wait_ms,
        aim.burst,
        aim.peak,
        fleet.at.requests,
        fleet.down.figures.rps,
        aim.goals,
    )


def _wait_ms(fleet: SizedFleet, aim: Aim) -> float:
    """Return how long a request may wait in the load balancer, so that it can still meet the goals; 0 without one."""
    figures = fleet.down.figures
    # The median of the busiest predicted state has hardly any wait in it.
    left = [goal.most_ms - getattr(figures, goal.figure).p50 for goal in aim.goals if goal.figure != "tpot"]
    return max(min(left), LEAST) if left else 0.0
