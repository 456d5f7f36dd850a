"""One host's recommendation and the number of identical hosts."""

from dataclasses import dataclass

from recommender.choose.recommend import Recommendation


@dataclass(frozen=True, slots=True)
class Layout:
    """Identical hosts, each with the servers of ``recommendation.config``.

    While ``spare`` of them are down, the others hold the load. A request may wait ``wait_ms`` in the load balancer
    within the goals; 0: there is none. ``burst`` requests arrive together.
    """

    recommendation: Recommendation
    hosts: int = 1
    spare: int = 1
    wait_ms: float = 0.0
    burst: float = 1.0

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
