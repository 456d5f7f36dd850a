"""Evaluates the constraint records on a configuration: what they compare is a fact or an estimate by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.candidates import steady_budget
from recommender.conditions import Condition, Value, fill, parse, version
from recommender.configuration import Configuration
from recommender.facts import GIB, Facts, within
from recommender.memory import Memory, usable
from recommender.speed import Speed
from recommender.store import Store
from recommender.tokens import reads_limit

if TYPE_CHECKING:
    from recommender import records as r


@dataclass(frozen=True, slots=True)
class Finding:
    """A constraint that a configuration violates: what, and how to mend it."""

    constraint: str
    severity: str
    message: str
    remedy: str
    sources: r.Sources


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint record with its conditions read."""

    record: r.Constraint
    when: tuple[Condition, ...]
    require: tuple[Condition, ...]
    estimated: bool

    def violated(self, values: Mapping[str, Value]) -> bool:
        """True where all of ``when`` holds and something of ``require`` does not."""
        return all(each.holds(values) for each in self.when) and not all(each.holds(values) for each in self.require)


@lru_cache(maxsize=8)
def rules(store: Store) -> tuple[Rule, ...]:
    """All constraints, their conditions read once."""
    made = []
    for record in store.constraints.values():
        when = tuple(parse(text) for text in record.when)
        require = tuple(parse(text) for text in record.require)
        names = [name for each in (*when, *require) for name in each.names]
        made.append(Rule(record, when, require, any(name.startswith("estimate.") for name in names)))
    return tuple(made)


def applicable(facts: Facts, known: Mapping[str, Value]) -> tuple[Rule, ...]:
    """The constraints whose conditions on this case's facts alone do not already rule them out."""
    return tuple(
        rule
        for rule in rules(facts.store)
        if all(each.holds(known) for each in rule.when if all(name in known for name in each.names))
    )


GOALS = frozenset({"request.p99_ms", "request.ttft_ms", "request.rps"})


@lru_cache(maxsize=8)
def goals(store: Store) -> frozenset[str]:
    """The constraints that compare an estimate with a goal of the request."""
    return frozenset(
        rule.record.id
        for rule in rules(store)
        if rule.estimated and GOALS & {name for each in rule.require for name in each.names}
    )


def evaluate(
    among: Iterable[Rule],
    values: Mapping[str, Value],
    severity: str = "reject",
    estimated: tuple[bool, ...] = (True, False),
) -> tuple[Finding, ...]:
    """The violated constraints of a severity; ``estimated`` picks those that need an estimate, or not."""
    return tuple(
        Finding(
            rule.record.id,
            rule.record.severity,
            fill(rule.record.message, values),
            fill(rule.record.remedy, values),
            rule.record.sources,
        )
        for rule in among
        if rule.record.severity == severity and rule.estimated in estimated and rule.violated(values)
    )


def fact_values(facts: Facts) -> dict[str, Value]:
    """What is known before a configuration is chosen, by the names of the condition vocabulary."""
    model, text, request = facts.model, facts.model.text, facts.request
    quantization = model.quantization[0] if model.quantization else None
    vision = facts.vision
    supported = {each.engine for each in model.support if within(each.since, each.until, facts.version)}
    return {
        "lmdeploy": facts.version,
        "gpu.id": facts.gpu.id,
        "gpu.name": facts.gpu.name,
        "gpu.compute_capability": version(facts.gpu.compute_capability),
        "gpu.count": request.gpu_count,
        "gpu.memory_gib": facts.gpu.memory_mib / 1024,
        "gpu.available_gib": usable(facts) / GIB,
        "gpu.nvlink": facts.gpu.nvlink_gb_s > 0,
        "model.id": model.id,
        "model.hub": model.hub,
        "model.architecture": model.architecture,
        "model.family": text.family,
        "model.vision": bool(model.vision),
        "model.tiled": vision is not None and not vision.pixels,
        "model.request_tiles": vision is not None and reads_limit(vision),
        "model.remote_code": model.remote_code,
        "model.turbomind": "turbomind" in supported,
        "model.pytorch": "pytorch" in supported,
        "model.quantization": quantization.method if quantization else "none",
        "model.quantization_version": quantization.version if quantization else "",
        "model.quantization_bits": quantization.bits if quantization else 16,
        "model.quantization_group": quantization.group if quantization else 0,
        "model.hidden": text.hidden,
        "model.layers": text.layers,
        "model.heads": text.heads,
        "model.kv_heads": text.kv_heads,
        "model.head_dim": text.head_dim,
        "model.intermediate": text.intermediate,
        "model.vocab": text.vocab,
        "model.max_positions": text.max_positions,
        "model.dtype": text.dtype,
        "model.max_tiles": vision.max_tiles if vision else 0,
        "model.tile_tokens": vision.tokens_per_tile if vision else 0,
        "request.images": facts.images,
        "request.image_width": facts.image_width,
        "request.image_height": facts.image_height,
        "request.prompt_tokens": facts.prompt_tokens,
        "request.output_tokens": facts.output_tokens,
        "request.concurrency": facts.concurrency,
        "request.rps": request.rps,
        "request.cpus": request.cpus,
        "request.goal": request.goal,
        "request.kv": request.kv,
        "request.p99_ms": request.p99_ms,
        "request.ttft_ms": request.ttft_ms,
    }


def config_values(facts: Facts, config: Configuration) -> dict[str, Value]:
    """The decided settings, and the tokens a request has under them."""
    values: dict[str, Value] = {f"config.{name}": getattr(config, name) for name in config.__slots__}
    tiles, each = config.max_tiles, -(-facts.concurrency // config.servers)
    values |= {
        "config.cards": config.cards,
        "request.concurrency_per_server": each,
        "request.tiles": facts.tiles(tiles),
        "request.image_tokens": facts.image_tokens(tiles),
        "request.input_tokens": facts.input_tokens(tiles),
        "request.total_tokens": facts.total_tokens(tiles),
        "request.largest_tokens": facts.largest_tokens(tiles) - facts.output_tokens,
        "request.ending_per_pass": round(each / facts.output_tokens, 1),
        "request.steady_budget": steady_budget(facts, tiles, each),
    }
    return values


def estimate_values(facts: Facts, memory: Memory, speed: Speed) -> dict[str, Value]:
    """The estimates of a configuration."""
    return {
        "estimate.forward_tokens": memory.forward_tokens,
        "estimate.kv_tokens": memory.kv_tokens,
        "estimate.kv_requests": memory.kv_requests,
        "estimate.kv_blocks": memory.kv_blocks,
        "estimate.kv_needed_tokens": memory.kv_needed_tokens,
        "estimate.warmup_tokens": memory.warmup_tokens,
        "estimate.weights_gib": memory.item("weights").bytes / GIB,
        "estimate.kv_gib": memory.item("kv cache").bytes / GIB,
        "estimate.total_gib": memory.total / GIB,
        "estimate.peak_gib": memory.high / GIB,
        "estimate.free_gib": memory.free / GIB,
        "estimate.latency_ms": speed.latency_ms.value,
        "estimate.p99_ms": speed.p99_ms.value,
        "estimate.ttft_ms": speed.ttft_ms.value,
        "estimate.rps": speed.rps.value,
    }
