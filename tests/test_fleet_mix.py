"""A fleet for requests of several kinds: what stands for a trace's requests, and mixes of workloads."""

from __future__ import annotations

import json
import random
import re
import statistics
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import fleet_simulation
import pytest
from artefacts import command, plan_json

from recommender.choose.select import Choice, choose
from recommender.estimate.arrivals import OpenServer, open_server
from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.scheduler.passes import SimulatedRequest, SimulatedServer
from recommender.fleet.aim import Aim, Tail
from recommender.fleet.rate_search import RateSearch
from recommender.knowledge.load import load
from recommender.request.lengths import MixRequest
from recommender.request.mix import MOST_ASKED
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request
from recommender.request.trace_load import learn_load

STORE = load()
SERVER = fleet_simulation.Terms(prepare=0.5, prefill=0, step=9, row=0, batch=64)
MIXES = ("chat and rag", "images beside text", "long answers to long prompts")


def drawn(name: str, chance: random.Random) -> MixRequest:
    """A request: short prompts with long answers beside the other way round; images; or lengths that go together."""
    if name == "chat and rag":
        if chance.random() < 0.3:
            return MixRequest(round(chance.lognormvariate(8.2, 0.3)), max(round(chance.lognormvariate(4, 0.5)), 1))
        return MixRequest(round(chance.lognormvariate(5.7, 0.8)), max(round(chance.lognormvariate(5.2, 0.8)), 1))
    if name == "images beside text":
        if chance.random() < 0.4:
            return MixRequest(50, 20, 1)
        return MixRequest(round(chance.lognormvariate(5, 0.5)), max(round(chance.lognormvariate(5, 0.6)), 1))
    length = chance.lognormvariate(0, 1)
    return MixRequest(round(600 * length), max(round(120 * length), 1))


def cost(asked: MixRequest) -> fleet_simulation.Terms:
    """An image costs as much as a thousand tokens, and its preparation; what a prompt holds is read at each token."""
    tokens = asked.prompt + 1000 * asked.images
    prepare = 0.5 + 9 * asked.images
    return SERVER._replace(prepare=prepare, prefill=0.02 * tokens, row=5e-5 * (tokens + asked.output / 2))


@cache
def rows(name: str) -> tuple[MixRequest, ...]:
    chance = random.Random(name)
    return tuple(drawn(name, chance) for _ in range(6000))


def written(folder: Path, name: str, rate: float = 0.0) -> Path:
    """The trace as a file."""
    chance, now = random.Random(2), 0.0
    lines = []
    for each in rows(name):
        now += chance.expovariate(rate) if rate else 0
        row: dict[str, float] = {"input_tokens": each.prompt, "output_tokens": each.output, "num_images": each.images}
        lines.append(json.dumps(row | ({"timestamp": now} if rate else {})))
    path = folder / "trace.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    return path


def planned(path: Path) -> OpenServer:
    """The server of the plan, with the requests that stand for the trace's."""
    asked = learn_load(Request(gpu="l4"), path, fleet=True)[0].asked
    assert len(asked) == MOST_ASKED
    times = ServiceTimes(0, 0, SERVER.step, 0, 0)
    server = SimulatedServer(0.0, SERVER.step, 10**9, SERVER.batch, 0, times)
    requests = []
    for each in asked:
        own = cost(each)
        requests.append(SimulatedRequest(own.prepare, own.prefill, 100, 100, each.output, own.row))
    return OpenServer(server, (tuple(requests),), 1.0)


def judged(name: str, servers: int, rate: float, count: int = 30_000) -> fleet_simulation.Seen:
    """What the other simulation finds of the trace's own rows."""

    def kinds(chance: random.Random) -> tuple[int, fleet_simulation.Terms]:
        asked = chance.choice(rows(name))
        return asked.output, cost(asked)

    return fleet_simulation.run(SERVER, fleet_simulation.fixed(1), servers, rate, count, kinds=kinds)


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize(("servers", "busy"), [(2, 0.5), (8, 0.8)])
def test_p99_of_a_mixed_trace(name: str, servers: int, busy: float, tmp_path: Path) -> None:
    """Of answers and of first tokens, within 15 % of the other simulation."""
    server = planned(written(tmp_path, name))
    rate = busy * server.capacity
    ours, theirs = server.at(rate, servers), judged(name, servers, rate * servers)
    assert ours.latency.p99 == pytest.approx(theirs.p99, rel=0.15)
    assert ours.ttft.p99 == pytest.approx(theirs.ttft_p99, rel=0.15)


@pytest.mark.parametrize(("name", "goal"), [("chat and rag", 15_000), ("images beside text", 6500)])
def test_hosts_of_a_mixed_trace(name: str, goal: float, tmp_path: Path) -> None:
    """The fewest servers that keep a goal are within one of those that the other simulation needs."""
    server = planned(written(tmp_path, name))
    rate = 5.5 * server.capacity
    found = RateSearch(server, Aim(rate, peak=1, spare=0, p99_ms=goal), Tail(server.alone), per_host=1).find()
    needed = next(servers for servers in range(6, 30) if judged(name, servers, rate, 15_000).p99 <= goal)
    assert abs(found - needed) <= 1


SIZES = {(448, 448): 0.7, (1280, 720): 0.3}
"""Image sizes of a mix, and their shares."""


def server_of(mix: str, width: int, height: int) -> OpenServer:
    """One of several servers, for images of a mix of sizes or of one size."""
    asked = Request(gpu="h100-sxm-80g", images=1, image_width=width, image_height=height, image_mix=mix)
    resolved = replace(resolve_request(asked, STORE), concurrency=32)
    chosen = choose(resolved, room=False)
    assert isinstance(chosen, Choice)
    return open_server(resolved, chosen.best.config, chosen.best.memory.kv_tokens)


@cache
def mixed_sizes() -> OpenServer:
    return server_of(",".join(f"{width}x{height}:{share}" for (width, height), share in SIZES.items()), 1280, 720)


def test_each_request_of_a_mix_of_sizes_has_its_own() -> None:
    """As many requests of each size as its share says, each with the times of a server for that size alone."""
    found = Counter((request.prepare, request.prefill, request.context) for request in mixed_sizes().turns[0])
    alone = {}
    for size, share in SIZES.items():
        own = server_of("", *size).turns[0][0]
        alone[own.prepare, own.prefill, own.context] = share
    assert {times: number / found.total() for times, number in found.items()} == pytest.approx(alone, abs=0.003)


@pytest.mark.parametrize(("servers", "busy"), [(1, 0.5), (4, 0.7)])
def test_p99_of_a_mix_of_sizes(servers: int, busy: float) -> None:
    """Within 15 % of the other simulation; one size with the mean times is further off."""
    server, requests = mixed_sizes(), mixed_sizes().turns[0]
    step, batch, rate = server.server.times.step(1), server.server.batch, busy * server.capacity

    def kinds(chance: random.Random) -> tuple[int, fleet_simulation.Terms]:
        one = chance.choice(requests)
        return one.output, fleet_simulation.Terms(one.prepare, one.prefill, step, one.row, batch)

    terms = fleet_simulation.Terms(0.0, 0.0, step, 0.0, batch)
    judge = fleet_simulation.run(terms, fleet_simulation.fixed(1), servers, rate * servers, 20_000, kinds=kinds)
    assert server.at(rate, servers).latency.p99 == pytest.approx(judge.p99, rel=0.15)
    means = (statistics.fmean(values) for values in zip(*requests, strict=True))
    flat = SimulatedRequest(*(value if place in (0, 1, 5) else round(value) for place, value in enumerate(means)))
    assert replace(server, turns=((flat,),)).at(rate, servers).latency.p99 < 0.8 * judge.p99


def plan(*words: str) -> tuple[int, str, str]:
    return command("plan", "--gpu", "H100:8", *words)


@pytest.mark.usefixtures("few_simulated")
def test_every_hint_on_a_trace_names_an_option_of_the_plan(tmp_path: Path) -> None:
    """A trace without times needs a rate, and the plan has no --concurrency."""
    _, out, _ = command("plan", "--help-all")
    options = set(re.findall(r"--[a-z][a-z-]+", out))
    for mix, more in ((MIXES[0], ()), (MIXES[1], ("--rps", "20"))):
        code, _, err = plan("--trace", str(written(tmp_path, mix)), *more)
        assert code == (0 if more else 2)
        assert set(re.findall(r"--[a-z][a-z-]+", err)) <= options
    assert "60% of the requests have no image, the others up to 1" in err


def test_images_beside_text_are_sized_as_the_trace_has_them(tmp_path: Path) -> None:
    """Fewer GPUs than if every request had the image, more than if none had."""
    path = str(written(tmp_path, "images beside text"))
    words = ("--gpu", "H100:8", "--trace", path, "--rps", "2000")
    each = (("--text-only",), (), ("--image", "448x448"))
    cards = [plan_json(*words, *more)["fleets"][0]["cards"] for more in each]
    assert cards == sorted(set(cards))


@pytest.mark.usefixtures("few_simulated")
def test_a_mix_of_workloads_lies_between_them() -> None:
    """The work of a mix is the sum of its parts', where the KV cache holds all; all of one workload is that one."""
    words = ("--gpu", "H100:8", "--model", "llama-3.1-8b-instruct", "--tp", "1", "--kv", "fp16", "--rps", "1000")
    mixes = ("chat", "chat:1", "chat:0.6,code:0.4", "code", "chat:0.7,rag:0.3", "rag")
    found = {mix: plan_json(*words, "--workload", mix)["fleets"][0]["server_rps"] for mix in mixes}
    assert found["chat:1"] == pytest.approx(found["chat"], rel=0.03)
    work = 0.6 / found["chat"] + 0.4 / found["code"]
    assert 1 / found["chat:0.6,code:0.4"] == pytest.approx(work, rel=0.05)
    assert found["rag"] < found["chat:0.7,rag:0.3"] < found["chat"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workload", "chat:0.7,rag:0.2"), "the shares make 0.9; they must make 1"),
        (("--workload", "chat:0.7,chat:0.3"), "write each workload once, as chat:0.7,rag:0.3"),
        (("--workload", "chat:0.7,rag"), "write each workload once"),
        (("--workload", "chat:nan"), "write each workload once"),
        (("--workload", "chat:-1,rag:2"), "write each workload once"),
        (("--workload", "chta:0.7,rag:0.3"), "unknown workload 'chta': did you mean chat?"),
        (("--workload", "chat:0.7,rag:0.3", "--input-tokens", "5"), "remove --input-tokens, or name one workload"),
        (("--workload", "chat:0.7,rag:0.3", "--text-only"), "remove --text-only"),
        (("--workload", "chat:0.7,caption:0.3", "--model", "llama-3.1-8b-instruct"), "is a text model"),
    ],
)
def test_bad_mixes_are_one_line(words: tuple[str, ...], said: str) -> None:
    """Each fault is told in one line, with exit code 2."""
    code, out, err = plan("--rps", "5", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err


def test_a_mix_is_for_a_fleet() -> None:
    """The main job sizes for one workload, and says where a mix goes."""
    code, _, err = command("--gpu", "L4", "--workload", "chat:0.7,rag:0.3")
    assert code == 2
    assert "recommend plan" in err


@pytest.mark.usefixtures("few_simulated")
def test_files_of_a_mix_have_a_short_head(tmp_path: Path) -> None:
    """The request in the head has the mix's lengths by fifty quantiles, not each request."""
    words = ("--workload", "chat:0.7,rag:0.3", "--rps", "5", "--model", "llama-3.1-8b-instruct", "--tp", "1")
    code, _, err = plan(*words, "--format", "k8s", "-o", str(tmp_path / "fleet"))
    assert code == 0, err
    head = (tmp_path / "fleet" / "deployment.yaml").read_text("utf-8").splitlines()[1]
    assert len(head) < 1000
    assert len(json.loads(head.partition("request: ")[2])["input_lengths"].split(",")) == 50


def test_the_plan_names_each_size_of_a_mix() -> None:
    """In text and in JSON; the mix takes more than the small size and less than the large one."""
    cards = []
    for image in ("448x448", "448x448:0.7,1280x720:0.3", "1280x720"):
        made = plan_json(*["--gpu", "H100:8", "--rps", "200", "--p99", "800", "--tp", "1", "--images"], image)
        assert made["asked"]["image_mix"] == (image if ":" in image else "")
        cards.append(made["fleets"][0]["cards"])
    assert cards == sorted(set(cards))
    _, out, _ = plan("--rps", "200", "--p99", "800", "--tp", "1", "--images", "448x448:0.7,1280x720:0.3")
    assert "1 x 448x448 (70%), 1280x720 (30%)" in " ".join(out.split())
