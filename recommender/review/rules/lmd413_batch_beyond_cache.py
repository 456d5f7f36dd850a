"""A batch that the KV cache cannot hold

Finds ``--max-batch-size`` at more than twice the requests of the told load that the cache holds, by estimate; images
count with one tile.

A request joins the batch only when there are blocks for its tokens. Slots beyond that stay empty, yet each has
buffers of its own (a row of the vocabulary, a row of the session length) and a token of the forward budget, and a
crowded cache drops requests to compute them again.

Mend it with as many slots as the cache holds, a larger ``--cache-max-entry-count``, or an 8-bit cache.

Bad, where the cache holds 40 requests:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.05 --max-batch-size 512

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.05 --max-batch-size 32
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around


def check(case: Case) -> Iterator[Said]:
    """Slots against the requests that the cache holds."""
    setting, found = case.settings.get("max-batch-size"), around.sized(case)
    if setting is None or found is None:
        return
    # A client may ask for fewer tiles of an image; with one each a request is as small as it gets.
    each = case.facts.total_tokens(1 if case.facts.images else 0)
    batch, held = found.config.max_batch_size, found.memory.kv_tokens // max(each, 1)
    if held >= 1 and batch > 2 * held:
        yield Said(
            support.at(setting),
            f"{batch:,} slots, and the KV cache holds about {held:,} requests of this load.",
            "Slots that the cache cannot fill cost buffers and never run; requests that crowd it are computed again.",
        )


RULE = Rule(
    id="LMD413",
    name="batch-beyond-cache",
    family="costs",
    severity="info",
    sources=("flags/max-batch-size", "claims/large-batch-wastes-memory", "constraints/kv-holds-concurrency"),
    check=check,
    needs=("gpu", "model", "load"),
)
