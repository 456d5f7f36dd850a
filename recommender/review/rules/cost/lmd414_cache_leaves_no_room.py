"""A cache share that leaves no room for work buffers

## What it does
Reports a `--cache-max-entry-count` below 1 but above the limit of the constraint `cache-ratio-headroom`.

## Why
The cache takes its share of the free memory before LMDeploy allocates the work buffers and those of the vision
encoder. With 0.99 on an 80 GB GPU about 0.7 GB was left, and requests with images failed.

## Bad

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --cache-max-entry-count 0.99

## Good
Use 0.9 or less; the default is 0.8:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --cache-max-entry-count 0.8
"""

from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    ("cache-ratio-headroom",),
    sources=("threads/cache-ratio-leaves-no-room",),
    when=lambda case: (case.number("cache-max-entry-count") or 1) < 1,  # LMD106 reports 1 or more
)
