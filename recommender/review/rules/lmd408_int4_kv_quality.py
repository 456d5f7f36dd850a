"""A 4-bit KV cache that costs answers

Finds ``--quant-policy 4``: as a warning where tool calls or reasoning are parsed, or the model is one that LMDeploy's
maintainers advise against, as a remark where the model is known. It is silent where GPU, model and load are known and
``recommend`` itself would have to choose 4 bits.

In LMDeploy's own table 4 bits cost a 7B model 1.9 points of gsm8k, 8 bits a quarter of one. Users report that
Qwen3-32B and a maths model fall much further, and that a coder model no longer writes tool calls in the form that
the parser knows; with 8 bits all of them work.

Mend it with 8, or 0 where the cache holds the load anyway. Where memory is short, test your own task with 4.

Bad:

    lmdeploy serve api_server Qwen/Qwen3-32B --quant-policy 4 --tool-call-parser qwen3

Good:

    lmdeploy serve api_server Qwen/Qwen3-32B --quant-policy 8 --tool-call-parser qwen3
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.case import told
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

AGAINST = "int4-kv-bad-for-qwen3"
"""The thread in which a maintainer advises against it for one model."""
NAMED = "qwen3-32b"
FEWEST = 4
FOUR_BITS = ("4", "int4")


def check(case: Case) -> Iterator[Said]:
    """The value as given, and what stands beside it."""
    setting = case.settings.get("quant-policy")
    if setting is None or (setting.text or "").casefold() not in FOUR_BITS or "kv" in told(case):
        return
    if not _more_would_do(case):
        return
    threads = case.facts.store.threads
    parsed = [name for name in ("tool-call-parser", "reasoning-parser") if name in case.settings]
    if case.model_known and case.facts.model.id.startswith(NAMED):
        what, why, severity = "4-bit keys and values do not suit this model.", threads[AGAINST].remedy, "warning"
    elif parsed:
        what = f"4-bit keys and values have broken what {support.spelled(case, parsed[0])} parses."
        why, severity = threads["int4-kv-breaks-tool-calls"].remedy, "warning"
    elif not case.model_known:
        return
    else:
        what = "4-bit keys and values cost accuracy, 8-bit ones hardly any."
        why, severity = case.facts.store.constraints["kv-int4-quality"].remedy, "info"
    yield Said(support.at(setting), what, why, severity="warning" if severity == "warning" else "info")


def _more_would_do(case: Case) -> bool:
    """Whether nothing is known that speaks against more bits: ``recommend`` gives them up only for want of memory."""
    chosen = around.chosen(case)
    return not around.told_all(case) or (chosen is not None and chosen.kv_bits > FEWEST)


RULE = Rule(
    id="LMD408",
    name="int4-kv-quality",
    family="costs",
    severity="warning",
    sources=(
        "constraints/kv-int4-quality",
        f"threads/{AGAINST}",
        "threads/int4-kv-breaks-tool-calls",
        "threads/int4-kv-zero-accuracy",
        "claims/int4-kv-costs-no-accuracy",
    ),
    check=check,
)
