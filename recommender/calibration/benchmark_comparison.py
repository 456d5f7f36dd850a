"""Compare predictions with published benchmarks, which no fit has seen, on GPUs that were never measured.

Most of the tables are of releases from 0.0.4 to 0.4.0. A newer release is no slower, so a figure above its prediction
contradicts it, and one below may be the release's.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recommender.choose import advisers
from recommender.common.plain import Plain
from recommender.estimate import memory, speed
from recommender.estimate.coverage import name_group
from recommender.estimate.uncertainty import derive_rate, find_spread, make_range
from recommender.request.request import KvChoice, Request
from recommender.request.resolved_request import ResolvedRequest, resolve_request

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge.published_loads import PublishedLoad, PublishedTable
    from recommender.knowledge.store import Store

AWQ = Plain({"method": "awq", "bits": 4, "group": 128, "version": "gemm"})
KV: dict[int, KvChoice] = {16: "fp16", 8: "int8", 4: "int4"}
INSIDE = 0.8
"""Share of a group's figures that the widened ranges hold."""


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """A published figure, output tokens/s, and its prediction.

    ``low`` and ``high`` are the ends of the prediction's range on a measured GPU, over its value. ``group`` is the
    GPU and how many of them; ``spread`` the coefficient that widens the range.
    """

    table: PublishedTable
    load: PublishedLoad
    group: str
    spread: str
    published: float
    predicted: float
    low: float
    high: float

    @property
    def name(self) -> str:
        """The group with the precision of the weights."""
        return f"{self.group}, {self.table.weights}"

    @property
    def ratio(self) -> float:
        """Published over predicted."""
        return self.published / self.predicted

    @property
    def widening(self) -> float:
        """The factor by which the range must widen to include the published figure; 1 if it does already."""
        return max(self.ratio / self.high, self.low / self.ratio, 1.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """The factor that widens ranges on an unmeasured GPU, and what it comes from.

    ``value`` is the largest factor that any group needs for ``INSIDE`` of its figures, ``low`` and ``high`` its
    smallest and largest value with one GPU left out. ``covered``: share of the figures of a GPU left out that lie
    inside the ranges which the other GPUs give, mean over the GPUs. ``median``: published over predicted by group.
    """

    id: str
    value: float
    low: float
    high: float
    covered: float
    figures: int
    tables: int
    gpus: tuple[str, ...]
    medians: dict[str, float]


def compare_published(store: Store) -> Iterator[PublishedComparison]:
    """Yield each published figure of TurboMind with its prediction; none of a load whose lengths were not published."""
    for table in store.published.values():
        for load in table.rows:
            if table.engine == "turbomind" and load.input_tokens and load.output_tokens:
                yield _compare(table, load, *launch(store, table, load))


def launch(store: Store, table: PublishedTable, load: PublishedLoad) -> tuple[ResolvedRequest, Configuration]:
    """Return the request and the configuration of a published load; LMDeploy's defaults decide what is not published.

    The batch is at most what fits into the KV cache.
    """
    asked = Request(
        gpu=table.gpu,
        gpu_count=table.tp,
        tp=table.tp,
        model=table.model,
        concurrency=load.concurrency,
        images=0,
        prompt_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        kv=KV[table.kv_bits],
    )
    resolved = resolve_request(asked, store)
    # A published prompt includes the template, if there is one.
    shape = vars(resolved.model) | {"chat_tokens": 0} | ({"quantization": (AWQ,)} if table.weights == "awq" else {})
    resolved = replace(resolved, model=Plain(shape))  # type: ignore[arg-type]
    config = advisers.build_configuration(resolved, advisers.follow(resolved, advisers.DEFAULTS, {}, ()))
    config = replace(config, tp=table.tp, servers=1, kv_bits=table.kv_bits)
    batch = min(config.max_batch_size, load.concurrency, memory.estimate(resolved, config).kv_requests)
    return resolved, replace(config, max_batch_size=max(batch, 1))


def _compare(
    table: PublishedTable, load: PublishedLoad, resolved: ResolvedRequest, config: Configuration
) -> PublishedComparison:
    predicted = speed.estimate(resolved, config, ranged=False)
    if load.concurrency > 1:
        ends = make_range(resolved.store, "rps-text", 1.0, 1.0)
    else:
        ends = derive_rate(make_range(resolved.store, "latency-text-alone", 1.0, 1.0), 1.0)
    measured, value = load.output_tps, predicted.rps.value * load.output_tokens
    if not measured:
        measured, value = 1e3 / load.tpot_ms, 1e3 / predicted.token_ms.value
    group = name_group(resolved.gpu, table.tp)
    return PublishedComparison(table, load, group, find_spread(resolved.model), measured, value, ends.low, ends.high)


def derive_spreads(comparisons: Iterable[PublishedComparison]) -> list[Spread]:
    """Return the widening factors that the published figures ask for, by coefficient."""
    by_spread: dict[str, list[PublishedComparison]] = defaultdict(list)
    for each in comparisons:
        by_spread[each.spread].append(each)
    return [_derive(name, found) for name, found in sorted(by_spread.items())]


def _derive(name: str, comparisons: Sequence[PublishedComparison]) -> Spread:
    gpus = tuple(sorted({comparison.table.gpu for comparison in comparisons}))
    left_out = {gpu: _factor([comparison for comparison in comparisons if comparison.table.gpu != gpu]) for gpu in gpus}
    covered = [
        _share([comparison for comparison in comparisons if comparison.table.gpu == gpu], left_out[gpu]) for gpu in gpus
    ]
    return Spread(
        id=name,
        value=_factor(comparisons),
        low=min(left_out.values()),
        high=max(left_out.values()),
        covered=statistics.fmean(covered),
        figures=len(comparisons),
        tables=len({comparison.table.id for comparison in comparisons}),
        gpus=gpus,
        medians={
            group: statistics.median(member.ratio for member in members)
            for group, members in _groups(comparisons).items()
        },
    )


def _groups(comparisons: Iterable[PublishedComparison]) -> dict[str, list[PublishedComparison]]:
    groups: dict[str, list[PublishedComparison]] = defaultdict(list)
    for each in comparisons:
        groups[each.group].append(each)
    return groups


def _factor(comparisons: Iterable[PublishedComparison]) -> float:
    """Return the smallest factor, to two digits, that holds ``INSIDE`` of every group's figures."""
    steps = (round(1 + step / 100, 2) for step in range(10_000))
    groups = list(_groups(comparisons).values())
    return next(step for step in steps if all(_share(group, step) >= INSIDE for group in groups))


def _share(comparisons: Sequence[PublishedComparison], factor: float) -> float:
    """Return the share of figures inside the ranges widened by ``factor``."""
    return statistics.fmean(each.widening <= factor for each in comparisons)


def as_yaml(spread: Spread, store: Store) -> str:
    """Return the YAML file of a coefficient that published figures decide; its summary stays as it is."""
    import yaml

    medians = ", ".join(f"{group} {median:.2f}" for group, median in sorted(spread.medians.items()))
    plain = {
        "id": spread.id,
        "value": spread.value,
        "low": spread.low,
        "high": spread.high,
        "unit": "factor",
        "basis": "measured",
        "summary": store.coefficients[spread.id].summary,
        "derivation": (
            f"{spread.figures} figures of {spread.tables} tables in knowledge/published, on {', '.join(spread.gpus)}. "
            "The largest factor that any GPU, or group of GPUs, needs for four of five of its figures; low and high "
            f"with one GPU left out. Factors of the other GPUs cover {spread.covered:.0%} of the figures of the GPU "
            f"left out. Median of published over predicted: {medians}. The tables are of old releases (0.0.4 to "
            "0.4.0): a median below 1 may be the release's, one above 1 cannot."
        ),
    }
    head = "# Written by recommend knowledge published; only the summary is to be edited.\n"
    return head + yaml.safe_dump(plain, sort_keys=False, width=100, default_flow_style=False)
