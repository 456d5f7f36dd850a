"""Where LMDeploy certainly falls back to the PyTorch engine, a launch is judged as one that asks for it."""

import pytest

from recommender.review.engine import review

SERVE = "lmdeploy serve api_server"
FALLS = [
    ("LMD207", f"{SERVE} google/gemma-3-27b-it --cache-max-entry-count 0.02", {"load": "64"}),
    ("LMD208", f"{SERVE} google/gemma-3-27b-it --cache-max-entry-count 0.02 --session-len 65536", {}),
    ("LMD214", f"{SERVE} microsoft/phi-4", {"load": "64", "ttft": "1ms"}),
    ("LMD214", f"{SERVE} Qwen/Qwen3-VL-8B-Instruct", {"load": "64", "tpot": "1ms"}),
]


def messages(rule: str, command: str, options: dict[str, str]) -> list[str]:
    """Return what a rule says of a command."""
    known = {"gpu": "A100-80G", "lmdeploy": "0.18.0"} | options
    return [each.message for each in review("x.sh", f"{command}\n", known).findings if each.rule.id == rule]


@pytest.mark.parametrize(("rule", "command", "options"), FALLS)
def test_a_fallback_is_judged_as_the_engine_that_runs(rule: str, command: str, options: dict[str, str]) -> None:
    """No option, TurboMind by name and PyTorch by name start the same engine, so the rule says the same."""
    said = messages(rule, f"{command} --backend pytorch", options)
    assert said
    assert messages(rule, command, options) == said
    assert messages(rule, f"{command} --backend turbomind", options) == said


def test_an_engine_that_may_not_run_is_not_judged() -> None:
    """TurboMind lists the architecture, but no record says that it serves the model: what runs is unknown."""
    options = {"load": "64", "ttft": "1ms", "lmdeploy": "0.13.0"}
    command = f"{SERVE} deepseek-ai/DeepSeek-V2-Lite-Chat --cache-max-entry-count 0.02 --session-len 65536"
    for rule in ("LMD207", "LMD208", "LMD214"):
        assert messages(rule, f"{command} --backend pytorch", options)
        assert not messages(rule, command, options)
