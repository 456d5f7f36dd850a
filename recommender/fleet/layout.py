"""One host's recommendation and the number of identical hosts."""

from dataclasses import dataclass

from recommender.choose.recommend import Recommendation


@dataclass(frozen=True, slots=True)
class Layout:
    """Identical hosts, each with the servers of ``recommendation.config``.

    While ``spare`` of them are down, the others hold the load.
    """

    recommendation: Recommendation
    hosts: int = 1
    spare: int = 1

    @property
    def servers(self) -> int:
        """Servers of all hosts."""
        return self.hosts * self.recommendation.config.servers
