"""A rate of arrivals, at configurations that were given: estimates, advisers, scripts under review."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from recommender import Request, compare, estimate, recommend, review
from recommender.choose.arriving import arrive_at
from recommender.choose.select import predict
from recommender.commands import compare as compare_command
from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.load import load
from recommender.knowledge.run_figures import figures
from recommender.request.resolved_request import resolve_request

STORE = load()
EVIDENCE = Path(__file__).parent.parent / "knowledge" / "evidence"
CHAT = Request(gpu="h200-sxm", model="qwen2.5-7b-instruct-awq", workload="chat", rps=12)
IMAGES = Request(gpu="h200-sxm", model="internvl3-2b", images=1, image_width=1280, image_height=720)
SMALL_PASSES = {"--max-prefill-token-num": "512", "--max-batch-size": "64", "OMP_NUM_THREADS": "4"}
SCRIPT = "{omp}lmdeploy serve api_server OpenGVLab/InternVL3-2B --trust-remote-code --max-batch-size 64 {more}\n"
SMALL = "--max-prefill-token-num 512"


@pytest.mark.parametrize("request_", [CHAT, replace(IMAGES, rps=9)])
def test_our_own_pick_has_the_same_figures_as_a_given_configuration(request_: Request) -> None:
    """Both ways to a prediction lead to one."""
    ours = recommend(request_)
    given = predict(arrive_at(resolve_request(request_, STORE), ours.config), ours.config)
    assert given.speed.latency_ms.value == pytest.approx(ours.speed.latency_ms.value, rel=0.02)
    assert given.speed.ttft_ms.value == pytest.approx(ours.speed.ttft_ms.value, rel=0.02)


@pytest.mark.parametrize("rps", [0.5, 4, 12])
def test_so_many_are_in_flight_as_littles_law_says(rps: float) -> None:
    """More than the mean, for chance, and never more than there are places."""
    found = estimate(replace(CHAT, rps=rps), {"--max-batch-size": "256"})
    mean = rps * found.speed.latency_ms.value / 1e3
    assert mean < found.resolved.concurrency <= min(256, math.ceil(mean + 3.2 * math.sqrt(mean)) + 1)


def test_a_load_that_is_told_beside_the_rate_stays() -> None:
    """The rate is a goal of that load then."""
    request = replace(CHAT, concurrency=16)
    assert estimate(request).resolved.concurrency == 16
    assert estimate(request).resolved.rps == 0


def test_requests_that_cannot_be_served_are_no_more_than_were_measured() -> None:
    """Passes of 512 tokens cut an image's prompt in five, and each encodes it again: 8 requests/s, not the 12 asked."""
    run = read_record(EVIDENCE / "h200-budgets-2026-11-27-internvl3-2b-512.yaml", records.SmokeRun)
    (most,) = (figures(each).rps for each in run.phases if each.concurrency == 64 and "1280" in each.image)
    found = estimate(replace(IMAGES, rps=12), SMALL_PASSES)
    assert found.speed.rps.value == pytest.approx(most, rel=0.25)
    assert "goal-rps" in {each.constraint for each in found.findings}
    whole = estimate(replace(IMAGES, rps=12), SMALL_PASSES | {"--max-prefill-token-num": "4096"})
    assert whole.speed.rps.value == pytest.approx(12, rel=0.01)


@pytest.mark.parametrize(
    ("lmdeploy", "backend", "whole"), [("0.15.0", "turbomind", "4096"), ("0.18.0", "pytorch", "2304")]
)
def test_who_encodes_once_loses_nothing_of_it_by_small_passes(lmdeploy: str, backend: str, whole: str) -> None:
    """Before 0.16.0 the server's process encoded, and preparing is the limit. The PyTorch engine cuts no image."""
    asked = replace(IMAGES, concurrency=64, lmdeploy=lmdeploy)
    given = ({**SMALL_PASSES, "--backend": backend, "--max-prefill-token-num": tokens} for tokens in ("512", whole))
    small, large = (estimate(asked, each).speed.rps.value for each in given)
    assert small == pytest.approx(large, rel=0.05)


def test_advisers_are_compared_at_the_rate() -> None:
    """None serves more than comes, and a large batch is no miss of the rate."""
    found = compare(CHAT)
    for each in found.advised:
        assert each.speed.rps.value < 12 * 1.001
        assert each.resolved.rps == 12
    baseline = next(each for each in found.advised if each.adviser == "baseline")
    assert baseline.speed.rps.value == pytest.approx(12, rel=0.01)  # its batch of 256 holds what is in flight
    assert not [each for each in baseline.findings if each.severity == "reject"]
    words = ["--gpu", "H200", "--model", "qwen2.5-7b-instruct-awq", "--workload", "chat", "--rps", "12"]
    told = " ".join(CliRunner().invoke(compare_command.command, words).stdout.split())
    assert "12 requests/s arriving" in told
    assert "concurrency" not in told.partition("PREDICTION")[0]


def codes(rps: str, omp: str = "OMP_NUM_THREADS=4 ", more: str = SMALL) -> dict[str, str]:
    """Severities by rule, of the script with these words."""
    found = review(SCRIPT.format(omp=omp, more=more), gpu="h200-sxm", rps=rps, image="1280x720")
    return {each.rule.id: each.severity for each in found.findings}


def test_a_script_is_judged_at_the_rate() -> None:
    """8 requests/s were measured with 64 in flight: 4 are served, 12 are not."""
    assert "LMD214" in codes("12")
    assert "LMD214" not in codes("4")


def test_several_are_in_flight_at_a_rate() -> None:
    """One admitted request is too few, and threads for all cores slow the preparation."""
    assert "LMD209" in codes("4", more="--max-concurrent-requests 1")
    assert "LMD209" not in codes("4", more="--max-concurrent-requests 64")
    assert codes("4", omp="")["LMD401"] == "warning"
