"""A configuration that the user gives: its words, its estimate, and what speaks against it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from artefacts import recommend_here
from click.testing import CliRunner

from recommender.choose import recommend
from recommender.cli import root
from recommender.commands import estimate
from recommender.common.errors import RequestError, UnknownName
from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.load import load
from recommender.knowledge.run_figures import figures
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request

STORE = load()
EVIDENCE = Path(__file__).parent.parent / "knowledge" / "evidence"


def resolved(**asked: Any) -> Any:
    return resolve_request(Request(**{"gpu": "a100-sxm-80g", **asked}), STORE)


def told(*words: str) -> Any:
    done = CliRunner().invoke(estimate.command, [*words[: words.index("--")], "--json", *words[words.index("--") :]])
    return json.loads(done.stdout), done.exit_code


def test_words_are_read_as_a_server_reads_them() -> None:
    """Both forms of a value, a switch, underscores, a variable, and what clients ask for."""
    given = "--session-len 4096 --quant_policy=8 --trust-remote-code --tp 2 OMP_NUM_THREADS=4 max_dynamic_patch=1"
    assert estimate.settings(resolved(), given.split()) == {
        "session-len": "4096", "quant-policy": "8", "trust-remote-code": "true", "tp": "2", "omp-num-threads": "4",
        "max-dynamic-patch": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["--sesion-len", "4"], UnknownName, "did you mean --session-len"),
        (["--session-len"], RequestError, "a value is needed"),
        (["--session-len", "--tp", "2"], RequestError, "--session-len: a value is needed"),
        (["4096"], RequestError, "NAME=VALUE"),
        (["OMP_THREADS=2"], UnknownName, "did you mean OMP_NUM_THREADS"),
    ],
)
def test_words_that_no_server_takes(words: list[str], error: type[Exception], said: str) -> None:
    """One line with what is meant, perhaps."""
    with pytest.raises(error, match=said) as raised:
        estimate.settings(resolved(), words)
    assert "\n" not in str(raised.value)


def test_an_option_of_another_release_is_unknown() -> None:
    """What an option is, is asked of the release."""
    assert estimate.settings(resolved(), ["--disable-fastapi-docs"])
    with pytest.raises(UnknownName, match=r"LMDeploy 0\.7\.0"):
        estimate.settings(resolved(lmdeploy="0.7.0"), ["--async", "1"])


@pytest.mark.parametrize(
    ("release", "words", "refused"),
    [
        ("0.16.0", "--nnodes 0", "--nnodes"),
        ("0.16.0", "--nnodes 0 --backend pytorch", ""),
        ("0.16.0", "--node-rank -1", "--node-rank"),
        ("0.10.0", "--nnodes 0", ""),
        ("0.16.0", "--backend pytorch --dllm-block-length 0", ""),
        ("0.16.0", "--backend pytorch --dllm-denoising-steps 0 --dllm-unmasking-strategy sequential", ""),
        ("0.16.0", "--backend pytorch --dllm-block-length four", "--dllm-block-length"),
        ("0.11.1", "--num-tokens-per-iter 4096 --max-prefill-iters 0", "--max-prefill-iters"),
        ("0.11.1", "--max-prefill-iters 0", ""),
        ("0.8.0", "--backend pytorch --dp-rank -1", ""),
    ],
)
def test_a_number_is_refused_where_something_uses_it(release: str, words: str, refused: str) -> None:
    """Qwen2.5 is no diffusion model, and one server has no ranks; what the parser cannot read is refused anyway."""
    asked = ["--gpu", "A100-80G", "--model", "qwen2.5-7b-instruct", "--lmdeploy", release, "--", *words.split()]
    done = CliRunner().invoke(root, ["estimate", *asked])
    assert f"{refused}: expected a whole number" in str(done.exception) if refused else done.exit_code == 0


def test_what_is_not_given_is_the_default() -> None:
    """The estimate of no words is that of LMDeploy's defaults."""
    made, _ = told("--gpu", "A100-80G", "--load", "16", "--")
    defaults = recommend.recommend_adviser(Request(gpu="A100-80G", concurrency=16), "defaults")
    assert made["memory"]["total_bytes"] == defaults.memory.total
    assert made["speed"]["rps"]["value"] == defaults.speed.rps.value


def test_an_estimate_follows_the_words() -> None:
    """Half the cache share is about half the cache; 8 bits hold about twice the tokens; fewer tiles, fewer tokens."""
    base, code = told("--gpu", "A100-80G", "--load", "4", "--", "--cache-max-entry-count", "0.4", "--trust-remote-code")
    half, _ = told("--gpu", "A100-80G", "--load", "4", "--", "--cache-max-entry-count", "0.2", "--trust-remote-code")
    eight, _ = told("--gpu", "A100-80G", "--load", "4", "--", "--cache-max-entry-count", "0.4", "--quant-policy", "8")
    assert code == 0
    assert half["memory"]["kv_tokens"] == pytest.approx(base["memory"]["kv_tokens"] / 2, rel=0.01)
    assert 1.8 < eight["memory"]["kv_tokens"] / base["memory"]["kv_tokens"] < 2
    wide = ("--gpu", "A100-80G", "--image", "1280x720", "--")
    assert told(*wide, "max_dynamic_patch=1")[0]["case"]["image_tokens"] == 256
    assert told(*wide)[0]["case"]["image_tokens"] == 9 * 256


def test_what_does_not_run_says_so() -> None:
    """A session shorter than the prompt: told in words and by the exit code; likewise two cards that are not there."""
    done = CliRunner().invoke(
        estimate.command, ["--gpu", "A100-80G", "--", "--session-len", "256", "--trust-remote-code"]
    )
    assert done.exit_code == 1
    assert "PROBLEMS" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert told("--gpu", "A100-80G", "--", "--tp", "2")[1] == 1


def test_the_estimate_of_several_servers_is_said_to_be_of_one() -> None:
    """One under the load of one is as fast as recommended; under the whole load it says so, and has no such load."""
    asked = {"gpu": "a100-sxm-80g", "gpu_count": 4, "model": "qwen2.5-7b-instruct"}
    ours = recommend.recommend(Request(**asked, concurrency=64), STORE)
    assert ours.config.servers == 2
    pick = {each.option: each.value for each in ours.explanations if each.emitted and each.kind != "client"}
    assert "proxy-url" in pick
    whole, half = (
        recommend.recommend_adviser(Request(**asked, concurrency=concurrency), "defaults", pick, store=STORE)
        for concurrency in (64, 32)
    )
    messages = [each.message for each in whole.findings if each.constraint == "proxy-shares-load"]
    assert messages == [
        "The prediction assumes that one server gets all 64 concurrent requests. If several servers share the proxy, "
        "each gets only a part."
    ]
    assert 2 * half.speed.rps.value == pytest.approx(ours.speed.rps.value)
    one = recommend.recommend_adviser(Request(**asked), "defaults", pick, store=STORE)
    alone = {option: value for option, value in pick.items() if option != "proxy-url"}
    without = recommend.recommend_adviser(Request(**asked, concurrency=64), "defaults", alone, store=STORE)
    assert not [each for answer in (ours, one, without) for each in answer.findings if "shares" in each.constraint]


def test_adviser_options_are_not_taken() -> None:
    """The configuration stands behind the two dashes only."""
    assert CliRunner().invoke(estimate.command, ["--gpu", "A100-80G", "--follow", "gemini"]).exit_code == 2


def test_a_share_planned_for_a_shared_card_takes_more_of_an_empty_one() -> None:
    """What the report says of an otherwise empty card is what InternVL3-38B took of two such H200s."""
    run = read_record(EVIDENCE / "h200-x2-2026-11-21-38b-tp-2-vram.yaml", records.SmokeRun)
    asked = ("--gpu", "H200:2", "--model", run.model, "--load", "16", "--vram", "60")
    told = " ".join(recommend_here(*asked).stderr.decode().split())
    whole = re.search(r"Start the other programs first: alone on the GPU, this takes ([\d.]+) GiB", told)
    assert whole, told
    assert float(whole[1]) * 1024 == pytest.approx(run.ready_mib - run.idle_mib, rel=0.03)
    assert "alone on the GPU" not in recommend_here(*asked[:-2]).stderr.decode()


def offered(*asked: str) -> str:
    """What the report says of less detail, in one line; nothing where it is silent."""
    done = recommend_here("--gpu", "H100-80G", "--load", "16", *asked, "-v")
    assert done.returncode == 0
    return " ".join(done.stderr.decode().split()).partition("FEWER TILES")[2].partition("SETTINGS")[0]


def test_less_detail_is_offered_and_not_taken() -> None:
    """What fewer tiles would bring, with the tokens that servers counted of such requests, and rates near theirs."""
    part = offered("--image", "1280x720")
    assert "--tiles 0,6 serve.sh serve.sh" in part
    client = recommend_here("--gpu", "H100-80G", "--load", "16", "--image", "1280x720", "--format", "client")
    assert "MOST_TILES = 12" in client.stdout.decode()
    for name, most in (("h100-2026-11-22-tiles-6", 6), ("h100-2026-11-21-tiles-1", 1)):
        run = read_record(EVIDENCE / f"{name}.yaml", records.SmokeRun)
        (phase,) = [each for each in run.phases if (each.concurrency, each.image) == (16, "1280x720")]
        offer = re.search(
            rf"max_dynamic_patch {most}: ([\d,]+) input tokens instead of 2,378, ([\d.]+) requests/s", part
        )
        assert offer, part
        assert int(offer[1].replace(",", "")) == phase.input_tokens
        assert float(offer[2]) == pytest.approx(figures(phase).rps, rel=0.1)


@pytest.mark.parametrize(
    "asked",
    [
        ("--image", "448x448"),
        ("--model", "qwen2.5-7b-instruct"),
        ("--image", "1280x720", "--model", "internvl3-8b-hf"),
        ("--image", "1280x720", "--model", "qwen2.5-vl-7b-instruct"),
        ("--image", "1280x720", "--follow", "defaults"),
    ],
)
def test_no_less_detail_is_offered_where_there_is_none(asked: tuple[str, ...]) -> None:
    """An image of one tile, no image, a checkpoint that reads no such field, an adviser's configuration: no word."""
    assert offered(*asked) == ""


@pytest.mark.parametrize(
    ("asked", "most", "tokens"),
    [
        # An image of two tiles has two with six at most too; only one tile is less.
        (("--image", "900x448"), [1], [330]),
        # Two images: 2 x 3 tiles of 256 tokens and 2 x 3 marks, 71 tokens of template and text; 2 x 1 tiles.
        (("--image", "1280x720x2"), [6, 1], [1613, 589]),
        # Two cards, a server each.
        (("--gpu", "H100-80G:2", "--image", "1280x720"), [6, 1], [842, 330]),
    ],
)
def test_what_less_detail_is_offered(asked: tuple[str, ...], most: list[int], tokens: list[int]) -> None:
    """Each limit that makes less of the images, with the tokens of the prompt."""
    words = asked if "--gpu" in asked else ("--gpu", "H100-80G", *asked)
    done = recommend_here("--load", "16", *words, "-v")
    found = re.findall(r"max_dynamic_patch (\d+): ([\d,]+) input tokens", done.stderr.decode())
    assert found == [(str(limit), f"{count:,}") for limit, count in zip(most, tokens, strict=True)]


def test_less_detail_meets_a_goal_that_nothing_else_does() -> None:
    """Where a goal is missed: the fewer tiles that keep to it, as an estimate of that script foretells."""
    asked = ("--gpu", "L4", "--load", "4", "--image", "1280x720", "--model", "internvl3-2b")
    done = recommend_here(*asked, "--p99", "1200")
    said = " ".join(done.stderr.decode().split())
    assert done.returncode == 0
    assert "includes the goal: measure it; clients that send max_dynamic_patch 6 meet the goal" in said, said
    made = json.loads(recommend_here(*asked, "--p99", "1200", "--format", "json").stdout)
    words = [*made["command"][4:], *(f"{name}={value}" for name, value in made["environment"].items())]
    whole, _ = told(*asked, "--", *words)
    fewer, _ = told(*asked, "--", *words, "max_dynamic_patch=6")
    assert fewer["speed"]["p99_ms"]["value"] <= 1200 < whole["speed"]["p99_ms"]["value"]
