"""Draft options without an algorithm

Finds `--speculative-draft-model` and `--speculative-num-draft-tokens` without `--speculative-algorithm`.

Speculative decoding is made only where an algorithm is named; without it both are dropped and nothing says so.

Name the algorithm, or take them out.

Bad:

    lmdeploy serve api_server MODEL --backend pytorch --speculative-draft-model DRAFT

Good:

    lmdeploy serve api_server MODEL --backend pytorch --speculative-algorithm eagle3 --speculative-draft-model DRAFT
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

DRAFT = ("speculative-draft-model", "speculative-num-draft-tokens")


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case) or case.launch.unsure or s.engine(case) != s.PYTORCH:
        return  # on TurboMind they do nothing with an algorithm either
    if "speculative-algorithm" in case.settings:
        return
    for name in DRAFT:
        setting = case.settings.get(name)
        if setting is not None and name in case.facts.options:
            yield Said(
                setting.option.place,
                f"{setting.option.name} does nothing without --speculative-algorithm.",
                "Drafts are made only where an algorithm is named.",
            )


RULE = Rule(
    id="LMD315",
    name="draft-without-algorithm",
    family="nothing",
    severity="warning",
    sources=("flags/speculative-draft-model", "flags/speculative-num-draft-tokens"),
    check=_check,
)
