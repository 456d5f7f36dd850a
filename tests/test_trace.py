"""A file of requests becomes a load: each format in its true form, with expectations computed by hand."""

from __future__ import annotations

import codecs
import gzip
import itertools
import json
import os
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from artefacts import recommend_here
from hypothesis import given
from hypothesis import strategies as st

from recommender.common.errors import RequestError
from recommender.common.timestamps import number, seconds
from recommender.request import trace, trace_prefix, trace_rows
from recommender.request.request import Request
from recommender.request.trace import Trace, quantiles, read_trace
from recommender.request.trace_load import choose_window, learn_load
from recommender.request.trace_prefix import Prefixes

# The two requests of the trace's README.
MOONCAKE = """\
{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 2353, 2354]}
{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 2366]}
"""  # noqa: E501
AZURE_2023 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:06.0319600,110,27
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,Conversation log
"""


def read(folder: Path, text: str | bytes, name: str = "trace") -> Trace:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(path)


def refused(folder: Path, text: str | bytes) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(RequestError) as caught:
        read(folder, text)
    said = str(caught.value)
    assert said.startswith(f"--trace '{folder / 'trace'}': ")
    assert said.isprintable()
    assert len(said) < 600 + len(str(folder))
    return said.partition("': ")[2]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def note(found: Trace) -> str:
    """The summary's line of notes; empty if it has none."""
    return next((line for line in found.summary if line.startswith("note: ")), "")


# --- published traces


def test_mooncake(tmp_path: Path) -> None:
    """Milliseconds, and the 12 shared blocks of 512 tokens that its README counts."""
    found = read(tmp_path, MOONCAKE)
    assert (found.format, found.requests, found.skipped) == ("Mooncake trace", 2, ())
    assert found.input_tokens == (6955, 6472)
    assert found.output_tokens == (52, 26)
    assert found.arrivals_s == pytest.approx((0, 3.053))
    assert found.prefix_tokens == 12 * 512
    assert found.prefix_hit_share == pytest.approx(6144 / (6955 + 6472))
    assert "a prefix cache finds up to 46% of the input" in "\n".join(found.summary)


def test_the_last_block_is_not_full(tmp_path: Path) -> None:
    """The same prompt twice is found whole, not to the end of its last block."""
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
    found = read(tmp_path, lines(row, row))
    assert (found.prefix_tokens, found.prefix_hit_share) == (600, 0.5)


def test_bailian_has_blocks_of_16_tokens_and_seconds(tmp_path: Path) -> None:
    """As its README specifies; else its fields are Mooncake's."""
    first = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 40, "output_length": 7, "turn": 1}
    second = first | {"timestamp": 61.5, "input_length": 48}
    found = read(tmp_path, lines(first | {"hash_ids": [9, 8, 7]}, second | {"hash_ids": [9, 8, 5]}))
    assert found.format == "Qwen Bailian trace"
    assert found.arrivals_s == (0, 60)
    assert found.prefix_hit_share == pytest.approx(32 / 88)


@pytest.mark.parametrize("form", [str.encode, lambda text: codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode()])
def test_azure_2023(tmp_path: Path, form: Any) -> None:
    """Seven digits of a second, with and without a byte order mark and carriage returns."""
    found = read(tmp_path, form(AZURE_2023))
    assert (found.format, found.requests, found.skipped) == ("Azure LLM inference trace", 3, ())
    assert found.input_tokens == (4808, 3180, 110)
    assert found.output_tokens == (10, 8, 27)
    assert found.arrivals_s == pytest.approx((0, 0.052, 2.052), abs=2e-6)
    gaps = (0.052, 2.0)
    burstiness = statistics.pstdev(gaps) / statistics.mean(gaps)
    assert f"arrivals: 0.975 a second for 2 s, burstiness {burstiness:.2f} (1 is Poisson)" in found.summary
    assert "input tokens: p50 3,180, p90 4,808, p99 4,808, mean 2,699" in found.summary


def test_azure_2024(tmp_path: Path) -> None:
    """Times with a zone."""
    assert read(tmp_path, AZURE_2024).arrivals_s == pytest.approx((0, 0.007405), abs=2e-6)


def test_burstgpt_counts_its_failures(tmp_path: Path) -> None:
    """A response of no tokens is a failure there."""
    found = read(tmp_path, BURSTGPT)
    assert (found.format, found.input_tokens, found.arrivals_s) == ("BurstGPT trace", (472, 1087), (0, 40))
    assert found.skipped == (("output tokens: zero", 1),)
    assert "not understood: 1 output tokens: zero" in found.summary


# --- logs of one's own


@pytest.mark.parametrize("name", ["latency_s", "latency_ms", "duration_s", "duration_ms", "elapsed_time"])
def test_durations_say_how_many_ran_at_once(name: str, tmp_path: Path) -> None:
    """1.5 seconds each from 0, 1 and 3 s on: two run from 1 to 1.5 s; thousandths overlap nowhere, thousands all."""
    lasted = 1500 if name.endswith("_ms") else 1.5
    row = {"input_tokens": 50, "output_tokens": 5, name: lasted}
    found = read(tmp_path, lines(*({"start_time": 1_700_000_000 + start} | row for start in (0, 1, 3))))
    assert (found.arrivals_s, found.most_in_flight) == ((0, 1, 3), 2)


# --- results of benchmarks


def guidellm_request(start: float, tokens: int = 256, made: int = 128, end: float | None = None) -> dict[str, Any]:
    """A successful request as GuideLLM 0.7.3 writes it."""
    return {
        "type_": "generative_request_stats", "request_id": "a", "output": "text",
        "info": {"timings": {"request_start": start}}, "input_metrics": {"text_tokens": tokens, "image_count": 2},
        "request_start_time": 1.7e9 + start, "request_end_time": 1.7e9 + (start + 1.5 if end is None else end),
        "prompt_tokens": tokens, "output_tokens": made, "cached_tokens": 64,
    }  # fmt: skip


def guidellm(*requests: dict[str, Any], strategy: str = "poisson", made: int = 0, **failed: Any) -> dict[str, Any]:
    return {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": strategy, "rate": 2}},
        "metrics": {"request_totals": {"successful": made or len(requests)}},
        "requests": {"successful": list(requests), "errored": [], "incomplete": []} | failed,
    }


def report(*benchmarks: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"version": 2}, "benchmarks": list(benchmarks)}


@pytest.mark.parametrize("indent", [None, 2])
def test_guidellm(tmp_path: Path, indent: int | None) -> None:
    """Newer reports: start, end, cached tokens and images; what failed or was cut off is counted."""
    requests = [guidellm_request(0, 256, 128), guidellm_request(1, 300, 64), guidellm_request(4, 20, 8)]
    failed = {"errored": [guidellm_request(2)], "incomplete": [guidellm_request(5), guidellm_request(6)]}
    found = read(tmp_path, json.dumps(report(guidellm(*requests, **failed)), indent=indent))
    assert (found.format, found.requests) == ("GuideLLM results", 3)
    assert (found.input_tokens, found.output_tokens) == ((256, 300, 20), (128, 64, 8))
    assert found.arrivals_s == pytest.approx((0, 1, 4))
    assert found.skipped == (("failed: incomplete", 2), ("failed: errored", 1))
    assert found.most_in_flight == 2  # 0 to 1.5, 1 to 2.5, 4 to 5.5
    assert found.images == 2
    assert found.prefix_hit_share == pytest.approx((64 + 64) / 576)  # 64 of a prompt of 20 cannot be
    assert "prefix cache: the server found 22% of the input in it" in found.summary


def test_guidellm_0_2(tmp_path: Path) -> None:
    """Older reports: other names of the times, the strategy and the number of requests."""
    request = {"type_": "generative_text_response", "prompt_tokens": 9, "output_tokens": 4, "start_time": 1.7e9}
    run = {
        "type_": "generative_benchmark",
        "args": {"strategy": {"type_": "constant"}},
        "run_stats": {"requests_made": {"successful": 2}},
        "requests": {"successful": [request | {"start_time": 1.7e9 + 3}, request], "errored": None},
    }
    found = read(tmp_path, json.dumps(report(run)))
    assert (found.requests, found.arrivals_s) == (2, (0, 3))
    assert "sorted" in note(found)  # requests are written as they end
    run["args"] = {"strategy": {"type_": "synchronous"}}
    assert read(tmp_path, json.dumps(report(run))).arrivals_s == ()


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([guidellm(guidellm_request(0), guidellm_request(1), strategy="concurrent")], "concurrent"),
        ([guidellm(guidellm_request(0), guidellm_request(1), made=1000)], "keeps 2 of 1,000 requests"),
        ([guidellm(guidellm_request(0)), guidellm(guidellm_request(9))], "several runs"),
    ],
)
def test_times_that_are_no_arrivals_are_left_out(tmp_path: Path, runs: list[dict[str, Any]], said: str) -> None:
    """A closed loop, a sample, or runs at several rates: the lengths are true, the arrivals are none."""
    found = read(tmp_path, json.dumps(report(*runs)))
    assert (found.requests, found.arrivals_s) == (2, ())
    assert said in note(found)
    assert "arrivals: none known" in found.summary


@pytest.mark.parametrize(
    ("rows", "said"), [(1, "one request tells neither arrivals"), (19, "too few requests"), (20, "")]
)
def test_few_requests_are_no_sample(tmp_path: Path, rows: int, said: str) -> None:
    """One row has no gap and one length; the summary warns, and the job still runs."""
    lines = [f"{at},{300 + at},{200 - at}" for at in range(rows)]
    found = read(tmp_path, "\n".join(["timestamp_s,input_tokens,output_tokens", *lines]))
    assert found.requests == rows
    assert (said in note(found)) if said else not note(found)


def vllm(**fields: Any) -> dict[str, Any]:
    return {
        "date": "20261123-101112", "backend": "vllm", "num_prompts": 3, "request_rate": 2.0, "burstiness": 1.0,
        "max_concurrency": None, "duration": 3.5, "completed": 2, "failed": 1, "total_input_tokens": 150,
        "total_output_tokens": 7, "input_lens": [100, 50, 70], "output_lens": [4, 3, 0], "ttfts": [0.5, 0.25, 0.0],
        "itls": [[0.1, 0.1, 0.1], [0.5, 0.25], []], "start_times": [1000.0, 1000.75, 1001.0],
        "generated_texts": ["a", "b", ""], "errors": ["", "", "Traceback: timeout"],
    } | fields  # fmt: skip


def test_vllm(tmp_path: Path) -> None:
    """Lists of lengths and starts; durations are the sums of all token times."""
    found = read(tmp_path, json.dumps(vllm()))
    assert (found.format, found.requests) == ("vllm bench results", 2)
    assert (found.input_tokens, found.output_tokens) == ((100, 50), (4, 3))
    assert found.arrivals_s == (0, 0.75)
    assert found.skipped == (("failed", 1),)
    assert found.most_in_flight == 2  # 1000.0 to 1000.8 and 1000.75 to 1001.75
    assert read(tmp_path, json.dumps(vllm(latencies=[0.5, 1, 0]))).most_in_flight == 1


def test_vllm_in_a_closed_loop_has_no_arrivals(tmp_path: Path) -> None:
    """Without a rate, requests start as others end."""
    found = read(tmp_path, json.dumps(vllm(request_rate="inf", max_concurrency=16, start_times=[])))
    assert (found.arrivals_s, found.most_in_flight) == ((), 16)
    assert "16 clients in a closed loop" in note(found)


def test_vllm_without_details_gives_means(tmp_path: Path) -> None:
    """Only totals are saved then; the summary says so, and how to save more."""
    plain = {name: value for name, value in vllm().items() if not isinstance(value, list)}
    found = read(tmp_path, json.dumps(plain))
    assert (found.input_tokens, found.output_tokens) == ((75, 75), (4, 4))
    assert found.skipped == (("failed", 1),)
    assert "--save-detailed" in note(found)


def test_vllm_appends_results(tmp_path: Path) -> None:
    """With --append-result, each line is a run."""
    found = read(tmp_path, json.dumps(vllm()) + "\n" + json.dumps(vllm()))
    assert (found.requests, found.arrivals_s) == (4, ())
    assert found.summary[0] == "vllm bench results: 4 requests of 2 runs"


def test_vllm_lists_of_different_length(tmp_path: Path) -> None:
    """What a list lacks is missing."""
    found = read(tmp_path, json.dumps(vllm(output_lens=[4], errors=[])))
    assert (found.requests, found.skipped) == (1, (("output tokens: missing", 2),))


def test_absurd_values_of_results_are_passed_over(tmp_path: Path) -> None:
    """Numbers of 400 digits, and lists where numbers belong."""
    huge, nested = 10**400, [[[] for _ in range(1000)]] * 3
    fields = dict.fromkeys(("max_concurrency", "max_concurrent_requests", "failed", "completed"), huge)
    found = read(tmp_path, json.dumps(vllm(**fields, ttfts=[[]] * 3, itls=nested)))
    assert (found.requests, found.most_in_flight) == (2, 0)
    assert "needed" in refused(tmp_path, json.dumps({"completed": 1, "total_input_tokens": huge}))
    assert read(tmp_path, json.dumps(report(guidellm(guidellm_request(0), made=huge)))).requests == 1


# --- access logs


def logged(tokens: int, made: int, created: Any, *texts: str, **fields: Any) -> dict[str, Any]:
    """A line of a log; texts are a system prompt and a user's turns."""
    roles = ["system", *["user"] * len(texts)]
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    usage = {"prompt_tokens": tokens, "completion_tokens": made, "total_tokens": tokens + made}
    return {"created": created, "usage": usage} | ({"messages": messages} if texts else {}) | fields


def test_an_access_log(tmp_path: Path) -> None:
    """Prefixes are whole messages, with the tokens of their share of the characters; errors are counted."""
    rows = [logged(100, 10, 1_700_000_000 + 2 * at, "s" * 300, str(at) * 100) for at in range(4)]
    found = read(tmp_path, lines(*rows, {"status": 429, "error": {"message": "no"}}, {"status": 200}))
    assert (found.format, found.requests) == ("OpenAI-style access log", 4)
    assert found.arrivals_s == (0, 2, 4, 6)
    assert found.prefix_tokens == 75
    assert found.prefix_hit_share == pytest.approx(3 * 75 / 400)
    assert found.skipped == (("failed: HTTP 429", 1), ("input tokens: missing", 1))
    assert "by their share of the characters" in note(found)


def test_turns_find_the_turns_before(tmp_path: Path) -> None:
    """A chat's second turn begins with its first one."""
    found = read(tmp_path, lines(logged(40, 1, 1.7e9, "ss", "aa"), logged(90, 1, 1.7e9, "ss", "aa", "bbbbb")))
    assert found.prefix_hit_share == pytest.approx(40 / 130)


@pytest.mark.parametrize("wrap", [lambda row: {"response": row}, lambda row: {"response": {"body": row}}])
def test_a_log_of_wrapped_responses(tmp_path: Path, wrap: Any) -> None:
    """Proxies and batch outputs wrap what the server answered."""
    found = read(tmp_path, lines(*(wrap(logged(9, 2, 1_700_000_000 + at)) for at in range(3))))
    assert (found.input_tokens, found.output_tokens, found.arrivals_s) == ((9, 9, 9), (2, 2, 2), (0, 1, 2))


def test_images_and_cached_tokens(tmp_path: Path) -> None:
    """The most frequent number of images; without prompts, what the server says that it found."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    turns = [[picture], [picture, {"type": "text", "text": "what?"}], [picture, picture]]
    rows = [logged(500, 9, at, messages=[{"role": "user", "content": turn}]) for at, turn in enumerate(turns)]
    assert read(tmp_path, lines(*rows)).images == 1
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 60}}
    found = read(tmp_path, lines({"usage": usage}, {"usage": usage | {"prompt_tokens_details": None}}))
    assert (found.prefix_hit_share, found.prefix_tokens, found.images, found.arrivals_s) == (0.3, 0, 0, ())


# --- times


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1_700_000_000, "", 1.7e9), ("1700000000.5", "", 1.7e9 + 0.5), (1_700_000_000_250, "", 1.7e9 + 0.25),
        (1_700_000_000_250_000, "", 1.7e9 + 0.25), (1_700_000_000_250_000_000, "", 1.7e9 + 0.25),
        ("2023-11-14T22:13:20Z", "", 1.7e9), ("2023-11-14 22:13:20.2500000", "", 1.7e9 + 0.25),
        ("2023-11-15T05:13:20+07:00", "", 1.7e9), ("2023-11-14 22:13:20 UTC", "", 1.7e9), ("9.5e-05", "", 9.5e-05),
        (3000, "ms", 3), (True, "", None), (None, "", None), ("", "", None), ("yesterday", "", None),
        ("nan", "", None), (float("inf"), "s", None), (10**400, "", None), ({}, "", None),
    ],
)  # fmt: skip
def test_times(value: object, unit: str, expected: float | None) -> None:
    """Dates in each unit and form; the size of a number says its unit."""
    found = seconds(value, unit)
    assert (found and found[0]) == (None if expected is None else pytest.approx(expected, abs=1e-6))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), ("7", 7), (" 7 ", 7), ("7.5", 7.5), (-1, -1), ("1e3", 1000), (False, None), ("1_0", None), ("١", None)],
)
def test_numbers(value: object, expected: float | None) -> None:
    """What Python reads as a number and people do not write is none."""
    assert number(value) == expected


def table(*times: Any, name: str = "arrival_time") -> str:
    """A table of requests with ascending lengths and these times."""
    rows = "".join(f"{time},{place},1\n" for place, time in enumerate(times, 1))
    return f"{name},input_tokens,output_tokens\n{rows}"


def test_rows_out_of_order_are_sorted_with_their_lengths(tmp_path: Path) -> None:
    """And the summary says so."""
    found = read(tmp_path, table(1.7e9 + 9, 1.7e9, 1.7e9 + 4))
    assert (found.arrivals_s, found.input_tokens) == ((0, 4, 9), (2, 3, 1))
    assert "sorted" in note(found)


def test_units_may_be_mixed(tmp_path: Path) -> None:
    """Seconds, milliseconds and text of the same clock."""
    found = read(tmp_path, table(1_700_000_000, 1_700_000_001_500, "2023-11-14 22:13:23"))
    assert found.arrivals_s == pytest.approx((0, 1.5, 3))
    assert "ISO 8601, ms, s" in note(found)


@pytest.mark.parametrize(
    ("name", "unit"), [("arrival_ms", 1e-3), ("timestamp_s", 1), ("arrived_at", 1), ("Start Time (ms)", None)]
)
def test_the_name_of_a_column_says_the_unit(tmp_path: Path, name: str, unit: float | None) -> None:
    """Small numbers are seconds where it does not."""
    found = read(tmp_path, table(1000, 3000, name=name))
    assert found.arrivals_s == ((0, 2000 * unit) if unit else ())
    assert ("Reading times as seconds" in note(found)) == (name == "arrived_at")


def test_rows_without_a_time(tmp_path: Path) -> None:
    """A few are counted; where most lack it, there are no arrivals and no length is lost."""
    few = read(tmp_path, table(1.7e9, "soon", 1.7e9 + 1, "", 5, 1.7e9 + 2, 1.7e9 + 3))
    assert (few.requests, few.arrivals_s) == (4, (0, 1, 2, 3))
    assert dict(few.skipped) == {trace.BAD_TIME: 2, trace.OTHER_TIME: 1}
    most = read(tmp_path, table(1.7e9, "", "", ""))
    assert (most.requests, most.arrivals_s, most.skipped) == (4, (), ())
    assert "3 requests have no time" in note(most)


def burstiness(folder: Path, times: list[float]) -> float:
    line = next(line for line in read(folder, table(*times)).summary if line.startswith("arrivals"))
    return float(line.partition("burstiness ")[2].split()[0])


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_burstiness_survives_a_coarse_clock(tmp_path: Path, scale: float) -> None:
    """Poisson arrivals are Poisson, whether the clock shows microseconds or ticks with many arrivals in each."""
    chance = random.Random(5)
    fine = list(itertools.accumulate(chance.expovariate(4.0) for _ in range(4000)))
    coarse = [1.7e9 + time // scale * scale for time in fine]
    assert burstiness(tmp_path, [1.7e9 + time for time in fine]) == pytest.approx(1, abs=0.05)
    assert burstiness(tmp_path, coarse) == pytest.approx(1, abs=0.1)


def test_burstiness_by_ticks(tmp_path: Path) -> None:
    """The root of the variance over the mean of the arrivals a tick."""
    assert burstiness(tmp_path, [1.7e9 + place // 12 for place in range(120)]) == 0
    ticks = [79, 1] * 10  # mean 40, deviation 39
    bursts = [1.7e9 + 10 * tick for tick, arrivals in enumerate(ticks) for _ in range(arrivals)]
    assert burstiness(tmp_path, bursts) == pytest.approx((39**2 / 40) ** 0.5, abs=0.01)


def test_all_at_once(tmp_path: Path) -> None:
    """No rate is made of no time."""
    assert "arrivals: all at once" in read(tmp_path, table(5, 5, 5)).summary


# --- tables, and what is no request


@pytest.mark.parametrize("sign", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("tokens", "made"),
    [
        ("input_tokens", "output_tokens"),
        ("Prompt Tokens", "Completion Tokens"),
        ("isl", "OSL"),
        ("context_tokens", "generated_tokens"),
        ("num_prefill_tokens", "num_decode_tokens"),
        ("usage.prompt_tokens", "usage.completion_tokens"),
    ],
)
def test_tables(tmp_path: Path, tokens: str, made: str, sign: str) -> None:
    """Names as people write them, in any order, beside other columns."""
    rows = [["model", made, tokens], ["a", "5", "10"], ["b", "6", "20.0"]]
    found = read(tmp_path, "\n".join(sign.join(row) for row in rows))
    assert (found.input_tokens, found.output_tokens, found.arrivals_s) == ((10, 20), (5, 6), ())
    as_json = read(tmp_path, lines(*(dict(zip(rows[0], row, strict=True)) for row in rows[1:])))
    assert as_json.input_tokens == found.input_tokens


def test_a_json_list_is_a_table(tmp_path: Path) -> None:
    """On one line, or indented."""
    rows = [{"input_tokens": 3, "output_tokens": 4}, {"input_tokens": 5, "output_tokens": 6}, 7]
    for indent in (None, 1):
        found = read(tmp_path, json.dumps(rows, indent=indent))
        assert (found.input_tokens, found.skipped) == ((3, 5), (("not a JSON object", 1),))


def test_each_row_that_is_no_request_is_counted(tmp_path: Path) -> None:
    """With its reason, the most frequent first; blank lines are no rows."""
    values = ["", "x", "x", "x", "0", "-5", "-7", "nan", "1.5", "2000001", "1e400"]
    rows = "".join(f"{value},1\n\n" for value in values)
    found = read(tmp_path, f"input_tokens,output_tokens\n9,1\n{rows}1,2,3\n4\n2000000,0\n2000000,1\n")
    assert found.input_tokens == (9, 2_000_000)
    assert found.skipped == (
        ("input tokens: not a whole number", 6),
        ("input tokens: negative", 2),
        ("other number of columns than the header", 2),
        ("input tokens: missing", 1),
        ("input tokens: zero", 1),
        ("input tokens: above 2,000,000", 1),
        ("output tokens: zero", 1),
    )
    assert sum(count for _, count in found.skipped) == len(values) + 3
    shown = next(line for line in found.summary if line.startswith("not understood"))
    assert "6 input tokens: not a whole number" in shown
    assert shown.endswith("3 other reasons")
    four = read(tmp_path, "input_tokens,output_tokens\n9,1\n,1\nx,1\n0,1\n-5,1\n")
    assert next(line for line in four.summary if line.startswith("not understood")).count("1 input tokens: ") == 4
    assert not any("other reasons" in line for line in four.summary)


def test_json_values_that_are_no_numbers(tmp_path: Path) -> None:
    """True is not 1; a line that is no JSON is counted like any other."""
    good = '{"input_tokens": 1, "output_tokens": 2}\n'
    bad = ["true", "null", "NaN", "Infinity", "[1]", "1" * 5000, '"\\ud800"']
    text = good + "".join(f'{{"input_tokens": {value}, "output_tokens": 2}}\n' for value in bad) + "{oops\n"
    found = read(tmp_path, text)
    assert found.requests == 1
    expected = {"input tokens: not a whole number": 5, "not valid JSON": 2, "input tokens: missing": 1}
    assert dict(found.skipped) == expected


def test_failed_requests_are_no_load(tmp_path: Path) -> None:
    """By a status in words or as HTTP's number, or by an error."""
    rows = "ok,,\n200,,\nFailed,,\n503,,\n200,boom,\n200,None,\n"
    text = "input_tokens,output_tokens,status,error,note\n" + "".join(f"5,5,{row}\n" for row in rows.split())
    found = read(tmp_path, text)
    assert found.requests == 3
    assert dict(found.skipped) == {"failed: failed": 1, "failed: HTTP 503": 1, "failed": 1}


# --- what is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no rows; it has no fields; needed is a number of tokens of input and output"),
        ("\n \n", "no rows; it has no fields"),
        ("input_tokens,output_tokens\n", "no rows; its fields are input_tokens, output_tokens"),
        ("when,who\n1,2\n", "its fields are when, who; needed is a number of tokens"),
        ("5,6\n7,8\n", "its fields are 5, 6; needed"),
        ("{}", "it has no fields"),
        ("[]", "no rows"),
        ("[1, 2", "invalid JSON"),
        ('{"a": 1}\n{"b": 2}\n', "its fields are a, b; needed"),
        ('[{"id": "x", "conversations": [{"from": "human", "value": "hi"}]}]', "ShareGPT, without numbers of tokens"),
        ('{"messages": [{"role": "user", "content": "hi"}]}', "tokenizer"),
        ("Run Info,Run Info,Benchmark\nA,B,C\n", "GuideLLM's CSV has no single requests; name its JSON report"),
        ("input_tokens,Input Tokens,output_tokens\n1,2,3\n", "has the column 'Input Tokens' twice; remove one"),
        ("input_tokens,output_tokens\nx,1\n-1,2\n", "no row is a request (1 input tokens: not a whole number, 1"),
        (json.dumps(report(guidellm(errored=[guidellm_request(0)]))), "needed is a number"),
        (json.dumps(vllm(errors=["a", "b", "c"])), "no row is a request (3 failed)"),
        (json.dumps(vllm(input_lens=[], output_lens=[], completed=0, failed=0)), "needed"),
        (b"\xff\xfe\x00a", "binary"),
        ("a,b\n".encode("utf-16"), "UTF-16"),
        (b"input_tokens,output_tokens\n1,\xff\n", "not UTF-8; save it as UTF-8"),
        (gzip.compress(b"input_tokens,output_tokens\n1,1\n", mtime=0), "compressed; unpack it first"),
        ("[" * 100_000, "invalid JSON: nested"),
        ("[" + "0," * 3_000_001 + "0]", "more than 3,000,000 entries"),
        ("," * 2_000_000, "line 1 has over 1,048,576 characters; cut it into rows"),
    ],
)
def test_one_line_says_why_a_file_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    """What was found, and what is needed."""
    assert said in refused(tmp_path, text)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A missing file, a folder, a pipe without a writer, a file of 65 MiB."""
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(65 * 2**20)
    for name, said in (("none", "No such file"), ("", "a folder"), ("pipe", "a pipe"), ("large", "larger than 64 MiB")):
        with pytest.raises(RequestError, match=f"^--trace '.*: {said}[^\n]*; [^\n]+$"):
            read_trace(tmp_path / name)


def test_more_rows_than_are_read_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lines as of lists; the first rows stand for the file."""
    monkeypatch.setattr(trace, "MOST_ROWS", 10)
    monkeypatch.setattr(trace_rows, "MOST_ROWS", 10)
    rows = [{"input_tokens": at + 1, "output_tokens": 1} for at in range(25)]
    csv = "input_tokens,output_tokens\n" + "".join(f"{at + 1},1\n" for at in range(25))
    runs = report(guidellm(*[guidellm_request(at) for at in range(12)]), guidellm(guidellm_request(20)))
    for text, left in ((lines(*rows), 15), (json.dumps(rows, indent=1), 15), (csv, 15), (json.dumps(runs), 3)):
        found = read(tmp_path, text)
        assert (found.requests, found.skipped) == (10, (("not read: more rows than needed", left),))


# --- lengths and prefixes


def test_quantiles_stand_for_the_whole() -> None:
    """Interpolated at (i + 0.5) / count: the mean stays, a single value repeats."""
    assert quantiles([7], 3) == (7, 7, 7)
    assert quantiles([4, 1, 3, 2], 4) == (1, 2, 3, 4)
    assert quantiles(range(1, 101), 10) == (6, 16, 26, 36, 46, 56, 66, 76, 86, 96)  # 5.5 is rounded up
    assert quantiles([10, 20], 4) == (10, 13, 18, 20)  # 12.5 and 17.5 are rounded up
    assert len(quantiles([1, 2])) == 50


@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=200), st.integers(1, 60))
def test_quantiles_ascend_within_the_values(values: list[int], count: int) -> None:
    """Whatever the lengths are."""
    found = quantiles(values, count)
    assert list(found) == sorted(found)
    assert min(values) <= found[0] <= found[-1] <= max(values)


def alike(one: list[int], other: list[int]) -> int:
    """The length of the beginning that two lists share."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=12))
def test_prefixes_agree_with_a_comparison_of_all_pairs(prompts: list[list[int]]) -> None:
    """Each prompt finds its longest beginning among those before; the common one begins 90 % of them."""
    prefixes = Prefixes()
    found = 0
    for place, prompt in enumerate(prompts):
        prefixes.add(prompt, range(10, 100, 10), 10 * len(prompt))
        found += max((alike(prompt, other) for other in prompts[:place]), default=0)
    assert prefixes.found == 10 * found
    shared = [
        length
        for prompt in prompts
        for length in range(1, len(prompt) + 1)
        if len(prompts) > 1 and sum(other[:length] == prompt[:length] for other in prompts) >= 0.9 * len(prompts)
    ]
    assert prefixes.common(len(prompts)) == 10 * max(shared, default=0)


def test_a_full_table_leaves_prompts_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no beginnings and count nowhere else, not even those whose beginning is known."""
    monkeypatch.setattr(trace_prefix, "MOST_PARTS", 2)
    prefixes = Prefixes()
    assert len(prefixes.add("ab", (10, 20), 20).hashes) == 2
    assert len(prefixes.add("ab", (10, 20), 20).hashes) == 0
    assert (prefixes.found, prefixes.tokens, prefixes.left_out, prefixes.common(1)) == (0, 20, 1, 0)


# --- no file breaks it

WORDS = st.sampled_from(
    [
        *("input_tokens", "output_tokens", "timestamp", "usage", "prompt_tokens", "completion_tokens", "messages"),
        *(
            "content", "role", "image_url", "type", "hash_ids", "input_length", "output_length", "benchmarks",
            "requests",
        ),
        *("successful", "errored", "input_lens", "output_lens", "itls", "ttfts", "errors", "completed", "status"),
        *("total_input_tokens", "start_times", "request_rate", "max_concurrency", "error", "response", "end_time"),
        *("config", "strategy", "latencies", "parent_chat_id", "images", "cached_tokens", "latency_ms", "failed"),
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=25,
)
ROWS = st.lists(VALUES, max_size=4).map(lambda rows: "\n".join(json.dumps(row) for row in rows))
CELLS = st.lists(st.lists(WORDS | st.text(max_size=8) | st.floats().map(str), max_size=4).map(",".join)).map("\n".join)


@given(st.binary(max_size=200) | (ROWS | CELLS).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_a_trace_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """And a trace holds together: one length of each kind for each request, arrivals ascending from 0."""
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    try:
        found = read_trace(path)
    except RequestError:
        return
    assert found.requests == len(found.input_tokens) == len(found.output_tokens) >= 1
    assert all(1 <= tokens <= 2_000_000 for tokens in (*found.input_tokens, *found.output_tokens))
    assert len(found.arrivals_s) in (0, found.requests)
    assert list(found.arrivals_s) == sorted(found.arrivals_s)
    assert not found.arrivals_s or found.arrivals_s[0] == 0
    assert 0 <= found.prefix_hit_share <= 1
    assert 0 <= found.prefix_tokens <= max(found.input_tokens)
    assert found.images >= 0 <= found.most_in_flight
    assert 4 <= len(found.summary) <= 8
    assert all(line.isprintable() for line in found.summary)


# --- replayed ------------------------------------------------------------------------------


def arrived(*seconds_: float) -> Trace:
    """A trace of requests with these arrivals; the number of a request is its input, its output one more."""
    lengths = tuple(range(1, len(seconds_) + 1))
    return Trace("", len(lengths), (), lengths, tuple(each + 1 for each in lengths), seconds_, 0, 0.0, 0, 0, ())


def test_a_short_trace_is_replayed_whole() -> None:
    """Milliseconds since the first, input and output."""
    window = choose_window(arrived(0, 0.5, 2), 3)
    assert [each[:3] for each in window] == [(0.0, 1, 2), (500.0, 2, 3), (2000.0, 3, 4)]


def test_of_a_long_trace_a_usual_part_is_replayed() -> None:
    """Twelve seconds in six gaps, so two gaps take four: those of 1 and 3 s do, and neither 1 and 1 nor 3 and 5."""
    window = choose_window(arrived(0, 1, 2, 3, 6, 11, 12), 3)
    assert [each[:3] for each in window] == [(0.0, 3, 4), (1000.0, 4, 5), (4000.0, 5, 6)]


def test_what_a_trace_says_is_replayed(tmp_path: Path) -> None:
    """Ten at once and a pause: the screen says so, and which goal is missed; the script keeps none of the requests."""
    at = [5000 * (place // 10) for place in range(40)]
    rows = [{"timestamp": when, "input_length": 50 * place + 40, "output_length": 30} for place, when in enumerate(at)]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(row | {"hash_ids": []}) for row in rows))
    words = ("--gpu", "H100-80G", "--model", "llama-3.1-8b-instruct", "--trace", str(path))
    done = recommend_here(*words)
    assert done.returncode == 0
    screen = " ".join(done.stderr.decode().split())
    assert "replayed: 40 requests of the trace as they came" in screen
    p99 = float(screen.partition("as they came; TTFT")[2].partition("p99 ")[2].split()[0])
    assert b"replay" not in done.stdout
    missing = " ".join(recommend_here(*words, "--ttft", f"p99:{p99 - 1:g}ms").stderr.decode().split())
    assert "misses --ttft" in missing
    assert "replayed:" not in recommend_here(*words, "--rps", "3").stderr.decode()


def test_a_rate_beside_a_trace_keeps_its_burstiness(tmp_path: Path) -> None:
    """A nearest change is a rate to add to the command: it must be predicted as it was when it was offered."""
    path = tmp_path / "trace.jsonl"
    times = [1.7e9 + place * 0.5 + place % 3 * 0.2 for place in range(400)]
    rows = [{"timestamp": time, "prompt_tokens": 900, "completion_tokens": 90} for time in times]
    path.write_text("\n".join(map(json.dumps, rows)))
    learned, _ = learn_load(Request(gpu="l4", model="qwen3-8b"), path)
    slower, _ = learn_load(Request(gpu="l4", model="qwen3-8b", rps=0.5), path)
    assert 0 < learned.burstiness < 1
    assert (slower.rps, slower.burstiness) == (0.5, learned.burstiness)
    typed, _ = learn_load(Request(gpu="l4", model="qwen3-8b", rps=0.5, burstiness=3.0), path)
    assert (typed.rps, typed.burstiness) == (0.5, 3.0)


@pytest.mark.parametrize("time", ["2026-02-31T10:00:{:02}Z", "31/01/2026 10:00:{:02}"])
def test_times_that_are_none_are_named(tmp_path: Path, time: str) -> None:
    """Where all of a file's are: without arrivals, the reader learns why."""
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": time.format(s), "prompt_tokens": 900, "completion_tokens": 90} for s in range(30)]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_trace(path)
    assert not found.arrivals_s
    assert f"arrivals left out: {time.format(0)!r} is no time; write seconds or ISO 8601" in " ".join(found.summary)
