"""Prefix caching that the release switches off

Finds ``--enable-prefix-caching`` for a vision model with a release or an engine that leaves prompts with images
out of the prefix cache, or turns the cache off for the model altogether.

Up to 0.10.0 TurboMind went past the cache for such prompts; from 0.10.1 LMDeploy switched it off with a warning,
and from 0.16.0 TurboMind shares prefixes with their images for InternVL and Qwen-VL. The PyTorch engine still
leaves it off for InternVL.

Mend it with 0.16.0 or newer on TurboMind, or leave the option out: it does nothing here.

Bad, on 0.12.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --enable-prefix-caching

Good, on 0.18.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --enable-prefix-caching
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said

CONSTRAINTS = (
    "prefix-caching-images-bypassed",
    "prefix-caching-images-off",
    "prefix-caching-internvl-off",
    "prefix-caching-internvl-pytorch",
)


def check(case: Case) -> Iterator[Said]:
    """The first of the constraints that holds."""
    setting = case.settings.get("enable-prefix-caching")
    found = next(support.broken(case, *CONSTRAINTS), None) if setting and setting.text == "true" else None
    if setting is not None and found is not None:
        yield Said(support.at(setting), found.message, found.record.remedy)


RULE = Rule(
    id="LMD409",
    name="prefix-caching-release",
    family="costs",
    severity="warning",
    sources=(*(f"constraints/{each}" for each in CONSTRAINTS), "threads/prefix-caching-not-for-images"),
    check=check,
    needs=("model",),
)
