"""A prefill budget that makes requests move in waves

Finds ``--max-prefill-token-num``, as given or by default, with room for at least twice as many prompts as end in a
pass, where images are asked about and ``recommend`` would choose less for the same number of servers.

Requests with images come one by one from the thread that prepares them. As many end in a pass of the engine as
are in flight divided by the tokens of an answer. With room for more the engine takes all that are ready at once;
then that thread and the engine wait for each other by turns, and requests move in waves. 64 in flight of 448 x 448
and 16 tokens, one H100: 66 to 85 requests a second with 4,096 tokens a pass (seven starts), 74 to 85 with the default
of 8,192 (six), 77 to 89 with 1,024 (nine).

Mend it with a budget for most of the prompts that end in a pass. Larger images then take several passes: give the size
of those that come.

Bad, for 64 images of 448 x 448 in flight, each answered in 16 tokens:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 64

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 64 \\
        --max-prefill-token-num 1024
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

FAR = 2
"""So many times what ends in a pass is far more."""


def check(case: Case) -> Iterator[Said]:
    """Prompts that a pass holds, beside those that end in one; a session holds no more than its length."""
    found = around.sized(case)
    if found is None or not case.facts.images or support.engine(case) != support.TURBOMIND:
        return
    config, prompt = found.config, case.facts.input_tokens(found.config.max_tiles)
    running = min(config.max_batch_size, -(-case.facts.concurrency // config.servers))
    ends = running / case.facts.output_tokens
    budget = min(config.prefill_tokens, config.session_len)
    if budget < FAR * ends * prompt or case.facts.request.goal == "memory":
        return
    chosen = around.chosen(case)
    if not chosen or chosen.servers != config.servers or not prompt <= chosen.prefill_tokens <= ends * prompt:
        return
    setting = case.settings.get("max-prefill-token-num")
    yield Said(
        support.at(setting) if setting else case.launch.place,
        f"A pass of {budget:,} tokens{' (the session length)' * (budget < config.prefill_tokens)} holds"
        f" {budget // prompt} prompts of {prompt:,}, and about {ends:.0f} end in one: requests move in waves.",
        f"Image preparation and the engine then wait for each other; --max-prefill-token-num {chosen.prefill_tokens}"
        " keeps both at work.",
    )


RULE = Rule(
    id="LMD417",
    name="prefill-waves",
    family="costs",
    severity="info",
    sources=("flags/max-prefill-token-num", "claims/prefill-budget-waves"),
    check=check,
    needs=("gpu", "model", "load"),
)
