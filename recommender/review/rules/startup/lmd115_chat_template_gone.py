"""A chat template that the release does not have

## What it does
Reports a `--chat-template` that is neither a file nor a template name of the release.

## Why
Since 0.10.0 LMDeploy uses the tokenizer's own template, and most built-in names are gone. From 0.10.0 to 0.11.1 some
names are rejected, and the others only log a warning and have no effect (LMD316). From 0.12.0 to 0.14.0 every name
ends in an ImportError. Since 0.15.0 the few remaining names work; any other stops startup.

## Bad
With 0.15.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B-hf --chat-template internvl2_5

## Good
Remove the option in 0.10.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B-hf
"""

from packaging.version import Version

from recommender.common.text import shorten
from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# From lmdeploy/model.py of each wheel. LEFT: names that are registered since 0.15.0; 0.10.0 had all but two of them.
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


@launch_rule("error", sources=("flags/chat-template", "https://github.com/InternLM/lmdeploy/pull/4252"))
def rule(case: Case) -> Diagnostics:
    setting = case.settings.get("chat-template")
    if checks.python(case):
        yield from _registered(case)
    if setting is None or not setting.text or not checks.server(case) or checks.is_file(setting.text):
        return
    version, name = case.resolved.version, setting.text
    fix = edits.remove(case.script, setting.option)
    what = f"{setting.option.name} {shorten(name)}"
    if version >= Version("0.15.0"):
        if name not in LEFT | NEWER:
            why = "The server does not start. Without the option, LMDeploy uses the tokenizer's own template."
            gone = "; an earlier release removed it" if name in OLD else ""
            yield Diagnostic(checks.at(setting), f"{what}: no such template in {checks.release(case)}{gone}.", why, fix)
    elif version >= Version("0.12.0"):
        why = "The check of the name imports a list that no longer exists. Files work; names work again since 0.15.0."
        yield Diagnostic(
            checks.at(setting), f"{what}: every name ends in an ImportError in {checks.release(case)}.", why, fix
        )
    elif version >= Version("0.10.0"):
        if name not in LEFT | BETWEEN | KEPT:
            why = "The server does not start. Without the option, LMDeploy uses the tokenizer's own template."
            yield Diagnostic(checks.at(setting), f"{what}: no such template in {checks.release(case)}.", why, fix)
    elif name not in LEFT | OLD or name == "hf":
        yield Diagnostic(
            checks.at(setting),
            f"{what}: no such template in {checks.release(case)}.",
            "A value that is not a file must be the name of a template.",
        )


def _registered(case: Case) -> Diagnostics:
    """Report a template that a pipeline does not find: it then sends prompts without one."""
    for option in case.launch.options:
        word = option.values[0] if option.values and option.name == "ChatTemplateConfig.model_name" else None
        if word is None or not word.value or case.resolved.version < Version("0.15.0"):
            continue
        own = checks.is_file(word.value) or "register_module" in case.script.text
        if word.value in OLD - LEFT or not (own or word.value in LEFT | NEWER):
            yield Diagnostic(
                word.literal or word.place,
                f"{option.name} {shorten(word.value)}: no such template in {checks.release(case)}.",
                "A pipeline only warns and sends the prompts without a template; leave chat_template_config out.",
                severity="warning",
            )
