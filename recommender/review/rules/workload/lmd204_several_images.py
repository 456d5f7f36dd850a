"""Several images that do not fit together

## What it does
Reports session lengths below the tokens of all images of a request.

## Why
Every image has its own tiles: three photos of twelve tiles and a thumbnail each are 9,984 tokens. The first one or
two images work; one more ends in an error or an empty answer.

## Bad
For four 1280 x 720 images per request:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 8192

## Good
Raise the session length as far as the model allows, or set max_dynamic_patch for each image. Checkpoints in the -hf
layout do not read max_dynamic_patch.

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 12288
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule


@launch_rule(
    "error",
    needs=("model", "load"),
    sources=(
        *(f"constraints/{constraint}" for constraint in checks.HOLDS_INPUT),
        "threads/images-exceed-session-length",
    ),
)
def rule(case: Case) -> Diagnostics:
    resolved, vision = case.resolved, case.resolved.vision
    if resolved.images < 2 or vision is None:
        return
    for violation in checks.broken(case, *checks.HOLDS_INPUT):
        length = checks.number(case, "session-len")
        if not violation.settings or length is None:
            continue
        per_image = resolved.image_tokens() // resolved.images + vision.wrapper_tokens
        room = max(0, length - 1 - resolved.prompt_tokens - resolved.model.chat_tokens) // per_image
        yield Diagnostic(
            checks.at(violation.settings[0]),
            f"Only {room} of {resolved.images} images of {per_image:,} tokens each fit into {length:,} tokens.",
            violation.message,
        )
