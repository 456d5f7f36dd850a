"""A prompt longer than the session

## What it does
Reports a `--session-len` below the input tokens of one request: prompt, chat template and image.

## Why
The session length counts all tokens of a request. InternVL uses one tile of 256 tokens for a 448 x 448 image. A 1280
x 720 image takes 9 tiles with the thumbnail: 2,304 tokens. Since 0.16.0 LMDeploy answers a prompt of the session
length or more with HTTP 400; before, the answer is empty.

## Bad
For one 1280 x 720 image per request:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 2048

## Good
Set the session length above prompt plus output, or send max_dynamic_patch with the image. Checkpoints in the -hf
layout do not read max_dynamic_patch.

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len 4096
"""

from recommender.review.checks import HOLDS_INPUT
from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "error",
    HOLDS_INPUT,
    sources=("claims/session-256-holds-one-image", "flags/session-len"),
    needs=("model", "load"),
    when=lambda case: case.resolved.images <= 1,  # LMD204 says how many of several fit
)
