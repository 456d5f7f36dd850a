"""Several cards in a container with little shared memory

Finds a server over several cards (``--tp``) in a container that keeps the default /dev/shm and its own IPC namespace.

A container's /dev/shm has 64 MB unless it is told otherwise. NCCL exchanges data between the cards' processes and
threads through it where they cannot reach each other directly, and then stops with an error while it starts, or
later under load.

Mend it with ``--ipc=host`` or ``--shm-size``, in compose with ``shm_size`` or ``ipc: host``, in Kubernetes with an
emptyDir of medium Memory at /dev/shm.

Bad:

    docker run --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-72B-Instruct --tp 4

Good:

    docker run --gpus all --ipc=host openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-72B-Instruct --tp 4
"""

from collections.abc import Iterator

from recommender.facts import MIB
from recommender.review import support
from recommender.review.rule import Case, Rule, Said

DEFAULT_SHM = 64 * MIB


def check(case: Case) -> Iterator[Said]:
    """The container's shared memory, where the file tells it."""
    container, setting, cards = case.launch.container, case.settings.get("tp"), case.number("tp")
    if container is None or setting is None or cards is None or cards < 2:
        return
    if container.host_ipc or not container.shm_known or (container.shm_bytes or 0) > DEFAULT_SHM:
        return
    yield Said(
        support.at(setting),
        f"{int(cards)} cards, and the container's /dev/shm has the default 64 MB.",
        "NCCL may stop with an error for want of it; pass --ipc=host or --shm-size, or mount a larger /dev/shm.",
    )


RULE = Rule(
    id="LMD609",
    name="small-shared-memory",
    family="operations",
    severity="warning",
    sources=("threads/nccl-error-in-pod", "https://github.com/moby/moby/issues/29492"),
    check=check,
)
