"""A parser of answers that the release does not have

Finds `--tool-call-parser` and `--reasoning-parser` with a name that the release does not know.

The names are LMDeploy's own: qwen3coder where others write qwen3_coder, qwen2d5 or qwen3 where others write hermes. An
unknown one stops the server, up to 0.14.0 only after the whole model was loaded. deepseek-r1, qwen-qwq and intern-s1
are still taken for the reasoning parser and mean the default one.

Write a name that the release has, or leave the option out.

Bad:

    lmdeploy serve api_server Qwen/Qwen3-8B --tool-call-parser hermes

Good:

    lmdeploy serve api_server Qwen/Qwen3-8B --tool-call-parser qwen3
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.version import Version

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said, Setting
from recommender.store import shorten

# Registered in lmdeploy/serve of each wheel: names by the release that brought them, and those that went.
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


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case):
        return
    for name, table in (("tool-call-parser", TOOLS), ("reasoning-parser", REASONING)):
        setting = case.settings.get(name)
        if setting is not None and setting.text and name in case.facts.options:
            known = _known(name, table, case.facts.version)
            if setting.text not in known:
                yield _said(case, setting, known)


def _known(option: str, table: Mapping[str, str], version: Version) -> list[str]:
    found = [each for since, names in table.items() if Version(since) <= version for each in names.split()]
    return [each for each in found if (option, each) not in WENT or version < WENT[option, each]]


def _said(case: Case, setting: Setting, known: list[str]) -> Said:
    return Said(
        s.at(setting),
        f"{s.release(case)} has no {shorten(setting.text or '')} for {setting.option.name}; it has {', '.join(known)}.",
        "An unknown name stops the server, in most releases only after the model was loaded.",
    )


RULE = Rule(
    id="LMD126",
    name="unknown-parser",
    family="starts",
    severity="error",
    sources=("flags/tool-call-parser", "flags/reasoning-parser"),
    check=_check,
)
