"""A complete recommendation as JSON, and its JSON Schema."""

import json
from dataclasses import dataclass, replace

from recommender.choose.constraints import ConstraintFinding
from recommender.choose.reasons import Explanation
from recommender.choose.recommend import Recommendation
from recommender.common.terminal import json_text, plain
from recommender.estimate.configuration import Configuration
from recommender.estimate.memory import likely_range
from recommender.estimate.memory_items import MemoryItem
from recommender.estimate.published_figures import PublishedFigure
from recommender.estimate.similar_runs import SimilarRun
from recommender.estimate.speed import Speed
from recommender.render import seal
from recommender.request.request import Request

FORMAT = 1


@dataclass(frozen=True)
class MemoryReport:
    """Memory of one GPU in bytes, by part, and the capacity of the KV cache."""

    items: tuple[MemoryItem, ...]
    """The parts, such as weights and kv_cache."""
    total_bytes: int
    """Sum of the parts' middle values."""
    low_bytes: int
    """Lower limit of the total."""
    high_bytes: int
    """Upper limit of the total: all parts at their high ends, or the peak of loading."""
    likely_low_bytes: int
    """Low end of the range that is printed."""
    likely_high_bytes: int
    """High end of the range that is printed."""
    free_after_weights_bytes: int
    """Memory that the cache share is taken of."""
    forward_tokens: int
    """Most tokens of one forward pass."""
    warmup_tokens: int
    """Tokens of the longest warm-up prompt."""
    kv_bytes_per_token: int
    """Bytes of KV cache per token."""
    kv_blocks: int
    """Blocks of the KV cache."""
    kv_tokens: int
    """Tokens that the KV cache holds."""
    kv_requests: int
    """Full-length requests that the KV cache holds."""
    kv_needed_tokens: int
    """Tokens of KV cache that the load needs at least."""
    kv_prefix_tokens: int
    """Tokens of a shared prefix that the KV cache keeps once."""


@dataclass(frozen=True)
class ResolvedCase:
    """The resolved request."""

    lmdeploy: str
    """LMDeploy release."""
    gpu: str
    """Id of the GPU's record."""
    gpu_name: str
    """The GPU's full name."""
    gpu_count: int
    """GPUs that may be used."""
    model: str
    """Id of the model's record."""
    model_source: str
    """Hub name or folder that the server loads."""
    architecture: str
    """Architecture in config.json."""
    concurrency: int
    """Concurrent requests, all servers together."""
    images: int
    """Images per request."""
    image_width: int
    """Pixels."""
    image_height: int
    """Pixels."""
    tiles: int
    """Tiles of one image."""
    image_tokens: int
    """Tokens of a request's images."""
    input_tokens: int
    """Prompt tokens with those of images."""
    output_tokens: int
    """Answer tokens."""
    prefix_tokens: int
    """Tokens that all prompts begin with."""
    turns: int
    """Requests of a conversation."""
    notes: tuple[str, ...]
    """What was assumed, as sentences."""


@dataclass(frozen=True)
class RecommendationJson:
    """The JSON form of a recommendation."""

    format: int
    made_by: str
    """This program and its version."""
    adviser: str
    """Id of the adviser that --follow named; empty: our own choice."""
    request: Request
    """What was asked, after parsing."""
    case: ResolvedCase
    """What was asked, with names resolved."""
    config: Configuration
    """The server's settings."""
    command: tuple[str, ...]
    """The server's command line as words."""
    environment: dict[str, str]
    """Environment variables of the server."""
    memory: MemoryReport
    """Predicted memory of one GPU."""
    speed: Speed
    """Predicted times in ms and rates per second."""
    options: tuple[Explanation, ...]
    """Every option: its value, reason, sources, advice and verdicts."""
    findings: tuple[ConstraintFinding, ...]
    """Problems and warnings; severity reject: it does not run or misses a goal."""
    considered: int
    """Configurations that were considered."""
    rejected: dict[str, int]
    """By constraint: how many configurations it rejected."""
    added: dict[str, str]
    """Options that --with added."""
    left_out: tuple[str, ...]
    """Options that --without left out."""
    near: tuple[SimilarRun, ...]
    """The most similar measured runs."""
    published: tuple[PublishedFigure, ...]
    """The nearest figures published by others."""
    rendered: str = ""
    """Digests of the written values, for recommend check."""


def json_form(recommendation: Recommendation) -> RecommendationJson:
    """Return a recommendation without its store, ready to be written."""
    resolved, memory, config = recommendation.resolved, recommendation.memory, recommendation.config
    low, high = likely_range(resolved, memory, config.tp)
    return RecommendationJson(
        format=FORMAT,
        made_by=recommendation.made_by,
        adviser=recommendation.adviser,
        request=replace(recommendation.request, replay=(), trace_requests=0, asked=()),
        case=ResolvedCase(
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
    made = plain(json_form(recommendation))
    made["rendered"] = seal.read(json.dumps(made), "json").checksum_line
    return json_text(made)
