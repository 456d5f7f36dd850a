"""More GPUs than the server can see

## What it does
Reports a `--tp` above the number of GPUs: of the machine (`--gpu NAME:COUNT`), in CUDA_VISIBLE_DEVICES, in the
container, or in the batch job (`#SBATCH --gres=gpu:2`, `#PBS -l ngpus=2`, `#BSUB -gpu num=2`). Also reports a
CUDA_VISIBLE_DEVICES that names a GPU that the container does not have, a `docker run` without GPUs, and a `--tp` above
the GPUs of any host if their number is unknown.

## Why
Each process of a tensor-parallel group needs its own GPU; startup fails if there are fewer. With
CUDA_VISIBLE_DEVICES=3 the server sees one GPU, however many the machine has. A container numbers its GPUs from 0,
whatever their numbers on the host. Docker gives it GPUs only with `--gpus`, or if NVIDIA's runtime is Docker's default.

## Bad

    CUDA_VISIBLE_DEVICES=3 lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --tp 2

## Good
Lower `--tp`, or make more GPUs visible:

    CUDA_VISIBLE_DEVICES=2,3 lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --tp 2
"""

from itertools import takewhile

from recommender.common.text import shorten
from recommender.request.request import MAX_COUNT
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

WITHIN = "tp-within-gpus"
NEEDS = "Each tensor-parallel process needs its own GPU; startup fails if there are fewer."
MOST_OF_HOSTS = 1024
"""No model has as many attention heads, which tp must divide."""
CUDA = (None, "cuda")
DOCKER = "https://docs.docker.com/engine/containers/gpu/"


@launch_rule("error", sources=(f"constraints/{WITHIN}", "environment/cuda-visible-devices", DOCKER))
def rule(case: Case) -> Diagnostics:
    yield from _hidden(case)
    yield from _all_hidden(case)
    yield from _no_gpus(case)
    if case.number("nnodes") not in (None, 1):
        return  # over several hosts
    if case.visible_gpus is None:
        yield from _on_no_host(case)
    for violation in checks.broken(case, WITHIN):
        if violation.settings:
            given = violation.settings[0]
            yield Diagnostic(
                checks.at(given),
                f"{given.option.name} {given.text} needs {given.text} GPUs, but the server sees {case.visible_gpus}.",
                NEEDS,
            )


def _hidden(case: Case) -> Diagnostics:
    """Report a GPU that the container does not have, if the server needs it."""
    container, word = case.launch.container, case.launch.environment.get("CUDA_VISIBLE_DEVICES")
    if container is None or container.image is None or not (gpus := container.gpus) or word is None:
        return
    listed = [text.strip() for text in (word.value or "").split(",")]
    if not all(text.isdecimal() for text in listed):
        return
    seen = list(takewhile(lambda text: int(text) < gpus, listed))  # CUDA ignores what is behind
    if len(seen) < (case.number("tp") or 1) <= len(listed):
        yield Diagnostic(
            word.literal or word.place,
            f"CUDA_VISIBLE_DEVICES={shorten(word.value or '')} names a GPU that the container does not have: its"
            f" {gpus} are numbered from 0.",
            "A container numbers its GPUs anew; startup fails if the server sees fewer than it needs.",
        )


def _on_no_host(case: Case) -> Diagnostics:
    """Report a tp above the GPUs of any host; above any head count on PyTorch, which may use several hosts."""
    setting, most = case.settings.get("tp"), MOST_OF_HOSTS if checks.engine(case) == checks.PYTORCH else MAX_COUNT
    if setting is not None and (checks.number(case, "tp") or 1) > most:
        message = f"{setting.option.name} {setting.text} needs more GPUs than the {most} that a server can have."
        yield Diagnostic(checks.at(setting), message, NEEDS)


def _all_hidden(case: Case) -> Diagnostics:
    """Report a value that hides every GPU: CUDA ends the list at the first number that is none of a GPU."""
    word = case.launch.environment.get("CUDA_VISIBLE_DEVICES")
    if word is None or word.value is None or word.value.partition(",")[0].strip() not in ("", "-1"):
        return
    place = word.literal or word.place
    yield Diagnostic(
        place if place.end > place.start else case.launch.place,
        f"CUDA_VISIBLE_DEVICES={shorten(word.value)} hides every GPU from the server.",
        "Startup fails without a GPU; name those that it may use, from 0.",
    )


def _no_gpus(case: Case) -> Diagnostics:
    """Report a container that is started without GPUs."""
    container = case.launch.container
    if container is not None and container.without_gpus and checks.server(case) and case.text("device") in CUDA:
        yield Diagnostic(
            container.place,
            "The container is started without --gpus, so the server sees no GPU.",
            "Add --gpus all. It is not needed where NVIDIA's runtime is Docker's default.",
            severity="warning",
            sources=(DOCKER,),
        )
