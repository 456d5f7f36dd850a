"""Options that exclude each other

Finds pairs that cannot stand together: `--tool-call-parser` with `--reasoning-parser` up to 0.8.0,
`--kv-transfer-config` with TurboMind, `--speculative-dflash-block-size` without the algorithm it belongs to.

From 0.7.2 to 0.8.0 the two parsers are one choice of the command line's. Only the PyTorch engine has KV connectors. A
DFlash block size means nothing to other algorithms, and LMDeploy refuses it.

Leave one of the two out, or give what the other needs.

Bad, with 0.8.0:

    lmdeploy serve api_server Qwen/QwQ-32B --tool-call-parser qwen --reasoning-parser qwen-qwq

Good:

    lmdeploy serve api_server Qwen/QwQ-32B --reasoning-parser qwen-qwq
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

ONE_PARSER = (Version("0.7.2"), Version("0.9.0"))


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case):
        return
    yield from _parsers(case)
    yield from _connector(case)
    yield from _draft(case)


def _parsers(case: Case) -> Iterator[Said]:
    tools, reasoning = case.settings.get("tool-call-parser"), case.settings.get("reasoning-parser")
    since, until = ONE_PARSER
    if tools and reasoning and since <= case.facts.version < until:
        later = max(tools, reasoning, key=lambda each: each.option.place)
        yield Said(
            later.option.place,
            f"{s.release(case)} takes a tool call parser or a reasoning parser, not both.",
            "Up to 0.8.0 the two exclude each other on the command line; from 0.9.0 on they do not.",
        )


def _connector(case: Case) -> Iterator[Said]:
    setting = case.settings.get("kv-transfer-config")
    if setting and "kv-transfer-config" in case.facts.options and s.engine(case) == s.TURBOMIND:
        yield Said(
            setting.option.place,
            f"{setting.option.name} is refused with TurboMind.",
            "Only the PyTorch engine has KV connectors; name it with --backend pytorch.",
        )


def _draft(case: Case) -> Iterator[Said]:
    setting = case.settings.get("speculative-dflash-block-size")
    if setting is None or setting.id not in case.facts.options or case.launch.unsure:
        return
    algorithm = case.settings.get("speculative-algorithm")
    if algorithm is None or algorithm.text not in (None, "dflash"):
        yield Said(
            setting.option.place,
            f"{setting.option.name} needs --speculative-algorithm dflash.",
            "The start is refused: other algorithms have no such block.",
        )


RULE = Rule(
    id="LMD119",
    name="options-that-exclude-each-other",
    family="starts",
    severity="error",
    sources=(
        "flags/tool-call-parser",
        "flags/reasoning-parser",
        "flags/kv-transfer-config",
        "flags/speculative-dflash-block-size",
    ),
    check=_check,
)
