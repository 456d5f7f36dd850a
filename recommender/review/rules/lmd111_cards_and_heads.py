"""A number of cards that does not divide the model

Finds a `--tp` that does not fit the model's attention heads, its KV heads or its hidden size.

TurboMind gives each card whole heads. Where there are more cards than KV heads, each head is repeated, and the cards
must be a multiple of them. A model of 28 heads and 4 KV heads runs on 2 or 4 cards, not on 8 or 3.

Use a `--tp` that divides the heads; for more throughput start more servers instead.

Bad (28 heads):

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --tp 8

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --tp 4
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

DIVIDES = ("tp-divides-heads", "tp-kv-heads-shared", "tp-kv-heads-repeated", "tp-divides-hidden")
SPREAD = ("dp", "cp", "ep")


def _check(case: Case) -> Iterator[Said]:
    if any(case.number(each) not in (None, 1) for each in SPREAD):
        return  # the attention is then split over fewer cards than tp
    said = list(s.say(case, *DIVIDES))
    yield from said[:1]


RULE = Rule(
    id="LMD111",
    name="cards-and-heads",
    family="starts",
    severity="error",
    sources=tuple(f"constraints/{each}" for each in DIVIDES),
    check=_check,
    needs=("model",),
)
