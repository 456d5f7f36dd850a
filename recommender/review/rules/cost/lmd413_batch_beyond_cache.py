"""A batch that the KV cache cannot hold

## What it does
Reports a `--max-batch-size` above twice the number of requests that the cache holds. That number is estimated for the
given load, with images of one tile.

## Why
A request joins the batch only if there are free blocks for its tokens. Slots beyond that stay empty. But each slot
has its own buffers (a row of the vocabulary and one of the session length) and takes a token of the forward pass. A
crowded cache also evicts requests and recomputes them.

## Bad
If the cache holds 40 requests:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.05 --max-batch-size 512

## Good
Use as many slots as the cache holds, a larger `--cache-max-entry-count`, or an 8-bit cache:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.05 --max-batch-size 32
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule
from recommender.review.rules import surroundings


@option_rule(
    "max-batch-size",
    "info",
    needs=("gpu", "model", "load"),
    sources=("flags/max-batch-size", "claims/large-batch-wastes-memory", "constraints/kv-holds-concurrency"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    candidate = surroundings.sized_launch(case)
    if candidate is None:
        return
    # A client may request fewer tiles; with one tile the request is as small as possible.
    request = case.resolved.total_tokens(1 if case.resolved.images else 0)
    batch, held = candidate.config.max_batch_size, candidate.memory.kv_tokens // max(request, 1)
    if held >= 1 and batch > 2 * held:
        yield Diagnostic(
            checks.at(setting),
            f"The batch has {batch:,} slots, but the KV cache holds about {held:,} requests of this load.",
            "Slots that the cache cannot fill cost memory for buffers; a crowded cache recomputes requests.",
        )
