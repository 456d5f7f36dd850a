"""A session longer than the model was made for

Finds `--session-len` above the positions of the model, without anything that stretches them.

LMDeploy takes any number without a word. Beyond the positions that the model was trained for its answers are not to be
trusted, unless the positions are scaled, as by rope_scaling in `--hf-overrides`.

Use the model's own length at most, or scale the positions as its makers say.

Bad (32,768 positions):

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 131072

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 32768
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

WITHIN = "session-within-positions"
STRETCHED = ("hf-overrides", "rope-scaling-factor")


def _check(case: Case) -> Iterator[Said]:
    if any(each in case.settings for each in STRETCHED) or s.stretched_by_name(case.launch):
        return
    if s.local(case) and s.literal(case.launch):
        return  # the author's own config.json may scale them
    yield from s.say(case, WITHIN)


RULE = Rule(
    id="LMD205",
    name="session-beyond-the-model",
    family="answers",
    severity="warning",
    sources=(f"constraints/{WITHIN}", "threads/yarn-for-long-prompts"),
    check=_check,
    needs=("model",),
)
