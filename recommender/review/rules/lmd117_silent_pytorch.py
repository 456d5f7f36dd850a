"""TurboMind that turns into PyTorch

Finds models that TurboMind does not serve in the release, while it is asked for or taken by default.

LMDeploy then runs the PyTorch engine, and only a warning in the log says so. What was set for TurboMind is not what
runs, and other options take effect. 0.14.0 and 0.15.0, for instance, do not serve Qwen2-VL and Qwen2.5-VL on TurboMind;
releases before and after do.

Choose `--backend pytorch` and that engine's options, or a release whose TurboMind serves the model.

Bad, with 0.14.0:

    lmdeploy serve api_server Qwen/Qwen2.5-VL-7B-Instruct --backend turbomind

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-VL-7B-Instruct --backend pytorch
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.facts import within
from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

OTHER = "internvl-hf-release"
"""Where no engine loads the model a rule of its own says so."""


def _check(case: Case) -> Iterator[Said]:
    if s.wanted(case) != s.TURBOMIND or s.serves(case, s.TURBOMIND):
        return
    if any(s.broken(case, OTHER, extra={"config.backend": s.TURBOMIND})):
        return
    if _shape_served(case):
        return
    name, word = case.facts.model.hub, case.launch.model
    setting = case.settings.get("backend")
    place = s.at(setting) if setting else word.place if word else case.launch.place
    if case.launch.engine and case.launch.options:  # within the call of the engine's class
        place = case.launch.options[0].place
    yield Said(
        place,
        f"TurboMind of {s.release(case)} is not known to serve {name}: the PyTorch engine will run.",
        "LMDeploy falls back with only a warning in the log, and what was set for TurboMind is not what runs.",
        mend.give_setting(setting, s.PYTORCH) if setting and s.serves(case, s.PYTORCH) else None,
        severity=None if setting or case.launch.engine else "info",
    )


def _shape_served(case: Case) -> bool:
    """Whether TurboMind serves another model of the same classes: then only a name was not known yet."""
    facts = case.facts
    return any(
        each.engine == s.TURBOMIND and within(each.since, each.until, facts.version)
        for model in facts.store.models.values()
        if (model.architecture, model.text.family) == (facts.model.architecture, facts.model.text.family)
        for each in model.support
    )


RULE = Rule(
    id="LMD117",
    name="silent-pytorch",
    family="starts",
    severity="warning",
    sources=("constraints/turbomind-serves-model", "threads/falls-back-to-pytorch", "flags/backend"),
    check=_check,
    needs=("model",),
)
