"""Several servers on one GPU without MPS

## What it does
Reports servers that run at the same time on one GPU, by CUDA_VISIBLE_DEVICES or because neither sets it, in a script
that does not start the CUDA MPS daemon.

## Why
Without MPS the processes only take turns on the GPU, and each has its own weights and cache.

Measured on one H100 at a concurrency of 16: two servers of a model with MPS reached about the throughput of one, 49.5
against 48.9 to 51.7 requests per second. Servers on separate GPUs add up.

## Bad

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23333 &
    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23334 &
    wait

## Good
Use one server with a larger `--max-batch-size`, or one GPU per server. If different models must share a GPU, run
`nvidia-cuda-mps-control -d` first.

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23333 &
    CUDA_VISIBLE_DEVICES=1 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23334 &
    wait
"""

import re
from itertools import chain

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Launch, Script

MPS = pattern(r"cuda-mps|CUDA_MPS", re.IGNORECASE)


@script_rule(
    "warning",
    sources=(
        "claims/several-instances-run-better",
        "environment/cuda-visible-devices",
        "https://docs.nvidia.com/deploy/mps//index.html",
    ),
)
def rule(script: Script) -> Diagnostics:
    if MPS.search(script.text):
        return
    joined: dict[int, tuple[Launch, list[Launch]]] = {}
    pairs = surroundings.concurrent_pairs(script, "api_server", turns=True), surroundings.service_pairs(script)
    for earlier, later in chain(*pairs):
        if surroundings.share_gpu(script, earlier, later):
            joined.setdefault(later.place.start, (later, []))[1].append(earlier)
    for later, others in joined.values():
        model = later.model.value if later.model else None
        alike = model is not None and any(server.model and server.model.value == model for server in others)
        line = others[0].place.line
        turns = {id(other) for other in others if (other.place, other.called) == (later.place, later.called)}
        message = f"This server shares a GPU with the one on line {line} without CUDA MPS."
        if turns and len(turns) == len({id(other) for other in others}):
            message = f"{len(turns) + 1} servers of this loop share a GPU without CUDA MPS."
        yield Diagnostic(
            later.place,
            message,
            "Without MPS they only take turns; one server with a larger batch, or one GPU each, is faster.",
            severity=None if alike else "info",
        )
