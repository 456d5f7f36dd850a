"""Cache ratios of servers that start at the same moment

Finds servers on one card that are started one right after the other, and whose cache ratios add up to 1 or more.

Each takes its ratio of the memory that is free once its own weights are loaded. Started one after another, each
takes a part of what the one before left. Started at once, both read the same free memory, and together they ask
for more than there is: one of them ends, or both do, depending on who was faster.

Mend it by waiting until the first answers before the next is started, and by computing the later ratio from what is
left; or with ratios that together stay below 1.

Bad:

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.6 &
    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-3B-Instruct --server-port 23334 \\
      --cache-max-entry-count 0.6 &
    wait

Good:

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.4 &
    until curl -sf localhost:23333/v1/models; do sleep 2; done
    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-3B-Instruct --server-port 23334 \\
      --cache-max-entry-count 0.6 &
    wait
"""

from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Launch, Script

OPTION = "--cache-max-entry-count"


def check(script: Script) -> Iterator[Said]:
    """The sum over the servers that start together, told at the one that makes it too large."""
    sums: dict[int, float] = {}
    for earlier, later in around.beside(script, "api_server"):
        between = around.code(script, earlier.place.end, later.place.start)
        before, own = _ratio(earlier), _ratio(later)
        if before is None or own is None or around.PAUSES.search(between):
            continue
        if not around.share_card(script, earlier, later):
            continue
        sums[later.place.start] = sums.get(later.place.start, own) + before
        if sums[later.place.start] >= 1 and sums[later.place.start] - before < 1:
            option = around.option(later, OPTION)
            yield Said(
                option.whole if option else later.place,
                f"The ratios of servers that start together on this card add up to {sums[later.place.start]:g}.",
                "Each takes its share of what it finds free, and started at once both find the same memory.",
            )


def _ratio(launch: Launch) -> float | None:
    given = around.option(launch, OPTION)
    if given is None:
        return None if launch.unsure else float(around.default("cache-max-entry-count"))
    try:
        ratio = float(around.value(launch, OPTION) or "")
    except ValueError:
        return None
    return ratio if 0 < ratio < 1 else None


RULE = Rule(
    id="LMD411",
    name="ratios-add-up",
    family="costs",
    severity="warning",
    sources=(
        "flags/cache-max-entry-count",
        "threads/cache-ratio-of-free-memory",
        "threads/two-ratios-add-up-above-one",
    ),
    whole=check,
)
