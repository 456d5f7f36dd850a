"""Options that exclude each other

## What it does
Reports combinations that LMDeploy rejects: `--tool-call-parser` with `--reasoning-parser` from 0.7.2 to 0.8.0,
`--kv-transfer-config` with TurboMind, and `--speculative-dflash-block-size` without the dflash algorithm.

## Why
From 0.7.2 to 0.8.0 the command line accepts only one of the two parsers. Only the PyTorch engine has KV connectors.
Only the DFlash algorithm has a block size.

## Bad
With 0.8.0:

    lmdeploy serve api_server Qwen/QwQ-32B --tool-call-parser qwen --reasoning-parser qwen-qwq

## Good
Remove one of the two options, or add what the other one requires:

    lmdeploy serve api_server Qwen/QwQ-32B --reasoning-parser qwen-qwq
"""

from packaging.version import Version

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

ONE_PARSER = (Version("0.7.2"), Version("0.9.0"))


@launch_rule(
    "error",
    sources=(
        "flags/tool-call-parser",
        "flags/reasoning-parser",
        "flags/kv-transfer-config",
        "flags/speculative-dflash-block-size",
    ),
)
def rule(case: Case) -> Diagnostics:
    if not checks.server(case):
        return
    yield from _parsers(case)
    yield from _connector(case)
    yield from _draft(case)


def _parsers(case: Case) -> Diagnostics:
    tools, reasoning = case.settings.get("tool-call-parser"), case.settings.get("reasoning-parser")
    since, until = ONE_PARSER
    if tools and reasoning and since <= case.resolved.version < until:
        later = max(tools, reasoning, key=lambda setting: setting.option.place)
        yield Diagnostic(
            later.option.place,
            f"{checks.release(case)} accepts a tool call parser or a reasoning parser, not both.",
            "From 0.7.2 to 0.8.0 the command line accepts only one of the two; since 0.9.0, both.",
        )


def _connector(case: Case) -> Diagnostics:
    setting = case.settings.get("kv-transfer-config")
    if setting and "kv-transfer-config" in case.resolved.options and checks.engine(case) == checks.TURBOMIND:
        yield Diagnostic(
            setting.option.place,
            f"{setting.option.name} is rejected by TurboMind.",
            "Only the PyTorch engine has KV connectors; set --backend pytorch.",
            sources=(f"flags/{setting.id}",),
        )


def _draft(case: Case) -> Diagnostics:
    setting = case.settings.get("speculative-dflash-block-size")
    if setting is None or setting.id not in case.resolved.options or case.launch.unsure:
        return
    algorithm = case.settings.get("speculative-algorithm")
    if algorithm is None or algorithm.text not in (None, "dflash"):
        yield Diagnostic(
            setting.option.place,
            f"{setting.option.name} needs --speculative-algorithm dflash.",
            "The server does not start: other algorithms have no such block size.",
            sources=(f"flags/{setting.id}",),
        )
