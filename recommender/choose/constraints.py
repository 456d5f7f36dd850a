"""Evaluate the constraint records on facts, settings and estimates by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, get_args

from recommender.choose.batch_room import room_bytes
from recommender.choose.needs import find_unmet, list_needs, write_needs
from recommender.choose.prefill_budget import steady_budget
from recommender.common.units import GIB, MIB
from recommender.estimate.configuration import Configuration
from recommender.estimate.memory_items import Memory, usable_bytes
from recommender.estimate.scheduler.simulation import Timed
from recommender.estimate.speed import Speed
from recommender.knowledge.conditions import Condition, Value, fill, parse, version
from recommender.knowledge.engines import LABELS
from recommender.knowledge.eras import within
from recommender.knowledge.provenance import code_caveat, for_engine
from recommender.knowledge.store import Store
from recommender.request.image_tokens import reads_limit
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge import records


@dataclass(frozen=True, slots=True)
class ConstraintFinding:
    """A constraint that a configuration violates: what is wrong, and how to fix it."""

    constraint: str
    """Id of the constraint."""
    severity: str
    """reject or warn."""
    message: str
    """What is wrong."""
    remedy: str
    """What to do."""
    sources: records.Sources
    """What the constraint rests on."""
    caveat: str = ""
    """What limits the sources; empty: nothing."""


@dataclass(frozen=True, slots=True)
class ParsedConstraint:
    """A constraint record with its conditions parsed.

    ``caveats``: what limits its sources, by engine and each release whose engine code is not public.
    """

    record: records.Constraint
    when: tuple[Condition, ...]
    require: tuple[Condition, ...]
    estimated: bool
    caveats: Mapping[tuple[str, Value], str]
    of_speed: bool = False

    def is_violated(self, values: Mapping[str, Value]) -> bool:
        """Return whether all of ``when`` holds, but not all of ``require``."""
        for test in self.when:
            if not test.holds(values):
                return False
        return not all(test.holds(values) for test in self.require)


@lru_cache(maxsize=8)
def parse_all(store: Store) -> tuple[ParsedConstraint, ...]:
    """Return all constraints of the knowledge, parsed once."""
    parsed = []
    for record in store.constraints.values():
        when, require = tuple(map(parse, record.when)), tuple(map(parse, record.require))
        names = [name for condition in (*when, *require) for name in condition.names]
        estimated = any(name.startswith("estimate.") for name in names)
        of_speed = not (SPEEDS.keys() | AT_QUANTILE.keys()).isdisjoint(names)
        parsed.append(ParsedConstraint(record, when, require, estimated, _caveats(store, record.sources), of_speed))
    return tuple(parsed)


def _caveats(store: Store, sources: records.Sources) -> Mapping[tuple[str, Value], str]:
    unread = [name for name, release in store.releases.items() if not release.repository]
    return {
        (engine, version(name)): code_caveat(store, for_engine(sources, engine), name)
        for engine in LABELS
        for name in unread
    }


def select_applicable(resolved: ResolvedRequest, values: Mapping[str, Value]) -> tuple[ParsedConstraint, ...]:
    """Return the constraints that may apply: no condition on the known values is false."""
    return tuple(
        constraint
        for constraint in parse_all(resolved.store)
        if all(
            condition.holds(values) for condition in constraint.when if all(name in values for name in condition.names)
        )
    )


GOALS = frozenset(f"request.{name}" for name in ("p99_ms", "ttft_ms", "tpot_ms", "latency_ms", "rps"))


@lru_cache(maxsize=8)
def list_goal_constraints(store: Store) -> frozenset[str]:
    """Return the ids of the constraints that compare an estimate with a goal."""
    return frozenset(
        constraint.record.id
        for constraint in parse_all(store)
        if constraint.estimated and GOALS & {name for condition in constraint.require for name in condition.names}
    )


def is_of_engine(resolved: ResolvedRequest, finding: ConstraintFinding) -> bool:
    """Return whether a finding is of the engine that runs, and not of memory, speed or the request."""
    rule = next(rule for rule in parse_all(resolved.store) if rule.record.id == finding.constraint)
    return not rule.estimated and any("config.backend" in condition.names for condition in rule.when)


def find_violated(
    parsed: Iterable[ParsedConstraint],
    values: Mapping[str, Value],
    severity: str = "reject",
    estimated: tuple[bool, ...] = (True, False),
) -> tuple[ParsedConstraint, ...]:
    """Return the violated constraints of one severity.

    ``estimated`` selects constraints that need an estimate (True) or do not (False).
    """
    return tuple(
        constraint
        for constraint in parsed
        if constraint.record.severity == severity and constraint.estimated in estimated
        if constraint.is_violated(values)
    )


def explain_violated(
    violated: Iterable[ParsedConstraint], values: Mapping[str, Value]
) -> tuple[ConstraintFinding, ...]:
    """Return violated constraints with their messages filled in, and what they rest on in the engine that runs."""
    engine = str(values.get("config.backend", "turbomind"))
    return tuple(
        ConstraintFinding(
            constraint.record.id,
            constraint.record.severity,
            fill(constraint.record.message, values),
            fill(constraint.record.remedy, values),
            for_engine(constraint.record.sources, engine),
            constraint.caveats.get((engine, values.get("lmdeploy", "")), ""),
        )
        for constraint in violated
    )


def evaluate(
    parsed: Iterable[ParsedConstraint], values: Mapping[str, Value], severity: str = "reject"
) -> tuple[ConstraintFinding, ...]:
    """Return the violated constraints of one severity with their messages."""
    return explain_violated(find_violated(parsed, values, severity), values)


def _names(prefix: str, fields: str) -> Mapping[str, str]:
    """Return attribute names by their names in the condition vocabulary."""
    return {f"{prefix}.{field}": field for field in fields.split()}


# Names of the condition vocabulary that are also attributes: of the model's text part, the case, the request, …
TEXT = _names("model", "hidden layers heads kv_heads head_dim intermediate vocab max_positions dtype")
CASE = _names("request", "images image_width image_height prompt_tokens output_tokens concurrency prefix_tokens turns")
REQUEST = _names("request", "rps cpus goal kv backend p99_ms ttft_ms tpot_ms latency_ms ttft_at tpot_at latency_at")
SETTINGS = _names("config", " ".join(Configuration.__dataclass_fields__))
_settings_of = attrgetter(*SETTINGS.values())
COUNTS = _names("estimate", "forward_tokens kv_tokens kv_requests kv_blocks kv_needed_tokens warmup_tokens")
SPEEDS = _names("estimate", "latency_ms p99_ms ttft_ms rps")
AT_QUANTILE: Mapping[str, Timed] = {f"estimate.{name}_at_ms": name for name in get_args(Timed)}


def fact_values(resolved: ResolvedRequest) -> dict[str, Value]:
    """Return what is known before a configuration is chosen, by name."""
    model, text, request = resolved.model, resolved.model.text, resolved.request
    quantization = model.quantization[0] if model.quantization else None
    vision = resolved.vision
    engines = {engine.engine for engine in model.support if within(engine.since, engine.until, resolved.version)}
    return {
        "lmdeploy": resolved.version,
        "gpu.id": resolved.gpu.id,
        "gpu.name": resolved.gpu.name,
        "gpu.compute_capability": version(resolved.gpu.compute_capability),
        "gpu.count": request.gpu_count,
        "gpu.memory_gib": resolved.gpu.memory_mib / 1024,
        "gpu.available_gib": usable_bytes(resolved) / GIB,
        "gpu.nvlink": resolved.gpu.nvlink_gb_s > 0,
        "model.id": model.id,
        "model.hub": model.hub,
        "model.architecture": model.architecture,
        "model.family": text.family,
        "model.mixture": bool(text.mixture),
        "model.vision": bool(model.vision),
        "model.tiled": vision is not None and not vision.pixels,
        "model.request_tiles": vision is not None and reads_limit(vision),
        "model.remote_code": model.remote_code,
        "model.needs": write_needs(resolved, list_needs(resolved).values()),
        "model.turbomind": "turbomind" in engines,
        "model.pytorch": "pytorch" in engines,
        "model.quantization": quantization.method if quantization else "none",
        "model.quantization_version": quantization.version if quantization else "",
        "model.quantization_bits": quantization.bits if quantization else 16,
        "model.quantization_group": quantization.group if quantization else 0,
        **{name: getattr(text, field) for name, field in TEXT.items()},
        "model.max_tiles": vision.max_tiles if vision else 0,
        "model.tile_tokens": vision.tokens_per_tile if vision else 0,
        **{name: getattr(resolved, field) for name, field in CASE.items()},
        **{name: getattr(request, field) for name, field in REQUEST.items()},
        "request.rps": request.planned_rps,
    }


def config_values(resolved: ResolvedRequest, config: Configuration) -> dict[str, Value]:
    """Return the decided settings and the tokens of a request under them, by name."""
    values: dict[str, Value] = dict(zip(SETTINGS, _settings_of(config), strict=True))
    tiles, per_server = config.max_tiles, -(-resolved.concurrency // config.servers)
    values |= {
        "config.cards": config.cards,
        "config.unmet_needs": write_needs(resolved, find_unmet(resolved, config)),
        "request.concurrency_per_server": per_server,
        "request.tiles": resolved.tiles(tiles),
        "request.image_tokens": resolved.image_tokens(tiles),
        "request.input_tokens": resolved.input_tokens(tiles),
        "request.total_tokens": resolved.total_tokens(tiles),
        "request.longest_tokens": resolved.longest().total_tokens(tiles),
        "request.largest_tokens": resolved.largest_tokens(tiles) - resolved.output_tokens,
        "config.batch_room_mib": round(room_bytes(resolved, config) / MIB),
        "request.ending_per_pass": round(per_server / resolved.output_tokens, 1),
        "request.steady_budget": steady_budget(resolved, tiles, per_server),
    }
    return values


def memory_values(memory: Memory) -> dict[str, Value]:
    """Return the estimates of memory, by name."""
    return {
        **{name: getattr(memory, field) for name, field in COUNTS.items()},
        "estimate.weights_gib": memory.item("weights").bytes / GIB,
        "estimate.kv_gib": memory.item("kv cache").bytes / GIB,
        "estimate.total_gib": memory.total / GIB,
        "estimate.peak_gib": memory.high / GIB,
        "estimate.free_gib": memory.free / GIB,
    }


def speed_values(speed: Speed, request: Request) -> dict[str, Value]:
    """Return the estimates of speed, by name; ``…_at_ms`` are those at the quantile that a goal means."""
    return {
        **{name: getattr(speed, field).value for name, field in SPEEDS.items()},
        **{name: speed.at(figure, getattr(request, f"{figure}_at")) for name, figure in AT_QUANTILE.items()},
    }


def best_speed_values(speed: Speed, request: Request) -> dict[str, Value]:
    """Return ``speed_values`` at the good end of each range: what the prediction does not exclude."""
    ranges = {name: getattr(speed, field) for name, field in SPEEDS.items()}
    values: dict[str, Value] = {
        name: interval.high if name == "estimate.rps" else interval.low for name, interval in ranges.items()
    }
    for name, figure in AT_QUANTILE.items():
        quantile = getattr(request, f"{figure}_at")
        interval = speed.range_at(figure, quantile)
        values[name] = speed.at(figure, quantile) * (interval.low / interval.value if interval.value else 1.0)
    return values


def estimate_values(memory: Memory, speed: Speed, request: Request) -> dict[str, Value]:
    """Return the estimates of a configuration, by name."""
    return memory_values(memory) | speed_values(speed, request)
