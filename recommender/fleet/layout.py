"""What fleet artefacts are written from: one host's recommendation, and how many hosts alike there are."""

from __future__ import annotations

from dataclasses import dataclass

from recommender.pipeline import Recommendation


@dataclass(frozen=True, slots=True)
class Layout:
    """Hosts alike. ``found.config.servers`` servers on each, of ``found.config.tp`` cards."""

    found: Recommendation
    hosts: int = 1

    @property
    def servers(self) -> int:
        """Servers of all hosts."""
        return self.hosts * self.found.config.servers
