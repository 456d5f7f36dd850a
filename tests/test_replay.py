"""A trace as a load: its requests leave at its times, with its lengths and the beginnings that they share."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from artefacts import found
from test_driven_loads import counted, drive, near, recorded, serving, simulated_outcome, text_of
from test_load import Stub
from test_smoke import smoke

from recommender.choose.recommend import Recommendation
from recommender.common.errors import RequestError
from recommender.knowledge import records, run_figures
from recommender.knowledge.index import read_record
from recommender.render import artefact
from recommender.render.formats import render
from recommender.request.request import Replayed, Request
from recommender.request.trace import read_trace
from recommender.request.trace_load import choose_window, learn_load
from recommender.smoke import phases, report
from recommender.smoke.campaign.plan import name_of, name_of_phase
from recommender.smoke.dryrun import dry_run
from recommender.smoke.replay_prediction import predict_replay, read_replay

AT = (0, 0, 0, 800, 800, 800, 1600)
"""ms: two bursts and one alone."""
BLOCKS = ((1, 2, 3), (1, 2, 4), (9,), (1, 2, 4, 5), (9, 8), (7,), (1, 2, 3, 6))
"""Blocks of 512 tokens of each prompt, as Mooncake's traces name them."""
LENGTHS = ((1500, 3), (1300, 5), (400, 2), (2000, 4), (900, 7), (50, 6), (1800, 1))
SHARED = ((0, 0), (0, 1024), (0, 0), (1, 1300), (2, 400), (0, 0), (0, 1500))
"""Where the first block is the same, and how many tokens: a prompt's last block ends with the prompt."""


def mooncake(path: Path, at: tuple[int, ...] = AT) -> Path:
    rows = zip(at, LENGTHS, BLOCKS, strict=True)
    lines = [
        json.dumps({"timestamp": when, "input_length": given, "output_length": made, "hash_ids": ids})
        for when, (given, made), ids in rows
    ]
    path.write_text("\n".join(lines))
    return path


def traced(folder: Path, **request: Any) -> Recommendation:
    asked = Request(**{"gpu": "h200-141g", "model": "llama-3.1-8b-instruct"} | request)
    learned, _ = learn_load(asked, mooncake(folder / "trace.jsonl"))
    values = {name: getattr(learned, name) for name in learned.__dataclass_fields__}
    return found(**values | {"load": ""})


def test_each_prompt_repeats_the_beginning_of_an_earlier_one(tmp_path: Path) -> None:
    """The longest one that an earlier prompt has; none where the first block differs."""
    window = choose_window(read_trace(mooncake(tmp_path / "trace.jsonl")))
    assert tuple((each.of, each.shared) for each in window) == SHARED
    assert tuple(each.at for each in window) == AT
    assert tuple((each.prompt, each.output) for each in window) == LENGTHS


def test_a_row_of_a_trace_shares_only_within_itself(tmp_path: Path) -> None:
    """What came before the row was not sent."""
    trace = read_trace(mooncake(tmp_path / "trace.jsonl", (0, 900, 1000, 1001, 1002, 2000, 2800)))
    window = choose_window(trace, 3)
    begin = next(place for place in range(7) if trace.input_tokens[place] == window[0].prompt)
    for place, each in enumerate(window):
        heads = [
            min(512 * depth, trace.input_tokens[begin + place], trace.input_tokens[begin + before])
            for before in range(place)
            for depth in range(1, 5)
            if BLOCKS[begin + place][:depth] == BLOCKS[begin + before][:depth] and depth <= len(BLOCKS[begin + before])
        ]
        assert each.shared == max(heads, default=0)


def test_a_given_prefix_is_shared_where_the_trace_does_not_tell(tmp_path: Path) -> None:
    """A table without contents: all prompts begin alike, as --prefix-tokens says."""
    path = tmp_path / "trace.csv"
    path.write_text("arrival_time,input_tokens,output_tokens\n0,300,5\n1,700,5\n2.5,200,5\n")
    trace = read_trace(path)
    assert [each.shared for each in choose_window(trace)] == [0, 0, 0]
    assert [each.shared for each in choose_window(trace, prefix=250)] == [0, 250, 199]


@pytest.mark.parametrize(("phase", "speed"), [("trace", 1.0), ("2xtrace", 2.0)])
def test_the_server_sees_the_trace(tmp_path: Path, phase: str, speed: float) -> None:
    """Order, lengths, shared beginnings and bursts are the trace's; a burst is in flight together, and none else."""
    made = traced(tmp_path)
    (driven,) = phases.parse_loads((phase,), made)
    assert [each.at for each in driven.replay] == [at / speed for at in AT]
    assert (driven.left_out, driven.cut) == (0, 0)
    with Stub(serving(delay=0.1)) as stub:
        lasts = len(driven.replay) / driven.rps
        arrivals = tuple(each.at / 1e3 for each in driven.replay)
        began = time.perf_counter()
        outcome, shape = drive(stub, made, driven, arrivals_s=arrivals, seconds=lasts)
        bodies, at, levels = stub.bodies[:], stub.at[:], stub.levels[:]
    around = made.resolved.model.chat_tokens
    assert len(bodies) == outcome.sent == len(AT)
    assert all(near(counted(body, len), around + prompt) for body, (prompt, _) in zip(bodies, LENGTHS, strict=True))
    assert [body["max_tokens"] for body in bodies] == [output for _, output in LENGTHS]
    assert levels == [1, 2, 3, 1, 2, 3, 1]
    assert all(came - began >= due / speed / 1e3 for came, due in zip(at, AT, strict=True))
    texts = [text_of(body["messages"][0]) for body in bodies]
    assert shape.drawn is not None
    for text, (of, shared) in zip(texts, SHARED, strict=True):
        same = next((n for n, (ours, theirs) in enumerate(zip(text, texts[of], strict=False)) if ours != theirs), None)
        if shared:
            assert same is None or near(same, shape.drawn.ruler.chars(around + shared))
    assert len({text[:6] for text in texts}) == sum(not shared for _, shared in SHARED)  # each family has its number
    assert outcome.window_s == pytest.approx(lasts)


def test_the_clock_leaves_the_rest_out(tmp_path: Path) -> None:
    """Requests after --seconds are not sent, and are counted; at twice the speed more fit."""
    made = traced(tmp_path)
    one, two = phases.parse_loads(("trace", "2xtrace"), made, 0.5)
    assert (len(one.replay), one.left_out, one.rps) == (3, 4, 6.0)
    assert (len(two.replay), two.left_out, two.rps) == (6, 1, 12.0)
    script = artefact.parse(render(made, "bash"), "serve.sh")
    shown = " ".join(dry_run(script, made, {"PATH": "/nowhere"}, (one, two)).split())
    assert (
        "6 requests/s (as in the trace), text only: 3 requests of the trace, input tokens 1,300 (400 to 1,500)" in shown
    )
    assert "1,024 repeated from earlier requests, 4 left out" in shown
    assert "12 requests/s (as in the trace, 2 times as fast)" in shown


def test_requests_beyond_the_session_are_cut(tmp_path: Path) -> None:
    """The server would refuse them; the record counts them, and what they share ends where they do."""
    made = traced(tmp_path)
    short = replace(made, config=replace(made.config, session_len=1000))
    (driven,) = phases.parse_loads(("trace",), short)
    room = 1000 - made.resolved.model.chat_tokens - 1
    wanted = [min(prompt, room - output) for prompt, output in LENGTHS]
    assert [each.prompt for each in driven.replay] == wanted
    assert driven.cut == sum(prompt < asked for prompt, (asked, _) in zip(wanted, LENGTHS, strict=True)) == 4
    assert all(each.shared < each.prompt for each in driven.replay)


def test_max_context_cuts_the_trace_too(tmp_path: Path) -> None:
    """Prompt and answer have at most so many tokens of text, as in any other load."""
    (driven,) = phases.parse_loads(("trace",), traced(tmp_path, max_context=1400))
    assert [each.prompt for each in driven.replay] == [min(prompt, 1400 - output) for prompt, output in LENGTHS]
    assert driven.cut == 3


def test_a_phase_is_predicted_with_its_own_requests(tmp_path: Path) -> None:
    """The record holds what was sent; the prediction is the simulation of just that, and bursts wait longer."""
    made = traced(tmp_path)
    (driven,) = phases.parse_loads(("trace",), made)
    run = recorded(made, driven, simulated_outcome(made, driven))
    (phase,) = run.phases
    assert phase.drawn is not None
    assert read_replay(phase.drawn) == driven.replay
    assert report.check_goals(made, run) == []
    assert name_of(driven) == name_of_phase(phase) == "trace"
    predicted = predict_replay(made, run, phase)
    assert predicted.rps.value == pytest.approx(driven.rps)
    even = tuple(each._replace(at=round(1600 * place / 6)) for place, each in enumerate(driven.replay))
    spread = replace(driven, replay=even)
    other = recorded(made, spread, simulated_outcome(made, spread))
    calm = predict_replay(made, other, other.phases[0])
    assert predicted.at("ttft", "p90") > calm.at("ttft", "p90")
    alone = replace(driven, replay=tuple(each._replace(shared=0) for each in driven.replay))
    fresh = recorded(made, alone, simulated_outcome(made, alone))
    if made.config.prefix_caching:
        assert predict_replay(made, fresh, fresh.phases[0]).at("ttft", "mean") > predicted.at("ttft", "mean")
    shown = " ".join(report.text(made, run).split())
    assert "as in the trace" in shown
    assert "7 requests of the trace" in shown


@pytest.mark.parametrize(
    ("request_", "phase", "said"),
    [
        ({}, "0xtrace", "cannot be 0 times as fast"),
        ({"turns": 2}, "trace", "a trace has no --turns"),
        ({"rps": 3.0}, "trace", "leave out options that replace what the trace says: --rps"),
        ({"prompt_tokens": 30}, "trace", "--image and lengths"),
        ({"concurrency": 3}, "trace", "leave out options that replace them, such as --load"),
    ],
)
def test_what_cannot_be_replayed_is_refused(tmp_path: Path, request_: dict[str, Any], phase: str, said: str) -> None:
    """Where an option takes the place of what the trace says, or the words make no sense."""
    with pytest.raises(RequestError, match=said):
        phases.parse_loads((phase,), traced(tmp_path, **request_))


def test_a_trace_from_launch_to_record(tmp_path: Path) -> None:
    """The command replays a trace at a stand-in server, reports it and keeps what was driven."""
    trace = mooncake(tmp_path / "trace.jsonl")
    ran = smoke(
        tmp_path, "--text-only", "--trace", str(trace), "--phase", "trace", "--save-evidence", "run.yaml",
        "--model", "{model}", seconds="1",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "1 left out" in " ".join(ran.out.split())
    (phase,) = read_record(ran.work / "run.yaml", records.SmokeRun).phases
    assert (phase.drawn.left_out, phase.drawn.trace_speed) == (1, 1.0)
    assert run_figures.numbers(phase.drawn.arrivals_ms) == list(AT[:6])
    assert sorted(run_figures.numbers(phase.drawn.output_tokens)) == sorted(output for _, output in LENGTHS[:6])
    assert read_replay(phase.drawn)[3] == Replayed(800, 2000, 4, 1, 1300)
