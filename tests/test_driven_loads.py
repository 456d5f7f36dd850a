"""The loads that a request describes, as they arrive at a server: what it saw counts, not what the client says."""

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from artefacts import KNOWLEDGE, found
from test_load import Behaviour, Body, Stub, decoded, event, piece, stream, words
from test_smoke import smoke

from recommender.calibration import predict
from recommender.calibration.observations import is_simulated, observe_run, simulate
from recommender.choose.recommend import Recommendation
from recommender.estimate import speed
from recommender.estimate.sampling import gaps_of
from recommender.knowledge import records, run_figures
from recommender.knowledge.index import read_record
from recommender.knowledge.load import load as load_store
from recommender.render import artefact
from recommender.render.formats import render
from recommender.smoke import expected_load, phases, record, report
from recommender.smoke.campaign.plan import name_of, name_of_phase
from recommender.smoke.client import http, load, sizing
from recommender.smoke.client.load import LoadPlan, Outcome, Shape, Target
from recommender.smoke.dryrun import dry_run
from recommender.smoke.process.gpu import Host
from recommender.smoke.result import Load, LoadResult, RunRequest, RunResult

TEMPLATE, MESSAGE = 40, 5
"""Tokens of the fake server's template, and of each message beyond the first."""
Count = Callable[[str], int]


def text_of(message: Body) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def counted(body: Body, count: Count) -> int:
    """Input tokens of a request: template, messages and their text."""
    return TEMPLATE + MESSAGE * (len(body["messages"]) - 1) + sum(count(text_of(each)) for each in body["messages"])


def serving(count: Count = len, delay: float = 0.0, pace: float = 0.0) -> Behaviour:
    """Answers with as many tokens as asked for, each a word of its own, streamed where asked."""

    async def behave(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
        said = [f"{chr(97 + place % 26)} " for place in range(body["max_tokens"])]
        usage = {"prompt_tokens": counted(body, count), "completion_tokens": len(said)}
        if not body["stream"]:
            choice = {"index": 0, "message": {"role": "assistant", "content": "".join(said)}, "finish_reason": "length"}
            return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage})
        said_slowly = [part for text in said for part in (pace, piece(text))]
        parts: list[bytes | float] = [delay, *said_slowly[1:], piece("", "length")]
        return await stream(request, [*parts, event({"choices": [], "usage": usage}), b"data: [DONE]\n\n"])

    return behave


def asked(phase: str = "4", model: str = "llama-3.1-8b-instruct", **request: Any) -> tuple[Recommendation, Load]:
    made = found(gpu="h200-141g", model=model, **request)
    return made, phases.parse_loads((phase,), made)[0]


def drive(stub: Stub, made: Recommendation, driven: Load, **plan: Any) -> tuple[Outcome, Shape]:
    target = Target((stub.url,), "m")
    drawn = expected_load.draw_load(made, driven)
    assert drawn is not None
    talks = expected_load.conversations_of(made, driven, drawn)
    shape = Shape(driven.images, driven.width, driven.height, 0, 0, 0, talks)
    shape = replace(shape, drawn=replace(talks, ruler=sizing.measure_ruler(target, shape, talks.input_range())))
    assert len(stub.bodies) <= 9, "a few requests are enough to size the texts"
    for noted in (stub.bodies, stub.at, stub.levels):
        noted.clear()
    stub.most = 0
    how = {"concurrency": driven.concurrency, "rps": driven.rps, "seconds": 30.0, "enough": 0, "limit_s": 60.0}
    how |= {"stream_every": 1, "burstiness": driven.burstiness}
    return load.run(target, shape, LoadPlan(**{**how, **plan}), lambda *_: None), shape


def near(tokens: int, wanted: int) -> bool:
    return abs(tokens - wanted) <= max(2, 0.01 * wanted)


TOKENIZERS = [
    pytest.param(len, id="bytes"),
    pytest.param(lambda text: -(-len(text) // 4), id="fours"),
    pytest.param(words, id="words"),
]


@pytest.mark.parametrize("count", TOKENIZERS)
@pytest.mark.parametrize(
    "request_",
    [
        {"prompt_tokens": 300, "prompt_p99": 3000, "output_tokens": 5, "output_p99": 20},
        {"prompt_tokens": 700, "prompt_p99": 900, "output_tokens": 3, "prefix_tokens": 500},
    ],
    ids=["spread", "prefix"],
)
def test_each_length_arrives_once_a_cycle(count: Count, request_: dict[str, Any]) -> None:
    """The server counts the request's fifty equally likely lengths, and is asked for their answers."""
    made, driven = asked("4", **request_)
    with Stub(serving(count, delay=0.05)) as stub:  # long enough for four to be there at once
        outcome, _ = drive(stub, made, driven, enough=50)
        bodies = stub.bodies[:50]
        assert stub.most == 4
    around = made.resolved.model.chat_tokens
    got = sorted(counted(body, count) for body in bodies)
    assert all(map(near, got, [around + length for length in made.resolved.prompts]))
    wanted = Counter(output for output in made.resolved.outputs for _ in range(50 // len(made.resolved.outputs)))
    assert Counter(body["max_tokens"] for body in bodies) == wanted
    assert all(body["stream"] for body in stub.bodies)
    assert len(outcome.ttft_ms) == len(outcome.latencies_ms) == len(outcome.tokens)


def test_the_lengths_come_in_the_same_seeded_order() -> None:
    """Two drives ask for the same answers in one order, which is not that of the lengths."""
    made, driven = asked("1", prompt_tokens=50, output_tokens=8, output_p99=60)
    orders = []
    for _ in range(2):
        with Stub(serving()) as stub:
            drive(stub, made, driven, enough=50)
            orders.append([body["max_tokens"] for body in stub.bodies[:50]])
    assert orders[0] == orders[1]
    assert orders[0] != sorted(orders[0])
    assert sorted(orders[0]) == list(made.resolved.outputs)


@pytest.mark.parametrize("count", TOKENIZERS)
def test_all_prompts_begin_alike_and_then_differ(count: Count) -> None:
    """The shared prefix has the tokens asked for; no two prompts share more than it."""
    made, driven = asked("8", prompt_tokens=600, prompt_p99=900, output_tokens=4, prefix_tokens=400)
    with Stub(serving(count)) as stub:
        drive(stub, made, driven, enough=60)
        prompts = [text_of(body["messages"][0]) for body in stub.bodies]
    shared = min(
        next(place for place, (one, two) in enumerate(zip(a, b, strict=False)) if one != two)
        for a, b in pairwise(sorted(prompts))
    )
    most = max(
        next(place for place, (one, two) in enumerate(zip(a, b, strict=False)) if one != two)
        for a, b in pairwise(sorted(prompts))
    )
    assert near(count(prompts[0][:shared]), 400)
    assert most - shared <= 6, "only digits of the request's number are the same by chance"


def test_a_conversation_repeats_what_was_said() -> None:
    """Each turn sends the earlier messages and the server's own answer again, then text that is new."""
    made, driven = asked("3", prompt_tokens=200, prompt_p99=400, output_tokens=10, turns=4, prefix_tokens=50)
    with Stub(serving()) as stub:
        drive(stub, made, driven, enough=120)
        talks = [body["messages"] for body in stub.bodies]
    answer = {"role": "assistant", "content": "".join(f"{chr(97 + place)} " for place in range(10))}
    sizes = Counter(map(len, talks))
    assert sizes.keys() == {1, 3, 5, 7}
    assert max(sizes.values()) < 1.2 * min(sizes.values()), "all turns are in the load alike"
    earlier = [json.dumps([*talk, answer]) for talk in talks]
    made_up = [talk for talk in talks if len(talk) > 1 and json.dumps(talk[:-1]) not in earlier]
    assert [len(talk) for talk in made_up] == [3, 5], "two of three clients begin within a conversation"
    texts = [text_of(talk[-1]) for talk in talks]
    assert len(set(texts)) == len(texts), "new text is new"


def test_few_clients_begin_all_over_a_long_conversation() -> None:
    """Two of nine turns: one at the first, one at the fifth, which repeats four questions and answers."""
    made, driven = asked("2", prompt_tokens=100, output_tokens=5, turns=9, prefix_tokens=10)
    with Stub(serving()) as stub:
        drive(stub, made, driven, enough=8)
        sizes = [len(body["messages"]) for body in stub.bodies]
    assert {1, 9} <= set(sizes[:2])
    assert max(sizes) >= 13


def test_turns_have_the_lengths_that_are_predicted() -> None:
    """In the mean over many requests the server's counts are those that the simulation has, turn by turn."""
    made, driven = asked("4", prompt_tokens=200, prompt_p99=400, output_tokens=20, turns=3)
    resolved = made.resolved
    with Stub(serving(lambda text: -(-len(text) // 4))) as stub:
        drive(stub, made, driven, enough=600)
        bodies = stub.bodies[12:]
    for turn in range(3):
        got = [
            counted(body, lambda text: -(-len(text) // 4)) for body in bodies if len(body["messages"]) == 2 * turn + 1
        ]
        wanted = [resolved.model.chat_tokens + resolved.prompt_in_turn(each, 20, turn) for each in resolved.prompts]
        assert statistics.fmean(got) == pytest.approx(statistics.fmean(wanted), rel=0.02)


def test_a_long_conversation_is_cut() -> None:
    """Prompt and answer stay within --max-context; the prefix stays, the oldest turns go."""
    made, driven = asked("2", prompt_tokens=300, output_tokens=20, turns=6, max_context=900, prefix_tokens=100)
    with Stub(serving(words)) as stub:
        drive(stub, made, driven, enough=60)
        bodies = list(stub.bodies)
    text = [counted(body, words) - TEMPLATE for body in bodies]
    assert max(text) + 20 <= 900 * 1.01 + 2 * MESSAGE
    assert sum(each + 20 > 800 for each in text) > len(text) / 3
    begin = text_of(bodies[0]["messages"][0])[:400]
    assert all(text_of(body["messages"][0]).startswith(begin) for body in bodies)
    assert all(body["messages"][-1]["role"] == "user" for body in bodies)


def test_a_mix_has_its_shares() -> None:
    """The images that arrive have the sizes by their shares, in an order that is not regular."""
    made, driven = asked(
        "8@mix", model="internvl3-8b-awq", images=1, image_width=96, image_height=64, image_mix="48x32:0.7,96x64:0.3"
    )
    with Stub(serving()) as stub:
        drive(stub, made, driven, enough=200)
        links = [body["messages"][0]["content"][1]["image_url"]["url"] for body in stub.bodies[:200]]
    sizes = [decoded(link.partition("base64,")[2]).size for link in links]
    assert sizes.count((48, 32)) / len(sizes) == pytest.approx(0.7, abs=0.02)
    assert set(sizes) == {(48, 32), (96, 64)}
    assert len(set(links)) == len(links)


@pytest.mark.parametrize("burstiness", [0.4, 1.0, 2.0])
def test_arrivals_vary_as_asked(burstiness: float) -> None:
    """Gaps have the rate and the coefficient of variation; a busy machine may send late, but never early or less."""
    made, driven = asked("40rps", prompt_tokens=30, prompt_p99=60, output_tokens=1, burstiness=burstiness)
    drawn = list(islice(gaps_of(40, burstiness, load.SEED), 161))
    gaps = [gap * 4000 / sum(drawn) for gap in drawn[:160]]  # as many as the rate, however they were drawn
    planned = list(accumulate(gaps))
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(burstiness, rel=0.25)
    with Stub(serving()) as stub:
        begun = time.perf_counter()
        outcome, _ = drive(stub, made, driven, seconds=4)
        arrived = [(at - begun) * 1e3 for at in stub.at[-outcome.sent :]]
    assert outcome.sent == 160
    assert all(at >= due for at, due in zip(sorted(arrived), planned, strict=True))


def test_conversations_arrive_too() -> None:
    """Where requests arrive at a rate, an arrival goes on with a conversation that is idle: all turns come alike."""
    made, driven = asked("60rps", prompt_tokens=40, prompt_p99=60, output_tokens=3, turns=3)
    with Stub(serving(delay=0.05)) as stub:
        drive(stub, made, driven, seconds=5)
        sizes = Counter(len(body["messages"]) for body in stub.bodies)
        assert stub.most > 2
    assert sizes.keys() == {1, 3, 5}
    assert max(sizes.values()) < 1.3 * min(sizes.values())


def test_a_failed_request_ends_its_conversation() -> None:
    """The next one begins anew; nothing is sent that was never answered."""
    made, driven = asked("1", prompt_tokens=40, output_tokens=3, turns=3)
    good = serving()

    async def behave(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
        if len(stub.bodies) % 5 == 0:
            return web.json_response({"error": "broken"}, status=500)
        return await good(stub, request, body)

    with Stub(behave) as stub:
        outcome, _ = drive(stub, made, driven, enough=30)
        sizes = [len(body["messages"]) for body in stub.bodies]
    assert outcome.failures["request-failed"][0] == 6
    assert sizes[:7] == [1, 3, 5, 1, 3, 1, 3], "the fifth was refused"


# --- records, predictions and reports ---------------------------------------------------


def recorded(made: Recommendation, driven: Load, outcome: Outcome) -> records.SmokeRun:
    """A run with one phase, as smoke writes it, through YAML and back."""
    script = artefact.parse(render(made, "bash"), "serve.sh")
    wanted = RunRequest(script, made, (driven,), {}, {}, "random, seed 0")
    result = RunResult(Host("NVIDIA H200", 1, "1", 143771, 16, "cpu"), 500, ready_mib=100_000, log_sha256="0" * 64)
    result.phases = [LoadResult(driven, outcome, 100_000, 10.0, 1.0, {}, expected_load.draw_load(made, driven))]
    values = record.build_record("run", wanted, result, "2026-11-23").model_dump(mode="json")
    return records.SmokeRun.model_validate_json(json.dumps(values))


def simulated_outcome(made: Recommendation, driven: Load) -> Outcome:
    """An outcome that is made of what is predicted, so that a right reading of it has no error."""
    resolved = replace(made.resolved, concurrency=driven.concurrency or 1, rps=driven.rps)
    profile = speed.estimate(resolved, made.config).profile
    assert profile is not None
    count = 400
    each = profile.latency.mean
    latencies = [each] * count
    gap = each / (driven.concurrency or 1)
    ends = list(accumulate([each, *([gap] * (count - 1))]))
    tokens = [(resolved.input_tokens(), resolved.output_tokens)] * count
    return Outcome(
        latencies_ms=latencies, ends_ms=ends, window_s=ends[-1] / 1e3, window_requests=count,
        ttft_ms=[profile.ttft.p50] * count, streamed=list(range(count)), tokens=tokens, input_tokens=tokens[0][0],
        output_tokens=tokens[0][1], sent=count,
    )  # fmt: skip


CHAT = {"workload": "chat", "turns": 3, "prefix_tokens": 120, "max_context": 8192}


def test_a_record_keeps_the_load_that_it_had() -> None:
    """Lengths, prefix, turns and workload come back from the record, and the prediction has them."""
    made, driven = asked("16", **CHAT)
    run = recorded(made, driven, simulated_outcome(made, driven))
    (phase,) = run.phases
    assert (phase.drawn.workload, phase.drawn.turns, phase.drawn.prefix_tokens) == ("chat", 3, 120)
    assert sorted(run_figures.numbers(phase.drawn.prompts)) == list(made.resolved.prompts)
    assert len(run_figures.numbers(phase.drawn.input_tokens)) == len(run_figures.numbers(phase.latencies_ms))
    assert not phase.streamed
    assert name_of_phase(phase) == name_of(driven) == "16@text"
    again = predict.resolve_phase(made, run, phase)
    ours = made.resolved
    assert again.streamed_share == 1.0
    fourth = phase.model_copy(update={"streamed": "4 4", "ttft_ms": "9 9", "latencies_ms": "90 " * 9})
    assert predict.resolve_phase(made, run, fourth).streamed_share == 0.25
    for name in ("prompts", "outputs", "prefix_tokens", "turns", "max_context", "prompt_tokens", "output_tokens"):
        assert getattr(again, name) == getattr(ours, name), name
    # A record of another request's workload is predicted with its own lengths.
    other, _ = asked("16", prompt_tokens=64, output_tokens=8)
    assert predict.resolve_phase(other, run, phase).prompts == ours.prompts


@pytest.mark.parametrize("phase", ["16", "2rps"])
def test_a_recorded_load_is_an_observation(phase: str) -> None:
    """Closed loops and arrivals are predicted by the simulation, with their own lengths."""
    made, driven = asked(phase, **CHAT)
    run = recorded(made, driven, simulated_outcome(made, driven))
    if driven.rps:  # it came at the rate
        run = run.model_copy(update={"phases": (run.phases[0].model_copy(update={"window_s": 200.0}),)})
    memory, observation = observe_run(run, load_store())
    assert (memory.concurrency, is_simulated(memory)) == (0, False)
    assert is_simulated(observation)
    assert observation.resolved.rps == driven.rps
    assert ("rps" in observation.measured) == bool(driven.concurrency)
    predicted = simulate(observation, speed.read_coefficients(load_store()))
    assert predicted["ttft"] == pytest.approx(observation.measured["ttft"], rel=0.1)


def test_arrivals_that_are_not_kept_up_with_are_no_observation() -> None:
    """Their times only say how long the load lasted."""
    made, driven = asked("50rps", **CHAT)
    run = recorded(made, driven, simulated_outcome(made, driven))
    run = run.model_copy(update={"phases": (run.phases[0].model_copy(update={"window_s": 20.0}),)})
    assert [each.concurrency for each in observe_run(run, load_store())] == [0]


@pytest.mark.parametrize(
    ("name", "driven"),
    [
        ("h200-mixtures-2026-11-27-gpt-oss-agent", []),  # 48 and 15 requests, where 16 and 4 talks have 33 turns
        ("h200-captions-2026-11-27-internvl3-8b-awq-omp-4", [True] * 3),
        ("h200-loads-2026-11-24-mix-mid", [False] * 3),  # which request had which size is not known
    ],
)
def test_which_recorded_loads_the_simulation_answers_request_by_request(name: str, driven: list[bool]) -> None:
    """Captions, whose phases are short, yes; mixes of sizes no; conversations that were cut short are no load."""
    run = read_record(KNOWLEDGE / "evidence" / f"{name}.yaml", records.SmokeRun)
    loads = [each for each in observe_run(run, load_store()) if each.concurrency]
    assert [each.driven is not None for each in loads] == driven


def test_the_report_has_quantiles_beside_the_predicted_ones() -> None:
    """Of TTFT, TPOT and latency: p50, p90 and p99, as the server saw them and as the simulation has them."""
    made, driven = asked("4", prompt_tokens=60, prompt_p99=200, output_tokens=6, output_p99=20)
    with Stub(serving(delay=0.02, pace=0.004)) as stub:
        outcome, _ = drive(stub, made, driven, enough=320)
    run = recorded(made, driven, outcome)
    rows = {row.name: row for row in report.phase_rows(made, run, run.phases[0])}
    for title in ("", "TTFT ", "TPOT "):
        p50, p90, p99 = (rows[f"{title}{quantile} ms"] for quantile in ("p50", "p90", "p99"))
        assert 0 < p50.measured <= p90.measured <= p99.measured
        assert 0 < p50.predicted <= p90.predicted <= p99.predicted
    assert rows["TTFT p50 ms"].measured >= 19
    whole = [
        (ms - first) / (given - 1)
        for ms, first, (_, given) in zip(outcome.latencies_ms, outcome.ttft_ms, outcome.tokens, strict=True)
        if given > 1
    ]
    assert rows["TPOT p50 ms"].measured == pytest.approx(statistics.median(whole), rel=0.3, abs=0.1)
    shown = report.text(made, run)
    assert "drawn from: input tokens 60" in shown.replace("\n    ", " ") or "drawn from:" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_only_images_that_are_asked_for_are_drawn() -> None:
    """None for texts, whatever size they name; else those of the size."""
    asks = Shape(images=0, width=32, height=16, prompt_chars=9, output_tokens=1, max_tiles=0)
    assert http.picture_pools(asks) == {}
    assert [*http.picture_pools(replace(asks, images=2))] == [(32, 16)]


def test_requests_that_are_alike_are_driven_as_before() -> None:
    """A fixed load draws nothing, in a closed loop or as Poisson arrivals."""
    made = found()
    for driven in phases.parse_loads(("4", "4rps", "2@1280x720"), made):
        assert expected_load.draw_load(made, driven) is None


def test_a_dry_run_shows_the_load() -> None:
    """Lengths, prefix and turns, and how requests arrive."""
    made, driven = asked("16", **CHAT)
    script = artefact.parse(render(made, "bash"), "serve.sh")
    loads = (driven, *phases.parse_loads(("2rps",), made))
    shown = " ".join(dry_run(script, made, {"PATH": "/nowhere"}, loads).split())
    assert "concurrency 16, text only: chat" in shown
    assert "120 of them shared by all requests, 3 turns" in shown
    assert "2 requests/s (burstiness 1.09)" in shown


def test_a_run_from_launch_to_record(tmp_path: Path) -> None:
    """The command drives the request's load at a stand-in server, reports quantiles and keeps what was driven."""
    words = ("--text-only", "--input-tokens", "60:200", "--output-tokens", "5:12", "--turns", "2", "--burstiness", "2")
    ran = smoke(
        tmp_path, *words, "--phase", "3", "--phase", "12rps", "--save-evidence", "run.yaml", "--model", "{model}",
        seconds="2",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "TTFT p90 ms" in ran.out
    assert "12 requests/s (burstiness 2)" in ran.out
    run = read_record(ran.work / "run.yaml", records.SmokeRun)
    assert [name_of_phase(phase) for phase in run.phases] == ["3@text", "12rps@text"]
    for phase in run.phases:
        assert phase.drawn.turns == 2
        given = set(run_figures.numbers(phase.drawn.output_tokens))
        assert len(given) > 3
        assert given <= set(run_figures.numbers(phase.drawn.outputs))
        assert len(run_figures.numbers(phase.ttft_ms)) == len(run_figures.numbers(phase.latencies_ms))


@pytest.mark.parametrize("phase", ["1", "2rps"])
def test_a_phase_is_judged_by_its_own_requests(phase: str) -> None:
    """Requests that never meet take what each takes alone, whatever lengths the workload has."""
    made, driven = asked(phase, workload="chat")
    lengths = [(300, 7), (900, 40), (2000, 90), (300, 7), (60, 150)]
    run = recorded(made, driven, simulated_outcome(made, driven))
    taken, took = run.phases[0], 2000
    gap = 5000 if driven.rps else took
    own = taken.drawn.model_copy(
        update={
            "input_tokens": " ".join(str(tokens) for tokens, _ in lengths),
            "output_tokens": " ".join(str(tokens) for _, tokens in lengths),
        }
    )
    times = {"latencies_ms": f"{took} " * len(lengths), "gaps_ms": f"{took} " + f"{gap} " * (len(lengths) - 1)}
    update = {**times, "ttft_ms": "9 " * len(lengths), "streamed": "", "window_requests": 5, "drawn": own}
    run = run.model_copy(update={"phases": (taken.model_copy(update=update),)})
    _, observation = observe_run(run, load_store())
    values = speed.read_coefficients(load_store())
    predicted = simulate(observation, values)
    alone = []
    template = replace(made.resolved, prompt_tokens=0).input_tokens()
    for tokens, output in lengths:
        resolved = replace(made.resolved, prompt_tokens=tokens - template, output_tokens=output)
        alone.append(speed.estimate_server(resolved, made.config, 1, values))
    # At 1 in flight the first request is the one that does not count.
    counted = alone if driven.rps else alone[1:]
    assert predicted["latency"] == pytest.approx(statistics.median(each.latency for each in counted), rel=0.02)
    assert predicted["token"] == pytest.approx(statistics.median(each.token for each in counted), rel=0.02)
    # The loop of the server process is at another place of its turn at each request.
    assert predicted["ttft"] == pytest.approx(statistics.median(each.ttft for each in counted), abs=3)
