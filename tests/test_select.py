"""Which configuration a goal picks among few made-up ones, and what is told where none passes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from artefacts import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from variants import STORE, TEXT, configuration, resolve, store_with, variant

from recommender.choose import candidates, constraints, feasibility, pick, select
from recommender.estimate import memory, speed
from recommender.estimate.uncertainty import Range
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request

# --- pick


def made(name: str, latency: float = 100.0, rps: float = 10.0, **changed: Any) -> Any:
    """A candidate with what a goal looks at: ms, requests a second, bytes of a card, cards, prefill tokens."""
    values = {"total": 1000, "cards": 1, "prefill": 512, "share": 1, "backend": "turbomind"} | changed
    return SimpleNamespace(
        name=name,
        speed=SimpleNamespace(latency_ms=SimpleNamespace(value=latency), rps=SimpleNamespace(value=rps)),
        memory=SimpleNamespace(total=values["total"]),
        config=SimpleNamespace(
            cards=values["cards"], prefill_tokens=values["prefill"], share=values["share"], backend=values["backend"]
        ),
    )


def picked(goal: str, *every: Any) -> str:
    """The name of the best, whatever the order of the candidates."""
    forwards, backwards = pick.pick(every, goal).name, pick.pick(every[::-1], goal).name
    assert forwards == backwards
    return forwards


def test_each_goal_picks_by_its_figure() -> None:
    """The fastest, the one that answers most, the smallest, and the best of latency and rate together."""
    fast = made("fast", latency=50.0, rps=10.0, total=3000)
    many = made("many", latency=100.0, rps=30.0, total=3000)
    small = made("small", latency=60.0, rps=9.0, total=1000)
    both = made("both", latency=55.0, rps=25.0, total=4000)
    assert picked("latency", fast, many, small, both) == "fast"
    assert picked("throughput", fast, many, small, both) == "many"
    assert picked("memory", fast, many, small, both) == "small"
    assert picked("balanced", fast, many, small, both) == "both"


def test_balance_adds_slowness_and_lack_of_answers() -> None:
    """Latency over the least, and the highest rate over this one: 1 + 2 beats 2.5 + 1 and loses to 1.9 + 1."""
    assert picked("balanced", made("a", 100.0, 10.0), made("b", 250.0, 20.0)) == "a"
    assert picked("balanced", made("a", 100.0, 10.0), made("b", 190.0, 20.0)) == "b"
    every = (made("a", 100.0, 10.0), made("b", 150.0, 12.5), made("c", 300.0, 20.0))
    assert picked("balanced", *every) == "a"


@pytest.mark.parametrize(("latency", "winner"), [(124.9, "small"), (125.0, "small"), (125.1, "fast"), (200.0, "fast")])
def test_memory_is_not_bought_with_more_than_a_quarter_of_the_speed(latency: float, winner: str) -> None:
    """The smallest of those that take up to a quarter longer than the fastest."""
    assert picked("memory", made("fast", 100.0, total=1001), made("small", latency, total=1000)) == winner


def test_the_memory_goal_counts_every_byte_and_every_card() -> None:
    """Two cards half full are as much as one; of as much, the faster."""
    assert picked("memory", made("one", total=1999), made("two", cards=2, total=1000)) == "one"
    assert picked("memory", made("one", total=2001), made("two", cards=2, total=1000)) == "two"
    assert picked("memory", made("slow", 110.0, total=1000), made("fast", 109.0, total=1000)) == "fast"
    assert picked("memory", made("slow", 110.0, total=1000), made("fast", 100.0, total=1001)) == "slow"


@pytest.mark.parametrize("goal", ["latency", "throughput", "balanced"])
@pytest.mark.parametrize(("gain", "winner"), [(0.95, "usual"), (1.09, "usual"), (1.12, "other")])
def test_a_gain_below_the_error_keeps_the_default_budget(goal: str, gain: float, winner: str) -> None:
    """Whatever memory it saves; without the default's figure the faster one wins."""
    usual = made("usual", total=2000, prefill=8192)
    other = made("other", 100.0 / gain, 10.0 * gain, prefill=2048)
    assert pick.pick([usual, other], goal, 8192).name == winner
    assert pick.pick([other, usual], goal, 8192).name == winner
    assert pick.pick([usual, other], goal).name == ("other" if gain > 1 else "usual")
    assert pick.pick([other], goal, 8192).name == "other"


@pytest.mark.parametrize("goal", ["latency", "throughput", "balanced"])
def test_equally_good_ones_are_told_apart_by_memory_then_budget(goal: str) -> None:
    """Within half a hundredth: clearly less memory, then the larger prefill budget, then any byte less."""
    even = {"latency": 100.2, "rps": 9.98}
    worse = {"latency": 103.0, "rps": 9.7}
    assert picked(goal, made("large", total=1200), made("small", total=1000, **even)) == "small"
    assert picked(goal, made("good", total=1200), made("small", total=1000, **worse)) == "good"
    # Up to a twentieth of memory more is no clear difference.
    assert picked(goal, made("a", total=1040, prefill=1024), made("b", total=1000, prefill=512)) == "a"
    assert picked(goal, made("a", total=1060, prefill=1024), made("b", total=1000, prefill=512)) == "b"
    assert picked(goal, made("a", total=1040, prefill=512), made("b", total=1000, prefill=512)) == "b"
    # Over all cards 2000 bytes are hardly more than 1950.
    assert picked(goal, made("two", cards=2, total=1000, prefill=8192), made("one", total=1950)) == "two"
    # A second card is twice the memory.
    assert picked(goal, made("two", cards=2, total=1000, prefill=8192), made("one", total=1000)) == "one"


@pytest.mark.parametrize("goal", ["latency", "throughput", "balanced"])
@pytest.mark.parametrize(
    ("backend", "rps", "winner"),
    [
        ("turbomind", 10.9, "single"), ("turbomind", 11.0, "shared"), ("turbomind", 11.1, "shared"),
        ("pytorch", 12.4, "single"), ("pytorch", 12.5, "shared"),
    ],
)  # fmt: skip
def test_servers_share_a_card_for_clearly_more_answers(goal: str, backend: str, rps: float, winner: str) -> None:
    """Less is not worth a daemon and a proxy; more than one server of a card is compared with the best single one."""
    single, slow = made("single", 100.0, 10.0, backend=backend), made("slow", 200.0, 1.0, backend=backend)
    shared = made("shared", 60.0, rps, share=2, backend=backend)
    assert picked(goal, single, slow, shared) == winner


@pytest.mark.parametrize(("rps", "winner"), [(24.9, "two"), (25.0, "four")])
def test_each_further_server_of_a_card_must_be_worth_it(rps: float, winner: str) -> None:
    """Four are compared with two, not with one."""
    one, two = made("one", 100.0, 10.0, backend="pytorch"), made("two", 60.0, 20.0, share=2, backend="pytorch")
    four = made("four", 50.0, rps, share=4, backend="pytorch")
    assert picked("throughput", one, two, four) == winner
    too_few = made("two", 60.0, 12.0, share=2, backend="pytorch")
    assert picked("throughput", one, too_few, made("four", 50.0, 12.5, share=4, backend="pytorch")) == "four"


def test_the_memory_goal_never_minds_a_share() -> None:
    """Two small servers of a card are as good as any where memory is the goal, if they are not slow."""
    assert picked("memory", made("single", 100.0, total=1001), made("shared", 100.0, 1.0, share=2)) == "shared"


def test_where_all_share_one_of_them_is_picked() -> None:
    """Without a single server to compare with."""
    assert picked("latency", made("a", 100.0, share=2), made("b", 90.0, share=2)) == "b"
    assert picked("latency", made("a", 100.0, 0.5, share=2)) == "a"


@given(
    st.lists(
        st.tuples(
            st.integers(50, 200), st.integers(5, 40), st.sampled_from([1000, 1500, 3000]), st.sampled_from([1, 2])
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda each: each[:2],
    )
)
@settings(max_examples=150)
def test_no_other_is_clearly_better(figures: list[tuple[int, int, int, int]]) -> None:
    """By brute force: none is over a hundredth better at the goal; for memory none of the fast ones is smaller."""
    every = [made("", latency, rps, total=total, cards=cards) for latency, rps, total, cards in figures]
    fastest = min(each.speed.latency_ms.value for each in every)
    assert pick.pick(every, "latency").speed.latency_ms.value <= 1.01 * fastest
    assert pick.pick(every, "throughput").speed.rps.value >= 0.99 * max(each.speed.rps.value for each in every)
    small = pick.pick(every, "memory")
    assert small.speed.latency_ms.value <= 1.25 * fastest
    for each in every:
        larger = each.memory.total * each.config.cards >= small.memory.total * small.config.cards
        assert larger or each.speed.latency_ms.value > 1.25 * fastest


# --- choose


def rule(name: str, *require: str, when: Iterable[str] = (), severity: str = "reject") -> Any:
    """A constraint of its own: it asks for all of ``require`` where all of ``when`` holds."""
    base = STORE.constraints["batch-positive"]
    return variant(base, id=name, severity=severity, when=tuple(when), require=require, message=name, remedy="")


def chosen(monkeypatch: pytest.MonkeyPatch, rules: Iterable[Any], *tiers: list[dict[str, Any]], **asked: Any) -> Any:
    """What is chosen among tiers of configurations under these constraints only."""
    store = store_with(constraints={each.id: each for each in rules})
    groups = [[configuration(**changed) for changed in tier] for tier in tiers]
    monkeypatch.setattr(candidates, "tiers", lambda _: iter(groups))
    return select.choose(resolve(store, **{"model": TEXT, "images": 0, "concurrency": 4, **asked}), room=False)


BATCH = rule("batch", "config.max_batch_size >= 4")


def test_the_first_tier_in_which_something_passes_is_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """However good a later one; all looked at so far are counted, and what rejected them, the commonest first."""
    tp = rule("tp", "config.tp == 1")
    tiers: list[list[dict[str, Any]]] = [
        [{"max_batch_size": 1}, {"max_batch_size": 2, "tp": 2}],
        [{"max_batch_size": 4, "kv_bits": 8}, {"max_batch_size": 3}],
        [{"max_batch_size": 8, "kv_bits": 4}],
    ]
    choice = chosen(monkeypatch, [tp, BATCH], *tiers)
    assert isinstance(choice, select.Choice)
    assert (choice.best.config.max_batch_size, choice.best.config.kv_bits) == (4, 8)
    assert choice.considered == 4
    assert choice.rejected == (("batch", 3), ("tp", 1))
    assert choice.warnings == ()


def test_the_goal_of_the_request_decides_within_a_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same two configurations, and the larger one only where memory is no goal."""
    tier = [{"max_batch_size": 14, "cache_ratio": 0.1, "session_len": 4096}]
    tier.append(tier[0] | {"max_batch_size": 16, "cache_ratio": 0.101})
    for goal, batch in (("memory", 14), ("balanced", 16)):
        assert chosen(monkeypatch, [], tier, goal=goal, concurrency=16).best.config.max_batch_size == batch


def test_the_winner_is_measured_with_ranges_and_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are of the winner alone; they reject nothing."""
    warn = rule("small", "config.max_batch_size >= 8", severity="warn")
    choice = chosen(monkeypatch, [BATCH, warn], [{"max_batch_size": 4}])
    assert [finding.constraint for finding in choice.warnings] == ["small"]
    assert choice.rejected == ()
    assert choice.best.speed.latency_ms.low < choice.best.speed.latency_ms.value < choice.best.speed.latency_ms.high


def test_what_stood_in_the_way_most_often_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the configuration with the fewest findings, by how many configurations each rejected."""
    rules = [
        rule("tp", "config.tp == 1"),
        BATCH,
        rule("port", "config.port >= 1024"),
        rule("threads", "config.omp_threads >= 4"),
    ]
    tiers: list[list[dict[str, Any]]] = [
        [
            {"max_batch_size": 1, "tp": 2, "port": 1, "omp_threads": 1},
            {"tp": 2, "port": 1, "max_batch_size": 4, "omp_threads": 1},
        ],
        [{"tp": 2, "port": 1, "max_batch_size": 1}, {"max_batch_size": 4, "port": 1, "tp": 2, "omp_threads": 1}],
        [
            {"max_batch_size": 4, "port": 1, "omp_threads": 1},
            {"max_batch_size": 1, "tp": 2, "port": 1, "omp_threads": 1},
        ],
    ]
    nothing = chosen(monkeypatch, rules, *tiers)
    assert isinstance(nothing, select.NoCandidate)
    assert nothing.considered == 6
    assert nothing.rejected == (("port", 6), ("tp", 5), ("threads", 5), ("batch", 3))
    # The nearest is the last tier's first, with two findings: port stood in the way of six, threads of five.
    assert [nothing.binding.constraint, *(each.constraint for each in nothing.others)] == ["port", "threads"]
    assert not nothing.too_large


def test_the_nearest_of_the_last_tier_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewest findings first; of as many that which needs less memory; what needed no estimate is farthest of all."""
    rules = [rule("tp", "config.tp == 1"), BATCH, rule("cache", "estimate.kv_tokens >= 10000000")]
    few: dict[str, Any] = {"max_batch_size": 1, "tp": 2}
    one: dict[str, Any] = {"max_batch_size": 1}
    assert chosen(monkeypatch, rules, [few, one]).others == ()
    assert chosen(monkeypatch, rules, [few, one]).binding.constraint == "batch"
    # What more than goals rejects is no prediction to loosen goals to.
    assert chosen(monkeypatch, [rule("slow", "estimate.p99_ms <= 1.0")], [{}]).closest is None
    # One finding each: the one that was estimated is nearer.
    estimated: dict[str, Any] = {"max_batch_size": 4}
    for tier in ([one, estimated], [estimated, one]):
        assert chosen(monkeypatch, rules, tier).binding.constraint == "cache"
    # A tier that a fact alone rejects, as an engine without 8-bit caches does, does not hide what lacked memory before.
    assert chosen(monkeypatch, rules, [estimated], [one]).binding.constraint == "cache"
    assert chosen(monkeypatch, rules, [one], [estimated]).binding.constraint == "cache"
    # Where memory rejects both, the last one, which gave up accuracy, is nearest.
    wide, narrow = (
        rule(str(bits), "estimate.kv_tokens >= 10000000", when=[f"config.kv_bits == {bits}"]) for bits in (16, 8)
    )
    assert chosen(monkeypatch, [wide, narrow], [{}], [{"kv_bits": 8}]).binding.constraint == "8"
    small = rule("small", "estimate.kv_tokens >= 10000000", when=["config.prefill_tokens == 512"])
    large = rule("large", "estimate.kv_tokens >= 10000000", when=["config.prefill_tokens == 4096"])
    pair: list[dict[str, Any]] = [{"prefill_tokens": 512}, {"prefill_tokens": 4096}]
    for tier in (pair, pair[::-1]):
        assert chosen(monkeypatch, [small, large], tier).binding.constraint == "small"


def test_estimates_are_made_only_where_nothing_simpler_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constraint of an estimate does not count where the batch already rejects."""
    cache = rule("cache", "estimate.kv_tokens >= 10000000")
    nothing = chosen(monkeypatch, [cache, BATCH], [{"max_batch_size": 1}, {"max_batch_size": 2}, {"max_batch_size": 4}])
    assert nothing.rejected == (("batch", 2), ("cache", 1))


def test_accuracy_is_given_up_for_memory_and_not_for_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something fits and misses a goal, no further tier is tried: the nearest that fits is told of."""
    goal = rule("goal", "estimate.p99_ms <= request.p99_ms")
    tiers: list[list[dict[str, Any]]] = [
        [{"max_batch_size": 1}, {"max_batch_size": 4, "kv_bits": 8}, {"max_batch_size": 4}],
        [{"max_batch_size": 8}],
    ]
    nothing = chosen(monkeypatch, [goal, BATCH], *tiers, p99_ms=0.5)
    assert isinstance(nothing, select.NoCandidate)
    assert (nothing.considered, nothing.rejected) == (3, (("goal", 2), ("batch", 1)))
    assert (nothing.binding.constraint, nothing.others) == ("goal", ())
    assert not nothing.too_large
    assert nothing.closest.config.max_batch_size == 4
    met = chosen(monkeypatch, [goal, BATCH], *tiers, p99_ms=10_000_000.0)
    assert met.best.config.max_batch_size == 4


def test_a_goal_that_is_met_makes_up_for_none_that_is_missed() -> None:
    """Twice the p99 that was asked for, and half the time to the first token."""
    resolved, config = resolve(model=TEXT, images=0, concurrency=4), configuration(max_batch_size=4)
    found = select.predict(resolved, config, ranged=False)
    goals = {"p99_ms": found.speed.p99_ms.value / 2, "ttft_ms": found.speed.ttft_ms.value * 2}
    assert select.excess(found, replace(resolved.request, **goals)) == pytest.approx(math.log(2))


def test_no_speed_is_predicted_of_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that the memory rejects would miss its goals, too; only the memory is told."""
    goal = rule("goal", "estimate.p99_ms <= request.p99_ms")
    cache = rule("cache", "estimate.kv_tokens >= 10000000")
    nothing = chosen(monkeypatch, [goal, cache], [{}], p99_ms=0.5)
    assert (nothing.binding.constraint, nothing.others) == ("cache", ())
    assert nothing.rejected == (("cache", 1),)
    # The goal rejects the one that fits, the cache the other: the one that fits is nearest.
    wide = rule("cache", "estimate.kv_tokens >= 10000000", when=["config.kv_bits == 16"])
    both = chosen(monkeypatch, [wide, goal], [{"kv_bits": 8}, {}], p99_ms=0.5)
    assert (both.binding.constraint, both.others) == ("goal", ())


def test_weights_that_leave_nothing_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """No smaller cache helps where nothing is free: the second tier is not tried. More cards may."""
    room = rule("room", "estimate.free_gib > 0.0")
    large = chosen(monkeypatch, [room], [{}, {"tp": 1}], [{"kv_bits": 8}], vram_gib=10.0)
    assert (large.too_large, large.considered, large.binding.constraint) == (True, 2, "room")
    # With two cards a server there is room, but another constraint stands against it: not too large.
    ratio = rule("ratio", "config.cache_ratio <= 0.1", when=["estimate.free_gib > 0.0"])
    other = chosen(monkeypatch, [room, ratio], [{}, {"tp": 2}], [{"tp": 2}], vram_gib=10.0, gpu_count=2)
    assert (other.too_large, other.considered) == (False, 3)
    # What was rejected without an estimate may fit as far as anybody knows.
    unknown = chosen(
        monkeypatch, [room, BATCH], [{"max_batch_size": 4}, {}], [{"max_batch_size": 4}, {}], vram_gib=10.0
    )
    assert (unknown.too_large, unknown.considered) == (False, 4)


def test_a_measured_configuration_has_all_values() -> None:
    """Facts, settings and estimates by the names that constraints compare."""
    resolved, config = resolve(concurrency=4), configuration(max_batch_size=4)
    found = select.predict(resolved, config)
    used, fast = memory.estimate(resolved, config), speed.estimate(resolved, config)
    assert (found.config, found.memory, found.speed) == (config, used, fast)
    facts, settings_ = constraints.fact_values(resolved), constraints.config_values(resolved, config)
    assert found.values == facts | settings_ | constraints.estimate_values(used, fast, resolved.request)
    assert select.predict(resolved, config, {"gpu.id": "mine"}).values["gpu.id"] == "mine"
    bare = select.predict(resolved, config, None, False).speed.rps
    assert bare.low == bare.value == bare.high
    whole = select.predict(resolved, config).speed.rps
    assert whole.low < whole.high


@pytest.mark.parametrize(
    ("goal", "kv"), list(product(["latency", "throughput", "memory", "balanced"], ["auto", "int8"]))
)
def test_a_choice_is_the_pick_of_all_that_pass(goal: str, kv: str) -> None:
    """By brute force over every configuration of the first tier in which one passes all constraints."""
    resolved = resolve(gpu="a100-sxm-80g", gpu_count=2, concurrency=16, goal=goal, kv=kv)
    choice = select.choose(resolved)
    assert isinstance(choice, select.Choice)
    for tier in candidates.tiers(resolved):
        every = [select.predict(resolved, config) for config in tier]
        passed = [each for each in every if not constraints.evaluate(constraints.parse_all(STORE), each.values)]
        if passed:
            assert choice.best.config == pick.pick(passed, goal).config
            break


@settings(max_examples=60)
@given(
    request=requests(),
    goals=st.fixed_dictionaries(
        {}, optional={"p99_ms": st.floats(1, 1e5), "ttft_ms": st.floats(1, 1e4), "rps": st.floats(0.01, 500)}
    ),
)
def test_what_fits_is_what_a_choice_is_found_for(request: Request, goals: dict[str, float]) -> None:
    """The quick question has the answer of the whole search."""
    case = resolve_request(replace(request, **goals), STORE)
    assert feasibility.fits(case) == isinstance(select.choose(case), select.Choice)


@pytest.mark.parametrize("concurrency", [1, 4, 64])
@pytest.mark.parametrize("goal", [{}, {"ttft_ms": 300.0}], ids=["rate", "rate and TTFT"])
def test_a_short_search_counts_and_chooses_as_a_whole_one(concurrency: int, goal: dict[str, float]) -> None:
    """What it leaves out, of servers that are too slow for the rate, decides neither."""
    asked = {"gpu": "h100-sxm-80g", "gpu_count": 2, "model": "llama-3.1-8b-instruct", "workload": "chat"}
    resolved = replace(resolve(**asked, rps=12.0, **goal), rps=12.0, concurrency=concurrency)
    short, whole = select.search(resolved, short=True), select.search(resolved)
    assert type(short) is type(whole)
    assert (short.considered, dict(short.rejected)) == (whole.considered, dict(whole.rejected))
    if isinstance(short, select.Choice) and isinstance(whole, select.Choice):
        assert short.best.config == whole.best.config
        assert short.best.speed == whole.best.speed


def test_a_short_search_takes_nothing_that_only_seems_to_reach_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what does not keep up, the quick estimate finds four requests/s where full batches give one."""

    def estimate(*asked: Any) -> speed.Speed:
        rps = 1.0 if asked[-1] else 4.0
        return replace(found, rps=Range(rps, rps, rps))

    resolved = replace(resolve(model=TEXT, images=0, concurrency=4, rps=2.0), rps=2.0)
    found = speed.estimate(resolved, configuration(max_batch_size=4), ranged=False)
    monkeypatch.setattr(speed, "estimate", estimate)
    outcome = select.search(resolved, short=True)
    assert isinstance(outcome, select.Rejections)
    assert "goal-rps" in dict(outcome.rejected)
