"""A model family that needs --trust-remote-code

## What it does
Reports an unknown model without `--trust-remote-code` if every known checkpoint of its organisation and family has
its configuration as code: `InternVL2-8B`, for example, because `InternVL3-8B` has.

## Why
Since 0.13.0 LMDeploy runs such code only with the option; otherwise startup fails. Checkpoints in the transformers
layout (`-hf`) do not need it.

## Bad
With 0.13.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL2-8B

## Good
Look at the repository. If its `config.json` has an `auto_map`, read that code, then add `--trust-remote-code`. Pin
the revision too.

    lmdeploy serve api_server OpenGVLab/InternVL2-8B --trust-remote-code
"""

from functools import lru_cache

from recommender.common.pattern import pattern
from recommender.knowledge.store import Store
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

NEEDED = "remote-code-needed"
FAMILY = pattern(r"([\w.-]+/[A-Za-z]+)(?![A-Za-z])[^/]*\d[^/]*")
CONVERTED = "-hf"


@lru_cache(maxsize=2)
def _families(store: Store) -> frozenset[str]:
    """Return the families (organisation and leading letters) whose unconverted checkpoints all have remote code."""
    families: dict[str, bool] = {}
    for model in store.models.values():
        if (match := FAMILY.fullmatch(model.hub)) and CONVERTED not in model.hub.casefold():
            name = match[1].casefold()
            families[name] = families.get(name, True) and model.remote_code
    return frozenset(name for name, code in families.items() if code)


@launch_rule(
    "warning", sources=(f"constraints/{NEEDED}", "threads/remote-code-off-by-default", "flags/trust-remote-code")
)
def rule(case: Case) -> Diagnostics:
    word = case.launch.model
    if case.model_known or word is None or not word.value or case.launch.starts == "proxy" or case.launch.unsure:
        return
    match = FAMILY.fullmatch(word.value)
    if not match or CONVERTED in word.value.casefold() or match[1].casefold() not in _families(case.resolved.store):
        return
    if case.text("trust-remote-code") == "true" or not _asked_for(case):
        return
    if any(option.name == "trust_remote_code" for option in case.launch.options):
        return
    yield Diagnostic(
        checks.model_place(case),
        f"Known {match[1]} checkpoints have code as configuration; {checks.release(case)} does not run it by default.",
        "If config.json has an auto_map, startup fails without --trust-remote-code; read that code first.",
    )


def _asked_for(case: Case) -> bool:
    """Return whether the release has --trust-remote-code and does not set it by default."""
    era = case.resolved.options.get("trust-remote-code")
    return era is not None and era.default != "true"
