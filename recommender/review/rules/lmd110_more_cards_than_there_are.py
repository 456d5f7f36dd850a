"""More cards asked for than the server sees

Finds a `--tp` above the number of GPUs: of the machine where `--gpu NAME:COUNT` tells it, of CUDA_VISIBLE_DEVICES, or
of what the container is given.

Every process of a tensor-parallel group needs a card of its own; with fewer the start fails. CUDA_VISIBLE_DEVICES=3
shows one card to the server, whatever the machine has.

Lower `--tp`, or show the server more cards.

Bad:

    CUDA_VISIBLE_DEVICES=3 lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --tp 2

Good:

    CUDA_VISIBLE_DEVICES=2,3 lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --tp 2
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import case as k
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

WITHIN = "tp-within-gpus"


def _check(case: Case) -> Iterator[Said]:
    if case.number("nnodes") not in (None, 1):
        return  # over several hosts
    for each in s.broken(case, WITHIN):
        if each.settings:
            given = each.settings[0]
            yield Said(
                s.at(given),
                f"{given.option.name} {given.text} needs as many cards; the server sees {k.cards(case)}.",
                "Each part of the model needs a card of its own; the start fails where there are fewer.",
            )


RULE = Rule(
    id="LMD110",
    name="more-cards-than-there-are",
    family="starts",
    severity="error",
    sources=(f"constraints/{WITHIN}", "environment/cuda-visible-devices"),
    check=_check,
)
