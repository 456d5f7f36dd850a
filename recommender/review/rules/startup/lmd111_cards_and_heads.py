"""A GPU count that does not divide the model

## What it does
Reports a `--tp` that does not fit the model's attention heads, KV heads or hidden size.

## Why
Both engines assign whole heads to each GPU. With more GPUs than KV heads they repeat each KV head, so the GPU count
must be a multiple of the KV heads. A model with 28 heads and 4 KV heads runs on 2 or 4 GPUs, but not on 3 or 8.

## Bad
28 heads:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --tp 8

## Good
Use a `--tp` that divides the heads. For more throughput, start more servers.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --tp 4
"""

from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "error",
    ("tp-divides-heads", "tp-kv-heads-shared", "tp-kv-heads-repeated", "tp-divides-hidden"),
    needs=("model",),
    # With these above 1 the attention is split over fewer GPUs than tp.
    when=lambda case: all(case.number(option) in (None, 1) for option in ("dp", "cp", "ep")),
    first=True,
)
