"""A model that the release cannot load

## What it does
Reports models that TurboMind of the release cannot load: unsupported head sizes, and InternVL3 in the transformers
layout before 0.9.0.

## Why
The attention kernels support head sizes 64, 128 and 192, and since 0.12.2 also 256. InternVL3 in the transformers
layout is a separate architecture, which 0.9.0 was the first to support. The layout without -hf works in older
releases too; up to 0.7.3 it needs a chat template (LMD217).

## Bad
With 0.8.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf

## Good
Use a release or an engine that serves the model. With 0.9.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from recommender.review import checks
from recommender.review.rules.constraint_rule import MODEL, constraint_rule

rule = constraint_rule(
    __name__,
    "error",
    ("head-dim", "head-dim-before-0-12-2", "internvl-hf-release"),
    needs=("model",),
    at=MODEL,
    when=lambda case: checks.wanted(case) == checks.TURBOMIND,
    assume={"config.backend": checks.TURBOMIND},
)
