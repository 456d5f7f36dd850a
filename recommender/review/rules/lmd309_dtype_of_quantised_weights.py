"""A data type that 4-bit weights do not follow

Finds `--dtype` for AWQ and GPTQ models where the release runs float16 whatever is given.

Up to 0.10.0 TurboMind ignores the option for such weights, with a warning; from 0.10.1 to 0.17.0 it runs float16 and
says nothing; 0.18.0 is the first to honour it. The PyTorch engine always sets float16 for AWQ.

Leave it out: auto does the same.

Bad, with 0.16.0:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct-AWQ --dtype bfloat16

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct-AWQ
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

FORCED = ("awq-dtype-forced", "awq-dtype-ignored", "awq-dtype-pytorch")


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("dtype")
    if setting is None or setting.text not in ("bfloat16", "float16"):
        return
    fix = mend.remove(case.script, setting.option) if s.server(case) else None
    if setting.text == "float16":
        # What the constraints say of bfloat16 tells whether the option is read at all.
        for _ in s.broken(case, *FORCED, extra={"config.dtype": "bfloat16"}):
            yield Said(
                s.at(setting),
                f"{setting.option.name} float16 changes nothing: {s.release(case)} runs 4-bit weights so anyway.",
                "The option is not read for AWQ and GPTQ weights before 0.18.0.",
                fix,
                severity="info",
            )
        return
    for each in s.broken(case, *FORCED):
        yield Said(s.at(setting), each.message, each.record.remedy, fix)


RULE = Rule(
    id="LMD309",
    name="dtype-of-quantised-weights",
    family="nothing",
    severity="warning",
    sources=(*(f"constraints/{each}" for each in FORCED), "claims/float16-for-awq-forced", "flags/dtype"),
    check=_check,
    needs=("model",),
)
