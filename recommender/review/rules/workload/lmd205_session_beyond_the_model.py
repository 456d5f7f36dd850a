"""A session longer than the model supports

## What it does
Reports a `--session-len` above the model's positions without any scaling of the positions.

## Why
LMDeploy accepts any number silently. Beyond the positions that the model was trained on, its output is unreliable,
unless the positions are scaled: with rope_scaling in `--hf-overrides`, for example.

## Bad
32,768 positions:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 131072

## Good
Use at most the model's own length, or scale the positions as the model's publisher describes:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 32768
"""

from recommender.review import checks
from recommender.review.rule import Case
from recommender.review.rules.constraint_rule import constraint_rule

SCALES = frozenset({"hf-overrides", "rope-scaling-factor"})


def _unstretched(case: Case) -> bool:
    """Return whether nothing scales the model's positions; an author's own config.json may."""
    eras = [checks.era(case, flag) for _, flag in checks.options(case) if flag.id in SCALES]
    if any(era is None or set(era.read_by) != {"nobody"} for era in eras) or checks.stretched_by_name(case.launch):
        return False
    return not (checks.local(case) and checks.literal(case.launch))


rule = constraint_rule(
    __name__,
    "warning",
    ("session-within-positions",),
    sources=("threads/yarn-for-long-prompts",),
    needs=("model",),
    when=_unstretched,
)
