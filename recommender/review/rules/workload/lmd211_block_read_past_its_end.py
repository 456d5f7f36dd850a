"""A KV block that is read past its end

## What it does
Reports a `--cache-block-seq-len` on TurboMind that is a multiple of 32 but not of 64; if the GPU is unknown, any that
is not a multiple of 64.

## Why
The help text allows multiples of 32 since compute capability 8.0. But the decoding kernels read the cache in steps of
64 tokens within a block, so they read past the end of a block of 32 or 96. In LMDeploy's own test, blocks of 16 gave
meaningless output.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-block-seq-len 32

## Good
Use 64, or a multiple of it:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-block-seq-len 64
"""

from recommender.knowledge.conditions import version
from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    ("block-length-tile",),
    sources=("flags/cache-block-seq-len",),
    # An older card refuses such a block (LMD105), so an unknown card is assumed to be a newer one.
    assume=lambda case: {} if case.gpu_known else {"gpu.compute_capability": version("8.0")},
    unless={"block-length-tile": ("block-length-ampere",)},  # an error, which LMD105 reports
)
