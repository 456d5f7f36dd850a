"""A complete recommendation as JSON, and its JSON Schema."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from recommender.choose.constraints import ConstraintFinding
from recommender.choose.reasons import Explanation
from recommender.choose.recommend import Recommendation
from recommender.common.plain import Plain
from recommender.estimate.configuration import Configuration
from recommender.estimate.memory import likely_range
from recommender.estimate.memory_items import MemoryItem
from recommender.estimate.published_figures import PublishedFigure
from recommender.estimate.similar_runs import SimilarRun
from recommender.estimate.speed import Speed
from recommender.render import seal
from recommender.render.json_schema import output_schema
from recommender.request.request import Request

FORMAT = 1


@dataclass(frozen=True)
class MemoryReport:
    """Memory of one GPU in bytes, by part, and the capacity of the KV cache."""

    items: tuple[MemoryItem, ...]
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
    kv_prefix_tokens: int


@dataclass(frozen=True)
class Case:
    """The resolved request."""

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
    prefix_tokens: int
    turns: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """The JSON form of a recommendation. ``format`` rises when a field changes its meaning.

    ``rendered`` is for ``recommend check``: digests of the written values, to find later edits.
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
    findings: tuple[ConstraintFinding, ...]
    considered: int
    rejected: dict[str, int]
    added: dict[str, str]
    left_out: tuple[str, ...]
    near: tuple[SimilarRun, ...]
    published: tuple[PublishedFigure, ...]
    rendered: str = ""


def published(recommendation: Recommendation) -> Published:
    """Return a recommendation without its store, ready to be written."""
    resolved, memory, config = recommendation.resolved, recommendation.memory, recommendation.config
    low, high = likely_range(resolved, memory, config.tp)
    return Published(
        format=FORMAT,
        made_by=recommendation.made_by,
        adviser=recommendation.adviser,
        request=replace(recommendation.request, replay=(), trace_requests=0),
        case=Case(
            lmdeploy=resolved.release.id,
            gpu=resolved.gpu.id,
            gpu_name=resolved.gpu.name,
            gpu_count=resolved.request.gpu_count,
            model=resolved.model.id,
            model_source=resolved.model_source,
            architecture=resolved.model.architecture,
            concurrency=resolved.concurrency,
            images=resolved.images,
            image_width=resolved.image_width,
            image_height=resolved.image_height,
            tiles=resolved.tiles(config.max_tiles),
            image_tokens=resolved.image_tokens(config.max_tiles),
            input_tokens=resolved.input_tokens(config.max_tiles),
            output_tokens=resolved.output_tokens,
            prefix_tokens=resolved.prefix_tokens,
            turns=resolved.turns,
            notes=resolved.notes,
        ),
        config=config,
        command=tuple(command(recommendation)),
        environment={
            option.name: option.value
            for option in recommendation.explanations
            if option.kind == "environment" and option.emitted
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
            kv_prefix_tokens=memory.kv_prefix_tokens,
        ),
        speed=recommendation.speed,
        options=recommendation.explanations,
        findings=recommendation.findings,
        considered=recommendation.considered,
        rejected=dict(recommendation.rejected),
        added=dict(recommendation.added),
        left_out=recommendation.left_out,
        near=recommendation.similar_runs,
        published=recommendation.published,
    )


def command(recommendation: Recommendation) -> list[str]:
    """Return the server's command line as words, without what the environment may add."""
    words = ["lmdeploy", "serve", "api_server", recommendation.resolved.model_source]
    for option in recommendation.explanations:
        if option.kind == "flag" and option.emitted:
            words += [option.name] if option.switch else [option.name, option.value]
    return words


def to_json(recommendation: Recommendation) -> str:
    """Return the complete recommendation as JSON text in ASCII."""
    made = asdict(published(recommendation), dict_factory=plain)
    made["rendered"] = seal.read(json.dumps(made), "json").checksum_line
    return json.dumps(made, indent=2, ensure_ascii=True) + "\n"


def plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass, with records and tuples as JSON has them."""
    return {name: _value(value) for name, value in pairs}


def _value(value: Any) -> Any:
    if isinstance(value, Plain):
        return {name: _value(field) for name, field in vars(value).items()}
    return [_value(item) for item in value] if isinstance(value, tuple) else value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of what ``--format json`` writes."""
    return output_schema(Published, "Recommendation", FORMAT)
