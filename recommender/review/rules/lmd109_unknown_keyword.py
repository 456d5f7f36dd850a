"""A keyword that the configuration class does not have

Finds keywords of `TurbomindEngineConfig`, `PytorchEngineConfig` and `VisionConfig` that the class lacks in the release.

`PytorchEngineConfig` and `VisionConfig` raise a TypeError. `TurbomindEngineConfig` is checked by pydantic, which drops
a keyword that it does not know without a word: the setting is lost and nothing tells. Often it is the command line's
name (`cache_block_seq_len` is `block_size` in the PyTorch engine) or the other engine's keyword.

Write the field's own name, or use the class that has it.

Bad:

    pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_length=8192))

Good:

    pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_len=8192))
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from recommender.review import mend, wheels
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.review.script import Option

CLASSES = ("TurbomindEngineConfig", "PytorchEngineConfig", "VisionConfig")
SILENT = "TurbomindEngineConfig"
NEAR = 0.7
SURE = 0.85


def _check(case: Case) -> Iterator[Said]:
    if not s.python(case):
        return
    for option in case.launch.options:
        whose, dot, keyword = option.name.rpartition(".")
        if not dot:
            whose = case.launch.engine if _of_engine(case, option) else ""
        if whose in CLASSES and keyword not in wheels.keywords(case.facts.release.id, whose):
            yield _unknown(case, option, whose, keyword)


def _of_engine(case: Case, option: Option) -> bool:
    """Whether a bare keyword stands in the call of the engine's class; what is set on it later is no keyword."""
    start = option.place.start
    return option.of == case.launch.engine and case.script.text[start - 1 : start] != "."


def _unknown(case: Case, option: Option, whose: str, keyword: str) -> Said:
    had = wheels.releases_with(whose, keyword)
    here = sorted(wheels.keywords(case.facts.release.id, whose))
    others = [each for each in CLASSES if each != whose and keyword in wheels.keywords(case.facts.release.id, each)]
    near = difflib.get_close_matches(keyword, here, n=2, cutoff=NEAR)
    hint, fix = "", None
    if had:
        hint = f"; releases {had[0]} to {had[-1]} have it"
    elif others:
        hint = f"; {others[0]} has it"
    elif near:
        hint = f": did you mean {near[0]}?"
        ratio = difflib.SequenceMatcher(None, near[0], keyword).ratio()
        fix = mend.rename(option, near[0]) if ratio >= SURE and len(near) == 1 and _bare(case, option) else None
    ends = "" if hint.endswith("?") else "."
    silent = whose == SILENT
    return Said(
        option.place,
        f"{whose} has no {keyword} in {s.release(case)}{hint}{ends}",
        "The class drops it without a word, so the setting is lost." if silent else "The call ends in a TypeError.",
        fix,
        severity="warning" if silent else None,
    )


def _bare(case: Case, option: Option) -> bool:
    """Whether the place holds the keyword alone, so that it can be renamed."""
    return case.script.text[option.place.start : option.place.end] == option.name.rpartition(".")[2]


RULE = Rule(
    id="LMD109",
    name="unknown-keyword",
    family="starts",
    severity="error",
    sources=("https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/messages.py", "flags/cache-block-seq-len"),
    check=_check,
)
