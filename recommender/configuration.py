"""A complete set of decided settings; which option carries each is the records' business."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every value the recommender decides.

    Lengths are in tokens. ``cache_ratio`` is the share of the memory free after
    the weights. ``kv_bits`` is 16, 8 or 4. ``max_tiles`` 0 leaves the client's
    image detail at the model's default; ``servers`` counts processes behind the
    proxy, each on ``tp`` cards; ``share`` of them have the same ones, under CUDA MPS.
    """

    backend: str
    session_len: int
    max_batch_size: int
    prefill_tokens: int
    cache_ratio: float
    kv_bits: int
    block_len: int
    tp: int
    servers: int
    share: int
    omp_threads: int
    prefix_caching: bool
    trust_remote_code: bool
    disable_docs: bool
    structured_output: bool
    dtype: str
    log_level: str
    communicator: str
    model_format: str
    server_name: str
    port: int
    proxy_url: str
    revision: str
    max_tiles: int
    max_tokens: int
    temperature: float

    @property
    def cards(self) -> int:
        """Cards that all servers take."""
        return self.tp * self.servers // self.share
