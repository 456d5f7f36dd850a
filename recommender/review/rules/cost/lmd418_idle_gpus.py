"""GPUs that the server does not use

## What it does
Reports a server that gets more GPUs than `--tp` uses, from CUDA_VISIBLE_DEVICES or from its container. It is reported
only if no other server is in the file.

## Why
`--tp` is 1 by default, so LMDeploy uses the first GPU. The others stay idle, and in a cluster no one else gets them.

## Bad

    CUDA_VISIBLE_DEVICES=0,1 lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct

## Good
Use all of them, or give the server fewer:

    CUDA_VISIBLE_DEVICES=0,1 lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --tp 2
"""

from itertools import islice

from recommender.review import checks
from recommender.review.context import visible
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import Span

VARIABLE = "CUDA_VISIBLE_DEVICES"
MOST_DIGITS = 6
SPREAD = ("dp", "ep", "cp", "nnodes", "devices")
"""Options that put one model, or several processes of it, on more GPUs."""


@launch_rule("warning", sources=("flags/tp", "environment/cuda-visible-devices"))
def rule(case: Case) -> Diagnostics:
    launch = case.launch
    if launch.starts not in ("api_server", "pipeline") or launch.instead or launch.unsure:
        return
    names = {option.name.rpartition(".")[2].lstrip("-") for option in launch.options}
    given, used = _given(case), case.effective("tp") or ""
    if names & set(SPREAD) or given is None or not used.isdecimal() or len(used) > MOST_DIGITS:
        return
    servers = (other for other in case.script.launches if other.starts != "proxy")
    if len(list(islice(servers, 2))) > 1:
        return
    count, place = given
    if count > int(used) > 0:
        setting = case.settings.get("tp")
        yield Diagnostic(
            checks.at(setting) if setting else place,
            f"The server is given {count} GPUs and uses {used}.",
            "Each tensor-parallel process uses one GPU; set tp to the number of GPUs, or give the server fewer.",
        )


def _given(case: Case) -> tuple[int, Span] | None:
    """Return how many GPUs the file gives the launch, and where; None if it does not say."""
    word, container = case.launch.environment.get(VARIABLE), case.launch.container
    count = visible(word)
    if word is not None and count is not None:
        return count, word.literal or word.place
    return (container.gpus, container.place) if word is None and container and container.gpus else None
