"""Eager mode on TurboMind

Finds `--eager-mode` on a server that runs TurboMind.

It tells the PyTorch engine not to use CUDA graphs. TurboMind never gets it, in any release: with it and without, the
same kernels run. Advice to set it, or to leave it out, for speed or memory on TurboMind is without ground.

Take it out; the repair does.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend turbomind --eager-mode

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend turbomind
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("eager-mode")
    if setting is None or setting.text != "true" or not s.server(case) or s.engine(case) != s.TURBOMIND:
        return
    yield Said(
        setting.option.place,
        f"{setting.option.name} does nothing on TurboMind.",
        "Only the PyTorch engine reads it; TurboMind runs the same with it and without.",
        mend.remove(case.script, setting.option),
    )


RULE = Rule(
    id="LMD302",
    name="eager-mode-on-turbomind",
    family="nothing",
    severity="warning",
    sources=("flags/eager-mode", "claims/eager-mode-steers-turbomind"),
    check=_check,
)
