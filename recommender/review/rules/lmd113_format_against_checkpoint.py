"""A weight format that is not the checkpoint's

Finds `--model-format` that says something else than the checkpoint: awq for GPTQ weights, hf for AWQ weights, awq for
weights that are not quantised.

The quantisation stands in the checkpoint's own config.json and is read from there. A format that contradicts it stops
the start. Where the checkpoint is not quantised the option quantises nothing: it only names what weights are.

Leave the option out. To have 4-bit weights use a checkpoint that has them.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --model-format awq

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct-AWQ
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

MATCHES = "model-format-matches"
QUANTISED = frozenset({"awq", "gptq", "mxfp4", "compressed-tensors"})


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("model-format")
    if setting is None or setting.text is None:
        return
    fix = mend.remove(case.script, setting.option)
    for each in s.broken(case, MATCHES):
        yield Said(s.at(setting), each.message, each.record.remedy, fix)
    if setting.text in QUANTISED and not case.facts.model.quantization and not s.local(case):
        yield Said(
            s.at(setting),
            f"The weights of {case.facts.model.hub} are not quantised, the option says {setting.text}.",
            "The option only names what a checkpoint is; it quantises nothing.",
            severity="warning",
        )


RULE = Rule(
    id="LMD113",
    name="format-against-checkpoint",
    family="starts",
    severity="error",
    sources=(f"constraints/{MATCHES}", "flags/model-format"),
    check=_check,
    needs=("model",),
)
