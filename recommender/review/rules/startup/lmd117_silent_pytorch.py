"""A silent fallback to the PyTorch engine

## What it does
Reports models that TurboMind does not serve in the release, if TurboMind is requested or the default.

## Why
LMDeploy falls back to the PyTorch engine with only a warning in the log. Settings for TurboMind are then lost, and
other options take effect. The architecture of a model without a record
follows from its name. For example, TurboMind does not serve Qwen2-VL and Qwen2.5-VL in 0.14.0 and 0.15.0; older
and newer releases do. LMDeploy decides by the architecture. If it lists that but cannot read the language part, such
as that of InternVL3.5 before 0.10.0, there may be no fallback: loading stops.

## Bad
With 0.14.0:

    lmdeploy serve api_server Qwen/Qwen2.5-VL-7B-Instruct --backend turbomind

## Good
Set `--backend pytorch` and the options of that engine, or use a release whose TurboMind serves the model:

    lmdeploy serve api_server Qwen/Qwen2.5-VL-7B-Instruct --backend pytorch
"""

from recommender.knowledge.eras import within
from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

OTHER = "internvl-hf-release"
"""If no engine loads the model, LMD121 reports it."""


@launch_rule(
    "warning",
    sources=("constraints/turbomind-serves-model", "threads/falls-back-to-pytorch", "flags/backend"),
)
def rule(case: Case) -> Diagnostics:
    if checks.wanted_engine(case) != checks.TURBOMIND or checks.serves(case, checks.TURBOMIND) is not False:
        return
    if not checks.is_served(case):  # LMD121 reports it
        return
    if not case.model_known:
        yield from _by_name(case)
        return
    if any(checks.broken(case, OTHER, extra={"config.backend": checks.TURBOMIND})):
        return
    if _serves_another(case, family=True):  # then only a record is missing
        return
    name, setting = case.resolved.model.hub, case.settings.get("backend")
    place = checks.at(setting) if setting else checks.model_place(case)
    if case.launch.engine and case.launch.options:  # within the call of the engine's class
        place = case.launch.options[0].place
    outcome = (
        ": it stops while loading, or the PyTorch engine runs"
        if _serves_another(case)
        else ", so the PyTorch engine will run"
    )
    yield Diagnostic(
        place,
        f"TurboMind of {checks.release(case)} is not known to serve {name}{outcome}.",
        "LMDeploy falls back with only a warning in the log, and settings for TurboMind are lost.",
        edits.give_setting(setting, checks.PYTORCH) if setting and checks.serves(case, checks.PYTORCH) else None,
        severity=None if setting or case.launch.engine else "info",
    )


def _by_name(case: Case) -> Diagnostics:
    """Report a model without a record whose architecture, by its name, only the PyTorch engine has."""
    if checks.serves(case, checks.PYTORCH):
        setting = case.settings.get("backend")
        yield Diagnostic(
            checks.at(setting) if setting else checks.model_place(case),
            f"TurboMind of {checks.release(case)} does not list {checks.architecture(case)}, so the PyTorch engine will"
            " run.",
            "LMDeploy falls back with only a warning in the log, and settings for TurboMind are lost.",
            edits.give_setting(setting, checks.PYTORCH) if setting else None,
            severity=None if setting or case.launch.engine else "info",
        )


def _serves_another(case: Case, *, family: bool = False) -> bool:
    """Return whether TurboMind serves another model of the architecture; ``family``: of the same text family, too."""
    resolved = case.resolved
    return any(
        support.engine == checks.TURBOMIND and within(support.since, support.until, resolved.version)
        for model in resolved.store.models.values()
        if model.architecture == resolved.model.architecture
        if not family or model.text.family == resolved.model.text.family
        for support in model.support
    )
