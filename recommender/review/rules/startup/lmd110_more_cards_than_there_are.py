"""More GPUs than the server can see

## What it does
Reports a `--tp` above the number of GPUs: of the machine (`--gpu NAME:COUNT`), in CUDA_VISIBLE_DEVICES, in the
container, or in the batch job (`#SBATCH --gres=gpu:2`, `#PBS -l ngpus=2`, `#BSUB -gpu num=2`).

## Why
Each process of a tensor-parallel group needs its own GPU; startup fails if there are fewer. With
CUDA_VISIBLE_DEVICES=3 the server sees one GPU, however many the machine has.

## Bad

    CUDA_VISIBLE_DEVICES=3 lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --tp 2

## Good
Lower `--tp`, or make more GPUs visible:

    CUDA_VISIBLE_DEVICES=2,3 lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --tp 2
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

WITHIN = "tp-within-gpus"


@launch_rule("error", sources=(f"constraints/{WITHIN}", "environment/cuda-visible-devices"))
def rule(case: Case) -> Diagnostics:
    if case.number("nnodes") not in (None, 1):
        return  # over several hosts
    for violation in checks.broken(case, WITHIN):
        if violation.settings:
            given = violation.settings[0]
            yield Diagnostic(
                checks.at(given),
                f"{given.option.name} {given.text} needs {given.text} GPUs, but the server sees {case.visible_gpus}.",
                "Each tensor-parallel process needs its own GPU; startup fails if there are fewer.",
            )
