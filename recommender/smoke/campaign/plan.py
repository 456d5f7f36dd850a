"""A campaign's plan: the fields of its YAML file and the smoke runs it leads to."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from recommender.knowledge import records
from recommender.smoke.result import Load

Seconds = Annotated[float, Field(ge=0, le=3600)]


class Start(records.Record):
    """One server start, its loads and their length."""

    id: records.Id
    base: str = Field(default="", description="the name of common words among the plan's bases")
    run: str = Field(default="", description="words of recommend smoke")
    phases: str = Field(default="", description="loads as --phase takes them; empty: those of the sweep")
    seconds: Seconds = Field(default=0, description="0: the plan's; in the sweep that of its first rung")
    copies: Annotated[int, Field(ge=1, le=16)] = 1
    mps: bool = False
    sweep: bool = Field(default=False, description="whether it takes part in the sweep")
    pick: str = Field(default="", description="loads for which recommend picks it: they stay in every rung")


class Rung(records.Record):
    """One round of the sweep; the survivors run again, longer or more often."""

    seconds: Seconds = Field(default=0, description="of each load; 0: the plan's")
    keep: Annotated[int, Field(ge=0)] = Field(default=0, description="how many of each load come from the rung before")
    times: Annotated[int, Field(ge=1, le=20)] = 1
    phases: str = Field(default="", description="the loads that it is about; empty: those of the sweep")


class Sweep(records.Record):
    """Successive halving among the starts with ``sweep: true``; they are the first rung."""

    phases: records.Text
    rungs: tuple[Rung, ...] = Field(min_length=1)


class Plan(records.Record):
    """A plan file; starts run in its order."""

    id: records.Id = Field(description="prefix of the records' ids")
    about: records.Text
    gpu: records.Text
    seconds: Annotated[float, Field(gt=0, le=3600)] = 4
    common: str = Field(default="", description="words added to every run")
    bases: dict[records.Id, records.Text] = Field(default={}, description="words that several starts share, by name")
    starts: tuple[Start, ...] = Field(min_length=1)
    sweep: Sweep | None = None


@dataclass(frozen=True)
class PlannedRun:
    """One smoke run of a campaign; ``rung`` 0 is outside the sweep.

    ``what`` is the digest of the server's launch; ``picks`` are loads of the sweep in which it always survives;
    ``identity``: see ``artefact.identify_setup``.
    """

    id: str
    start: str
    rung: int
    words: tuple[str, ...]
    loads: tuple[str, ...]
    seconds: float
    copies: int
    mps: bool
    what: str
    picks: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Return a digest of everything that affects the measurement."""
        text = json.dumps([self.what, self.words, self.loads, self.seconds, self.copies, self.mps])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def options(self) -> list[str]:
        """Return the arguments of ``recommend smoke``."""
        loads = [word for load in self.loads for word in ("--phase", load)]
        copies = ["--copies", str(self.copies)] if self.copies > 1 else []
        return [*self.words, *loads, "--seconds", f"{self.seconds:g}", *copies, *(["--mps"] if self.mps else [])]


@dataclass(frozen=True)
class ParsedPlan:
    """A parsed plan: launches in order, the loads of the sweep and of each rung."""

    plan: Plan
    launches: tuple[PlannedRun, ...]
    loads: tuple[str, ...]
    rung_loads: tuple[tuple[str, ...], ...] = ()

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Return the rungs of the sweep, if any."""
        return self.plan.sweep.rungs if self.plan.sweep else ()


def name_of(load: Load) -> str:
    """Return a load as ``--phase`` takes it, always with its image size."""
    if load.replay:
        return _trace_name(load.speed)
    return _name(load.concurrency, load.rps, load.images, "mix" if load.image_mix else f"{load.width}x{load.height}")


def name_of_phase(phase: records.Phase) -> str:
    """Return the name of the load of a record's phase."""
    if phase.drawn and phase.drawn.trace_speed:
        return _trace_name(phase.drawn.trace_speed)
    mixed = phase.drawn and phase.drawn.image_mix
    return _name(phase.concurrency, phase.arrivals_rps, phase.images, "mix" if mixed else phase.image)


def _trace_name(speed: float) -> str:
    return "trace" if speed == 1 else f"{speed:g}xtrace"


def _name(concurrency: int, rps: float, images: int, image: str) -> str:
    how = str(concurrency) if concurrency else f"{rps:g}rps"
    return f"{how}@{image}" + (f"x{images}" if images > 1 and image != "mix" else "") if images else f"{how}@text"
