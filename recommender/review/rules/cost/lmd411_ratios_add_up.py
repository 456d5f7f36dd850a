"""Cache shares of servers that start together

## What it does
Reports servers on one GPU that start right after each other if their cache shares add up to 1 or more.

## Why
Each server takes its share of the memory that is free after its own weights are loaded. Servers that start one after
another each take a share of the rest. Servers that start together both see the same free memory and together request
more than there is. One or both fail, depending on timing.

## Bad

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.6 &
    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-3B-Instruct --server-port 23334 \\
      --cache-max-entry-count 0.6 &
    wait

## Good
Wait until the first server responds before you start the next, and compute its share from the remaining memory. Or
use shares that add up to less than 1.

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.4 &
    until curl -sf localhost:23333/v1/models; do sleep 2; done
    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-3B-Instruct --server-port 23334 \\
      --cache-max-entry-count 0.6 &
    wait
"""

from itertools import chain

from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Launch, Script

OPTION = "--cache-max-entry-count"


@script_rule(
    "warning",
    sources=(
        "flags/cache-max-entry-count",
        "threads/cache-ratio-of-free-memory",
        "threads/two-ratios-add-up-above-one",
    ),
)
def rule(script: Script) -> Diagnostics:
    sums: dict[int, tuple[Launch, float]] = {}
    pairs = surroundings.concurrent_pairs(script, "api_server", turns=True), surroundings.service_pairs(script)
    for earlier, later in chain(*pairs):
        service = later.container is not None
        between = "" if service else surroundings.between_starts(script, earlier, later)
        if service and any(
            probe.awaited for each in (earlier, later) if each.container for probe in each.container.probes
        ):
            continue
        before, own = _ratio(earlier), _ratio(later)
        if before is None or own is None or surroundings.PAUSES.search(between):
            continue
        if not surroundings.share_gpu(script, earlier, later):
            continue
        sums[id(later)] = later, sums.get(id(later), (later, own))[1] + before
    most = {later.place: (later, total) for later, total in sorted(sums.values(), key=lambda pair: pair[1])}
    for later, total in most.values():
        option = surroundings.option(later, OPTION)
        if total >= 1:
            yield Diagnostic(
                option.whole if option else later.place,
                f"The cache shares of servers that start together on this GPU add up to {total:g}.",
                "Each takes its share of the free memory, and servers that start together see the same free memory.",
            )


def _ratio(launch: Launch) -> float | None:
    given = surroundings.option(launch, OPTION)
    if given is None:
        return None if launch.unsure else float(surroundings.default("cache-max-entry-count"))
    try:
        ratio = float(surroundings.value(launch, OPTION) or "")
    except ValueError:
        return None
    return ratio if 0 < ratio < 1 else None
