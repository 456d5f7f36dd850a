"""Out of memory

## What it does
Reports launches whose weights leave no room for a KV cache, or whose predicted memory exceeds the GPU's. Also reports
a loop that starts more servers on one GPU than fit together.

## Why
The KV cache takes its share of the memory that is free after the weights are loaded. Work buffers use the rest; they
grow with the batch size, the prefill tokens and the session length. If it does not fit, the server fails with "CUDA
runtime error: out of memory" at startup or at the first large request.

## Bad
On one 24 GB GPU:

    lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct

## Good
Use a quantised checkpoint or more GPUs, or lower the cache share, the batch size or the prefill tokens:

    lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct-AWQ --session-len 8192
"""

from dataclasses import replace

from recommender.common.units import GIB
from recommender.estimate.memory import estimate
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings

MARGIN = 1.03
ROOMS, FITS = ("weights-leave-room", "weights-leave-room-pytorch"), "memory-fits"


@launch_rule(
    "error",
    needs=("gpu", "model"),
    sources=(*(f"constraints/{room}" for room in ROOMS), f"constraints/{FITS}", "threads/out-of-memory-at-start"),
)
def rule(case: Case) -> Diagnostics:
    if not checks.runs_for_certain(case):
        return  # the estimates are those of an engine that may not run
    for violation in checks.broken(case, *ROOMS):
        source = (f"constraints/{violation.record.id}",)
        yield Diagnostic(checks.model_place(case), violation.message, violation.record.remedy, sources=source)
        return
    yield from _of_loop(case)
    for violation in checks.broken(case, FITS):
        if _exceeds(case):
            place = checks.at(violation.settings[0]) if violation.settings else case.launch.place
            yield Diagnostic(place, violation.message, violation.record.remedy, severity="warning")


def _of_loop(case: Case) -> Diagnostics:
    """Report a loop whose servers share a GPU that cannot hold them all."""
    number, config = surroundings.turns_on_one_gpu(case.script, case.launch), case.configuration
    available = case.known.get("gpu.available_gib")
    if number < 2 or config is None or config.share > 1 or not isinstance(available, float):
        return
    memory = estimate(case.loaded, replace(config, share=number))
    if memory.free <= 0 or memory.total / GIB > MARGIN * available:
        yield Diagnostic(
            case.launch.place,
            f"The {number} servers of this loop share a GPU and need {memory.total / GIB:.1f} GiB together;"
            f" only {available:.2f} GiB may be used.",
            "The last ones fail for lack of memory; start fewer, or give each a GPU.",
        )


def _exceeds(case: Case) -> bool:
    """Return whether the predicted memory exceeds the GPU's by more than the usual prediction error."""
    candidate = case.candidate
    available = case.known.get("gpu.available_gib")
    return candidate is not None and isinstance(available, float) and candidate.memory.total / GIB > MARGIN * available
