"""A layout of GPUs that the engine refuses

## What it does
Reports `--tp`, `--dp`, `--ep`, `--cp` and `--nnodes` that fit no layout of GPUs. Examples: a `--cp` that does not
divide `--tp`, `--ep` alone on TurboMind, `--dp` alone on the PyTorch engine, several hosts without
`--dist-init-addr`, and the executor uni for several processes.

## Why
Both engines derive one layout from these numbers, over the same GPUs for attention and experts. They stop at an
assertion if there is none. On TurboMind, attention runs on dp x cp times a divisor of tp GPUs, and as many must hold
the ep parts of the experts. On the PyTorch engine, dp must divide ep, or tp if ep is 1.

## Bad

    lmdeploy serve api_server Qwen/Qwen3-30B-A3B --ep 8

## Good
Give the other numbers too:

    lmdeploy serve api_server Qwen/Qwen3-30B-A3B --tp 8 --ep 8
"""

from functools import partial

from recommender.knowledge.gpu_layout import GpuLayout
from recommender.review import checks
from recommender.review.known_values import SIZES
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule


@launch_rule(
    "error",
    sources=(
        "flags/ep",
        "flags/cp",
        "flags/dp",
        "flags/nnodes",
        "flags/dist-init-addr",
        "flags/distributed-executor-backend",
    ),
)
def rule(case: Case) -> Diagnostics:
    launch = case.launch
    if launch.starts not in ("api_server", "pipeline") or launch.instead or launch.unsure or launch.unread:
        return
    if any(SIZES.fullmatch(option.name) or option.name.endswith("devices") for option in launch.options):
        return  # these make the layout
    if checks.engine(case) == checks.PYTORCH and not checks.runs_for_certain(case):
        return
    layout = GpuLayout(
        release=case.resolved.release.id,
        options=case.resolved.options,
        engine=checks.engine(case),
        values={name: setting.text for name, setting in case.settings.items()},
        gpus=case.visible_gpus,
        spell=partial(checks.spelled, case),
        is_server=launch.starts == "api_server",
    )
    for problem in layout.problems():
        place, source = checks.place(case, problem.option), (f"flags/{problem.source}",)
        yield Diagnostic(place, problem.message, "LMDeploy stops before it loads the weights.", sources=source)
