"""Advisers beside ours: the figures of the pipeline, what advisers gave, and a readable page."""

import json
from typing import Any

import pytest
from artefacts import RELEASES, parser, recommend_here
from click.testing import CliRunner

from recommender.choose import recommend
from recommender.commands.compare import command
from recommender.knowledge.load import load
from recommender.lookup import comparison as beside_module
from recommender.lookup.comparison import compare
from recommender.lookup.comparison_text import lines
from recommender.render import json_output
from recommender.request.request import Request

STORE = load()
ASKED = [
    {"gpu": "A100-80G", "load": "single"},
    {"gpu": "l4", "concurrency": 16, "images": 1, "image_width": 1280, "image_height": 720},
    {"gpu": "h100-sxm-80g", "lmdeploy": "0.9.2", "load": "medium"},
    {"gpu": "a100-sxm-80g", "gpu_count": 2, "model": "internvl3-38b-awq", "lmdeploy": "0.12.3"},
    {"gpu": "h200-sxm", "concurrency": 200, "images": 2, "image_width": 4000, "image_height": 3000},
    {"gpu": "t4", "model": "internvl3-2b-awq", "lmdeploy": "0.9.2"},
]


def told(*words: str) -> Any:
    return json.loads(CliRunner().invoke(command, [*words, "--json"]).stdout)


@pytest.mark.parametrize("asked", ASKED)
def test_the_figures_are_those_of_the_pipeline(asked: dict[str, Any]) -> None:
    """Memory, speed and findings of each are those of --follow, and ours those of the main job."""
    request = Request(**asked)
    found = compare(request, STORE)
    assert found.ours is not None
    ours = recommend.recommend(request, STORE)
    assert (found.ours.memory.total, found.ours.speed) == (ours.memory.total, ours.speed)
    assert [each.adviser for each in found.advised] == list(STORE.advisers)
    for each in found.advised:
        alone = recommend.recommend_adviser(request, each.adviser, store=STORE)
        assert (each.memory.total, each.speed.rps) == (alone.memory.total, alone.speed.rps)
        assert each.findings == alone.findings


@pytest.mark.parametrize("asked", ASKED)
def test_each_setting_has_what_each_adviser_gave(asked: dict[str, Any]) -> None:
    """Given values are those of the records, the rest is marked as left; no option that anybody gives is missing."""
    found = compare(Request(**asked), STORE)
    settings = {each.option: each for each in found.settings}
    for adviser in STORE.advisers.values():
        given = {each.option: each for each in adviser.settings if each.final}
        assert given.keys() <= settings.keys()
        for option, setting in settings.items():
            (value,) = [each for each in setting.given if each.adviser == adviser.id]
            assert value.left == (option not in given)
            if option in given:
                assert (value.value, value.up_to) == (given[option].value, given[option].up_to)
    for each in found.ours.explanations:
        if each.emitted:
            assert settings[each.option].ours.value == each.value
            assert settings[each.option].ours.reason == each.reason


@pytest.mark.parametrize("release", RELEASES[::4])
def test_what_does_not_start_is_said(release: str) -> None:
    """What of an adviser's options the release's own parser refuses is told, and the settings are marked gone."""
    found = compare(Request(gpu="A100-80G", lmdeploy=release), STORE)
    settings = {each.name: each for each in found.settings}
    for each in found.advised:
        known = {name for action in parser(release)._actions for name in action.option_strings}
        refused = [word for word in json_output.command(each) if word.startswith("--") and word not in known]
        assert list(beside_module.unknown_options(each)) == refused
        assert not refused or beside_module.rejections(each)
        for name in refused:
            assert settings[name].state == "gone"


def test_the_verdicts_bear_on_the_option_and_the_release() -> None:
    """Claims about the option whose releases hold, with the advisers who made them."""
    for release in ("0.9.2", "0.18.0"):
        for each in compare(Request(gpu="A100-80G", lmdeploy=release), STORE).settings:
            for verdict in each.verdicts:
                claim = STORE.claims[verdict.claim]
                assert each.option in claim.options
                assert verdict.advisers == claim.advisers
                assert (verdict.verdict, verdict.because) == (claim.verdict, claim.because)


def test_a_value_left_open_is_what_lmdeploy_takes() -> None:
    """The batch by the card, the session by the model; a request's own fields have none."""
    settings = {each.option: each for each in compare(Request(gpu="h100-sxm-80g"), STORE).settings}
    guide = {name: each for name in settings for each in settings[name].given if each.adviser == "guide"}
    hybrid = {name: each for name in settings for each in settings[name].given if each.adviser == "hybrid"}
    assert (hybrid["max-prefill-token-num"].value, hybrid["max-prefill-token-num"].left) == ("8192", True)
    assert (guide["max-tokens"].value, guide["temperature"].value) == ("", "")


@pytest.mark.parametrize("asked", ASKED)
def test_the_page_is_80_columns_wide(asked: dict[str, Any]) -> None:
    """No line is wider, and each adviser has its row."""
    page = list(lines(compare(Request(**asked), STORE)))
    assert not [line for line in page if len(line) > 80 and len(line.split()) > 1]
    for name in ("ours", *STORE.advisers):
        assert [line for line in page if line.startswith(f"  {name} ")]


def test_nothing_that_fits_leaves_the_advisers() -> None:
    """Status 1, the page without ours on stdout, and why on stderr; the JSON says null."""
    words = ("compare", "--gpu", "T4", "--model", "internvl3-38b")
    done = recommend_here(*words)
    assert done.returncode == 1
    assert b"  gemini " in done.stdout
    assert b"  ours " not in done.stdout
    assert b"nothing fits" in done.stderr
    read = json.loads(recommend_here(*words, "--json").stdout)
    assert read["ours"] is None
    assert read["nothing_fits"]


def test_the_json_is_complete() -> None:
    """Request, outcome of each with config, memory, speed and findings, and the settings with their verdicts."""
    read = told("--gpu", "A100-80G", "--load", "single")
    assert read["format"] == 1
    assert [each["adviser"] for each in read["advisers"]] == list(STORE.advisers)
    for each in (read["ours"], *read["advisers"]):
        assert each["memory"]["low_bytes"] <= each["memory"]["total_bytes"] <= each["memory"]["high_bytes"]
        assert each["fits"] == (not [one for one in each["findings"] if one["severity"] == "reject"])
    (session,) = [each for each in read["settings"] if each["option"] == "session-len"]
    assert {each["adviser"]: each["value"] for each in session["given"]}["chatgpt"] == "256"
    assert session["verdicts"]
    assert session["ours"]["reason"]


def test_a_question_is_needed() -> None:
    """Without a GPU: status 2, one line."""
    done = recommend_here("compare")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
