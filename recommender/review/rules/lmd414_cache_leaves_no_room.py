"""A cache ratio that leaves nothing to compute with

Finds ``--cache-max-entry-count`` below 1, but above what the constraint ``cache-ratio-headroom`` allows.

The cache takes its share of the free memory before the work buffers and the image encoder's are made. With 0.99 on
an 80 GB card about 0.7 GB was left, and requests with images ended in an error.

Mend it with 0.9 or less; 0.8 is the default.

Bad:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --cache-max-entry-count 0.99

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --cache-max-entry-count 0.8
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said


def check(case: Case) -> Iterator[Said]:
    """The constraint; a ratio of 1 or more is another rule's business."""
    if (case.number("cache-max-entry-count") or 1) < 1:
        yield from support.say(case, "cache-ratio-headroom")


RULE = Rule(
    id="LMD414",
    name="cache-leaves-no-room",
    family="costs",
    severity="warning",
    sources=("constraints/cache-ratio-headroom", "threads/cache-ratio-leaves-no-room"),
    check=check,
)
