"""bfloat16 on a GPU without it

## What it does
Reports `--dtype bfloat16` on GPUs below compute capability 8.0, such as V100, T4 and RTX 20.

## Why
These GPUs have no bfloat16 arithmetic, so LMDeploy runs float16. float16 has a smaller range: a model trained in
bfloat16 may overflow.

## Bad
On a T4:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --dtype bfloat16

## Good
Set float16, and test the output:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --dtype float16
"""

from recommender.review import edits
from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    ("bf16-needs-ampere",),
    sources=("flags/dtype",),
    needs=("gpu",),
    why="LMDeploy runs float16, whose smaller range a model trained in bfloat16 may overflow.",
    fix=lambda setting: edits.give_setting(setting, "float16"),
)
