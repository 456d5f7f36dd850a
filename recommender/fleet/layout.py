"""What fleet artefacts are written from: one host's recommendation, and how many hosts alike there are."""

from __future__ import annotations

from dataclasses import dataclass

from recommender.pipeline import Recommendation


@dataclass(frozen=True, slots=True)
class Layout:
    """Hosts alike. ``found.config.servers`` servers on each, of ``found.config.tp`` cards.

    ``spare`` of them may be down while the others hold the load.
    """

    found: Recommendation
    hosts: int = 1
    spare: int = 1

    @property
    def servers(self) -> int:
        """Servers of all hosts."""
        return self.hosts * self.found.config.servers
