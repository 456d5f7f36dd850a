"""What a run is asked to do, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.knowledge import records
    from recommender.render.artefact import Artefact
    from recommender.request.request import Replayed
    from recommender.smoke.client.load import Outcome
    from recommender.smoke.failures import Failure
    from recommender.smoke.process.gpu import Host
    from recommender.smoke.process.readback import ReadbackSetting

Say: TypeAlias = Callable[[str], None]
"""Show the user what is going on."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load: a concurrency or arrivals at ``rps``; images of one size, of a mix or text.

    ``burstiness`` is the coefficient of variation of the gaps between arrivals. ``image_mix`` is the request's, with
    the width and height of its largest images. ``replay`` are a trace's requests as they are sent: ``speed`` times as
    fast as recorded. ``left_out`` requests are not sent, and ``cut`` ones are shorter than recorded.
    """

    concurrency: int
    rps: float
    images: int
    width: int
    height: int
    burstiness: float = 1.0
    image_mix: str = ""
    replay: tuple[Replayed, ...] = ()
    speed: float = 0.0
    left_out: int = 0
    cut: int = 0


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to run.

    ``copies`` share one GPU; ``kill`` kills one server of a fleet after the loads; ``pin`` lists the servers' CPU
    cores. A load ends after ``seconds`` or ``enough`` requests (0: no limit). ``stream_all``: every request streams.
    If requests differ, they all stream without it, too.
    """

    artefact: Artefact
    recommendation: Recommendation
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
    stream_all: bool = False

    @property
    def random_weights(self) -> bool:
        """Whether the weights are made up, so that the output is meaningless."""
        return self.checkpoint.startswith("random")

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment of the launch."""
        return {**self.environment, **self.set_by_smoke}


@dataclass(slots=True)
class LoadResult:
    """One load as measured."""

    load: Load
    outcome: Outcome
    peak_mib: int
    host_cpu_percent: float
    server_cores: float
    metrics: Mapping[str, float]
    drawn: records.DrawnLoad | None = None


@dataclass(slots=True)
class RunResult:
    """The result of a run, as far as it got."""

    host: Host
    idle_mib: int
    startup_s: float = 0.0
    start_peak_mib: int = 0
    ready_mib: int = 0
    effective: tuple[ReadbackSetting, ...] = ()
    checks: tuple[str, ...] = ()
    phases: list[LoadResult] = field(default_factory=list)
    failure: Failure | None = None
    killed: list[records.Killed] = field(default_factory=list)
    log_sha256: str = ""
    memory_back: bool = True


def describe_load(load: Load) -> str:
    """Return a load in a few words."""
    what = (load.image_mix or f"{load.width}x{load.height}") + (f" x {load.images}" if load.images > 1 else "")
    how = f"concurrency {load.concurrency}" if load.concurrency else describe_arrivals(load.rps, load.burstiness)
    how = describe_trace(load.rps, load.speed) if load.replay else how
    return f"{how}, {what if load.images else 'text only'}"


def describe_arrivals(rps: float, burstiness: float) -> str:
    """Return a rate in a few words."""
    return f"{rps:g} requests/s ({'Poisson' if burstiness == 1 else f'burstiness {burstiness:g}'})"


def describe_trace(rps: float, speed: float) -> str:
    """Return the arrivals of a trace in a few words."""
    return f"{rps:.3g} requests/s (as in the trace{'' if speed == 1 else f', {speed:g} times as fast'})"
