"""A prefill budget far below the prompt

Finds ``--max-prefill-token-num`` so small that one prompt of the load takes three passes or more,
where memory is not the goal; with GPU, model and load known, only where ``recommend`` would choose a larger one.

A prompt that is longer than the budget is read in chunks, each a pass of its own. It is no error, but it takes
longer: on an H100 an image of 1280 x 720 (2,378 tokens) took 400 ms with a budget of 512 and 263 to 329 with 4,096.
For one request alone a smaller budget saves memory, not time.

Mend it with a budget that holds one prompt whole.

Bad, for images of 1280 x 720:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-prefill-token-num 512

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-prefill-token-num 4096
"""

from collections.abc import Iterator

from recommender.facts import within
from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

MANY_PASSES = 3
BUFFERS = "host-memory-of-image-buffers"
"""The thread of releases in which a larger budget costs far more than it saves."""


def check(case: Case) -> Iterator[Said]:
    """Passes that the prompt of the load takes, where memory is not what was asked to be spared."""
    setting, budget = case.settings.get("max-prefill-token-num"), case.number("max-prefill-token-num")
    usual = int(around.default("max-prefill-token-num"))
    if setting is None or budget is None or not 1 <= budget < usual or case.facts.request.goal == "memory":
        return
    prompt = case.facts.input_tokens()
    passes = -(-prompt // int(budget))
    if passes >= MANY_PASSES and _better(case, budget):
        yield Said(
            support.at(setting),
            f"A prompt of {prompt:,} tokens is read in {passes} passes of {int(budget):,}.",
            "Each pass costs a few decoding steps; a budget that holds the prompt whole answers sooner.",
        )


def _better(case: Case, budget: float) -> bool:
    """Whether a larger budget would be chosen here, or nothing is known that speaks against one."""
    if around.told_all(case):
        chosen = around.chosen(case)
        return chosen is not None and chosen.prefill_tokens > budget
    thread = case.facts.store.threads[BUFFERS]
    return case.facts.vision is None or not within(thread.since, thread.until, case.facts.version)


RULE = Rule(
    id="LMD404",
    name="prefill-too-small",
    family="costs",
    severity="warning",
    sources=("flags/max-prefill-token-num", "claims/small-prefill-lowers-latency"),
    check=check,
    needs=("model", "load"),
)
