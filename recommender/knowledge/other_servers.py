"""Options of other servers, and LMDeploy's closest ones."""

from collections.abc import Mapping

_FREE = "--cache-max-entry-count (a share of the memory that the weights leave free)"
_TP = "--tp (LMDeploy has no pipeline parallelism)"
_MODEL = "the model as the first argument, without an option"
ELSEWHERE: Mapping[str, str] = {
    "--host": "=--server-name",
    "--server-host": "=--server-name",
    "--port": "=--server-port",
    "--tensor-parallel-size": "=--tp",
    "--tp-size": "=--tp",
    "--num-shard": "=--tp",
    "--pp": _TP,
    "--pipeline-parallel-size": _TP,
    "--dp-size": "=--dp",
    "--data-parallel-size": "=--dp",
    "--ep-size": "=--ep",
    "--max-model-len": "=--session-len",
    "--context-length": "=--session-len",
    "--gpu-memory-utilization": _FREE,
    "--mem-fraction-static": _FREE,
    "--max-num-seqs": "--max-batch-size",
    "--max-num-batched-tokens": "--max-prefill-token-num",
    "--max-running-requests": "--max-batch-size",
    "--chunked-prefill-size": "--max-prefill-token-num",
    "--block-size": "--cache-block-seq-len",
    "--enable-reasoning": "--reasoning-parser",
    "--enable-auto-tool-choice": "--tool-call-parser",
    "--enable-lora": "--adapters (PyTorch engine only)",
    "--lora-modules": "--adapters (PyTorch engine only)",
    "--kv-cache-dtype": "--quant-policy (0, 4 or 8)",
    "--quantization": "--model-format",
    "--served-model-name": "--model-name",
    "--enforce-eager": "--eager-mode (PyTorch engine only)",
    "--model": _MODEL,
    "--model-path": _MODEL,
    "--model-id": _MODEL,
    "--temperature": "temperature in each request",
    "--top-p": "top_p in each request",
    "--top-k": "top_k in each request",
    "--repetition-penalty": "repetition_penalty in each request",
    "--max-tokens": "max_tokens in each request",
    "--max-new-tokens": "max_tokens in each request",
    "--instance-num": "--max-batch-size",
    "--cache-count": "--cache-max-entry-count",
}
"""What LMDeploy has instead, by another server's option or request field. "=": same values, a fix may rename it."""


def closest_option(name: str) -> str:
    """Return what LMDeploy has instead of another server's option; empty if no other server is known to have it."""
    return ELSEWHERE.get("--" + name.lstrip("-").replace("_", "-").lower(), "").lstrip("=")
