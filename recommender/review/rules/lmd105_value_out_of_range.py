"""A value that LMDeploy refuses once it was read

Finds numbers that the parser takes and the engine or the server does not: a port above 65535, no card, a batch below
one, a block of keys and values that is no multiple of what the card's kernels need, FP8 or TurboQuant keys and values
on TurboMind.

TurboMind keeps the KV cache in 16, 8 or 4 bits. Of the newer values of `--quant-policy` it refuses 16 and 17, and lets
42 pass, which it cannot run. A block must be a multiple of 32 tokens, of 64 below compute capability 8.0.

Write a value within the range; the message names it.

Bad:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --server-port 233333

Good:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --server-port 23333
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

RANGES = (
    "batch-positive",
    "block-length-ampere",
    "block-length-before-ampere",
    "block-length-positive",
    "block-length-pytorch",
    "omp-threads-positive",
    "port-range",
    "prefill-positive",
    "temperature-range",
    "tp-positive",
)
FP8 = frozenset({"16", "17", "fp8", "fp8_e4m3", "fp8_e5m2"})
TURBO_QUANT = frozenset({"42", "turbo_quant"})


def _check(case: Case) -> Iterator[Said]:
    for each in s.broken(case, *RANGES):
        zero = each.record.id == "batch-positive" and s.server(case) and case.number("max-batch-size") == 0
        if each.settings and not zero:  # on a command line 0 means LMDeploy's own number
            yield Said(s.at(each.settings[0]), each.message, each.record.remedy)
    yield from _kv_bits(case)


def _kv_bits(case: Case) -> Iterator[Said]:
    setting = case.settings.get("quant-policy")
    if setting is None or setting.text not in FP8 | TURBO_QUANT or s.engine(case) != s.TURBOMIND:
        return
    refused = "refuses it" if setting.text in FP8 else "lets it pass and cannot run it"
    yield Said(
        s.at(setting),
        f"{setting.option.name} {setting.text} is for the PyTorch engine; TurboMind {refused}.",
        "TurboMind keeps the KV cache in 16, 8 or 4 bits: 0, 8 and 4 here.",
    )


RULE = Rule(
    id="LMD105",
    name="value-out-of-range",
    family="starts",
    severity="error",
    sources=(*(f"constraints/{each}" for each in RANGES), "constraints/kv-bits-turbomind", "flags/quant-policy"),
    check=_check,
)
