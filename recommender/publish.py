"""The complete recommendation as JSON, and the schema it is published with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from recommender import rendered
from recommender.configuration import Configuration
from recommender.constraints import Finding
from recommender.explain import Explanation
from recommender.memory import Item, likely
from recommender.nearby import Near
from recommender.pipeline import Recommendation
from recommender.request import Request
from recommender.speed import Speed
from recommender.store import Plain

FORMAT = 1


@dataclass(frozen=True)
class MemoryReport:
    """Memory of one card in bytes, itemised, and what the KV cache holds."""

    items: tuple[Item, ...]
    total_bytes: int
    low_bytes: int
    high_bytes: int
    likely_low_bytes: int
    likely_high_bytes: int
    free_after_weights_bytes: int
    forward_tokens: int
    warmup_tokens: int
    kv_bytes_per_token: int
    kv_blocks: int
    kv_tokens: int
    kv_requests: int
    kv_needed_tokens: int


@dataclass(frozen=True)
class Case:
    """What the request resolved to."""

    lmdeploy: str
    gpu: str
    gpu_name: str
    gpu_count: int
    model: str
    model_source: str
    architecture: str
    concurrency: int
    images: int
    image_width: int
    image_height: int
    tiles: int
    image_tokens: int
    input_tokens: int
    output_tokens: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """The JSON form of a recommendation. ``format`` rises when a field changes its meaning.

    ``rendered`` is for ``recommend check``: digests of what was written, by which later edits are told.
    """

    format: int
    made_by: str
    adviser: str
    request: Request
    case: Case
    config: Configuration
    command: tuple[str, ...]
    environment: dict[str, str]
    memory: MemoryReport
    speed: Speed
    options: tuple[Explanation, ...]
    findings: tuple[Finding, ...]
    considered: int
    rejected: dict[str, int]
    added: dict[str, str]
    left_out: tuple[str, ...]
    near: tuple[Near, ...]
    rendered: str = ""


def published(found: Recommendation) -> Published:
    """A recommendation without its store, ready to be written."""
    facts, memory, tiles = found.facts, found.memory, found.config.max_tiles
    low, high = likely(facts, memory, found.config.tp)
    return Published(
        format=FORMAT,
        made_by=found.made_by,
        adviser=found.adviser,
        request=found.request,
        case=Case(
            lmdeploy=facts.release.id,
            gpu=facts.gpu.id,
            gpu_name=facts.gpu.name,
            gpu_count=facts.request.gpu_count,
            model=facts.model.id,
            model_source=facts.model_source,
            architecture=facts.model.architecture,
            concurrency=facts.concurrency,
            images=facts.images,
            image_width=facts.image_width,
            image_height=facts.image_height,
            tiles=facts.tiles(tiles),
            image_tokens=facts.image_tokens(tiles),
            input_tokens=facts.input_tokens(tiles),
            output_tokens=facts.output_tokens,
            notes=facts.notes,
        ),
        config=found.config,
        command=tuple(command(found)),
        environment={
            each.name: each.value for each in found.explanations if each.kind == "environment" and each.emitted
        },
        memory=MemoryReport(
            items=memory.items,
            total_bytes=memory.total,
            low_bytes=memory.low,
            high_bytes=memory.high,
            likely_low_bytes=low,
            likely_high_bytes=high,
            free_after_weights_bytes=memory.free,
            forward_tokens=memory.forward_tokens,
            warmup_tokens=memory.warmup_tokens,
            kv_bytes_per_token=memory.kv_token_bytes,
            kv_blocks=memory.kv_blocks,
            kv_tokens=memory.kv_tokens,
            kv_requests=memory.kv_requests,
            kv_needed_tokens=memory.kv_needed_tokens,
        ),
        speed=found.speed,
        options=found.explanations,
        findings=found.findings,
        considered=found.considered,
        rejected=dict(found.rejected),
        added=dict(found.added),
        left_out=found.left_out,
        near=found.near,
    )


def command(found: Recommendation) -> list[str]:
    """The server's command line as words, without what the environment may add."""
    words = ["lmdeploy", "serve", "api_server", found.facts.model_source]
    for each in found.explanations:
        if each.kind == "flag" and each.emitted:
            words += [each.name] if each.switch else [each.name, each.value]
    return words


def to_json(found: Recommendation) -> str:
    """The complete recommendation as JSON text; only ASCII, so that any terminal and pipe carries it."""
    plain = asdict(published(found), dict_factory=_plain)
    plain["rendered"] = rendered.read(json.dumps(plain), "json").written
    return json.dumps(plain, indent=2, ensure_ascii=True) + "\n"


def _plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _value(value) for name, value in pairs}


def _value(value: Any) -> Any:
    if isinstance(value, Plain):
        return {name: _value(each) for name, each in vars(value).items()}
    return [_value(each) for each in value] if isinstance(value, tuple) else value


def schema() -> dict[str, Any]:
    """The JSON Schema of what ``--format json`` writes."""
    from pydantic import TypeAdapter

    from recommender import constraints, explain, records

    # Those steps name record types for the type checker only, to start without pydantic.
    vars(constraints)["r"] = vars(explain)["r"] = records
    made = TypeAdapter(Published).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Recommendation"} | made
