"""A KV cache precision that the head size does not have

Finds 4 or 8 bits for the KV cache on TurboMind where the model's heads are of a size that has no such kernel, and
4 bits on the PyTorch engine of a release that quantises odd head sizes badly.

TurboMind has these kernels for a few head sizes only; a model with another stops at the first request. On the
PyTorch engine of 0.11.0 to 0.15.0 lanes past the end of a head of, say, 96 entered the range as zeros, so that
more accuracy was lost than need be.

Mend it with 16 bits (leave the option out), or on the PyTorch engine with 8 bits or 0.16.0.

Bad, for a model with heads of 96:

    lmdeploy serve api_server acme/heads-of-96 --quant-policy 4

Good:

    lmdeploy serve api_server acme/heads-of-96
"""

from collections.abc import Iterator

from recommender.facts import within
from recommender.review import support
from recommender.review.rule import Case, Rule, Said

THREAD = "int4-kv-odd-head-size"


def check(case: Case) -> Iterator[Said]:
    """The constraints on TurboMind, the thread on PyTorch."""
    setting = case.settings.get("quant-policy")
    if setting is None:
        return
    for each in support.broken(case, "kv-int4-head-dim", "kv-int8-head-dim"):
        yield Said(support.at(setting), each.message, each.record.remedy)
    thread, head = case.facts.store.threads[THREAD], case.facts.model.text.head_dim
    odd = head & (head - 1) != 0
    if odd and support.engine(case) == support.PYTORCH and support.known(case).get("config.kv_bits") == 4:
        if not case.release_known or not within(thread.since, thread.until, case.facts.version):
            return
        yield Said(
            support.at(setting),
            f"Heads of {head} lose more accuracy at 4 bits than they should on the PyTorch engine of this release.",
            thread.remedy,
            severity="warning",
        )


RULE = Rule(
    id="LMD407",
    name="kv-head-size",
    family="costs",
    severity="error",
    sources=("constraints/kv-int4-head-dim", "constraints/kv-int8-head-dim", f"threads/{THREAD}"),
    check=check,
    needs=("model",),
)
