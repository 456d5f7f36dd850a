"""A KV cache many times larger than the load can fill

Finds a cache that takes two fifths of the card or more and holds at least eight times what the load, one full session
and the warm-up need, with prefix caching off: 0.8 of the card for one request at a time, say.

The share is taken at the start and kept. Beyond what the running requests hold it makes nothing faster: with
shares from 6 to 80 % one image at a time took 146 to 151 ms. It only keeps the card from other processes.

Mend it with the share that the load needs (``recommend`` works it out), or leave it where the card has nothing
else to do.

Bad, for one request at a time on an 80 GB card:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --cache-max-entry-count 0.8

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --cache-max-entry-count 0.05
"""

from collections.abc import Iterator

from recommender.facts import GIB, MIB
from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

MANY_TIMES = 8
LARGE_PART = 0.4


def check(case: Case) -> Iterator[Said]:
    """The estimate of the cache against the need."""
    found = around.sized(case)
    if found is None or found.config.prefix_caching or support.engine(case) != support.TURBOMIND:
        return
    cache, need = found.memory.item("kv cache").bytes, found.memory.kv_needed_tokens
    if cache < LARGE_PART * case.facts.gpu.memory_mib * MIB or found.memory.kv_tokens < MANY_TIMES * need:
        return
    setting = case.settings.get("cache-max-entry-count")
    yield Said(
        support.at(setting) if setting else case.launch.place,
        f"The KV cache takes {cache / GIB:.0f} GiB and holds {found.memory.kv_tokens:,} tokens; {need:,} are needed.",
        "What no request fills makes nothing faster and is kept from everything else on the card.",
    )


RULE = Rule(
    id="LMD406",
    name="cache-beyond-need",
    family="costs",
    severity="info",
    sources=("flags/cache-max-entry-count", "claims/more-cache-is-faster", "threads/awq-vlm-takes-whole-card"),
    check=check,
    needs=("gpu", "model", "load"),
)
