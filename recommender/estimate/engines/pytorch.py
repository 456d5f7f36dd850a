"""The PyTorch engine: memory and passes, as LMDeploy 0.18.0 has them.

Weights load first. From the free memory the engine reserves work buffers and the states of linear attention. A share
of the rest becomes the KV cache, in blocks (lmdeploy/pytorch/engine/executor/base.py:409-426). CUDA graphs of
decoding come after it, one for each power of two up to the batch (backends/graph_runner.py:24-32).

Terms that its code does not give were measured on an H200 and an H100, or are assumed with wide ranges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.common.units import MIB
from recommender.estimate.linear_attention import state_bytes
from recommender.estimate.memory_items import MemoryItem, make_item, weights
from recommender.estimate.model_shape import kv_bytes_per_token, weight_bytes
from recommender.estimate.vision_shape import BYTES_16_BIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recommender.estimate.configuration import Configuration
    from recommender.knowledge.records import Model
    from recommender.request.resolved_request import ResolvedRequest

DECODE_ROUNDS = 16
"""Decoding passes before waiting prompts get a pass: prefill_interval, which the command line does not set
(0.18.0 lmdeploy/messages.py, lmdeploy/pytorch/engine/inputs_maker.py:1299)."""
SPARE_STATES = ((Version("0.14.0"), 2), (Version("0.12.3"), 1), (Version("0.0"), 8))
"""State slots beside those of the batch, from a release on: one of the system's, one for prompts in several passes
(0.14.0 lmdeploy/pytorch/engine/executor/base.py:264; 0.13.0, the same file, :231)."""
LOGITS_OF_PROMPTS = Version("0.9.2")
"""From this release on, the reserved buffers hold the batch's 16-bit logits twice; before, the logits of every
prompt token (0.7.0 lmdeploy/pytorch/engine/model_agent.py:51: 7 bytes for each word)."""
OTHER_BUDGETS = False
"""Neither 2,048 nor 16,384 gained in two sweeps: h100-sweep-pytorch-llama, h100-sweep-pytorch-qwen3-vl."""
SHARES_LOCK = True
"""On one GPU the engine runs in the server's process (0.18.0 lmdeploy/pytorch/engine/executor/__init__.py:51)."""
GROWS = True
"""PyTorch's allocator takes what passes need as they come, up to 3 GiB after the start on an H200."""
SERVERS_A_GPU: tuple[int, ...] = (2, 4)
"""Python's lock limits each. Two served 1.7 times, four 2.1 to 2.7 times as many short image requests as one
(h200-pytorch-copies-2026-11-29-vision-copies-2 and -4)."""
CORES_A_SERVER = 4
"""Each kept two busy; four ran on 16 cores (the same runs)."""
SHARING_GAIN = 1.25
"""Long answers of two servers were predicted up to a fifth too fast (h200-pytorch-copies-2026-11-29-caption-copies-2
and -text-copies-2)."""
RESERVED_BLOCKS = 1
"""Blocks for padding (engine/config_builder.py: num_reserved_gpu_blocks)."""
LEAST_BLOCKS = 16
"""With fewer blocks, the engine halves its prefill budget until none is left, and then ends (0.5.0
lmdeploy/pytorch/engine/model_agent.py:56, 0.18.0 lmdeploy/pytorch/engine/executor/base.py:237)."""
BEYOND_SESSION = 1
"""Blocks that a session must leave free: the engine shortens longer sessions (0.18.0
lmdeploy/pytorch/engine/engine.py:336)."""


def forward_tokens(prefill_tokens: int, max_batch_size: int, tp: int) -> int:
    """Return the tokens of one forward pass: it holds prompts, or a token of each running request."""
    return max(prefill_tokens, max_batch_size)


def prompt_tokens(resolved: ResolvedRequest, config: Configuration) -> int:
    """Return how many tokens of prompts a pass takes for certain: its budget, or a whole image, which is never cut.

    Source: 0.16.0 lmdeploy/pytorch/long_context.py:78; 0.9.2 lmdeploy/pytorch/model_inputs.py:151.
    """
    image = resolved.image_tokens(config.max_tiles) // resolved.images if resolved.images else 0
    return max(config.pass_tokens, image)


def spare_tokens(config: Configuration, running: int) -> int:
    """Return 0: a pass holds prompts or decodes."""
    return 0


def contexts_limit(session_len: int, max_batch_size: int) -> int:
    """Return 0: a pass is limited by its budget alone."""
    return 0


def warmup_tokens(version: Version, forward: int, session_len: int) -> int:
    """Return the KV tokens that the warm-up needs: none but the reserved block (engine/model_agent/agent.py:504)."""
    return 0


def items_before_cache(resolved: ResolvedRequest, tp: int) -> tuple[MemoryItem, ...]:
    """Return what is in memory when the KV cache is sized: CUDA context with PyTorch's libraries, weights."""
    coefficients = resolved.store.coefficients
    names = ("pytorch-context-mib", "peer-context-mib") if tp > 1 else ("pytorch-context-mib",)
    return (
        make_item("context", *((MIB, coefficients[name]) for name in names)),
        make_item("weights", exact=_weights(resolved, tp)),
    )


def _weights(resolved: ResolvedRequest, tp: int) -> int:
    """Return the bytes of weights on one GPU.

    Of latent attention the stored matrices stay, beside two 16-bit copies for decoding, one of keys and one of values
    (0.18.0 lmdeploy/pytorch/models/deepseek_v2.py:448, :457).
    """
    text = resolved.model.text
    if not text.latent:
        return weights(resolved, tp)
    copies = sum(
        text.layers * text.heads * latent.rank * (latent.key + latent.value) * BYTES_16_BIT for latent in text.latent
    )
    return ((resolved.weight_bytes or weight_bytes(resolved.model)) + copies) // tp


def reserved_bytes(resolved: ResolvedRequest, config: Configuration) -> int:
    """Return what is kept from the free memory: work buffers by the engine's own rule, and states.

    Source: 0.18.0 lmdeploy/pytorch/engine/executor/base.py:232 and :289.
    """
    vocab, states = resolved.model.text.vocab, _states(resolved, config)
    if resolved.version < LOGITS_OF_PROMPTS:
        return config.prefill_tokens * vocab * 7 + states
    return (config.prefill_tokens + 2 * config.max_batch_size) * vocab * BYTES_16_BIT + states


def _states(resolved: ResolvedRequest, config: Configuration) -> int:
    spare = next(count for since, count in SPARE_STATES if resolved.version >= since)
    return (config.max_batch_size + spare) * state_bytes(resolved.model, config.tp)


def count_blocks(resolved: ResolvedRequest, config: Configuration, region: int, sequences: int) -> int:
    """Return how many KV blocks a region of these bytes holds; states are apart from it."""
    block = kv_bytes_per_token(resolved.model, config.kv_bits, config.tp) * config.block_len
    return max(region // block - RESERVED_BLOCKS, 0)


def region_for(resolved: ResolvedRequest, config: Configuration, tokens: int) -> int:
    """Return the bytes of a region that holds these tokens, even as one session, and lets the engine start."""
    block = kv_bytes_per_token(resolved.model, config.kv_bits, config.tp) * config.block_len
    return max(-(-tokens // config.block_len) + BEYOND_SESSION + RESERVED_BLOCKS, LEAST_BLOCKS) * block


def request_overhead_ms(coefficients: Mapping[str, float]) -> float:
    """Return the ms of HTTP and tokenising, and of the engine's loops in Python before and after a pass."""
    return coefficients["request-overhead-ms"] + coefficients["pytorch-request-overhead-ms"]


def image_spacing_ms(resolved: ResolvedRequest, coefficients: Mapping[str, float]) -> float:
    """Return the ms for which Python's lock goes back and forth between this engine and what prepares images."""
    return resolved.images * coefficients["pytorch-image-host-ms"]


def prompt_launch_ms(resolved: ResolvedRequest, coefficients: Mapping[str, float]) -> float:
    """Return the ms in which Python launches the kernels of a pass with prompts: no CUDA graph holds them."""
    text = resolved.model.text
    layer = coefficients["pytorch-prompt-layer-ms"]
    if text.latent:
        layer += coefficients["pytorch-prompt-latent-ms"]
    launch = layer * text.layers
    if resolved.images:
        launch += coefficients["pytorch-vision-layer-ms"] * sum(vision.layers for vision in resolved.model.vision)
    return launch


def step_launch_ms(model: Model, coefficients: Mapping[str, float]) -> float:
    """Return the ms of a decoding step besides reading and arithmetic: a CUDA graph holds its kernels."""
    launches = coefficients["step-ms"] + coefficients["step-layer-ms"] * model.text.layers
    latent = coefficients["pytorch-step-latent-ms"] * model.text.layers if model.text.latent else 0.0
    return coefficients["pytorch-step-share"] * launches + latent


def encoded_again(version: Version, coefficients: Mapping[str, float]) -> float:
    """Return 0: no pass ends within an image."""
    return 0.0


def latent_read_share(coefficients: Mapping[str, float]) -> float:
    """Return 1: two mixtures with latent attention read as fast as other models, besides the time that each layer
    adds.
    """
    return 1.0


def workspace(resolved: ResolvedRequest, config: Configuration, forward: int) -> MemoryItem:
    """Return states, the activations of the largest pass, and sampling buffers.

    PyTorch's allocator keeps what a pass has used. The largest pass of the load is likely; at the high end requests
    come that fill the budget, ``forward`` tokens.
    """
    prompts = config.max_batch_size * resolved.longest().input_tokens(config.max_tiles)
    likely = _workspace(resolved, config, max(min(prompts, forward), config.max_batch_size))
    return replace(likely, high=_workspace(resolved, config, forward).high)


def _workspace(resolved: ResolvedRequest, config: Configuration, tokens: int) -> MemoryItem:
    """Return what a largest pass of ``tokens`` needs."""
    text, coefficients = resolved.model.text, resolved.store.coefficients
    wide = sum(mixture.per_token * mixture.intermediate + mixture.shared for mixture in text.mixture)
    attention = (text.heads + 2 * text.kv_heads) * text.head_dim
    row = 2 * text.hidden + (attention + 2 * (wide or text.intermediate)) / config.tp
    return make_item(
        "workspace",
        (tokens * row * BYTES_16_BIT, coefficients["pytorch-workspace-token"]),
        (config.max_batch_size * text.vocab, coefficients["pytorch-workspace-slot"]),
        exact=_states(resolved, config),
    )
