"""A TurboMind option on the PyTorch engine

## What it does
Reports options that only TurboMind reads, on a server that runs the PyTorch engine: because of `--backend pytorch`,
or because TurboMind does not serve the model.

## Why
Only TurboMind receives `--communicator`, `--cp`, `--async`, `--max-prefill-iters` and others.
`--vision-max-batch-size` only reaches the vision encoder that runs with it. The command line drops them silently for
the PyTorch engine.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend pytorch --tp 2 --communicator cuda-ipc

## Good
Remove the option, or use TurboMind if it serves the model:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend pytorch --tp 2
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule


@launch_rule("warning", sources=("flags/communicator", "flags/cp", "flags/async", "flags/vision-max-batch-size"))
def rule(case: Case) -> Diagnostics:
    if not checks.server(case) or checks.engine(case) != checks.PYTORCH:
        return
    fell = checks.wanted_engine(case) != checks.PYTORCH
    for option, flag in checks.options(case):
        era = checks.era(case, flag)
        if era is None or set(era.read_by) != {checks.TURBOMIND} or checks.at_default(case, flag.id):
            continue
        how = f", which serves {case.resolved.model.hub} here" if fell else ""
        yield Diagnostic(
            option.place,
            f"{option.name} has no effect on the PyTorch engine{how}: only TurboMind reads it.",
            "The command line drops it silently.",
            sources=(f"flags/{flag.id}",),
        )
