"""Prefix caching that the release disables

## What it does
Reports `--enable-prefix-caching` for a vision model if the release or the engine does not cache prompts with images,
or disables the cache for the model. Also reports it for a model with a sliding window on the PyTorch engine.

## Why
Up to 0.10.0 TurboMind bypasses the cache for such prompts. From 0.10.1 on LMDeploy disables it with a warning. Since
0.16.0 TurboMind shares prefixes with images for InternVL and Qwen-VL. The PyTorch engine still disables it for
InternVL, Qwen2.5-VL, Gemma 3, Llama 4 and others with the older image preprocessing, and for windowed text models.

## Bad
With 0.12.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --enable-prefix-caching

## Good
Use 0.16.0 or newer with TurboMind, or remove the option: it has no effect here. With 0.18.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --enable-prefix-caching
"""

from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    (
        "prefix-caching-images-bypassed",
        "prefix-caching-images-off",
        "prefix-caching-internvl-off",
        "prefix-caching-images-pytorch",
        "prefix-caching-window-pytorch",
    ),
    sources=("threads/prefix-caching-not-for-images",),
    needs=("model",),
    at="enable-prefix-caching",
    when=lambda case: case.text("enable-prefix-caching") == "true",
    assume=lambda _: {"request.images": 1},
    first=True,
    by_architecture=True,
)
