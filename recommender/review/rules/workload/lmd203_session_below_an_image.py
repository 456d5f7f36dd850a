"""A session shorter than an image

## What it does
Reports vision models with a `--session-len` below the tokens of one image. It is an error if no image fits. If only
large images do not fit and the workload is unknown, it is an info.

## Why
InternVL uses 256 tokens per tile, and up to 12 tiles plus a thumbnail per image: 3,328 tokens. With 256 tokens not
even one tile fits. With 2,048 small images fit, but a 1280 x 720 photo does not.

## Bad

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 256

## Good
Size the session for your largest image plus prompt and output. Twelve tiles need 4,096.

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 4096
"""

from recommender.request.image_tokens import reads_limit
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

TEXT_ONLY = ("language-model-only", "disable-vision-encoder")


@option_rule(
    "session-len",
    "error",
    needs=("model",),
    sources=("claims/session-256-holds-one-image", "threads/images-exceed-session-length", "client/max-dynamic-patch"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    vision = case.resolved.vision
    length = checks.number(case, "session-len")
    if length is None or vision is None or vision.pixels or case.load_known:
        return
    if any(case.text(switch) == "true" for switch in TEXT_ONLY):
        return
    template = vision.wrapper_tokens + case.resolved.model.chat_tokens
    most = vision.max_tiles + (1 if vision.thumbnail and vision.max_tiles > 1 else 0)
    least, full = vision.tokens_per_tile + template, most * vision.tokens_per_tile + template
    if length <= least:
        yield Diagnostic(
            checks.at(setting),
            f"No image fits a session of {length:,} tokens: one tile and the template take {least:,}.",
            f"{case.resolved.model.hub} uses {vision.tokens_per_tile} tokens per tile; such requests get no answer.",
        )
    elif length <= full:
        yield Diagnostic(
            checks.at(setting),
            f"An image may take up to {most} tiles, {full:,} tokens; a session of {length:,} does not hold that.",
            "Larger images take more tiles"
            + (", unless the request limits them by max_dynamic_patch." if reads_limit(vision) else "."),
            severity="info",
        )
