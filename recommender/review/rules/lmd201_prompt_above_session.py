"""A prompt that does not fit the session length

Finds `--session-len` below the tokens of one request of the workload: prompt, chat template and image.

The session length counts everything of a request. InternVL cuts a 448 x 448 image into one tile of 256 tokens, and one
of 1280 x 720 into 9 tiles with the thumbnail, 2,304 tokens. From 0.16.0 on a prompt of the session length or more is
answered with HTTP 400; before, it ends without an answer.

Raise the session length above prompt and answer together, or send max_dynamic_patch with the image,
which checkpoints in the -hf layout do not read.

Bad, for one 1280 x 720 image a request:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 2048

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 4096
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

HOLDS = ("session-holds-input", "session-holds-input-before-0-16")


def _check(case: Case) -> Iterator[Said]:
    if case.facts.images > 1:
        return  # a rule of its own says how many fit
    yield from s.say(case, *HOLDS)


RULE = Rule(
    id="LMD201",
    name="prompt-above-session",
    family="answers",
    severity="error",
    sources=(*(f"constraints/{each}" for each in HOLDS), "claims/session-256-holds-one-image", "flags/session-len"),
    check=_check,
    needs=("model", "load"),
)
