"""Several images that do not fit together

Finds session lengths below the tokens of all images of a request.

Each image brings its own tiles: three photos of twelve tiles and a thumbnail are 9,984 tokens. The first one or two
work, and a request with one more ends in an error or an empty answer.

Raise the session length as far as the model goes, or set max_dynamic_patch in each image of the request,
which checkpoints in the -hf layout do not read.

Bad, for four 1280 x 720 images a request:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 8192

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 12288
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

HOLDS = ("session-holds-input", "session-holds-input-before-0-16")


def _check(case: Case) -> Iterator[Said]:
    facts, vision = case.facts, case.facts.vision
    if facts.images < 2 or vision is None:
        return
    for each in s.broken(case, *HOLDS):
        length = s.number(case, "session-len")
        if not each.settings or length is None:
            continue
        one = facts.image_tokens() // facts.images + vision.wrapper_tokens
        room = max(0, length - 1 - facts.prompt_tokens - facts.model.chat_tokens) // one
        yield Said(
            s.at(each.settings[0]),
            f"Of {facts.images} images of {one:,} tokens each {room or 'none'} fit into {length:,} tokens.",
            each.message,
        )


RULE = Rule(
    id="LMD204",
    name="several-images",
    family="answers",
    severity="error",
    sources=(*(f"constraints/{each}" for each in HOLDS), "threads/images-exceed-session-length"),
    check=_check,
    needs=("model", "load"),
)
