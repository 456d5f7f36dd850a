"""The settings that the recommender decides; records map them to options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every value that the recommender decides, in the order in which a short summary shows them.

    Lengths are in tokens. ``cache_ratio`` is the share of the memory that is free after
    loading the weights. ``kv_bits`` is 16, 8 or 4. ``max_tiles`` 0 keeps the model's
    own image detail. ``servers`` counts the processes behind the proxy, each on ``tp``
    GPUs; ``share`` of them run on the same GPUs under CUDA MPS. ``cache_sized_by`` says what decided
    ``cache_ratio`` (see ``cache_sizing``); empty if it was given.
    """

    backend: str
    tp: int
    servers: int
    share: int
    kv_bits: int
    session_len: int
    max_batch_size: int
    cache_ratio: float
    prefill_tokens: int
    prefix_caching: bool
    omp_threads: int
    communicator: str
    trust_remote_code: bool
    model_format: str
    dtype: str
    block_len: int
    chat_template: str
    server_name: str
    disable_docs: bool
    log_level: str
    port: int
    proxy_url: str
    revision: str
    max_tiles: int
    max_tokens: int
    temperature: float
    structured_output: bool
    cache_sized_by: str = ""

    @property
    def cards(self) -> int:
        """Return the number of GPUs that all servers occupy."""
        return self.tp * self.servers // self.share
