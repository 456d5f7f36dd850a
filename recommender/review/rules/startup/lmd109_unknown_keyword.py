"""An unknown keyword of a configuration class

## What it does
Reports keywords of `TurbomindEngineConfig`, `PytorchEngineConfig`, `VisionConfig` and `GenerationConfig` that the
class does not have in the release, and keywords that `pipeline` does not take.

## Why
`PytorchEngineConfig`, `VisionConfig` and `GenerationConfig` raise a TypeError. `TurbomindEngineConfig` uses pydantic,
which drops unknown keywords silently, so the setting is lost. Common mistakes are the command line's name
(`cache_block_seq_len` is `block_size` in the PyTorch engine), keywords of the other engine, and names of the HTTP API
(`max_tokens` is `max_new_tokens`).

`pipeline` drops unknown keywords silently too: after `pipeline(model, tp=2)` the engine runs on one GPU. Only
`engine_config` and `backend` raise a TypeError.

## Bad

    pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_length=8192))

## Good
Use the field's own name, or the class that has it:

    pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_len=8192))
"""

import difflib

from recommender.common.text import opposite
from recommender.review import accepted_options, checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import GivenOption

CLASSES = ("TurbomindEngineConfig", "PytorchEngineConfig", "VisionConfig", "GenerationConfig")
SILENT = "TurbomindEngineConfig"
CALL = "pipeline"
TWICE = ("engine_config", "backend")
"""Keywords that ``pipeline`` itself gives to the engine."""
HINTS = {
    "backend": "; the class of backend_config is the engine",
    "gen_config": "; give it to each call of the pipeline",
    "generation_config": "; give it to each call of the pipeline",
}
MEANT = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "max_length": "max_new_tokens",
    "seed": "random_seed",
    "stop": "stop_words",
    "top_logprobs": "logprobs",
}
"""Fields of `GenerationConfig` by the names that the HTTP API or others give them."""
CONFIGURATION = "; the engine's configuration is backend_config"
NEAR = 0.7
SURE = 0.85


@launch_rule(
    "error",
    sources=("https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/messages.py", "flags/cache-block-seq-len"),
)
def rule(case: Case) -> Diagnostics:
    if not checks.python(case):
        return
    for option in case.launch.options:
        whose, dot, keyword = option.name.rpartition(".")
        if not dot:
            whose = case.launch.engine if _of_engine(case, option) else ""
        if whose == CALL:
            yield _dropped(case, option, keyword)
        elif whose in CLASSES and keyword not in accepted_options.keywords(case.resolved.release.id, whose):
            yield _unknown(case, option, whose, keyword)


def _of_engine(case: Case, option: GivenOption) -> bool:
    """Return whether a keyword belongs to the call of the engine's class, not to a later attribute assignment."""
    start = option.place.start
    return option.callee == case.launch.engine and case.script.text[start - 1 : start] != "."


def _unknown(case: Case, option: GivenOption, whose: str, keyword: str) -> Diagnostic:
    had = accepted_options.releases_with(whose, keyword)
    here = sorted(accepted_options.keywords(case.resolved.release.id, whose))
    others = [
        name
        for name in CLASSES
        if name != whose and keyword in accepted_options.keywords(case.resolved.release.id, name)
    ]
    known = [MEANT[keyword]] if keyword in MEANT and MEANT[keyword] in here else []
    near = known or difflib.get_close_matches(keyword, here, n=2, cutoff=NEAR)
    hint, fix = "", None
    if had:
        hint = f"; releases {had[0]} to {had[-1]} have it"
    elif others:
        hint = f"; {others[0]} has it"
    elif near and opposite(near[0], keyword):
        hint = f"; there is only the opposite, {near[0]}"
    elif near:
        hint = f": did you mean {near[0]}?"
        ratio = difflib.SequenceMatcher(None, near[0], keyword).ratio()
        fix = (
            edits.rename(case.script, option, near[0])
            if ratio >= SURE and len(near) == 1 and _bare(case, option)
            else None
        )
    ends = "" if hint.endswith("?") else "."
    silent = whose == SILENT
    return Diagnostic(
        option.place,
        f"{whose} has no {keyword} in {checks.release(case)}{hint}{ends}",
        "The class drops it silently, so the setting is lost." if silent else "The call raises a TypeError.",
        fix,
        severity="warning" if silent else None,
    )


def _dropped(case: Case, option: GivenOption, keyword: str) -> Diagnostic:
    """Return the finding on a keyword that ``pipeline`` does not take."""
    release = case.resolved.release.id
    classes = (case.launch.engine, *CLASSES)
    owner = next((name for name in classes if keyword in accepted_options.keywords(release, name)), "")
    hint = f"; it is a field of {owner}" if owner else ""
    if keyword in HINTS or keyword.endswith(("config", "cfg")):
        hint = HINTS.get(keyword, CONFIGURATION)
    twice = keyword in TWICE
    return Diagnostic(
        option.place,
        f"pipeline() does not take {keyword}{hint}.",
        "The call raises a TypeError." if twice else "It drops the keyword silently, so the setting is lost.",
        severity=None if twice else "warning",
    )


def _bare(case: Case, option: GivenOption) -> bool:
    """Return whether the place contains only the keyword, so that a fix can rename it."""
    return case.script.text[option.place.start : option.place.end] == option.name.rpartition(".")[2]
