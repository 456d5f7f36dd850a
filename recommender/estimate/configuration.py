"""The settings that the recommender decides; records map them to options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Configuration:
    """Every value that the recommender decides, in the order in which a short summary shows them."""

    backend: str
    """Engine: turbomind or pytorch."""
    tp: int
    """GPUs that share one model."""
    servers: int
    """Server processes behind the proxy, each on tp GPUs."""
    share: int
    """Servers on the same GPUs under CUDA MPS."""
    kv_bits: int
    """Bits of a KV cache value: 16, 8 or 4."""
    session_len: int
    """Longest prompt and answer together, in tokens."""
    max_batch_size: int
    """Most requests in one batch."""
    cache_ratio: float
    """KV cache, as a share of the memory that the weights leave free."""
    prefill_tokens: int
    """Most prompt tokens in one pass."""
    prefix_caching: bool
    """Prompts that begin alike share their KV cache."""
    omp_threads: int
    """OMP_NUM_THREADS of a server."""
    communicator: str
    """Communication between GPUs: nccl or cuda-ipc."""
    trust_remote_code: bool
    """The model's own Python code may run."""
    model_format: str
    """Format of the weights as LMDeploy names it; empty: automatic."""
    dtype: str
    """Number format of the computation."""
    block_len: int
    """Tokens of one KV cache block."""
    chat_template: str
    """Name of the chat template; empty: automatic."""
    server_name: str
    """Address to listen on."""
    disable_docs: bool
    """No documentation page is served."""
    log_level: str
    """Level of the server's log."""
    port: int
    """Port to listen on."""
    proxy_url: str
    """Address of the proxy to register at; empty: none."""
    revision: str
    """Commit, tag or branch of the model; empty: the newest."""
    max_tiles: int
    """Most tiles of an image that clients ask for; 0: the model's default."""
    max_tokens: int
    """Most output tokens that clients ask for."""
    temperature: float
    """Sampling temperature that clients ask for."""
    structured_output: bool
    """Answers follow a JSON schema."""
    cache_sized_by: str = ""
    """What decided cache_ratio (see cache_sizing); empty: it was given."""
    kv_bits_by: str = ""
    """speed: fewer bits were chosen because runs won with them, not because memory is short."""

    @property
    def pass_tokens(self) -> int:
        """Return the prompt tokens of a pass: the budget, but no more than a session. To 0 the batch adds its size."""
        return min(self.prefill_tokens or 1, self.session_len)

    @property
    def cards(self) -> int:
        """Return the number of GPUs that all servers occupy."""
        return self.tp * self.servers // self.share


def setting_text(value: object) -> str:
    """Return a setting's value as a command line has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
