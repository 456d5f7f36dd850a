"""A rate of arrivals, at configurations that were given: estimates, advisers, scripts under review."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from recommender import NothingFits, Request, compare, estimate, recommend, review
from recommender.choose import rate
from recommender.choose.arrival_rate import arrive_at
from recommender.choose.select import Choice, predict
from recommender.commands import compare as compare_command
from recommender.estimate.speed import estimate as predict_speed
from recommender.estimate.uncertainty import Range
from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.load import load
from recommender.knowledge.run_figures import figures
from recommender.request.resolved_request import resolve_request
from recommender.request.trace_load import learn_load

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


PYTORCH_ONLY = Request(gpu="h100-sxm-80g", model="qwen3-vl-8b-instruct", images=1, image_width=448, image_height=448)


def test_more_load_takes_no_smaller_batch() -> None:
    """Where batches of one and two are equally fast, the search goes on: what is picked serves what comes."""
    batches = []
    for rps in (5, 6, 7):
        found = recommend(replace(PYTORCH_ONLY, rps=rps))
        assert found.speed.rps.value == pytest.approx(rps, rel=0.01)
        batches.append(found.config.max_batch_size)
    assert batches == sorted(batches)


@pytest.mark.parametrize("more", [1.1, 1.5])
def test_headroom_is_a_higher_rate(more: float) -> None:
    """Planned for half as much again, what fits and what does not is that of the higher rate."""
    request = Request(gpu="l4", model="qwen2.5-7b-instruct", workload="chat", rps=1.2)
    planned, higher = recommend(replace(request, headroom=more)), recommend(replace(request, rps=1.2 * more))
    assert planned.config == higher.config
    assert planned.speed.rps.value == pytest.approx(higher.speed.rps.value)
    with pytest.raises(NothingFits):
        recommend(replace(request, rps=2.2, headroom=1.5))
    with pytest.raises(NothingFits):
        recommend(replace(request, rps=3.3))


def test_headroom_raises_the_rate_that_is_a_goal() -> None:
    """With a load given, too: ten requests a second and half as many more are fifteen."""
    asked = Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct", workload="chat", concurrency=32)
    most = estimate(asked).speed.rps.high
    over = estimate(replace(asked, rps=most * 0.9, headroom=1.5))
    constraints = {each.constraint for each in over.findings if each.severity == "reject"}
    assert "goal-rps" in constraints


@pytest.mark.parametrize(
    ("gpu", "model", "workload", "rps"),
    [
        ("a100-sxm-80g", "internvl3-8b-awq", "", 40.0),
        ("a100-sxm-80g", "llama-3.1-8b-instruct", "rag", 2.5),
        ("l40s", "internvl3-8b-awq", "caption", 19.8),
        ("h100-sxm-80g", "internvl3-8b-awq", "caption", 8.0),
    ],
)
def test_no_more_is_answered_than_full_servers_answer(gpu: str, model: str, workload: str, rps: float) -> None:
    """Where more arrive, clients that never pause tell the most; and the longest wait tells that it grows."""
    made = recommend(Request(gpu=gpu, model=model, workload=workload, rps=rps))
    full = replace(made.resolved, rps=0.0, concurrency=made.config.max_batch_size * made.config.servers)
    most = predict_speed(full, made.config, kv_tokens=made.memory.kv_tokens).rps.value
    assert most < rps
    assert made.speed.rps.value == pytest.approx(most, rel=1e-6)
    assert made.speed.profile.rps <= most * 1.000001
    assert {finding.constraint for finding in made.findings} & {"goal-rps", "rate-near-limit"}


def test_a_rate_near_the_limit_is_not_served_slower_than_a_higher_one() -> None:
    """A conversation of agents at 0.6/s waited 20 s for its first token, at 0.7/s 0.2 s: the cache took 16 bits."""
    asked = Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct", workload="agent")
    slow, fast = (recommend(replace(asked, rps=rps)).speed for rps in (0.6, 0.7))
    assert slow.ttft_ms.value <= fast.ttft_ms.value * 1.05


@pytest.mark.parametrize(
    ("bits", "latency", "most", "worth"),
    [
        (16, 940.0, 1.0, True),
        (16, 960.0, 1.0, False),  # a twentieth faster, at least
        (8, 940.0, 21.9, True),  # 16 bits serve less than a tenth more than the 20 that come
        (8, 940.0, 22.1, False),
        (4, 940.0, 19.9, True),
        (4, 940.0, 20.1, False),
    ],
)
def test_accuracy_is_given_up_for_a_rate_that_is_not_served(
    bits: int, latency: float, most: float, worth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of twice the size is worth its memory where it is faster; a smaller cache only near the limit."""

    def choice(bits: int, latency: float) -> Any:
        fast = SimpleNamespace(latency_ms=Range(latency, latency, latency))
        return Choice(SimpleNamespace(config=SimpleNamespace(kv_bits=bits), speed=fast), (), 1, ())  # type: ignore[arg-type]

    monkeypatch.setattr(rate, "most_served", lambda *_: Range(most, most, most))
    tried = replace(resolve_request(CHAT, STORE), rps=20.0)
    assert rate._is_worth((tried, choice(16, 1000.0)), tried, choice(bits, latency)) is worth


def test_eight_cards_serve_eight_times_what_one_serves() -> None:
    """Each is tried with as many at once as one alone."""
    asked = Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct", workload="chat")
    assert recommend(replace(asked, rps=20.0))
    assert recommend(replace(asked, rps=160.0, gpu_count=8)).speed.rps.value == pytest.approx(160)


def test_two_ways_to_ask_for_one_goal_have_one_answer() -> None:
    """--p99 and --latency p99: of the same figure, which the quantiles show, too."""
    asked = Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct", concurrency=2)
    made = recommend(asked)
    speed = made.speed
    assert speed.profile.latency.p99 == speed.p99_ms.value
    for most, fits in ((speed.p99_ms.high * 1.01, True), (speed.p99_ms.low * 0.99, False)):
        for goal in ({"p99_ms": most}, {"latency_ms": most, "latency_at": "p99"}):
            try:
                assert recommend(replace(asked, **goal)).request
                found = True
            except NothingFits:
                found = False
            assert found == fits, goal


def test_headroom_leaves_as_much_room_as_without() -> None:
    """Who asks for reserve gets no batch that fills up earlier."""
    asked = Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct", concurrency=8)
    batches = [recommend(replace(asked, headroom=more)).config.max_batch_size for more in (1.0, 1.2, 1.5, 2.0)]
    assert min(batches) == batches[0] == 16


@pytest.mark.parametrize("rps", [10, 20, 22, 25, 26.5, 27])
def test_the_answered_rate_is_in_its_range(rps: float) -> None:
    """Also near and above what a server can do, and the latency is inside of its range, not at the end."""
    request = Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct", workload="chat", rps=rps)
    for found in (estimate(request), estimate(request, {"--session-len": "8192"})):
        speed = found.speed
        assert speed.rps.low <= speed.rps.value <= speed.rps.high <= rps * 1.001
        assert speed.rps.value == pytest.approx(min(speed.profile.rps, rps), rel=0.01)
        for each in (speed.latency_ms, speed.token_ms):
            assert each.low < each.value < each.high


@pytest.mark.parametrize(("rps", "headroom", "gpus"), [(1 / 3, 1.0, 1), (4.4, 1.5, 1), (10.0, 1.0, 3), (3.1, 1.1, 1)])
def test_a_rate_that_is_served_misses_no_goal(rps: float, headroom: float, gpus: int) -> None:
    """However many digits it has: a third, 4.4 with half of it spare, ten over three servers."""
    request = Request(
        gpu="h100-sxm-80g", gpu_count=gpus, model="llama-3.1-8b-instruct", workload="chat", rps=rps, headroom=headroom
    )
    made = recommend(request)
    assert not made.findings
    assert made.speed.rps.value == request.planned_rps


def test_what_turbomind_does_not_serve_is_priced_on_the_engine_that_runs() -> None:
    """LMDeploy falls back to PyTorch: without options, as an adviser's and as an estimate it is one server."""
    asked = replace(PYTORCH_ONLY, concurrency=32)
    given = estimate(asked, {"--max-batch-size": "256"})
    pytorch = estimate(asked, {"--max-batch-size": "256", "--backend": "pytorch"})
    assert given.speed.rps.value == pytest.approx(pytorch.speed.rps.value)
    assert any(each.severity == "reject" for each in given.findings)  # it is said, too
    assert not any(each.severity == "reject" for each in pytorch.findings)


def test_goals_for_latency_and_tokens_are_reviewed() -> None:
    """As those for the first token and the slowest hundredth."""
    script = "lmdeploy serve api_server meta-llama/Llama-3.1-8B-Instruct --session-len 8192\n"
    for goal in ("latency", "tpot", "ttft", "p99"):
        for most, found in (("1ms", True), ("60s", False)):
            said = review(script, gpu="h100-sxm-80g", load="16", workload="chat", **{goal: most})
            assert ("LMD214" in {each.rule.id for each in said.findings}) == found, goal


def test_the_longest_requests_of_a_workload_are_reviewed() -> None:
    """Chat's take 4,177 + 601 tokens."""
    script = "lmdeploy serve api_server meta-llama/Llama-3.1-8B-Instruct --session-len {}\n"
    for length, found in ((2048, True), (6144, False)):
        said = review(script.format(length), gpu="h100-sxm-80g", load="16", workload="chat")
        assert ("LMD202" in {each.rule.id for each in said.findings}) == found


def test_a_cache_of_8_bits_is_judged_at_the_rate() -> None:
    """On an L4 16 bits are too few for retrieval at half a request a second: the answers take minutes."""
    script = (
        "lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend turbomind --session-len 8192"
        " --max-batch-size 64 --cache-max-entry-count 0.8 --quant-policy 8\n"
    )
    said = review(script, gpu="l4", workload="rag", rps="0.5")
    assert "LMD415" not in {each.rule.id for each in said.findings}


def test_a_steady_trace_is_no_poisson_process(tmp_path: Path) -> None:
    """Gaps of a quarter of a second: nobody waits. Ten at once say nothing of that: then arrivals are random."""
    for at, least, most in (
        ([250 * place for place in range(80)], 0.0, 0.05),
        ([5000 * (place // 10) for place in range(80)], 1.0, 1.0),
    ):
        path = tmp_path / "trace.jsonl"
        rows = [{"timestamp": when, "input_length": 500, "output_length": 30, "hash_ids": []} for when in at]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        learned, _ = learn_load(Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct"), path)
        assert least <= learned.burstiness <= most
