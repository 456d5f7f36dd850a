"""Advisers as they gave it: their settings reach the command line unchanged, and what speaks against them is said."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml
from artefacts import KNOWLEDGE, Machine, parser, release_facts

from recommender.pipeline import Recommendation, recommend_adviser
from recommender.render import render
from recommender.request import Request, RequestError
from recommender.store import UnknownName

ADVISERS = ("chatgpt", "gemini", "claude", "kimi", "grok", "baseline", "guide", "hybrid")


@cache
def follow(adviser: str, **asked: Any) -> Recommendation:
    """An adviser's configuration on the reference card."""
    return recommend_adviser(Request(**{"gpu": "h100-sxm-80g", "load": "single"} | asked), adviser)


@cache
def recorded(adviser: str) -> dict[str, str]:
    """The adviser's own configuration as its record is written: option id to value, a range's upper end."""
    record = yaml.safe_load((KNOWLEDGE / "advisers" / f"{adviser}.yaml").read_text("utf-8"))
    return {
        each["option"]: each.get("up_to") or each["value"] for each in record["settings"] if each.get("final", True)
    }


def flags(folder: str = "flags") -> dict[str, dict[str, Any]]:
    """The records of options as written."""
    return {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (KNOWLEDGE / folder).glob("*.yaml")}


FLAGS = flags()


def as_words(adviser: str) -> dict[str, str]:
    """The recorded flags as a command line holds them: a switch that is off is left out."""
    wanted = {}
    for option, value in recorded(adviser).items():
        if option not in FLAGS:
            continue
        switch = FLAGS[option]["eras"][-1]["type"] == "bool"
        if not switch or value == "true":
            wanted[FLAGS[option]["option"]] = "" if switch else value
    return wanted


def options_of(words: list[str]) -> dict[str, str]:
    """Option and value of each option on a command line."""
    found: dict[str, str] = {}
    for word in words[4:]:
        if word.startswith("--"):
            found[word] = ""
        else:
            found[list(found)[-1]] = word
    return found


@pytest.mark.parametrize("adviser", ADVISERS)
def test_the_script_carries_exactly_what_was_advised(adviser: str, machine: Machine) -> None:
    """Run on 0.18.0, the script launches the recorded flags with the recorded values, and none besides."""
    words = machine.words(render(follow(adviser), "bash"))
    assert words[:3] == ["lmdeploy", "serve", "api_server"]
    found = options_of(words)
    found.pop("--revision", None)
    assert found == as_words(adviser)
    environment = machine.calls()[0].environment
    for option, value in recorded(adviser).items():
        if option in flags("environment"):
            assert environment[flags("environment")[option]["name"]] == value


# What the answers themselves say, read in the seed texts: a second witness beside the records.
SAID = {
    "chatgpt": {
        "--session-len": "256",
        "--quant-policy": "8",
        "--max-batch-size": "4",
        "--cache-max-entry-count": "0.05",
    },
    "gemini": {
        "--session-len": "4096",
        "--quant-policy": "4",
        "--max-batch-size": "16",
        "--cache-max-entry-count": "0.1",
    },
    "claude": {
        "--session-len": "4096",
        "--quant-policy": "4",
        "--max-batch-size": "8",
        "--cache-max-entry-count": "0.5",
    },
    "kimi": {
        "--session-len": "4096",
        "--quant-policy": "4",
        "--max-batch-size": "1",
        "--cache-max-entry-count": "0.05",
    },
    "grok": {"--session-len": "2048", "--quant-policy": "4", "--max-batch-size": "1", "--cache-max-entry-count": "0.1"},
    "baseline": {
        "--session-len": "16384",
        "--quant-policy": "0",
        "--max-batch-size": "32",
        "--cache-block-seq-len": "8192",
    },
    "guide": {
        "--session-len": "512",
        "--quant-policy": "4",
        "--max-batch-size": "32",
        "--max-prefill-token-num": "128",
    },
    "hybrid": {
        "--session-len": "4096",
        "--quant-policy": "4",
        "--max-batch-size": "4",
        "--cache-max-entry-count": "0.1",
    },
}


@pytest.mark.parametrize("adviser", ADVISERS)
def test_the_values_are_those_of_the_answers(adviser: str) -> None:
    """The command has the values that stand in the adviser's own text."""
    command = json.loads(render(follow(adviser), "json"))["command"]
    assert options_of(command).items() >= SAID[adviser].items()


@pytest.mark.parametrize("release", ["0.8.0", "0.9.2", "0.12.3", "0.15.0", "0.18.0"])
@pytest.mark.parametrize("adviser", ADVISERS)
def test_each_release_gets_what_was_advised(adviser: str, release: str) -> None:
    """The release parses what it knows of the advised command; what it does not know is a finding that rejects."""
    made = follow(adviser, lmdeploy=release)
    known = {name for each in release_facts(release).options for name in each.options}
    found = options_of(json.loads(render(made, "json"))["command"])
    wanted = as_words(adviser)
    assert {name: value for name, value in found.items() if name in known} == {
        name: value for name, value in wanted.items() if name in known
    }
    rejected = " ".join(each.message for each in made.findings if each.severity == "reject")
    for name in wanted.keys() - known:
        assert name in rejected
    words = [word for name, value in found.items() if name in known for word in ([name, value] if value else [name])]
    parser(release).parse_args(["model", *words])


def against(made: Recommendation) -> str:
    """All that the findings say, in lower case."""
    return "\n".join(f"{each.severity} {each.constraint}: {each.message}" for each in made.findings).lower()


def says(made: Recommendation, *parts: str) -> bool:
    """Whether one finding holds all these parts."""
    return any(all(part.lower() in line for part in parts) for line in against(made).splitlines())


# What LMDeploy's sources say against each adviser, at the least.
AGAINST: dict[str, list[tuple[str, ...]]] = {
    "chatgpt": [
        ("reject", "330 tokens", "256", "400"),
        ("--eager-mode", "nothing"),
        ("--num-tokens-per-iter", "nothing"),
        ("--vision-max-batch-size", "nothing"),
        ("cache-max-entry-count", "0", "refuted"),
        ("reject", "code", "0.13.0"),
        ("chat template", "outdated"),
    ],
    "gemini": [
        ("1,400", "refuted"),
        ("--vision-max-batch-size", "nothing"),
        ("--eager-mode", "no-effect"),
        ("reject", "code", "0.13.0"),
    ],
    "claude": [
        ("--eager-mode", "nothing"),
        ("--num-tokens-per-iter", "nothing"),
        ("--max-prefill-iters", "nothing"),
        ("half", "refuted"),
        ("reject", "code", "0.13.0"),
    ],
    "kimi": [
        ("3,000", "refuted"),
        ("200 mb", "refuted"),
        ("sixteen", "refuted"),
        ("share of the memory", "refuted"),
        ("--vision-max-batch-size", "nothing"),
        ("reject", "code", "0.13.0"),
    ],
    "grok": [
        ("--eager-mode", "nothing"),
        ("8-bit", "refuted"),
        ("--vision-max-batch-size", "nothing"),
        ("reject", "10 tokens", "16"),
        ("reject", "code", "0.13.0"),
    ],
    "baseline": [
        ("--eager-mode", "nothing"),
        ("--vision-max-batch-size", "nothing"),
        ("reject", "code", "0.13.0"),
    ],
    "guide": [
        ("prefill", "refuted"),
        ("half", "refuted"),
        ("cuda graphs", "refuted"),
        ("64", "refuted"),
        ("serve", "refuted"),
        ("reject", "code", "0.13.0"),
    ],
    "hybrid": [("--vision-max-batch-size", "nothing"), ("8-bit", "refuted"), ("reject", "code", "0.13.0")],
}


@pytest.mark.parametrize(("adviser", "parts"), [(name, parts) for name, all_ in AGAINST.items() for parts in all_])
def test_the_findings_name_what_is_wrong(adviser: str, parts: tuple[str, ...]) -> None:
    """On 0.18.0 and one 448x448 image each known fault of an adviser is among the findings."""
    assert says(follow(adviser), *parts), against(follow(adviser))


@pytest.mark.parametrize(
    ("adviser", "refused"),
    [
        ("chatgpt", True),
        ("grok", True),
        ("guide", True),
        ("gemini", False),
        ("claude", False),
        ("kimi", False),
        ("baseline", False),
        ("hybrid", False),
    ],
)
def test_a_large_image_is_refused_by_short_sessions(adviser: str, refused: bool) -> None:
    """1280x720 is nine tiles, 2,304 tokens and the prompt: sessions of 256, 512 and 2048 refuse it."""
    made = follow(adviser, images=1, image_width=1280, image_height=720)
    assert says(made, "reject", "session_len", "400") is refused


@pytest.mark.parametrize("adviser", sorted(set(ADVISERS) - {"chatgpt"}))
def test_the_reference_image_is_refused_by_chatgpts_session_only(adviser: str) -> None:
    """One 448x448 image is 256 tokens: every session but ChatGPT's holds it with the prompt."""
    assert not says(follow(adviser), "reject", "session_len", "400")


@pytest.mark.parametrize("release", ["0.9.2", "0.12.3"])
@pytest.mark.parametrize("adviser", ADVISERS)
def test_older_releases_run_the_models_code_unasked(adviser: str, release: str) -> None:
    """Before 0.13.0 nothing is said of a missing --trust-remote-code."""
    assert not says(follow(adviser, lmdeploy=release), "reject", "0.13.0")


def test_an_image_option_was_read_while_it_was() -> None:
    """--vision-max-batch-size did something within a request up to 0.15.0: no word of nothing there."""
    assert not says(follow("claude", lmdeploy="0.12.3"), "warn", "--vision-max-batch-size does nothing")
    assert says(follow("claude", lmdeploy="0.16.0"), "warn", "--vision-max-batch-size does nothing")


def test_a_type_was_forced_until_it_was_honoured() -> None:
    """--dtype float16 on an AWQ model is idle up to 0.17.0 and honoured from 0.18.0 on."""
    idle = {
        release: says(follow("chatgpt", lmdeploy=release), "--dtype float16", "no-effect")
        for release in ("0.9.2", "0.12.3", "0.17.0", "0.18.0")
    }
    assert idle == {"0.9.2": True, "0.12.3": True, "0.17.0": True, "0.18.0": False}


def test_an_iteration_budget_was_read_for_a_while() -> None:
    """--num-tokens-per-iter is dropped up to 0.9.2, live in 0.10 and 0.11, dead again from 0.12.0."""
    dead = {
        release: says(follow("chatgpt", lmdeploy=release), "--num-tokens-per-iter does nothing")
        for release in ("0.9.2", "0.10.0", "0.11.1", "0.12.0", "0.18.0")
    }
    assert dead == {"0.9.2": True, "0.10.0": False, "0.11.1": False, "0.12.0": True, "0.18.0": True}


@pytest.mark.parametrize("form", ["bash", "python", "client", "json", "report"])
@pytest.mark.parametrize("adviser", ADVISERS)
def test_every_form_names_the_adviser_or_its_values(adviser: str, form: str) -> None:
    """Each artefact of an adviser is written, says whose it is, and is the same twice."""
    made = follow(adviser)
    text = render(made, form)
    assert text == render(made, form)
    assert adviser in text
    if form == "python":
        compile(text, "pipeline.py", "exec")


@pytest.mark.parametrize(
    ("adviser", "low", "high"),
    [("chatgpt", 12175, 12175), ("claude", 45007, 45007), ("kimi", 12431, 12431), ("grok", 15823, 15823)],
)
def test_the_predicted_memory_is_near_what_such_a_server_took(adviser: str, low: int, high: int) -> None:
    """On an H100 the advised configurations took so many MiB; the prediction is within 10 % of it."""
    mib = follow(adviser).memory.total / 2**20
    assert low * 0.9 <= mib <= high * 1.1


def test_an_unknown_adviser_gets_near_matches() -> None:
    """A misspelt adviser is refused with the names meant."""
    with pytest.raises(UnknownName, match="gemini"):
        recommend_adviser(Request(gpu="l4"), "gemni")


def test_an_adviser_is_found_by_name() -> None:
    """Advisers answer to their display name in any case."""
    assert follow("ChatGPT").adviser == follow("chatgpt").adviser == "chatgpt"


def test_an_adviser_fits_nothing_and_is_written_all_the_same() -> None:
    """On a card too small an adviser's script is still written, with the memory as a finding that rejects."""
    try:
        made = follow("claude", gpu="t4", model="internvl3-38b")
    except RequestError as error:  # pragma: no cover - said plainly is also right
        pytest.fail(str(error))
    assert any(each.severity == "reject" for each in made.findings)
