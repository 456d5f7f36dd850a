"""Test advisers' configurations: values reach the command line unchanged, with findings."""

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import yaml
from artefacts import KNOWLEDGE, Machine, parser, release_facts

from recommender.choose.recommend import Recommendation, recommend_adviser
from recommender.common.errors import UnknownName
from recommender.render.formats import render
from recommender.request.request import Request

ADVISERS = ("chatgpt", "gemini", "claude", "kimi", "grok", "baseline", "guide", "hybrid")


@cache
def follow(adviser: str, **asked: Any) -> Recommendation:
    return recommend_adviser(Request(**{"gpu": "h100-sxm-80g", "load": "single"} | asked), adviser)


@cache
def recorded(adviser: str) -> dict[str, str]:
    """Return an adviser's final settings as its record has them; of a range, the upper end."""
    record = yaml.safe_load((KNOWLEDGE / "advisers" / f"{adviser}.yaml").read_text("utf-8"))
    final = [setting for setting in record["settings"] if setting.get("final", True)]
    return {setting["option"]: setting.get("up_to") or setting["value"] for setting in final}


def flags(folder: str = "flags") -> dict[str, dict[str, Any]]:
    return {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (KNOWLEDGE / folder).glob("*.yaml")}


FLAGS = flags()


def as_words(adviser: str) -> dict[str, str]:
    """Return the recorded flags as a command line has them, without switches that are off."""
    wanted = {}
    for option, value in recorded(adviser).items():
        if option not in FLAGS:
            continue
        switch = FLAGS[option]["eras"][-1]["type"] == "bool"
        if not switch or value == "true":
            wanted[FLAGS[option]["option"]] = "" if switch else value
    return wanted


def options_of(words: list[str]) -> dict[str, str]:
    """Return option and value of each option on a command line."""
    options: dict[str, str] = {}
    for before, word in pairwise(["", *words]):
        if word.startswith("--"):
            options[word] = ""
        elif before in options:
            options[before] = word
    return options


@pytest.mark.parametrize("adviser", ADVISERS)
def test_the_script_carries_exactly_what_was_advised(adviser: str, machine: Machine) -> None:
    """On 0.18.0 the script launches the recorded flags and values, and no others."""
    words = machine.words(render(follow(adviser), "bash"))
    assert words[:3] == ["lmdeploy", "serve", "api_server"]
    launched = options_of(words)
    launched.pop("--revision", None)
    assert launched == as_words(adviser)
    environment = machine.calls()[0].environment
    for option, value in recorded(adviser).items():
        if option in flags("environment"):
            assert environment[flags("environment")[option]["name"]] == value


@pytest.mark.parametrize(("adviser", "fixed"), [("kimi", False), ("chatgpt", True)])
def test_an_address_that_the_server_does_not_get_changes_no_warning(
    adviser: str, fixed: bool, machine: Machine
) -> None:
    """Without --server-name LMDeploy listens everywhere, whatever SERVER_NAME is."""
    done = machine.run(render(follow(adviser), "bash"), SERVER_NAME="127.0.0.1")
    (call,) = machine.calls()
    assert done.returncode == 0
    assert ("--server-name" in call.words) != fixed
    assert ("without API keys" in done.stderr) == fixed


# What the answers themselves say, read in the seed texts: a second witness beside the records.
SAID = {
    "chatgpt": "--session-len 256 --quant-policy 8 --max-batch-size 4 --cache-max-entry-count 0.05",
    "gemini": "--session-len 4096 --quant-policy 4 --max-batch-size 16 --cache-max-entry-count 0.1",
    "claude": "--session-len 4096 --quant-policy 4 --max-batch-size 8 --cache-max-entry-count 0.5",
    "kimi": "--session-len 4096 --quant-policy 4 --max-batch-size 1 --cache-max-entry-count 0.05",
    "grok": "--session-len 2048 --quant-policy 4 --max-batch-size 1 --cache-max-entry-count 0.1",
    "baseline": "--session-len 16384 --quant-policy 0 --max-batch-size 32 --cache-block-seq-len 8192",
    "guide": "--session-len 512 --quant-policy 4 --max-batch-size 32 --max-prefill-token-num 128",
    "hybrid": "--session-len 4096 --quant-policy 4 --max-batch-size 4 --cache-max-entry-count 0.1",
}


@pytest.mark.parametrize("adviser", ADVISERS)
def test_the_values_are_those_of_the_answers(adviser: str) -> None:
    """The command has the values of the adviser's own text."""
    command = json.loads(render(follow(adviser), "json"))["command"]
    assert options_of(command).items() >= options_of(SAID[adviser].split()).items()


@pytest.mark.parametrize("release", ["0.8.0", "0.9.2", "0.12.3", "0.15.0", "0.18.0"])
@pytest.mark.parametrize("adviser", ADVISERS)
def test_each_release_gets_what_was_advised(adviser: str, release: str) -> None:
    """A release parses the flags it knows; the others are findings that reject."""
    recommendation = follow(adviser, lmdeploy=release)
    known = {name for option in release_facts(release).options for name in option.options}
    command = options_of(json.loads(render(recommendation, "json"))["command"])
    parsed, advised = ({name: words[name] for name in words.keys() & known} for words in (command, as_words(adviser)))
    assert parsed == advised
    rejected = " ".join(finding.message for finding in recommendation.findings if finding.severity == "reject")
    assert all(name in rejected for name in as_words(adviser).keys() - known)
    parser(release).parse_args(["model", *(word for pair in parsed.items() for word in pair if word)])


def against(recommendation: Recommendation) -> list[str]:
    return [f"{each.severity} {each.constraint}: {each.message}".lower() for each in recommendation.findings]


def says(recommendation: Recommendation, *parts: str) -> bool:
    return any(all(part.lower() in line for part in parts) for line in against(recommendation))


# What LMDeploy's sources say against each adviser, at the least.
AGAINST: dict[str, list[tuple[str, ...]]] = {
    "chatgpt": [
        ("reject", "330 input tokens", "256", "400"),
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
        ("prefill", "refuted"), ("half", "refuted"), ("cuda graphs", "refuted"), ("64", "refuted"),
        ("serve", "refuted"), ("reject", "code", "0.13.0"),
    ],
    "hybrid": [("--vision-max-batch-size", "nothing"), ("8-bit", "refuted"), ("reject", "code", "0.13.0")],
}  # fmt: skip


@pytest.mark.parametrize(("adviser", "parts"), [(name, parts) for name, all_ in AGAINST.items() for parts in all_])
def test_the_findings_name_what_is_wrong(adviser: str, parts: tuple[str, ...]) -> None:
    """Each known fault of an adviser is among the findings (0.18.0, one 448x448 image)."""
    assert says(follow(adviser), *parts), against(follow(adviser))


@pytest.mark.parametrize("adviser", ADVISERS)
def test_a_large_image_is_refused_by_short_sessions(adviser: str) -> None:
    """1280x720 is nine tiles, 2,304 tokens: sessions of 256, 512 and 2048 refuse it."""
    refused = says(follow(adviser, images=1, image_width=1280, image_height=720), "reject", "session_len", "400")
    assert refused is (adviser in {"chatgpt", "grok", "guide"})


@pytest.mark.parametrize("adviser", sorted(set(ADVISERS) - {"chatgpt"}))
def test_the_reference_image_is_refused_by_chatgpts_session_only(adviser: str) -> None:
    """One 448x448 image is 256 tokens: every session but ChatGPT's holds it."""
    assert not says(follow(adviser), "reject", "session_len", "400")


@pytest.mark.parametrize("release", ["0.9.2", "0.12.3"])
@pytest.mark.parametrize("adviser", ADVISERS)
def test_older_releases_run_the_models_code_unasked(adviser: str, release: str) -> None:
    """Before 0.13.0 no finding mentions a missing --trust-remote-code."""
    assert not says(follow(adviser, lmdeploy=release), "reject", "0.13.0")


def test_an_image_option_was_read_while_it_was() -> None:
    """--vision-max-batch-size had an effect up to 0.15.0; no finding says otherwise."""
    assert not says(follow("claude", lmdeploy="0.12.3"), "warn", "--vision-max-batch-size does nothing")
    assert says(follow("claude", lmdeploy="0.16.0"), "warn", "--vision-max-batch-size does nothing")


@pytest.mark.parametrize(
    ("parts", "idle"),
    [
        (("--dtype float16", "no-effect"), {"0.9.2": True, "0.12.3": True, "0.17.0": True, "0.18.0": False}),
        (
            ("--num-tokens-per-iter does nothing",),
            {"0.9.2": True, "0.10.0": False, "0.11.1": False, "0.12.0": True, "0.18.0": True},
        ),
    ],
)
def test_an_option_is_idle_in_the_releases_that_do_not_heed_it(parts: tuple[str, ...], idle: dict[str, bool]) -> None:
    """A type on an AWQ model before 0.18.0, an iteration budget but in 0.10 and 0.11."""
    assert {release: says(follow("chatgpt", lmdeploy=release), *parts) for release in idle} == idle


@pytest.mark.parametrize("form", ["bash", "python", "client", "json", "report"])
@pytest.mark.parametrize("adviser", ADVISERS)
def test_every_form_names_the_adviser_or_its_values(adviser: str, form: str) -> None:
    """Each format is written, names the adviser, and is reproducible."""
    text = render(follow(adviser), form)
    assert text == render(follow(adviser), form)
    assert adviser in text
    if form == "python":
        compile(text, "pipeline.py", "exec")


@pytest.mark.parametrize(("adviser", "mib"), [("chatgpt", 12175), ("claude", 45007), ("kimi", 12431), ("grok", 15823)])
def test_the_predicted_memory_is_near_what_such_a_server_took(adviser: str, mib: int) -> None:
    """Predicted memory is within 10 % of what these configurations took on an H100."""
    assert follow(adviser).memory.total / 2**20 == pytest.approx(mib, rel=0.1)


def test_an_unknown_adviser_gets_near_matches() -> None:
    """A misspelt adviser is refused with near matches."""
    with pytest.raises(UnknownName, match="gemini"):
        recommend_adviser(Request(gpu="l4"), "gemni")


def test_an_adviser_is_found_by_name() -> None:
    """Display names work in any case."""
    assert follow("ChatGPT").adviser == follow("chatgpt").adviser == "chatgpt"


def test_an_adviser_fits_nothing_and_is_written_all_the_same() -> None:
    """On a GPU too small the script is still written; memory is a finding that rejects."""
    recommendation = follow("claude", gpu="t4", model="internvl3-38b")
    assert any(finding.severity == "reject" for finding in recommendation.findings)
