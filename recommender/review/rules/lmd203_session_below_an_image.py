"""A session length that no image fits

Finds vision models served with a `--session-len` below the tokens of one image: of any image, as an error, or of a
large one, as a remark where the workload is not told.

InternVL makes 256 tokens of each tile, and up to 12 tiles and a thumbnail of an image: 3,328 tokens. With 256 not even
one tile fits beside a prompt; with 2,048 small images do, and a photo of 1280 x 720 does not.

Set the session length to the largest image you send, with prompt and answer; the model's twelve tiles need 4,096.

Bad:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 256

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 4096
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.tokens import reads_limit

TEXT_ONLY = ("language-model-only", "disable-vision-encoder")


def _check(case: Case) -> Iterator[Said]:
    setting, vision = case.settings.get("session-len"), case.facts.vision
    length = s.number(case, "session-len")
    if setting is None or length is None or vision is None or vision.pixels or case.load_known:
        return
    if any(case.text(each) == "true" for each in TEXT_ONLY):
        return
    beside = vision.wrapper_tokens + case.facts.model.chat_tokens
    most = vision.max_tiles + (1 if vision.thumbnail and vision.max_tiles > 1 else 0)
    least, full = vision.tokens_per_tile + beside, most * vision.tokens_per_tile + beside
    if length <= least:
        yield Said(
            s.at(setting),
            f"No image fits a session of {length:,} tokens: one tile and the template are {least:,} without a prompt.",
            f"{case.facts.model.hub} makes {vision.tokens_per_tile} tokens of a tile; such requests get no answer.",
        )
    elif length <= full:
        yield Said(
            s.at(setting),
            f"An image may be up to {most} tiles, {full:,} tokens; a session of {length:,} refuses those.",
            "Larger images are cut into more tiles"
            + (", unless the request limits them by max_dynamic_patch." if reads_limit(vision) else "."),
            severity="info",
        )


RULE = Rule(
    id="LMD203",
    name="session-below-an-image",
    family="answers",
    severity="error",
    sources=("claims/session-256-holds-one-image", "threads/images-exceed-session-length", "client/max-dynamic-patch"),
    check=_check,
    needs=("model",),
)
