"""Several servers on one card without MPS

Finds servers that run beside each other on a same card, by CUDA_VISIBLE_DEVICES or because neither sets it, in a
script that starts no CUDA MPS daemon.

Without MPS the processes only take turns on the card, and each has weights and a cache of its own. On one H100 two
servers of a model with MPS gave about what one gave (49.5 and 48.9 to 51.7 requests a second at 16 in flight);
servers on cards of their own add up.

Mend it with one server and a larger ``--max-batch-size``, with a card for each, or, for different models that must
share one, with ``nvidia-cuda-mps-control -d`` before them.

Bad:

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23333 &
    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23334 &
    wait

Good:

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23333 &
    CUDA_VISIBLE_DEVICES=1 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23334 &
    wait
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Launch, Script

MPS = re.compile(r"cuda-mps|CUDA_MPS", re.IGNORECASE)


def check(script: Script) -> Iterator[Said]:
    """Once for each server that joins others on their card."""
    if MPS.search(script.text):
        return
    joined: dict[int, tuple[Launch, list[Launch]]] = {}
    for earlier, later in around.beside(script, "api_server"):
        if around.share_card(script, earlier, later):
            joined.setdefault(later.place.start, (later, []))[1].append(earlier)
    for later, others in joined.values():
        model = later.model.value if later.model else None
        alike = model is not None and any(each.model and each.model.value == model for each in others)
        line = others[0].place.line
        yield Said(
            later.place,
            f"This server shares a card with the one of line {line}, and no CUDA MPS is started.",
            "Without MPS they only take turns on it; one server with a larger batch, or a card for each, serves more.",
            severity=None if alike else "info",
        )


RULE = Rule(
    id="LMD410",
    name="servers-share-card",
    family="costs",
    severity="warning",
    sources=(
        "claims/several-instances-run-better",
        "environment/cuda-visible-devices",
        "https://docs.nvidia.com/deploy/mps//index.html",
    ),
    whole=check,
)
