"""Several GPUs with little shared memory

## What it does
Reports a server on several GPUs (`--tp`) in a container with the default /dev/shm and its own IPC namespace.

## Why
A container's /dev/shm has 64 MB by default. NCCL uses it to exchange data between GPUs that cannot reach each other
directly. If it is too small, NCCL fails at startup or later under load.

## Bad

    docker run --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-72B-Instruct --tp 4

## Good
Use `--ipc=host` or `--shm-size`; in compose `shm_size` or `ipc: host`; in Kubernetes an emptyDir with medium Memory
at /dev/shm:

    docker run --gpus all --ipc=host openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-72B-Instruct --tp 4
"""

from recommender.common.units import MIB
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

DEFAULT_SHM = 64 * MIB


@launch_rule("warning", sources=("threads/nccl-error-in-pod", "https://github.com/moby/moby/issues/29492"))
def rule(case: Case) -> Diagnostics:
    container, setting, gpus = case.launch.container, case.settings.get("tp"), case.number("tp")
    if container is None or setting is None or gpus is None or gpus < 2:
        return
    if container.host_ipc or not container.shm_known or (container.shm_bytes or 0) > DEFAULT_SHM:
        return
    yield Diagnostic(
        checks.at(setting),
        f"The server uses {int(gpus)} GPUs, but the container's /dev/shm has the default 64 MB.",
        "NCCL may fail without more; pass --ipc=host or --shm-size, or mount a larger /dev/shm.",
    )
