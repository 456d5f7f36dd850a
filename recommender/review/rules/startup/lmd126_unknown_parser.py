"""A parser that the release does not have

## What it does
Reports `--tool-call-parser` and `--reasoning-parser` names that the release does not have.

## Why
LMDeploy has its own names: qwen3coder instead of qwen3_coder, and qwen2d5 or qwen3 instead of hermes. An unknown name
stops the server; up to 0.14.0 only after the model is loaded. As reasoning parsers, deepseek-r1, qwen-qwq and
intern-s1 are still accepted and mean the default one.

## Bad

    lmdeploy serve api_server Qwen/Qwen3-8B --tool-call-parser hermes

## Good
Use a name that the release has, or remove the option:

    lmdeploy serve api_server Qwen/Qwen3-8B --tool-call-parser qwen3
"""

from collections.abc import Mapping

from packaging.version import Version

from recommender.common.text import shorten
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, launch_rule

# Registered in lmdeploy/serve of each wheel: names by the release that added them, and removed names.
TOOLS: Mapping[str, str] = {
    "0.7.2": "internlm llama3 qwen",
    "0.9.1": "qwen2d5 qwen3",
    "0.9.2": "intern-s1",
    "0.12.2": "qwen3coder",
    "0.13.0": "glm47 interns2-preview",
    "0.15.0": "deepseek-v32 deepseek-v3.2 deepseek-v4",
    "0.17.0": "kimi-k2 kimi_k2",
}
REASONING: Mapping[str, str] = {
    "0.7.2": "deepseek-r1 qwen-qwq",
    "0.9.2": "intern-s1",
    "0.13.0": "default deepseek-v3",
    "0.15.0": "deepseek-v32 deepseek-v3.2 deepseek-v4",
}
WENT = {("tool-call-parser", "deepseek-v3.2"): Version("0.18.0")}


@launch_rule("error", sources=("flags/tool-call-parser", "flags/reasoning-parser"))
def rule(case: Case) -> Diagnostics:
    if not checks.server(case):
        return
    for name, table in (("tool-call-parser", TOOLS), ("reasoning-parser", REASONING)):
        setting = case.settings.get(name)
        if setting is not None and setting.text and name in case.resolved.options:
            known = _known(name, table, case.resolved.version)
            if setting.text not in known:
                yield _unknown(case, setting, known)


def _known(option: str, table: Mapping[str, str], version: Version) -> list[str]:
    known = [name for since, names in table.items() if Version(since) <= version for name in names.split()]
    return [name for name in known if (option, name) not in WENT or version < WENT[option, name]]


def _unknown(case: Case, setting: LaunchSetting, names: list[str]) -> Diagnostic:
    return Diagnostic(
        checks.at(setting),
        f"{checks.release(case)} does not have {shorten(setting.text or '')} for {setting.option.name}; "
        f"use one of {', '.join(names)}.",
        "An unknown name stops the server, in most releases only after the model is loaded.",
        sources=(f"flags/{setting.id}",),
    )
