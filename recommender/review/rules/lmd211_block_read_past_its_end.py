"""A KV block that is read past its end

Finds `--cache-block-seq-len` that is a multiple of 32 and not of 64 on TurboMind.

The help text allows multiples of 32 from compute capability 8.0 on. But the decoding kernels step through the cache 64
tokens at a time inside one block, so that a block of 32 or 96 is read past its end. Of smaller blocks LMDeploy's own
trial with 16 gave nonsense.

Use 64, or a multiple of it.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-block-seq-len 32

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-block-seq-len 64
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

TILE, WHOLE = "block-length-tile", "block-length-ampere"


def _check(case: Case) -> Iterator[Said]:
    if not any(s.broken(case, WHOLE)):  # an error, which another rule tells
        yield from s.say(case, TILE)


RULE = Rule(
    id="LMD211",
    name="block-read-past-its-end",
    family="answers",
    severity="warning",
    sources=(f"constraints/{TILE}", "flags/cache-block-seq-len"),
    check=_check,
    needs=("gpu",),
)
