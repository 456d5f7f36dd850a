"""All records by kind and id, read from the compiled index."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from recommender.common.plain import Plain

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.knowledge.claim_measurements import Measured
    from recommender.knowledge.published_loads import PublishedTable


WITH_PREFIX = " with a prefix"
"""Suffix of a workload's name whose requests share a prefix."""


class RunSummary:
    """What the recommender reads of a run; ``index.read_record`` gives the whole record."""

    id: str
    lmdeploy: str
    startup_s: float
    random_weights: bool
    gpu: str
    model: str
    engine: str
    mps: bool
    batch: int
    prefill_tokens: int
    session: int
    threads: int
    loads: tuple[RunLoad, ...]


class RunLoad:
    """One closed-loop load of a run: its requests, requests/s, and the median latency in ms.

    Where ``workload`` tells what lengths were drawn from, the tokens are medians.
    """

    concurrency: int
    workload: str
    image: str
    pixels: int
    input_tokens: int
    output_tokens: int
    rps: float
    p50_ms: float


class EarlierRuns:
    """What the recommender reads of measurements from before there were runs."""

    id: str
    lmdeploy: str
    startup_s: float


class Store:
    """All records by kind and id. Shared and constant; caches use the store itself as a key."""

    releases: Mapping[str, records.Release]
    flags: Mapping[str, records.Flag]
    environment: Mapping[str, records.Parameter]
    client: Mapping[str, records.Parameter]
    gpus: Mapping[str, records.Gpu]
    models: Mapping[str, records.Model]
    loads: Mapping[str, records.NamedLoad]
    workloads: Mapping[str, records.Workload]
    constraints: Mapping[str, records.Constraint]
    advisers: Mapping[str, records.Adviser]
    disagreements: Mapping[str, records.Disagreement]
    scenarios: Mapping[str, records.Scenario]
    claims: Mapping[str, records.Claim]
    threads: Mapping[str, records.Thread]
    coefficients: Mapping[str, records.Coefficient]
    residuals: Mapping[str, records.Residuals]
    evidence: Mapping[str, RunSummary]
    probes: Mapping[str, EarlierRuns]
    published: Mapping[str, PublishedTable]
    measured: Mapping[str, Measured]

    def __init__(self, index: str | bytes) -> None:
        """Read an index made by ``index.compile_index``. Raises ValueError for a broken one."""
        kinds = json.loads(index, object_hook=Plain)
        for kind in Store.__annotations__:
            setattr(self, kind, MappingProxyType(vars(vars(kinds)[kind])))

    def options(self) -> Iterator[records.Option]:
        """Yield every flag, environment variable and request field, in a fixed order."""
        yield from self.flags.values()
        yield from self.environment.values()
        yield from self.client.values()


FOLDERS: Mapping[str, str] = {kind: kind for kind in Store.__annotations__ if kind != "measured"} | {
    "loads": "workloads/loads",
    "probes": "evidence/earlier",
}
"""The folder of each kind of record, within knowledge/."""


class Named(Protocol):
    """A record that people call by several names."""

    @property
    def id(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...


NamedRecord = TypeVar("NamedRecord", bound=Named)
