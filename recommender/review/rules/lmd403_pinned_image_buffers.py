"""Host memory pinned for every token of a pass

Finds an InternVL model on TurboMind of 0.16.0 or 0.17.0 whose prefill budget and batch together make a pass of
more tokens than the constraint ``vision-host-memory`` allows, unless ``recommend`` would choose as
large a budget for the load that was told.

In these two releases the image encoder pins host memory for two tiles for each token of a forward pass, on every
card. With the default budget that is tens of gigabytes, and a container with a memory limit is killed.

Mend it with 0.18.0, or with a smaller ``--max-prefill-token-num`` and ``--max-batch-size``.

Bad, on 0.16.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-78B --trust-remote-code --max-prefill-token-num 8192

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-78B --trust-remote-code \\
      --max-prefill-token-num 2048 --max-batch-size 32
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around


def check(case: Case) -> Iterator[Said]:
    """The constraint, for a release that was named."""
    if not case.release_known or _needed(case):
        return
    for each in support.broken(case, "vision-host-memory"):
        setting = case.settings.get("max-prefill-token-num")
        place = support.at(setting) if setting else case.launch.place
        yield Said(place, each.message, f"{each.record.remedy.rstrip('.')}, or use 0.18.0, which no longer does it.")


def _needed(case: Case) -> bool:
    """Whether ``recommend`` would choose as large a budget for the load that was told."""
    chosen, budget = around.chosen(case), case.number("max-prefill-token-num")
    return chosen is not None and budget is not None and chosen.prefill_tokens >= budget


RULE = Rule(
    id="LMD403",
    name="pinned-image-buffers",
    family="costs",
    severity="warning",
    sources=("constraints/vision-host-memory", "threads/host-memory-of-image-buffers"),
    check=check,
    needs=("gpu", "model"),
)
