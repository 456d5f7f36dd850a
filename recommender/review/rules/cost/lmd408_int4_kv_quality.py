"""A 4-bit KV cache that costs accuracy

## What it does
Reports `--quant-policy 4`. It is a warning if tool calls or reasoning are parsed, or if LMDeploy's maintainers advise
against it for the model. Otherwise it is an info, if the model is known. It is not reported if GPU, model and load
are known and `recommend` itself would need 4 bits.

## Why
In LMDeploy's own table 4 bits cost a 7B model 1.9 points of gsm8k, and 8 bits a quarter of a point. Users report much
larger losses for Qwen3-32B and a maths model. They also report that a coder model no longer writes tool calls that
the parser can read. With 8 bits all of these work.

## Bad

    lmdeploy serve api_server Qwen/Qwen3-32B --quant-policy 4 --tool-call-parser qwen3

## Good
Use 8, or 0 if the cache is large enough anyway. If memory is short, test your own task with 4.

    lmdeploy serve api_server Qwen/Qwen3-32B --quant-policy 8 --tool-call-parser qwen3
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule
from recommender.review.rules import surroundings

AGAINST = "int4-kv-bad-for-qwen3"
"""A known issue in which a maintainer advises against 4 bits for one model."""
NAMED = "qwen3-32b"
FEWEST = 4
FOUR_BITS = ("4", "int4")


@option_rule(
    "quant-policy",
    "warning",
    sources=(
        "constraints/kv-int4-quality",
        f"threads/{AGAINST}",
        "threads/int4-kv-breaks-tool-calls",
        "threads/int4-kv-zero-accuracy",
        "claims/int4-kv-costs-no-accuracy",
    ),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if (setting.text or "").casefold() not in FOUR_BITS or "kv" in case.answered:
        return
    if not _more_would_do(case):
        return
    threads = case.resolved.store.threads
    parsed = [name for name in ("tool-call-parser", "reasoning-parser") if name in case.settings]
    if case.model_known and case.resolved.model.id.startswith(NAMED):
        what = "This model loses much accuracy with a 4-bit KV cache."
        yield Diagnostic(checks.at(setting), what, threads[AGAINST].remedy)
    elif parsed:
        what = f"A 4-bit KV cache is known to break the output that {checks.spelled(case, parsed[0])} parses."
        yield Diagnostic(checks.at(setting), what, threads["int4-kv-breaks-tool-calls"].remedy)
    elif case.model_known:
        what = "A 4-bit KV cache costs accuracy; an 8-bit one barely does."
        why = case.resolved.store.constraints["kv-int4-quality"].remedy
        yield Diagnostic(checks.at(setting), what, why, severity="info")


def _more_would_do(case: Case) -> bool:
    """Return whether more bits would fit: ``recommend`` chooses 4 bits only if memory is short."""
    chosen = surroundings.recommended_config(case)
    return not surroundings.all_known(case) or (chosen is not None and chosen.kv_bits > FEWEST)
