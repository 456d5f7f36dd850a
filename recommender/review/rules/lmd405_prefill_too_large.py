"""A prefill budget far above the need

Finds ``--max-prefill-token-num`` above LMDeploy's default and at least twice what all prompts in flight have
together, where the estimate says that the work buffers for it take a notable part of the card.

The work buffers are made for a pass of that many tokens at the start, and kept. What no pass ever fills serves
nobody; the KV cache or another process could have it.

Mend it with a budget that holds the prompts that arrive together; leaving the option out is mostly enough. With many
images in flight less serves better (LMD417).

Bad, for 4 requests of 1,000 tokens in flight:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 32768 --max-prefill-token-num 32768

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 32768
"""

from collections.abc import Iterator
from dataclasses import replace

from recommender.facts import GIB, MIB
from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

NOTABLE = 0.02


def check(case: Case) -> Iterator[Said]:
    """The estimate with the budget as given, and with one that suffices."""
    setting, budget = case.settings.get("max-prefill-token-num"), case.number("max-prefill-token-num")
    found = around.sized(case)
    if setting is None or budget is None or found is None or support.engine(case) != support.TURBOMIND:
        return
    from recommender import memory

    enough = max(int(around.default("max-prefill-token-num")), case.facts.input_tokens() * case.facts.concurrency)
    if budget < 2 * enough:
        return
    saved = found.memory.total - memory.estimate(case.facts, replace(found.config, prefill_tokens=enough)).total
    if saved >= NOTABLE * case.facts.gpu.memory_mib * MIB:
        chosen = around.chosen(case)
        if chosen and case.facts.images:
            enough = min(enough, chosen.prefill_tokens)
        yield Said(
            support.at(setting),
            f"About {saved / GIB:.1f} GiB of work buffers are made for passes of {int(budget):,} tokens;"
            f" {enough:,} would do.",
            "The prompts in flight never fill such a pass, and its buffers are kept from the start.",
        )


RULE = Rule(
    id="LMD405",
    name="prefill-too-large",
    family="costs",
    severity="info",
    sources=("flags/max-prefill-token-num", "claims/smaller-prefill-saves-memory"),
    check=check,
    needs=("gpu", "model", "load"),
)
