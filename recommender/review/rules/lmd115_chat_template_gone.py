"""A chat template that the release does not have

Finds `--chat-template` with a name that is no file and no template of the release.

From 0.10.0 on LMDeploy takes the template that comes with the tokenizer, and most built-in names went: of 0.10.0 to
0.11.1 some are refused and the others only warn and have no effect (LMD316); from 0.12.0 to 0.14.0 every name ends
in an ImportError; from 0.15.0 on the few that are left work and any other stops the start.

Leave the option out from 0.10.0 on.

Bad, with 0.15.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B-hf --chat-template internvl2_5

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B-hf
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.store import shorten


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Read in lmdeploy/model.py of each wheel. Left: what is registered from 0.15.0 on, which 0.10.0 had too but for two.
LEFT = _names(
    "base cogvlm vicuna llava-v1 llama2 codellama chatglm mistral mixtral internvl-zh deepseek-vl deepseek-vl2"
    " llava-chatml hf"
)
NEWER = _names("deepseek-v4 deepseek-v32 deepseek-v3.2")
BETWEEN = _names("internlm baichuan2")
REFUSED = _names("llama wizardlm solar internlm-xcomposer2 internlm-xcomposer2d5 puyu ultracm ultralm")
KEPT = _names(  # from 0.10.0 to 0.11.1 with a warning, and without effect
    "deepseek-v3 deepseek-r1 deepseek-coder cogvlm2 internlm2 internlm3 internvl-internlm2 internvl2-internlm2"
    " internvl2_5 internvl-zh-hermes2 internvl2-phi3 internvl-phi3 llama3 llama3_1 llama3_2 llama4 minicpmv-2d6"
    " minicpm3 qwen2d5 qwen2d5-vl qwen3 qwq qwq_preview yi yi-vl gemma phi-3 phi-4 chatglm3 glm4 codegeex4 molmo"
    " intern-s1 interns1"
)
DROPPED = _names("deepseek qwen falcon dbrx mini-gemini-vicuna")
OLD = REFUSED | BETWEEN | KEPT | DROPPED


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("chat-template")
    if setting is None or not setting.text or not s.server(case) or s.is_file(setting.text):
        return
    version, name = case.facts.version, setting.text
    fix = mend.remove(case.script, setting.option)
    what = f"{setting.option.name} {shorten(name)}"
    if version >= Version("0.15.0"):
        if name not in LEFT | NEWER:
            why = "The start is refused; without the option the template of the model's own tokenizer is used."
            gone = "; it went with an earlier release" if name in OLD else ""
            yield Said(s.at(setting), f"{what}: no such template in {s.release(case)}{gone}.", why, fix)
    elif version >= Version("0.12.0"):
        why = "The check of the name imports a list that is gone; files work, names came back with 0.15.0."
        yield Said(s.at(setting), f"{what}: every name ends in an ImportError in {s.release(case)}.", why, fix)
    elif version >= Version("0.10.0"):
        if name not in LEFT | BETWEEN | KEPT:
            why = "The start is refused; without the option the template of the model's own tokenizer is used."
            yield Said(s.at(setting), f"{what}: no such template in {s.release(case)}.", why, fix)
    elif name not in LEFT | OLD or name == "hf":
        yield Said(
            s.at(setting), f"{what}: no such template in {s.release(case)}.", "A value that is no file must be a name."
        )


RULE = Rule(
    id="LMD115",
    name="chat-template-gone",
    family="starts",
    severity="error",
    sources=("flags/chat-template", "https://github.com/InternLM/lmdeploy/pull/4252"),
    check=_check,
)
