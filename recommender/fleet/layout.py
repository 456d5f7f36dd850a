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
    def servers(self) -> int:
        """Servers of all hosts."""
        return self.hosts * self.recommendation.config.servers
