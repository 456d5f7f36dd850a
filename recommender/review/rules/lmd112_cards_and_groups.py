"""A number of cards that cuts a quantisation group

Finds a `--tp` that does not give every card whole groups of an AWQ or GPTQ model.

The weights are scaled in groups of 128 input columns. With heads of 64 two heads make one group, so a card needs an
even number of heads: 14 heads on 2 cards are 7 each, and the conversion stops.

Use a smaller `--tp`, or the 16-bit weights.

Bad (14 heads of 64):

    lmdeploy serve api_server OpenGVLab/InternVL3-1B-AWQ --tp 2

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-1B-AWQ
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

GROUPS = ("awq-tp2-small-heads", "awq-tp4-small-heads", "awq-tp8-small-heads")


def _check(case: Case) -> Iterator[Said]:
    yield from s.say(case, *GROUPS)


RULE = Rule(
    id="LMD112",
    name="cards-and-groups",
    family="starts",
    severity="error",
    sources=tuple(f"constraints/{each}" for each in GROUPS),
    check=_check,
    needs=("model",),
)
