"""The interface of an engine, and which one a configuration runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from recommender.estimate.engines import pytorch, turbomind

if TYPE_CHECKING:
    from packaging.version import Version

    from recommender.estimate.configuration import Configuration
    from recommender.estimate.memory_items import MemoryItem
    from recommender.knowledge.records import Model
    from recommender.request.resolved_request import ResolvedRequest


class Engine(Protocol):
    """What differs between the engines. A module of this folder is one; its docstrings cite the engine's code.

    ``DECODE_ROUNDS``: passes of decoding after which waiting prompts get one of their own; 0 where a pass mixes both.
    ``OTHER_BUDGETS``: prefill budgets beside the release's own are tried.
    ``SHARES_LOCK``: the engine runs in Python, beside the thread that prepares images.
    ``GROWS``: memory is highest under load, not when the server is ready.
    ``SERVERS_A_GPU``: how many servers are tried on one GPU for requests with images, beside one.
    ``CORES_A_SERVER``: CPU cores that each of them had where that was measured; 0 where it does not matter.
    ``SHARING_GAIN``: predicted gain in requests/s that justifies more servers on a GPU.
    """

    DECODE_ROUNDS: int
    OTHER_BUDGETS: bool
    SHARES_LOCK: bool
    GROWS: bool
    SERVERS_A_GPU: tuple[int, ...]
    CORES_A_SERVER: int
    SHARING_GAIN: float

    def forward_tokens(self, prefill_tokens: int, max_batch_size: int, tp: int, /) -> int:
        """Return the most tokens of one forward pass."""

    def prompt_tokens(self, resolved: ResolvedRequest, config: Configuration, /) -> int:
        """Return how many tokens of prompts a pass takes for certain."""

    def spare_tokens(self, config: Configuration, running: int, /) -> int:
        """Return how many prompt tokens a pass takes in addition while this many requests decode."""

    def contexts_limit(self, session_len: int, max_batch_size: int, /) -> int:
        """Return the most tokens that the prompts with a part in one pass may have as a whole; 0: no limit."""

    def warmup_tokens(self, version: Version, forward: int, session_len: int, /) -> int:
        """Return the KV tokens that the warm-up needs; 0 if it needs none."""

    def items_before_cache(self, resolved: ResolvedRequest, tp: int, /) -> tuple[MemoryItem, ...]:
        """Return what is in memory when the KV region is sized."""

    def reserved_bytes(self, resolved: ResolvedRequest, config: Configuration, /) -> int:
        """Return what is kept from the free memory before the cache takes its share of it."""

    def count_blocks(self, resolved: ResolvedRequest, config: Configuration, region: int, sequences: int, /) -> int:
        """Return how many KV blocks a region of these bytes holds while ``sequences`` run."""

    def region_for(self, resolved: ResolvedRequest, config: Configuration, tokens: int, /) -> int:
        """Return the bytes of a region that holds these tokens for certain."""

    def request_overhead_ms(self, coefficients: Mapping[str, float], /) -> float:
        """Return the ms that a request spends outside the preparing thread, before and after its first pass."""

    def image_spacing_ms(self, resolved: ResolvedRequest, coefficients: Mapping[str, float], /) -> float:
        """Return the least ms between two requests' images that reach the engine, in addition to preparing them."""

    def prompt_launch_ms(self, resolved: ResolvedRequest, coefficients: Mapping[str, float], /) -> float:
        """Return the ms that a pass with prompts takes at least, to launch."""

    def step_launch_ms(self, model: Model, coefficients: Mapping[str, float], /) -> float:
        """Return the ms of a decoding step besides reading and arithmetic: launches, gaps, choosing tokens."""

    def encoded_again(self, version: Version, coefficients: Mapping[str, float], /) -> float:
        """Return how much of a request's images each further pass of its prompt encodes again, as a share."""

    def latent_read_share(self, coefficients: Mapping[str, float], /) -> float:
        """Return the share of other models' rate at which a step reads compressed keys and values."""

    def workspace(self, resolved: ResolvedRequest, config: Configuration, forward: int, /) -> MemoryItem:
        """Return the buffers besides the cache."""


ENGINES: Mapping[str, Engine] = {"turbomind": turbomind, "pytorch": pytorch}


def engine_of(config: Configuration) -> Engine:
    """Return the engine that a configuration runs."""
    return ENGINES[config.backend]
