"""A PyTorch option on TurboMind

## What it does
Reports options that only the PyTorch engine reads, on a server that runs TurboMind: `--adapters`, `--dllm-*`,
`--speculative-*`, `--cudagraph-capture-batch-sizes`, `--kernel-block-size` and others. `--eager-mode` has its own
rule, LMD302.

## Why
The command line accepts the options of both engines and passes TurboMind only its own. It drops the others silently:
LoRA adapters are not loaded, and no draft model runs.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend turbomind --adapters mylora=/lora

## Good
Remove the option, or set `--backend pytorch` if you need it:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend pytorch --adapters mylora=/lora
"""

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

OWN_RULES = frozenset({"eager-mode", "kv-transfer-config"})


@launch_rule(
    "warning",
    sources=("flags/adapters", "flags/kernel-block-size", "flags/cudagraph-capture-batch-sizes", "flags/backend"),
)
def rule(case: Case) -> Diagnostics:
    if not checks.server(case) or checks.engine(case) != checks.TURBOMIND:
        return
    if not case.model_known and "backend" not in case.settings:
        return  # a model that TurboMind does not serve runs on the engine that reads them
    for option, flag in checks.options(case):
        era = checks.era(case, flag)
        if (
            era is None
            or set(era.read_by) != {checks.PYTORCH}
            or flag.id in OWN_RULES
            or checks.at_default(case, flag.id)
        ):
            continue
        yield Diagnostic(
            option.place,
            f"{option.name} has no effect on TurboMind: only the PyTorch engine reads it.",
            "The command line drops it silently; set --backend pytorch to use it.",
            edits.remove(case.script, option) if era.type == "bool" else None,
            sources=(f"flags/{flag.id}",),
        )
