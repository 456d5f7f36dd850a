"""Read how a checkpoint's weights are quantised, from the ``quantization_config`` of its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from recommender.common.errors import CheckpointError
from recommender.common.text import shorten
from recommender.knowledge.records import QuantizationMethod


def quantization_fields(where: str, entries: Any) -> dict[str, Any]:
    """Return the fields of a ``Quantization`` record; ``where`` names the file. Raises CheckpointError."""
    entries = entries if isinstance(entries, dict) else {}
    method = entries.get("quant_method", "")
    if method not in get_args(QuantizationMethod):
        named = shorten(str(method)) if method else "an unnamed format"
        raise CheckpointError(
            f"{where}: quantization_config: weights in {named} are not supported; use a checkpoint in 16 bits or one "
            f"of {', '.join(get_args(QuantizationMethod))}"
        )
    if method == "compressed-tensors":
        return _compressed(where, entries)
    blocks = entries.get("weight_block_size")
    block = blocks[0] if isinstance(blocks, list) and blocks else 128
    return {
        "method": method,
        "bits": entries.get("bits", 8 if method == "fp8" else 4),
        "group": entries.get("group_size", {"fp8": block, "mxfp4": 32}.get(method, 128)),
        "version": _version(method, entries),
    }


def _version(method: str, entries: Mapping[str, Any]) -> str:
    """Return how the weights are laid out; what the engines do not read in every layout has a name of its own."""
    if method == "gptq":
        return "reordered" if entries.get("desc_act") else "gptq" if entries.get("sym", True) else "asymmetric"
    if method == "fp8" and not entries.get("weight_block_size"):
        return "per-tensor" if entries.get("activation_scheme") == "static" else "per-tensor-dynamic"
    return str(entries.get("version") or ("gemm" if method == "awq" else method)).lower()


def _compressed(where: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of weights that llm-compressor wrote; where attention is left out, only experts are packed."""
    try:
        group = entries["config_groups"]["group_0"]
        bits, size = group["weights"]["num_bits"], group["weights"].get("group_size") or 0
        version = str(group.get("format") or entries["format"])
        # The rules are regular expressions from an unknown author: matching them could take forever.
        only_experts = any(rule.startswith("re:") and "attn" in rule for rule in entries.get("ignore") or [])
    except (KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"{where}: quantization_config: compressed-tensors needs a format, and num_bits of the weights of "
            "group_0; download the file again"
        ) from None
    experts = "-experts" if only_experts else ""
    return {"method": "compressed-tensors", "bits": bits, "group": size, "version": f"{version}{experts}".lower()}
