"""What a run is asked for and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.pipeline import Recommendation
    from recommender.smoke.failures import Failure
    from recommender.smoke.gpu import Host
    from recommender.smoke.launch import Artefact
    from recommender.smoke.load import Outcome
    from recommender.smoke.readback import Setting

Say: TypeAlias = Callable[[str], None]
"""Tells the user what goes on."""


@dataclass(frozen=True, slots=True)
class Load:
    """One load to drive: so many in flight, or Poisson arrivals at ``rps``; images of one size, or text only."""

    concurrency: int
    rps: float
    images: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run. ``copies`` of the artefact share its card; ``kill``: one server of a fleet, once all
    loads were driven; ``pin``: the CPU cores of the servers; ``seconds`` and ``enough`` (requests; 0: no such end)
    bound a phase."""

    artefact: Artefact
    found: Recommendation
    loads: tuple[Load, ...]
    environment: Mapping[str, str]
    set_by_smoke: Mapping[str, str]
    checkpoint: str
    notes: tuple[str, ...] = ()
    copies: int = 1
    mps: bool = False
    kill: bool = False
    pin: str = ""
    seconds: float = 20.0
    enough: int = 0
    patience_s: float = 120.0

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the launch."""
        return {**self.environment, **self.set_by_smoke}


@dataclass(slots=True)
class Measured:
    """One phase as measured."""

    load: Load
    outcome: Outcome
    peak_mib: int
    host_cpu_percent: float
    server_cores: float
    metrics: Mapping[str, float]


@dataclass(slots=True)
class Taken:
    """All that a run found, as far as it came."""

    host: Host
    idle_mib: int
    startup_s: float = 0.0
    start_peak_mib: int = 0
    ready_mib: int = 0
    effective: tuple[Setting, ...] = ()
    checks: tuple[str, ...] = ()
    phases: list[Measured] = field(default_factory=list)
    failure: Failure | None = None
    killed: list[r.Killed] = field(default_factory=list)
    log_sha256: str = ""
    memory_back: bool = True


def described(asked: Load) -> str:
    """A load in a few words."""
    what = f"{asked.width}x{asked.height}" + (f" x {asked.images}" if asked.images > 1 else "")
    how = f"{asked.concurrency} in flight" if asked.concurrency else f"{asked.rps:g} a second (Poisson)"
    return f"{how}, {what if asked.images else 'text only'}"
