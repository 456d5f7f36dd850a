"""An option that the model needs in this release

## What it does
Reports a launch that lacks an option, or gives it another value, if the model's record names that option for the
release. A file as the value is not reported: it counts as your own decision.

## Why
Before 0.10.0 LMDeploy selects the chat template by the name in the model path. No template of 0.7.0 to 0.7.3 matches
InternVL3, and none before 0.10.0 matches Llama 3.3. The server then starts, but every chat request fails.

## Bad
With 0.7.3:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ

## Good
Name the template, or use 0.8.0 or newer, which selects it:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ --chat-template internvl2_5
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.choose.needs import list_needs, meets
from recommender.knowledge.conditions import fill
from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

if TYPE_CHECKING:
    from recommender.knowledge import records

NEEDED = "needed-options"


@launch_rule(
    "error",
    needs=("model",),
    sources=(f"constraints/{NEEDED}", "threads/internvl3-not-known-before-0-8", "flags/chat-template"),
)
def rule(case: Case) -> Diagnostics:
    if case.launch.starts == "proxy" or not any(checks.broken(case, NEEDED)):
        return
    for need in list_needs(case.resolved).values():
        setting = case.settings.get(need.option)
        if setting is not None and meets(need, setting.text or ""):
            continue
        option = f"{case.resolved.store.flags[need.option].option}={need.value}"
        place = checks.model_place(case)
        repair = edits.switch_after_model(case.script, case.launch, option) if checks.server(case) else None
        if setting is not None:
            place, repair = checks.at(setting), edits.give_setting(setting, need.value)
        yield Diagnostic(
            place,
            f"{case.resolved.model.hub} needs {_written(case, need)} in {checks.release(case)}.",
            fill(need.because, case.known),
            repair,
        )


def _written(case: Case, need: records.NeededOption) -> str:
    """Return a need as this launch would write it."""
    flag = case.resolved.store.flags[need.option]
    if checks.python(case) and flag.fields:
        return f'{flag.fields[0].config}({flag.fields[0].field}="{need.value}")'
    return f"{flag.option} {need.value}"
