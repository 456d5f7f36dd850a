"""What a prefix cache of limited size finds when the requests of a trace come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from artefacts import found
from hypothesis import given
from hypothesis import strategies as st

from recommender.estimate import speed
from recommender.estimate.scheduler.prefix_cache import find_hits
from recommender.request.request import Replayed

TALKS = (
    Replayed(0, 100, 10),
    Replayed(1, 200, 10),
    Replayed(2, 150, 10, 0, 90),
    Replayed(3, 260, 10, 1, 200),
    Replayed(4, 220, 10, 2, 140),
)
"""Two conversations: 0, 2 and 4, of which each repeats the one before, and 1 and 3."""


def test_an_unlimited_cache_finds_all_that_earlier_requests_had() -> None:
    """As the trace says."""
    assert find_hits(TALKS, 0) == [0, 0, 90, 200, 140]


@pytest.mark.parametrize(
    ("tokens", "hits"),
    [
        (10_000, [0, 0, 90, 200, 140]),
        # 2: 90 and the 210 that 1 wrote. 3: 200 and the 70 of 2. 4: 140 and the 70 of 3.
        (300, [0, 0, 90, 200, 140]),
        # 2 is lost, so it writes 160: 3 needs 200 and 160, which is lost too; 4 needs 140 and the 270 of 3.
        (299, [0, 0, 0, 0, 0]),
        (360, [0, 0, 90, 200, 140]),
    ],
)
def test_what_was_used_longest_ago_is_lost(tokens: int, hits: list[int]) -> None:
    """By hand: a beginning, and what was written since it was last used, must fit."""
    assert find_hits(TALKS, tokens) == hits


def test_a_use_of_the_end_keeps_the_beginning() -> None:
    """3 repeats 1, which repeats 0: then 0 was used, too. 5 needs 90 and the 70 of 4, not the 250 since 1."""
    talk = [(100, 0, 0), (150, 0, 90), (100, 0, 0), (200, 1, 140), (60, 0, 0), (120, 0, 90)]
    replay = [Replayed(place, prompt, 10, of, shared) for place, (prompt, of, shared) in enumerate(talk)]
    assert find_hits(replay, 250) == [0, 90, 0, 140, 0, 90]


def test_servers_have_caches_of_their_own() -> None:
    """Of two that take turns the first has 0, 2 and 4; of three it has 0 and 3, and nothing of 1."""
    assert find_hits(TALKS, 0, 2) == [0, 90, 140]
    assert find_hits(TALKS, 0, 3) == [0, 0]
    chain = (*TALKS[:3], TALKS[3]._replace(of=2, shared=120), TALKS[4])
    assert find_hits(chain, 0, 3) == [0, 90]  # 2 is elsewhere, but 90 of it were of 0


@given(
    st.lists(st.tuples(st.integers(2, 400), st.integers(1, 50), st.integers(0, 50), st.integers(0, 399)), max_size=30),
    st.integers(1, 3000),
)
def test_a_cache_finds_no_more_than_a_larger_one(rows: list[tuple[int, int, int, int]], tokens: int) -> None:
    """Each hit is within its prompt and within what an unlimited cache finds."""
    replay: list[Replayed] = []
    for place, (prompt, output, of, shared) in enumerate(rows):
        source = of % place if place else 0
        most = min(shared, prompt - 1, replay[source].prompt) if place else 0
        replay.append(Replayed(place, prompt, output, source, most))
    every = find_hits(replay, 0)
    assert every == [each.shared for each in replay]
    assert all(0 <= hit <= most for hit, most in zip(find_hits(replay, tokens), every, strict=True))


def test_a_small_cache_makes_a_replay_slower() -> None:
    """The hits that it loses are prefilled again; without prefix caching the size of the cache changes nothing."""
    made = found(gpu="h200-141g", load="", model="llama-3.1-8b-instruct", rps=2.0, images=0, prompt_tokens=4000)
    talks = [Replayed(0, 4000, 20)]
    for place in range(1, 40):  # eight conversations in turn, so that 7 others write between two turns
        of = place - 8
        talks.append(Replayed(500.0 * place, 4000, 20, max(of, 0), 3500 if of >= 0 else 0))
    resolved = replace(made.resolved, request=replace(made.request, replay=tuple(talks), repeated_share=0.0))

    def ttft(caching: bool, tokens: int) -> float:
        config = replace(made.config, prefix_caching=caching, max_batch_size=64)
        figures = speed.replay(resolved, config, tokens)
        return figures.ttft.mean

    small, large, most = (ttft(True, tokens) for tokens in (20_000, 60_000, 0))
    assert most == large < 0.6 * small
    assert ttft(False, 20_000) == pytest.approx(ttft(False, 0)) == pytest.approx(small)
