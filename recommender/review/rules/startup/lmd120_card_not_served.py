"""A GPU that the release does not support

## What it does
Reports GPUs for which the release has no code: Blackwell before 0.13.0, anything below compute capability 7.0, chips
that the wheels were not built for, and FP8 weights on GPUs other than Hopper before 0.10.1.

## Why
The wheels contain machine code for a fixed list of chips. On other chips the server fails at startup or at the first
request with "no kernel image is available".

## Bad
On an RTX 5090:

    pip install lmdeploy==0.9.2

## Good
Install a release that supports the GPU, build LMDeploy for it, or use another GPU:

    pip install lmdeploy==0.18.0
"""

from recommender.review.rules.constraint_rule import LAUNCH, constraint_rule

rule = constraint_rule(
    __name__,
    "error",
    (
        "blackwell-release",
        "blackwell-torch",
        "compute-capability-floor",
        "compute-capability-in-wheel",
        "fp8-weights-hopper-first",
        "head-dim-192-needs-ampere",
    ),
    sources=("threads/rtx-5090-no-kernel-image",),
    needs=("gpu",),
    at=LAUNCH,
)
