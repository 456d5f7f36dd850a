"""Requests, configurations and knowledge with single values changed: what the tests of estimates and choice share."""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from recommender.common.plain import Plain
from recommender.estimate.configuration import Configuration
from recommender.knowledge.load import load
from recommender.knowledge.store import Store
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest, resolve_request

STORE = load()
MIB = 1024 * 1024
GIB = 1024 * MIB
TEXT = "qwen2.5-7b-instruct"
"""28 layers of 3584, 28 heads and 4 KV heads of 128, 18944 wide, a vocabulary of 152064; 29 tokens of template."""
IMAGES = "internvl3-8b-awq"
"""The same language model in 4 bits with a vocabulary of 151674; a tile is 256 tokens, template and marks 50."""


def resolve(store: Store = STORE, **asked: Any) -> ResolvedRequest:
    """The facts of a request; an H100 unless another GPU is asked for."""
    return resolve_request(Request(**{"gpu": "h100-sxm-80g", **asked}), store)


def variant(record: Any, **fields: Any) -> Any:
    return Plain(vars(record) | fields)


def store_with(**kinds: Mapping[str, Any]) -> Store:
    store = copy.copy(STORE)
    for kind, records in kinds.items():
        setattr(store, kind, MappingProxyType(dict(records)))
    return store


def coefficients(**values: float | tuple[float, float, float]) -> Store:
    """The knowledge with some coefficients changed: a value that is its own range, or low, value and high."""
    changed = {}
    for name, value in values.items():
        low, middle, high = value if isinstance(value, tuple) else (value, value, value)
        key = name.replace("_", "-")
        changed[key] = variant(STORE.coefficients[key], value=middle, low=low, high=high)
    return store_with(coefficients={**STORE.coefficients, **changed})


def configuration(**changed: Any) -> Configuration:
    """One server on one card for one request at a time, with the changes."""
    values: dict[str, Any] = {
        "backend": "turbomind", "session_len": 4096, "max_batch_size": 1, "prefill_tokens": 512,
        "cache_ratio": 0.5, "kv_bits": 16, "block_len": 64, "tp": 1, "servers": 1, "share": 1, "omp_threads": 4,
        "prefix_caching": False, "trust_remote_code": False, "disable_docs": False, "structured_output": False,
        "dtype": "auto", "log_level": "WARNING", "communicator": "nccl", "model_format": "", "chat_template": "",
        "server_name": "127.0.0.1", "port": 23333, "proxy_url": "", "revision": "", "max_tiles": 0,
        "max_tokens": 32, "temperature": 0.0,
    }  # fmt: skip
    return Configuration(**(values | changed))
