"""TurboMind: memory and passes.

Follows TurboMind from 0.15.0 on (src/turbomind/turbomind.cc and src/turbomind/memory at v0.16.0): the KV region is a
share of what is free after loading the weights, cut into 32 MiB pages; the workspaces come after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.common.units import MIB
from recommender.estimate.cache_need import count_running_requests
from recommender.estimate.engines.kv_region import SLAB_ALLOCATOR, STATE_POOL, kv_blocks, region_bytes, state_region
from recommender.estimate.linear_attention import convolved_width, state_bytes, value_width
from recommender.estimate.memory_items import MemoryItem, embedding_bytes, make_item, weights
from recommender.estimate.model_shape import kv_bytes_per_token, mlp_matrix_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recommender.estimate.configuration import Configuration
    from recommender.knowledge.records import Model
    from recommender.request.resolved_request import ResolvedRequest

DECODE_ROUNDS = 0
"""None: a pass mixes prompts and decoding."""
SHARES_LOCK = False
"""The engine is C++; its threads hold no lock of Python."""
OTHER_BUDGETS = True
"""The budget decides how a pass mixes prompts and decoding."""
LEAVES_NOTHING = frozenset({"fp8", "mxfp4"})
"""Formats whose loading leaves nothing allocated (runs of gpt-oss-20b, Qwen3-30B-A3B-FP8 and Qwen3-8B-FP8)."""
GROWS = False
"""The warm-up allocates all memory (0.16.0 src/turbomind/turbomind.cc, WarmUp)."""
SERVERS_A_GPU: tuple[int, ...] = (2,)
"""They fill each other's gaps; four were slower (16 and 64 in flight, one H100)."""
CORES_A_SERVER = 0
"""One more thread prepares images; the engine needs few."""
SHARING_GAIN = 1.1
"""The range of a prediction."""
POOLED_WARM_UP = Version("0.12.0")
ENCODES = Version("0.16.0")
"""The first release whose engine encodes images itself. Before, the server's process did, once for a request."""
# Prompt lengths that the warm-up tries: 0.16.0 src/turbomind/kernels/gemm/tuner/params.cc:66-101
WARM_UP_STEPS = (
    *(8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768),
    *(step * 2**power for power in range(8) for step in (1024, 1536)),
)


def forward_tokens(prefill_tokens: int, max_batch_size: int, tp: int) -> int:
    """Return the tokens of one forward pass, a multiple of ``tp``.

    Source: 0.16.0 src/turbomind/turbomind.cc:173-179.
    """
    return -(-(prefill_tokens + max_batch_size) // tp) * tp


def prompt_tokens(resolved: ResolvedRequest, config: Configuration) -> int:
    """Return how many tokens of prompts a pass takes for certain: its budget."""
    return config.pass_tokens


def spare_tokens(config: Configuration, running: int) -> int:
    """Return how many prompt tokens a pass takes in addition: one for each free place of the batch.

    The limit is the session length, because no request has more tokens.

    Source: 0.16.0 src/turbomind/turbomind.cc:173-179, src/turbomind/engine/engine.cc:463.
    """
    return max(min(config.max_batch_size - running, config.session_len - config.pass_tokens), 0)


def contexts_limit(session_len: int, max_batch_size: int) -> int:
    """Return the most tokens that the prompts with a part in one pass may have as a whole.

    So a short session length makes passes hold fewer prompts than the budget would.
    Source: 0.16.0 src/turbomind/turbomind.cc:121-128; 0.7.0 LlamaBatch.cc:1692.
    """
    return session_len if session_len > max_batch_size else session_len**2


def warmup_tokens(version: Version, forward: int, session_len: int) -> int:
    """Return the KV tokens of the longest warm-up request; 0 if it needs none."""
    if version < POOLED_WARM_UP:
        return 0
    if forward <= session_len:
        return forward
    return max((step for step in WARM_UP_STEPS if step <= session_len), default=0)


def items_before_cache(resolved: ResolvedRequest, tp: int) -> tuple[MemoryItem, ...]:
    """Return what is in memory when the KV region is sized.

    CUDA context with libraries, weights, and what loading leaves allocated. A head that is tied to the embeddings is
    loaded as a table of its own (0.7.0 lmdeploy/turbomind/deploy/source_model/llama.py:36, 0.18.0
    lmdeploy/turbomind/models/qwen2.py:70).
    """
    coefficients = resolved.store.coefficients
    names = ("context-mib", "peer-context-mib") if tp > 1 else ("context-mib",)
    head = embedding_bytes(resolved.model, tp) if resolved.model.text.tied_embeddings else 0
    return (
        make_item("context", *((MIB, coefficients[name]) for name in names)),
        make_item("weights", exact=weights(resolved, tp) + head),
        _load_residue(resolved, tp),
    )


def _load_residue(resolved: ResolvedRequest, tp: int) -> MemoryItem:
    """Return the memory that stays allocated after loading.

    Packing a 4-bit matrix takes buffers of 16-bit numbers from a pool that keeps what is freed (0.16.0
    src/turbomind/models/linear_weight.cc:203, src/turbomind/core/allocator.cc:34).
    """
    coefficients = resolved.store.coefficients
    packed = any(quantization.method not in LEAVES_NOTHING for quantization in resolved.model.quantization)
    return make_item(
        "loading",
        (packed * MIB, coefficients["quantised-load-mib"]),
        (packed * mlp_matrix_parameters(resolved.model, tp) / 2, coefficients["quantised-load-share"]),  # 4 bits each
    )


def reserved_bytes(resolved: ResolvedRequest, config: Configuration) -> int:
    """Return what is kept from the free memory before the cache takes its share of it: nothing."""
    return 0


def count_blocks(resolved: ResolvedRequest, config: Configuration, region: int, sequences: int) -> int:
    """Return how many KV blocks a region of these bytes holds, beside the states of running ``sequences``."""
    model, version = resolved.model, resolved.version
    states = state_region(model, config.tp, version, config.max_batch_size, sequences)
    block = kv_bytes_per_token(model, config.kv_bits, config.tp) * config.block_len
    return kv_blocks(max(region - states, 0), block, version >= SLAB_ALLOCATOR)


def region_for(resolved: ResolvedRequest, config: Configuration, tokens: int) -> int:
    """Return the bytes of a region that holds ``tokens`` and the states of a full batch for certain."""
    model, version, batch = resolved.model, resolved.version, config.max_batch_size
    block = kv_bytes_per_token(model, config.kv_bits, config.tp) * config.block_len
    region = region_bytes(-(-tokens // config.block_len), block, version >= SLAB_ALLOCATOR)
    return region + state_region(model, config.tp, version, batch, batch)


def request_overhead_ms(coefficients: Mapping[str, float]) -> float:
    """Return the ms of HTTP, tokenising and scheduling."""
    return coefficients["request-overhead-ms"]


def image_spacing_ms(resolved: ResolvedRequest, coefficients: Mapping[str, float]) -> float:
    """Return 0: preparing images is all."""
    return 0.0


def prompt_launch_ms(resolved: ResolvedRequest, coefficients: Mapping[str, float]) -> float:
    """Return 0: C++ launches a pass faster than the GPU works."""
    return 0.0


def step_launch_ms(model: Model, coefficients: Mapping[str, float]) -> float:
    """Return the ms of a decoding step besides reading and arithmetic."""
    return coefficients["step-ms"] + coefficients["step-layer-ms"] * model.text.layers


def encoded_again(version: Version, coefficients: Mapping[str, float]) -> float:
    """Return how much of a request's images each further pass of its prompt encodes again, as a share."""
    return coefficients["encoded-again"] if version >= ENCODES else 0.0


def latent_read_share(coefficients: Mapping[str, float]) -> float:
    """Return the share of other models' rate at which a step reads compressed keys and values."""
    return coefficients["latent-read-share"]


def workspace(resolved: ResolvedRequest, config: Configuration, forward: int) -> MemoryItem:
    """Return the buffers of forward pass and sampling.

    They grow with tokens, batch and session length.
    """
    text, coefficients = resolved.model.text, resolved.store.coefficients
    # The engine batches only prompts whose lengths sum to the session length, so a pass has no more tokens.
    tokens = min(forward, config.session_len)
    # 0.12.2 allocated a request's states when it began (its src/turbomind/models/llama/GatedDeltaNetLayer.cc:61-65).
    own = state_bytes(resolved.model, config.tp) if resolved.version < STATE_POOL else 0
    states = count_running_requests(resolved, config) * own
    wide = sum(mixture.per_token * mixture.intermediate + mixture.shared for mixture in text.mixture)
    attention = (text.heads + 2 * text.kv_heads) * text.head_dim
    for linear in text.linear:  # its projections are one matrix, as wide as queries, keys, values, gate and two numbers
        attention = max(attention, convolved_width(linear) + value_width(linear) + 2 * linear.value_heads)
    row = 2 * text.hidden + (attention + (wide or text.intermediate)) / config.tp
    return make_item(
        "workspace",
        (MIB, coefficients["workspace-mib"]),
        (tokens * row * 2, coefficients["workspace-token"]),
        (config.max_batch_size * text.vocab, coefficients["workspace-slot"]),
        # The latter: 0.16.0 src/turbomind/generation/generation.cc:100
        exact=states + config.max_batch_size * config.session_len * 4,
    )
