"""Quantised weights that TurboMind cannot run

## What it does
Reports models whose AWQ, GPTQ or FP8 weights TurboMind cannot read: AWQ not packed as gemm, group sizes other than
128, bits other than 4, FP8 with other block sizes, and 4-bit weights below compute capability 7.0.

## Why
TurboMind's kernels support one layout of each format. It rejects any other while it converts the weights.

## Bad
Scaled by channel instead of by block:

    lmdeploy serve api_server some-model-FP8-dynamic

## Good
Use a checkpoint with that layout, or quantise the model again with `lmdeploy lite auto_awq`:

    lmdeploy serve api_server Qwen/Qwen3-32B-FP8
"""

from recommender.review.rules.constraint_rule import MODEL, constraint_rule

rule = constraint_rule(
    __name__,
    "error",
    ("awq-bits", "awq-group-size", "awq-version-gemm", "awq-needs-volta", "fp8-group-size"),
    needs=("model",),
    at=MODEL,
)
