"""Lengths that vary: their quantiles, texts, and what prompts and answers of a workload become."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from variants import STORE, TEXT, resolve, variant

from recommender.common.errors import RequestError
from recommender.request.lengths import pair_lengths, parse_tokens, read_lengths, spread, write_lengths
from recommender.request.load_lengths import LoadLengths, prompt_in_turn, resolve_lengths, total_variance
from recommender.request.request import MAX_TOKENS, Request
from recommender.request.resolved_request import check_context, resolve_request

MODEL = STORE.models[TEXT]
PLAIN = variant(
    STORE.workloads["text"], id="plain", prompt_tokens=200, prompt_p90=0, prompt_p99=0, output_tokens=100,
    output_p90=0, output_p99=0, prefix_tokens=0, turns=1,
)  # fmt: skip
FIFTY = [(place + 0.5) / 50 for place in range(50)]


def lengths(record: Any = PLAIN, /, **asked: Any) -> LoadLengths:
    """Those of a request with the workload's rest, for a model with a context of 32,768 tokens less 29 of template."""
    return resolve_lengths(Request("h100-sxm-80g", model=TEXT, **asked), record, MODEL)


# --- a distribution ----------------------------------------------------------------------


@given(st.integers(1, 50_000), st.floats(1, 5), st.floats(1, 5))
def test_lengths_have_their_quantiles(p50: int, more: float, most: float) -> None:
    """The last is p99. The median and p90 lie between the neighbours of their rank: 25 and 45 of fifty."""
    p90, p99 = round(p50 * more), round(p50 * more * most)
    assume(p99 > p50)
    made = spread(p50, p90, p99)
    assert len(made) == 50
    assert made[-1] == p99
    assert made[24] <= p50 <= made[25]
    assert made[44] <= p90 <= made[45]
    assert list(made) == sorted(made)
    assert made == spread(p50, p90, p99)


@given(st.integers(100, 50_000), st.floats(1.01, 20))
def test_two_quantiles_are_a_log_normal_distribution(p50: int, ratio: float) -> None:
    """Each of fifty stands in the middle of 2 %; it is a whole number, so it is off by 0.5 at most."""
    p99 = math.ceil(p50 * ratio)
    normal = NormalDist(math.log(p50), math.log(p99 / p50) / NormalDist().inv_cdf(0.99))
    expected = [math.exp(normal.inv_cdf(share)) for share in FIFTY]
    assert spread(p50, 0, p99) == pytest.approx(expected, abs=0.5 + 1e-6)


@given(st.integers(1000, 50_000), st.floats(1.05, 4))
def test_their_mean_is_that_of_the_distribution(p50: int, ratio: float) -> None:
    """exp(mu + s^2 / 2), and 1 % less at most: the upper 2 % have their median, not their mean, which is higher.

    With p99 = 4 p50 that mean is 4.32 p50, and 2 % of the 0.32 are 0.5 % of the whole mean; the rest is rounding.
    """
    p99 = round(p50 * ratio)
    s = math.log(p99 / p50) / NormalDist().inv_cdf(0.99)
    mean = math.fsum(spread(p50, 0, p99)) / 50
    assert 0.99 <= mean / (p50 * math.exp(s**2 / 2)) <= 1 + 0.5 / p50


@given(st.integers(100, 9000), st.floats(1, 3), st.floats(1, 4))
def test_they_are_symmetric_about_the_median_in_their_logarithm(p50: int, more: float, most: float) -> None:
    """A length times the one as far from the other end is the median's square, but for rounding both."""
    made = spread(p50, round(p50 * more), round(p50 * more * most))
    for low, high in zip(made, reversed(made), strict=True):
        assert low * high == pytest.approx(p50**2, abs=0.5 * (low + high) + 1)


@pytest.mark.parametrize("quantiles", [(7,), (7, 7), (7, 0, 7), (7, 7, 7), (7, 3, 5)])
def test_one_length_does_not_vary(quantiles: tuple[int, ...]) -> None:
    """Also where p90 and p99 are the median, or less."""
    assert spread(*quantiles) == (7,)


def test_short_lengths_are_at_least_one() -> None:
    """A median of one token with a long tail."""
    made = spread(1, 0, 1000)
    assert min(made) == 1
    assert made[-1] == 1000


@given(st.integers(1, 60), st.integers(1, 60))
def test_pairs_keep_both_distributions(inputs: int, outputs: int) -> None:
    """Each length is in as many pairs as any other of its list, or in one more."""
    pairs = pair_lengths(range(inputs), range(outputs))
    assert len(pairs) == max(inputs, outputs)
    for side, size in enumerate((inputs, outputs)):
        times = [sum(pair[side] == place for pair in pairs) for place in range(size)]
        assert max(times) - min(times) <= 1 <= min(times)


def test_pairs_relate_neither() -> None:
    """Of fifty pairs the ranks correlate by less than twice the standard error of independent ones."""
    ranks = np.array(pair_lengths(range(50), range(50)), dtype=float)
    assert abs(float(np.corrcoef(ranks.T)[0, 1])) < 2 / math.sqrt(49)


# --- texts -------------------------------------------------------------------------------


@given(st.lists(st.integers(1, MAX_TOKENS), max_size=60))
def test_lengths_are_read_as_they_are_written(made: list[int]) -> None:
    """In ascending order; none is an empty text."""
    assert read_lengths(write_lengths(made), MAX_TOKENS) == tuple(sorted(made))


@pytest.mark.parametrize(
    "text", ["0", "1,", ",", "1,,2", "1 ,2", "-1", "+1", "1.0", "1e3", "2000001", "٣", "²", "a", " "]
)
def test_a_list_of_lengths_holds_whole_numbers(text: str) -> None:
    """Anything else is an error of one line."""
    with pytest.raises(RequestError, match="whole numbers from 1 to 2000000") as caught:
        read_lengths(text, MAX_TOKENS)
    assert "\n" not in str(caught.value)


def test_a_list_of_lengths_has_an_end() -> None:
    """A thousand are read, and no more; nor does the error repeat them all."""
    assert read_lengths(write_lengths([5] * 1000), MAX_TOKENS) == (5,) * 1000
    with pytest.raises(RequestError) as caught:
        read_lengths(write_lengths([5] * 1001), MAX_TOKENS)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16", (16, 0)), (" 16 ", (16, 0)), ("+16", (16, 0)), ("8k", (8000, 0)), ("8K", (8192, 0)),
        ("1.5k", (1500, 0)), ("0.5K", (512, 0)), ("2m", (2_000_000, 0)), ("2000000", (2_000_000, 0)),
        ("500:2000", (500, 2000)), ("500:2k", (500, 2000)), ("1K:8K", (1024, 8192)), ("500:500", (500, 500)),
    ],
)  # fmt: skip
def test_tokens_as_people_write_them(text: str, expected: tuple[int, int]) -> None:
    """One number, or median and 99th percentile."""
    assert parse_tokens("--isl", text, MAX_TOKENS) == expected


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "2000001", "2M", "1e99", "1e400", "1e99k", "1e400k", "1e999M", "1e3", "16.0", "16.", "1.0005k", ".1k:5",
     "8q", "8 tokens", "", " ", ":", "5:", ":5", "1:2:3", "2000:500", "8k:8", "١٢", "²", "1_000", "1,000", "nan", "inf",
     "infk", "0x10", "1\n2", "5\n:\n4", "9" * 400, "9" * 39 + "k"],
)  # fmt: skip
def test_what_is_no_number_of_tokens(text: str) -> None:
    """An error of one line that names the option; nothing else is raised."""
    with pytest.raises(RequestError) as caught:
        parse_tokens("--isl", text, MAX_TOKENS)
    said = str(caught.value)
    assert said.startswith("--isl ")
    assert "\n" not in said
    assert len(said) < 250


# --- of a request ------------------------------------------------------------------------


def test_a_workload_fills_what_is_not_given() -> None:
    """Prompt, answer, prefix and turns are each the request's, or the workload's."""
    chat = variant(PLAIN, prompt_tokens=300, prompt_p99=900, output_p90=150, output_p99=400, prefix_tokens=90, turns=3)
    bare = lengths(chat)
    assert (bare.prompts, bare.outputs) == (spread(300, 0, 900), spread(100, 150, 400))
    assert (bare.prefix, bare.turns) == (90, 3)
    given_prompt = lengths(chat, prompt_tokens=50)
    assert (given_prompt.prompts, given_prompt.outputs) == ((50,), bare.outputs)
    assert (given_prompt.prefix, given_prompt.turns) == (0, 3)  # another prompt has not this workload's prefix
    given_all = lengths(chat, input_lengths="9,5", output_tokens=7, output_p99=20, prefix_tokens=4, turns=1)
    assert given_all == LoadLengths((5, 9), spread(7, 0, 20), 7, round(sum(spread(7, 0, 20)) / 50), 4, 1, 0)


def test_turns_by_hand() -> None:
    """Each turn repeats what was said, and asks as much as the first did beside the prefix."""
    assert [prompt_in_turn(300, 100, turn, 120, 0) for turn in range(4)] == [300, 580, 860, 1140]
    assert [prompt_in_turn(300, 100, turn, 120, 800) for turn in range(4)] == [300, 580, 700, 700]
    found = lengths(prompt_tokens=300, output_tokens=100, prefix_tokens=120, turns=4)
    assert (found.prompt_tokens, found.output_tokens) == (720, 100)
    cut = lengths(prompt_tokens=300, output_tokens=100, prefix_tokens=120, turns=4, max_context=800)
    assert cut.prompt_tokens == 570


def test_no_turn_is_shorter_than_the_one_before() -> None:
    """Also of a short prompt beside a long prefix: it holds the prefix, whatever the quantiles say."""
    found = resolve(model=TEXT, prompt_tokens=500, prompt_p99=2000, prefix_tokens=400, output_tokens=100, turns=6)
    for prompt in found.prompts:
        turns = [found.prompt_in_turn(prompt, 100, turn) for turn in range(6)]
        assert turns == sorted(turns), prompt
        assert turns[0] >= 1


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.lists(st.integers(1, 5000), min_size=1, max_size=50))
def test_the_variance_of_single_requests(prompts: list[int], outputs: list[int]) -> None:
    """Prompt and answer vary independently, so it is that of all pairs."""
    pairs = np.add.outer(prompts, outputs)
    found = total_variance(tuple(prompts), tuple(outputs), 1, 0, 0)
    assert found == pytest.approx(float(pairs.var()), rel=1e-9, abs=1e-6)


def test_the_variance_of_turns() -> None:
    """Two turns of prompts that do not vary: the second is as much longer as prompt and answer."""
    assert total_variance((300,), (100,), 2, 0, 0) == pytest.approx(200**2)


def test_a_workload_is_cut_to_the_context_and_says_so() -> None:
    """Only one that was asked for by name; lengths that the user gave are an error that says what fits."""
    room = MODEL.text.max_positions - MODEL.chat_tokens
    long = variant(PLAIN, id="long", prompt_tokens=8000, prompt_p99=60_000, turns=2)
    cut = lengths(long, workload="long")
    assert cut.max_context == room - 1  # a session holds a token more than prompt and answer
    assert "long" in cut.notes[0]
    assert f"{room:,}" in cut.notes[0]
    assert cut.prompt_tokens + cut.output_tokens <= room
    asked = {"prompt_tokens": 8000, "prompt_p99": 60_000, "output_tokens": 100, "turns": 2}
    with pytest.raises(RequestError, match=f"{60_100 + 60_100:,} tokens.*--max-context {room}"):
        check_context(resolve_request(Request("h100-sxm-80g", model=TEXT, **asked), STORE))
    fits = lengths(prompt_tokens=8000, prompt_p99=60_000, turns=2, max_context=room)
    assert fits.max_context == room
    assert [f"--max-context {room}" in note for note in fits.notes] == [True]


def test_prompts_cut_by_a_given_limit_are_said() -> None:
    """A limit that shortens the user's own prompts is noted; one that shortens none is not."""
    cut = lengths(prompt_tokens=8000, output_tokens=1000, max_context=4000)
    assert cut.prompt_tokens == 3000
    assert "cut" in cut.notes[0]
    assert "--max-context 4000" in cut.notes[0]
    assert lengths(prompt_tokens=3000, output_tokens=1000, max_context=4000).notes == ()
    assert lengths(prompt_tokens=3001, output_tokens=1000, max_context=4000).notes
    assert lengths(prompt_tokens=1000, output_tokens=1000, max_context=4000, turns=2).notes == ()
    assert lengths(prompt_tokens=1000, output_tokens=1000, max_context=4000, turns=3).notes


def test_exactly_the_context_fits() -> None:
    """Prompt and answer of the last turn: one token more does not."""
    room = MODEL.text.max_positions - MODEL.chat_tokens
    half = room // 2
    assert lengths(prompt_tokens=half - 100, output_tokens=100, turns=2).notes == ()
    with pytest.raises(RequestError, match="ask for less"):
        check_context(resolve(prompt_tokens=half - 99, output_tokens=100, turns=2, model=TEXT))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prompt_tokens": 500, "prompt_p99": 400}, "p99 is below p50"),
        ({"prompt_p99": 400}, "needs a median"),
        ({"output_tokens": 9, "output_p99": -1}, "whole number"),
        ({"prompt_tokens": 100, "prefix_tokens": 100}, "raise --input-tokens"),
        ({"prefix_tokens": 200}, "200 tokens at most"),
        ({"input_lengths": "5,6", "prefix_tokens": 6}, "raise --input-tokens"),
        ({"input_lengths": "5,0"}, "whole numbers"),
        (
            {"max_context": 120, "prefix_tokens": 20, "output_tokens": 100},
            "prefix and answer alone may take 120 tokens",
        ),
        ({"output_tokens": 10, "output_p99": 300, "max_context": 300}, "an answer alone may take 300 tokens"),
        ({"max_context": 1_000_000}, "has a context of"),
    ],
)
def test_lengths_that_contradict_each_other(asked: dict[str, Any], said: str) -> None:
    """An error of one line says which."""
    with pytest.raises(RequestError, match=said) as caught:
        lengths(**asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        # 1,900 + 2 x (100 + 16) = 2,132 tokens hold the prefix, one exchange and the next.
        ({"turns": 5, "max_context": 2131, "prefix_tokens": 1900, "prompt_tokens": 2000}, "needs 2,132 tokens"),
        ({"turns": 5, "max_context": 2132, "prefix_tokens": 1900, "prompt_tokens": 2000}, ""),
        ({"turns": 5, "max_context": 2000, "prefix_tokens": 0, "prompt_tokens": 900}, ""),
        ({"max_context": 2016, "prefix_tokens": 1900, "prompt_tokens": 2000}, ""),
    ],
)
def test_a_context_holds_an_exchange(asked: dict[str, int], said: str) -> None:
    """Where every later turn would lose the prefix or what was just said, the request is refused."""
    request = Request("h100-sxm-80g", model="qwen2.5-7b-instruct", output_tokens=16, concurrency=4, **asked)  # type: ignore[arg-type]
    if not said:
        assert resolve_request(request, STORE)
        return
    with pytest.raises(RequestError, match=said):
        resolve_request(request, STORE)
