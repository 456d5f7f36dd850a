"""The nearest change of a request under which something would fit: which are tried, and in which order."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from variants import GIB, IMAGES, MIB, STORE, TEXT, configuration, resolve

from recommender.choose import looser_goals, relax
from recommender.choose.constraints import ConstraintFinding
from recommender.choose.recommend import NothingFits, recommend
from recommender.choose.select import Candidate, Choice, NoCandidate, choose, predict
from recommender.cli import root
from recommender.commands import plan
from recommender.knowledge.names import PART
from recommender.options import build_request
from recommender.render.report import explain_no_fit
from recommender.request.command_line import parse_time
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest

Fits = Callable[[ResolvedRequest], bool]
WHOLE = [gpu for gpu in STORE.gpus.values() if PART not in gpu.id]


def suggest(
    monkeypatch: pytest.MonkeyPatch, fits: Fits, too_large: bool = False, config: Any = None, **asked: Any
) -> tuple[str, str]:
    """Options and text of the change, where only what ``fits`` says fits; empty where there is none."""
    resolved = resolve(**{"gpu": "l4", "model": TEXT, "images": 0, "concurrency": 16, "lmdeploy": "0.18.0", **asked})

    # What was asked is known not to fit; with goals, a configuration misses nothing else.
    for name in ("fits", "may_fit"):
        monkeypatch.setattr(relax, name, lambda tried: tried != resolved and bool(fits(tried)))
    goals = resolved.request.time_goals or resolved.request.rps
    closest = predict(resolved, config or configuration()) if goals else None
    change = relax.suggest_change(resolved, nothing(too_large, closest))
    return (change.options, change.text) if change else ("", "")


def nothing(too_large: bool = False, closest: Candidate | None = None) -> NoCandidate:
    """A choice that found nothing."""
    finding = ConstraintFinding("any", "reject", "", "", STORE.claims)  # type: ignore[arg-type]
    return NoCandidate(finding, (), 1, (), too_large, closest=closest)


def anything(tried: ResolvedRequest) -> bool:
    """Every change helps."""
    return True


def noting(seen: list[ResolvedRequest], fits: Fits) -> Fits:
    """The same answers; what was tried is noted first."""
    return lambda tried: seen.append(tried) or fits(tried)


ASKED: dict[str, Any] = {
    "kv": "fp16",
    "p99_ms": 1.0,
    "concurrency": 16,
    "lmdeploy": "0.17.0",
    "vram_gib": 20.0,
}
LEFT = {"kv": "auto", "p99_ms": 0.0, "concurrency": 1, "lmdeploy": "0.18.0", "vram_gib": 0.0}


@pytest.mark.parametrize(
    ("gone", "options"),
    [
        ([], "--kv auto"),
        (["kv"], "--p99 "),
        (["kv", "p99_ms"], "--load 8"),
        (["kv", "p99_ms", "concurrency"], "--lmdeploy 0.18.0"),
        (["kv", "p99_ms", "concurrency", "lmdeploy"], "--vram 21"),
        (["kv", "p99_ms", "concurrency", "lmdeploy", "vram_gib"], "--gpu l4:2"),
    ],
)
def test_the_smallest_kind_of_change_comes_first(
    monkeypatch: pytest.MonkeyPatch, gone: list[str], options: str
) -> None:
    """Precision of the cache, goals, load, release, memory of a shared card, more cards: where all would help.

    Each line has one kind less to change than the line before.
    """
    asked = ASKED | {name: LEFT[name] for name in gone}
    found, _ = suggest(monkeypatch, anything, **asked)
    assert found.startswith(options)


def test_larger_cards_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """After eight of the same."""
    found, text = suggest(monkeypatch, lambda tried: tried.request.gpu_count == 8, concurrency=1)
    assert (found, text) == ("--gpu l4:8", "use 8 GPUs")
    found, _ = suggest(monkeypatch, lambda tried: tried.request.gpu_count > 1 and tried.gpu.id != "l4", concurrency=1)
    assert found.endswith(":2")
    assert not found.startswith("--gpu l4:")


def test_where_weights_are_too_large_only_memory_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither precision nor goals, load or release bring any."""
    assert suggest(monkeypatch, anything, True, **ASKED)[0] == "--vram 21"
    assert suggest(monkeypatch, anything, True, **ASKED | {"vram_gib": 0.0})[0] == "--gpu l4:2"


def test_nothing_is_offered_where_nothing_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is asked for."""
    assert suggest(monkeypatch, lambda tried: False, **ASKED) == ("", "")


def test_the_cache_may_be_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a precision was asked for; the rest of the request stays."""
    seen: list[ResolvedRequest] = []
    assert suggest(monkeypatch, noting(seen, lambda tried: tried.request.kv == "auto"), kv="int8") == (
        "--kv auto",
        "choose the KV cache precision automatically",
    )
    assert len(seen) == 1
    assert seen[0].concurrency == 16


def test_what_was_not_asked_for_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time on the newest release, nothing asked of cache, goals or memory: more cards are tried at once."""
    resolved = resolve(gpu="l4", model=TEXT, images=0, concurrency=1)
    tried: list[ResolvedRequest] = []
    monkeypatch.setattr(relax, "fits", tried.append)
    relax.suggest_change(resolved, nothing())
    assert [(each.gpu.id, each.request.gpu_count) for each in tried[:3]] == [("l4", 2), ("l4", 4), ("l4", 8)]


@pytest.mark.parametrize(("most", "options"), [(8, "--load 8"), (7, "--load 4"), (1, "--load 1"), (3, "--load 2")])
def test_the_load_is_halved_until_it_fits(monkeypatch: pytest.MonkeyPatch, most: int, options: str) -> None:
    """Down to one in flight."""
    found, text = suggest(monkeypatch, lambda tried: tried.concurrency <= most)
    assert found == options
    assert text == f"limit concurrency to {options.split()[1]}"


@pytest.mark.parametrize(
    ("model", "release", "first", "engine"),
    [
        ("qwen3-vl-8b-instruct", "0.9.0", "0.11.0", ": PyTorch engine"),
        ("gemma-3-4b-it", "0.7.0", "0.7.2", ": PyTorch engine"),
        ("qwen3-8b", "0.7.0", "0.7.3", ""),
    ],
)
def test_a_model_that_no_engine_serves_names_the_first_release_that_does(
    model: str, release: str, first: str, engine: str
) -> None:
    """As the tables of the releases have it: module_map.py and supported_models.py."""
    resolved = resolve(model=model, gpu="h100-sxm-80g", lmdeploy=release)
    nothing = choose(resolved)
    assert isinstance(nothing, NoCandidate)
    change = relax.suggest_change(resolved, nothing)
    assert change
    assert change.options == f"--lmdeploy {first}"
    assert change.text == f"use LMDeploy {first}, the first that serves the model{engine}"


def test_the_newest_release_is_offered_and_no_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not the newest; with its own options."""
    seen: list[ResolvedRequest] = []
    found = suggest(
        monkeypatch, noting(seen, lambda tried: tried.release.id == "0.18.0"), concurrency=1, lmdeploy="0.9.2"
    )
    assert found == ("--lmdeploy 0.18.0", "use LMDeploy 0.18.0")
    newest = seen[-1]
    assert (newest.request.lmdeploy, str(newest.version)) == ("0.18.0", "0.18.0")
    assert newest.options == resolve(lmdeploy="0.18.0").options
    assert suggest(monkeypatch, lambda tried: tried.release.id == "0.17.0", concurrency=1, lmdeploy="0.9.2") == ("", "")
    assert suggest(monkeypatch, anything, concurrency=1, lmdeploy="0.9.2")[0] == "--lmdeploy 0.18.0"
    assert suggest(monkeypatch, lambda tried: tried.release.id == "0.18.0", concurrency=1)[0] == "--gpu l4:2"


@pytest.mark.parametrize(
    ("asked", "gib", "options"), [(4.0, 17, "--vram 17"), (16.5, 17, "--vram 17"), (20.0, 22, "--vram 22")]
)
def test_more_of_a_shared_card_is_offered_by_the_gib(
    monkeypatch: pytest.MonkeyPatch, asked: float, gib: int, options: str
) -> None:
    """From the next whole GiB that holds the weights' 14.2 on, up to the whole of the L4's 22.5."""
    seen: list[ResolvedRequest] = []
    found, text = suggest(
        monkeypatch, noting(seen, lambda tried: tried.available_bytes >= gib * GIB), True, vram_gib=asked
    )
    assert (found, text) == (options, f"give it {gib} GiB of the GPU")
    sizes = [tried.available_bytes // GIB for tried in seen]
    assert all(asked < size <= 22 for size in sizes)
    assert len(sizes) <= 8, "the sizes are bisected"
    assert seen[-1].request.vram_gib == gib


def test_no_more_than_the_card_has_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """22 whole GiB of an L4; more cards after that keep what was asked of each."""
    seen: list[ResolvedRequest] = []
    assert (
        suggest(monkeypatch, noting(seen, lambda tried: tried.request.gpu_count == 2), True, vram_gib=20.0)[0]
        == "--gpu l4:2"
    )
    assert [tried.available_bytes // GIB for tried in seen] == [22, 20]


@pytest.mark.parametrize(
    ("count", "options"), [(1, "--gpu l4:2"), (2, "--gpu l4:4"), (4, "--gpu l4:8"), (3, "--gpu l4:4")]
)
def test_more_cards_are_two_four_or_eight(monkeypatch: pytest.MonkeyPatch, count: int, options: str) -> None:
    """The next of them."""
    assert suggest(monkeypatch, anything, True, gpu_count=count)[0] == options


@pytest.mark.parametrize("card", ["a100-sxm-80g", "a100-sxm-40g", "h100-sxm-80g", "h200-sxm"])
def test_a_larger_slice_of_the_same_card_comes_first(monkeypatch: pytest.MonkeyPatch, card: str) -> None:
    """The next one that holds the weights and fits, before any other card; a process sees only one slice."""
    seen: list[ResolvedRequest] = []
    found, text = suggest(
        monkeypatch, noting(seen, lambda tried: tried.gpu.id == f"{card}-mig-7g"), True, gpu=f"{card}-mig-1g"
    )
    assert (found, text) == (f"--gpu {card}-mig-7g", f"use {STORE.gpus[f'{card}-mig-7g'].name}")
    tried = [each.gpu for each in seen]
    assert all(gpu.id.startswith(f"{card}-mig-") for gpu in tried)
    assert [gpu.memory_mib for gpu in tried] == sorted(gpu.memory_mib for gpu in tried)
    assert {each.request.gpu_count for each in seen} == {1}
    assert all(each.available_bytes == each.gpu.memory_mib * MIB for each in seen)


def test_a_slice_of_equal_memory_and_more_compute_is_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 4g is of an A100's 3g; never a smaller one."""
    assert STORE.gpus["a100-sxm-80g-mig-3g"].memory_mib == STORE.gpus["a100-sxm-80g-mig-4g"].memory_mib
    assert suggest(monkeypatch, anything, True, gpu="a100-sxm-80g-mig-3g")[0] == "--gpu a100-sxm-80g-mig-4g"
    assert PART not in suggest(monkeypatch, anything, True, gpu="a100-sxm-80g-mig-7g")[0]


def test_where_no_larger_slice_fits_a_whole_card_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of it."""
    found, _ = suggest(monkeypatch, lambda tried: PART not in tried.gpu.id, True, gpu="a100-sxm-80g-mig-2g")
    assert found.startswith("--gpu ")
    assert ":" not in found
    assert PART not in found


def test_a_model_too_large_for_a_slice_names_one_that_holds_it() -> None:
    """The 15.9 GB of InternVL3-8B exceed 10 GB; 20 GB of the same card hold them."""
    with pytest.raises(NothingFits) as raised:
        recommend(Request("h100-sxm-80g-mig-1g", model="internvl3-8b", images=0))
    assert raised.value.change
    assert raised.value.change.options == "--gpu h100-sxm-80g-mig-2g"


def test_cards_that_do_not_hold_the_weights_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen2.5-72B in 16 bits is 145 GB: seven L4s of 22 GiB; two or four are not even tried."""
    seen: list[ResolvedRequest] = []
    assert suggest(monkeypatch, noting(seen, anything), True, model="qwen2.5-72b-instruct")[0] == "--gpu l4:8"
    assert [tried.request.gpu_count for tried in seen] == [8]


def test_the_smallest_larger_card_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """By memory, then by name; a whole card, one of it, named as people write it."""
    found, text = suggest(monkeypatch, lambda tried: tried.gpu.memory_mib >= 40_000, True)
    least = min((gpu for gpu in WHOLE if gpu.memory_mib >= 40_000), key=lambda gpu: (gpu.memory_mib, gpu.id))
    assert (found, text) == (f"--gpu {least.id}", f"use {least.name}")


def test_a_newer_card_helps_even_if_it_is_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a V100 with 32 GiB and what needs compute capability 8.0: the smallest such card that holds the weights."""
    found, _ = suggest(
        monkeypatch,
        lambda tried: float(tried.gpu.compute_capability) >= 8.0,
        True,
        gpu="v100-sxm2-32g",
        model="qwen2.5-3b-instruct",
    )
    weights = 2 * 3.09e9
    enough = [gpu for gpu in WHOLE if float(gpu.compute_capability) >= 8.0 and (gpu.memory_mib - 480) * MIB > weights]
    assert found == f"--gpu {min(enough, key=lambda gpu: (gpu.memory_mib, gpu.id)).id}"


def test_neither_smaller_nor_older_cards_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another card each is newer, or has more memory than may be used now."""
    seen: list[ResolvedRequest] = []
    assert suggest(
        monkeypatch,
        noting(seen, lambda tried: tried.request.gpu_count == 8 and tried.gpu.compute_capability == "10.0"),
        True,
        gpu="l40s",
    )[0].endswith(":8")
    others = [tried.gpu for tried in seen if tried.gpu.id != "l40s"][1:]
    assert others
    assert all(float(gpu.compute_capability) > 8.9 or gpu.memory_mib > STORE.gpus["l40s"].memory_mib for gpu in others)
    assert not any(PART in gpu.id for gpu in others)


def test_one_of_each_size_comes_before_two_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """All single cards by size, then pairs, fours and eights; of cards alike only one, the first by name."""
    seen: list[ResolvedRequest] = []
    # After two, four and eight L4s: the look at whether any card helps
    assert suggest(monkeypatch, noting(seen, lambda tried: len(seen) == 4), True) == ("", "")
    cards = [(tried.request.gpu_count, tried.gpu) for tried in seen[4:]]
    counts = [count for count, _ in cards]
    assert counts == sorted(counts)
    assert set(counts) == {1, 2, 4, 8}
    for count in (1, 2, 4, 8):
        sizes = [(gpu.memory_mib, gpu.id) for number, gpu in cards if number == count]
        assert sizes == sorted(sizes)
        kinds = [(gpu.compute_capability, gpu.memory_mib // 1024) for number, gpu in cards if number == count]
        assert len(kinds) == len(set(kinds))
        for _, gpu in cards:
            alike = [
                other
                for other in WHOLE
                if (other.compute_capability, other.memory_mib // 1024)
                == (gpu.compute_capability, gpu.memory_mib // 1024)
            ]
            assert gpu.id == min(alike, key=lambda other: (other.memory_mib, other.id)).id
    assert all(tried.available_bytes == tried.gpu.memory_mib * MIB for tried in seen[3:])
    seen.clear()
    assert suggest(monkeypatch, lambda tried: bool(seen.append(tried)), True, vram_gib=22.0) == ("", "")
    assert {"l4"} < {tried.gpu.id for tried in seen}
    assert all(tried.request.vram_gib == tried.gpu.memory_mib // 1024 for tried in seen)  # of the L4, 22


def test_several_larger_cards_are_named_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the option takes it, and in words; no fewer than were asked for."""
    found, text = suggest(monkeypatch, lambda tried: tried.gpu.id == "h200-sxm" and tried.request.gpu_count >= 4, True)
    assert (found, text) == ("", "")  # no look at eight of it helps where another card of its generation is larger
    largest = max((gpu for gpu in WHOLE if gpu.compute_capability == "9.0"), key=lambda gpu: gpu.memory_mib)
    found, text = suggest(monkeypatch, lambda tried: tried.gpu.id == largest.id and tried.request.gpu_count >= 4, True)
    assert (found, text) == (f"--gpu {largest.id}:4", f"use 4 x {largest.name}")
    found, _ = suggest(monkeypatch, lambda tried: tried.gpu.id == largest.id, True, gpu_count=2)
    assert found == f"--gpu {largest.id}:2"


def test_no_card_is_tried_where_eight_of_the_largest_do_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look at each generation instead of dozens of cards; sixteen where sixteen were asked for."""
    for count, looked in ((1, 8), (16, 16)):
        seen: list[ResolvedRequest] = []
        assert suggest(monkeypatch, noting(seen, lambda tried: False), True, gpu_count=count) == ("", "")
        others = [tried for tried in seen if tried.gpu.id != "l4" or tried.request.gpu_count == 16]
        generations = {gpu.compute_capability for gpu in WHOLE}
        assert {tried.gpu.compute_capability for tried in others} >= generations - {"8.9"}
        assert len(others) <= len(generations)
        assert {tried.request.gpu_count for tried in others} == {looked}
        for tried in others:
            kind = [gpu.memory_mib for gpu in WHOLE if gpu.compute_capability == tried.gpu.compute_capability]
            assert tried.gpu.memory_mib // 1024 == max(kind) // 1024


# --- goals


def goals(monkeypatch: pytest.MonkeyPatch, config: Any = None, **asked: Any) -> tuple[str, str, ResolvedRequest]:
    """The change where a looser goal is all it takes, and what was asked of the choice for it."""
    seen: list[ResolvedRequest] = []
    found, text = suggest(monkeypatch, noting(seen, anything), False, config, gpu="h100-sxm-80g", **asked)
    return found, text, seen[0]


def test_each_missed_goal_is_told_as_what_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times rounded up and rates down to two digits, as people write them: the options would be met as written."""
    config = configuration(max_batch_size=4)
    speed = predict(resolve(model=TEXT, images=0, concurrency=4), config).speed
    asked = {"concurrency": 4, "config": config}
    found, text, tried = goals(monkeypatch, p99_ms=1.0, ttft_ms=1.0, rps=1000.0, **asked)
    assert text == "the best prediction for this GPU and load"
    written = dict(zip(found.split()[::2], found.split()[1::2], strict=True))
    options = {name: parse_time(name, text) if name != "--rps" else float(text) for name, text in written.items()}
    assert list(options) == ["--p99", "--ttft", "--rps"]
    assert options["--p99"] / 1.1 < speed.p99_ms.value <= options["--p99"]
    assert options["--ttft"] / 1.1 < speed.ttft_ms.value <= options["--ttft"]
    assert options["--rps"] <= speed.rps.value < options["--rps"] * 1.1
    assert all(len(text.rstrip("s").strip("0").replace(".", "")) <= 2 for text in written.values()), written
    # A goal that is met is not among them.
    assert goals(monkeypatch, p99_ms=1.0, ttft_ms=80_000.0, **asked)[0] == f"--p99 {written['--p99']}"
    assert goals(monkeypatch, p99_ms=80_000.0, rps=1000.0, **asked)[0] == f"--rps {written['--rps']}"
    found, _, tried = goals(monkeypatch, p99_ms=80_000.0, ttft_ms=1.0, rps=0.001, **asked)
    assert found == f"--ttft {written['--ttft']}"
    assert (tried.request.p99_ms, tried.request.rps) == (80_000.0, 0.001)
    assert tried.request.ttft_ms == parse_time("--ttft", written["--ttft"])


def test_a_looser_goal_is_tried_at_the_rate_that_is_planned_for() -> None:
    """With a quarter of headroom; requests of a closed loop have none."""
    asked = resolve(model=TEXT, images=0, concurrency=4, rps=1000.0, headroom=1.25)
    closest = predict(asked, configuration(max_batch_size=4))
    for resolved, headroom in ((replace(asked, rps=1250.0), 1.25), (asked, 0.0)):
        tried = [relaxed for _, relaxed in looser_goals.looser_goals(resolved, closest)]
        assert [each.rps for each in tried] == [headroom * each.request.rps for each in tried]
        assert max(each.request.rps for each in tried) < 1000


def test_times_are_offered_for_the_rate_that_is_offered() -> None:
    """Not those of the queue that grows at the rate that was asked for."""
    asked = resolve(model=TEXT, images=0, concurrency=4, rps=1000.0, ttft_ms=1.0)
    open_loop, config = replace(asked, rps=1000.0), configuration(max_batch_size=4)
    closest = predict(open_loop, config)
    change, relaxed = next(iter(looser_goals.looser_goals(open_loop, closest)))
    there = predict(replace(open_loop, rps=relaxed.rps), config).speed.ttft_ms.value
    assert change.options == f"--ttft {looser_goals.write_time(there)} --rps {relaxed.request.rps:g}"
    assert relaxed.request.ttft_ms < closest.speed.ttft_ms.value / 2


def test_no_times_are_offered_that_help_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """None where the times are met without goals already, and none where nothing meets even longer ones."""
    asked = replace(resolve(model=TEXT, images=0, concurrency=4, rps=1000.0, ttft_ms=1.0), rps=1000.0)
    closest = predict(asked, configuration(max_batch_size=4))
    late = predict(replace(asked, rps=1.0), configuration(max_batch_size=4))
    met = replace(asked, request=replace(asked.request, ttft_ms=2 * late.speed.ttft_ms.value))
    for resolved, fits in ((met, lambda tried: True), (asked, lambda tried: not tried.request.time_goals)):
        monkeypatch.setattr(looser_goals, "_meet", lambda tried, fits=fits: (tried, late) if fits(tried) else None)
        assert [*looser_goals._longer_times(resolved, closest)] == []


def test_a_goal_just_met_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly what is predicted will do."""
    config = configuration(max_batch_size=4)
    speed = predict(resolve(model=TEXT, images=0, concurrency=4), config).speed
    exact = {"p99_ms": speed.p99_ms.value, "ttft_ms": speed.ttft_ms.value, "rps": speed.rps.value}
    found, _, _ = goals(monkeypatch, concurrency=4, config=config, latency_ms=1.0, **exact)
    assert found == f"--latency {looser_goals.write_time(speed.latency_ms.value)}"


def test_where_goals_are_not_what_binds_others_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing fits without them either, they stay."""
    found, _ = suggest(monkeypatch, lambda tried: tried.concurrency == 8, p99_ms=1.0)
    assert found == "--load 8"


@pytest.mark.parametrize(("slack", "most"), [(1.02, 6), (1.0, 6)])
def test_less_detail_is_mentioned_where_it_alone_would_meet_the_goal(
    monkeypatch: pytest.MonkeyPatch, slack: float, most: int
) -> None:
    """The least that is given up first: six tiles before one; nothing where one tile misses it too."""
    image = {"model": IMAGES, "images": 1, "image_width": 1280, "image_height": 720, "concurrency": 4}
    config = configuration(max_batch_size=4, session_len=8192, prefill_tokens=4096)

    def p99(tiles: int) -> float:
        return predict(resolve(**image), replace(config, max_tiles=tiles)).speed.p99_ms.value

    def told(goal: float, given: Any = config) -> str:
        return goals(monkeypatch, given, p99_ms=goal, **image)[1].partition("load")[2]

    assert p99(1) < p99(6) < p99(0)
    words = "; clients that send max_dynamic_patch {} meet the goal, with less image detail"
    assert told(p99(6) * slack) == words.format(most)
    assert told((p99(6) + p99(1)) / 2) == words.format(1)
    assert told(p99(1) * 0.99) == ""
    # A configuration with fewer tiles has nothing more to give up.
    assert told(p99(6) * slack, replace(config, max_tiles=1)) == ""


def test_what_is_offered_fits() -> None:
    """The change applied to the request is one under which the real choice finds something, and less is not."""
    resolved = resolve(gpu="l4", model="internvl3-14b", kv="fp16", concurrency=64, lmdeploy="0.15.0")
    found = choose(resolved)
    assert isinstance(found, NoCandidate)
    change = relax.suggest_change(resolved, found)
    name, value = change.options.split()
    assert name == "--gpu"
    gpu, _, count = value.partition(":")
    asked = {"model": "internvl3-14b", "kv": "fp16", "concurrency": 64, "lmdeploy": "0.15.0"}
    assert isinstance(choose(resolve(gpu=gpu, gpu_count=int(count or 1), **asked)), Choice)


@pytest.mark.parametrize(
    "words",
    [
        "--gpu T4 --model qwen3-8b --workload text --rps 1",
        "--gpu T4 --model qwen3-8b --workload text --rps 5",
        "--gpu RTX-4090 --model qwen3-30b-a3b --rps 40 --ttft p99:500",
        "--gpu L4 --model qwen3-8b --workload code --output-tokens 20 --rps 40 --burstiness 4",
        "--gpu L40S --workload caption --rps 40",
        "--gpu H100-80G --model llama-3.1-8b-instruct --workload agent --turns 5 --concurrency 150 --headroom 2",
        "--gpu L4 --model internvl3-38b --vram 10",
        "--gpu H100-80G --model llama-3.1-8b-instruct --concurrency 64 --workload chat --ttft 10 --tpot 5",
        "--gpu H100-80G --model llama-3.1-8b-instruct --concurrency 2 --latency p99:1000",
    ],
)
def test_what_is_offered_is_answered(words: str) -> None:
    """Added to the command as it stands, whatever it is: a card, a checkpoint, a rate, a time, a load."""
    asked = [*shlex.split(words), "--format", "command"]
    with pytest.raises(NothingFits) as raised:
        recommend(build_request(root.make_context("recommend", [*asked]).params), STORE)
    change = raised.value.change
    offered = dict(zip(change.options.split()[::2], change.options.split()[1::2], strict=True))
    offered = {"--concurrency" if name == "--load" else name: value for name, value in offered.items()}
    kept = dict(zip(asked[::2], asked[1::2], strict=True)) | offered
    request = build_request(root.make_context("recommend", [word for pair in kept.items() for word in pair]).params)
    assert recommend(request, STORE)


def answered(words: str) -> bool:
    """Whether a command's request is met, without a warning that a goal is missed."""
    try:
        made = recommend(build_request(root.make_context("recommend", shlex.split(words)).params), STORE)
    except NothingFits:
        return False
    return not any(finding.constraint.startswith("goal-") for finding in made.findings)


@pytest.mark.parametrize(
    ("server", "rate", "goal", "changed"),
    [
        # The rate is out of reach, and the time is one that a slower load has: the rate alone.
        ("--gpu L4 --model qwen3-8b --workload chat", 40, "--latency 20s", "--rps"),
        ("--gpu L4 --model qwen3-8b --workload chat", 30, "--ttft 500", "--rps"),
        ("--gpu H100-80G --model llama-3.1-8b-instruct --workload chat --headroom 1.5", 100, "--tpot 10", "--rps"),
        # The rate can be reached, and the time is the longer the more of it: the change that is smaller.
        ("--gpu L4 --model qwen3-8b --workload chat", 1.7, "--latency 20s", "--rps"),
        ("--gpu H100-80G --model llama-3.1-8b-instruct --workload chat", 20, "--tpot 5", "--tpot"),
        ("--gpu H100-80G --model llama-3.1-8b-instruct --workload chat", 22, "--tpot 8", "--tpot"),
    ],
)
def test_the_rate_or_the_goal_is_relaxed_and_not_both(server: str, rate: float, goal: str, changed: str) -> None:
    """Where one is enough; it works as printed, and a quarter less of a change does not."""
    asked = build_request(root.make_context("recommend", shlex.split(f"{server} --rps {rate} {goal}")).params)
    with pytest.raises(NothingFits) as raised:
        recommend(asked, STORE)
    name, value = raised.value.change.options.split()
    assert name == changed
    if name == "--rps":
        assert answered(f"{server} --rps {value} {goal}")
        assert not answered(f"{server} --rps {float(value) + min(float(value), rate - float(value)) / 4} {goal}")
    else:
        assert answered(f"{server} --rps {rate} {name} {value}")
        assert not answered(f"{server} --rps {rate} {name} {parse_time(name, value) / 1.25:.0f}")


def test_a_rate_that_no_server_serves_in_time_relaxes_both() -> None:
    """An L4 takes more than two seconds for a request alone."""
    error = refused(gpu="l4", model="qwen3-8b", workload="chat", rps=40.0, latency_ms=2000.0)
    assert error.change.options.split()[::2] == ["--latency", "--rps"]


# --- other ways out, and goals that the range does not exclude


@pytest.mark.parametrize(
    ("ms", "text"), [(0.4, "1"), (47.2, "48"), (412, "420"), (2713.03, "2800"), (9999, "10s"), (679_439.4, "680s")]
)
def test_goals_are_written_as_people_do(ms: float, text: str) -> None:
    """Two significant digits, never shorter than the prediction, seconds from ten on; the command line reads them."""
    assert looser_goals.write_time(ms) == text
    assert parse_time("--p99", text) >= ms


@pytest.mark.parametrize(
    ("rate", "text"), [(28.43, "28"), (5.79, "5.7"), (143.9, "140"), (0.196, "0.19"), (0.0567, "0.056")]
)
def test_rates_are_not_rounded_up(rate: float, text: str) -> None:
    """A rate that was offered is reached, and is no more than a tenth below what can be."""
    assert looser_goals.write_rate(rate) == text


def refused(**asked: Any) -> NothingFits:
    """Why nothing fits."""
    with pytest.raises(NothingFits) as raised:
        recommend(Request(**asked), STORE)
    return raised.value


def test_a_quantised_checkpoint_runs_on_the_engine_that_it_would_take() -> None:
    """As if the model had been asked for."""
    asked = {"gpu": "l40s", "concurrency": 1}
    offered = [tried for _, tried in relax._quantised(resolve(model="qwen2.5-32b-instruct", **asked))]
    assert offered
    assert all(tried.engine == resolve(model=tried.model.id, **asked).engine for tried in offered)


def test_a_quantised_checkpoint_is_offered_on_the_same_card() -> None:
    """One of the same shape, and it fits there."""
    error = refused(gpu="l40s", model="qwen2.5-32b-instruct", concurrency=1)
    (other,) = error.others
    assert other.options == "--model qwen2.5-32b-instruct-awq"
    made = recommend(Request(gpu="l40s", model="qwen2.5-32b-instruct-awq", concurrency=1), STORE)
    assert made.config.cards == 1
    assert f"or: {other.options} ({other.text})" in " ".join(explain_no_fit(error).split())


@pytest.mark.parametrize(
    "words",
    [
        "--model qwen2.5-7b-instruct --input-tokens 900:4000 --output-tokens 200 --ttft p99:1500 --tpot 60",
        "--model qwen2.5-7b-instruct --workload chat --prefix-tokens 300 --turns 3 --max-context 8192 --burstiness 2",
        "--model internvl3-8b-awq --image 448x448:0.7,1280x720:0.3 --p99 9000 --lmdeploy 0.12.3",
        "--model internvl3-8b-awq --image 640x480x2 --latency p90:4000 --kv int8",
        "--model internvl3-8b --text-only --backend pytorch --kv fp16",
    ],
)
def test_plan_is_asked_for_the_same_requests_and_goals(words: str) -> None:
    """Every option that describes them comes back where plan reads the command that is offered."""
    typed = shlex.split(f"--gpu l4 --rps 500 {words}")
    asked = build_request(root.make_context("recommend", [*typed]).params)
    with pytest.raises(NothingFits) as raised:
        recommend(asked, STORE)
    (other,) = raised.value.others
    _, command, *offered = shlex.split(other.options)
    assert command == "plan"
    context = plan.command.make_context("plan", offered)
    found = build_request({**context.params, "gpu": context.params["gpus"][0]})
    assert found == replace(asked, gpu=found.gpu)


def test_a_rate_beyond_one_server_leads_to_plan() -> None:
    """With the rate and the card of the request; a fleet of them is a plan."""
    error = refused(gpu="l4", model="qwen2.5-7b-instruct", rps=500.0, workload="chat")
    (other,) = error.others
    assert other.options == "recommend plan --rps 500 --gpu l4 --model qwen2.5-7b-instruct --workload chat"
    assert error.nothing.binding.constraint == "goal-rps"
    name, rate = error.change.options.split()
    assert name == "--rps"
    asked: dict[str, Any] = {"gpu": "l4", "model": "qwen2.5-7b-instruct", "workload": "chat"}
    assert recommend(Request(**asked, rps=float(rate)), STORE)


@pytest.mark.parametrize(
    "asked",
    [
        {"gpu": "l4", "model": "qwen3-8b", "workload": "chat", "ttft_ms": 200.0, "ttft_at": "p99"},
        {"gpu": "l4", "concurrency": 64, "p99_ms": 100.0},
        {"gpu": "h100-sxm-80g", "model": "qwen3-8b", "workload": "chat", "concurrency": 32, "tpot_ms": 0.5},
    ],
)
def test_what_is_predicted_is_what_is_offered(asked: dict[str, Any]) -> None:
    """The time in the message is the best that there is: the nearest goal that fits is that, rounded up."""
    error = refused(**asked)
    said = re.search(r"is ([\d.,]+) (m?s); the goal", error.nothing.binding.message)
    assert said
    time = error.change.options.split()[1].rpartition(":")[2]
    predicted = float(said[1].replace(",", "")) * (1000 if said[2] == "s" else 1)
    assert predicted * 0.99 <= parse_time("--ttft", time) <= predicted * 1.1


@pytest.mark.parametrize(
    ("model", "offered"),
    [
        ("llama-3.1-8b-instruct", "llama-3.1-8b-awq"), ("qwen3-8b-fp8", "qwen3-8b-awq"), ("qwen3-8b", "qwen3-8b-fp8"),
        ("qwen2.5-7b-instruct", "qwen2.5-7b-instruct-awq"), ("internvl3-8b", "internvl3-8b-awq"),
        ("deepseek-r1-distill-qwen-7b", ""), ("qwen3-8b-awq", ""), ("qwen3-30b-a3b-instruct-2507", ""),
        ("internvl2.5-38b", "internvl2.5-38b-awq"), ("llama-3.1-70b-instruct", "llama-3.1-70b-instruct-awq"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_fewer_bits_is_the_same_model(
    model: str, offered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same shape and name, whatever its own format; another training is another model."""
    monkeypatch.setattr(relax, "fits", lambda tried: tried.model.id != model)
    resolved = resolve(gpu="h100-sxm-80g", model=model, concurrency=1)
    found = [each.options for each in relax.suggest_others(resolved, nothing(True), None) if "--model" in each.options]
    assert found == ([f"--model {offered}"] if offered else [])


def test_shorter_prompts_are_offered_where_the_context_is_too_long() -> None:
    """And the offer fits."""
    error = refused(gpu="l4", model="llama-3.1-8b-instruct", prompt_tokens=125_000, kv="fp16", concurrency=1)
    (other,) = error.others
    name, tokens = other.options.split()
    assert name == "--input-tokens"
    assert recommend(Request(gpu="l4", model="llama-3.1-8b-instruct", prompt_tokens=int(tokens), kv="fp16"), STORE)


@pytest.mark.parametrize(
    ("goal", "good_end"),
    [
        ("p99_ms", lambda speed: speed.p99_ms.low),
        ("ttft_ms", lambda speed: speed.ttft_ms.low),
        ("latency_ms", lambda speed: speed.latency_ms.low),
    ],
)
def test_a_goal_within_the_range_is_a_warning(goal: str, good_end: Callable[[Any], float]) -> None:
    """Where the middle misses it, the script is written and says so; beyond the good end nothing fits."""
    asked: dict[str, Any] = {"gpu": "a100-sxm-80g", "concurrency": 64, "goal": "latency"}
    best = recommend(Request(**asked), STORE)
    end = good_end(best.speed)
    inside = recommend(Request(**asked, **{goal: end * 1.1}), STORE)
    (found,) = [each for each in inside.findings if each.constraint.startswith("goal-")]
    assert found.severity == "warn"
    assert "includes the goal" in found.message
    assert refused(**asked, **{goal: end * 0.5}).nothing.binding.constraint.startswith("goal-")
    assert not recommend(Request(**asked, **{goal: 80_000.0}), STORE).findings


def test_a_rate_within_the_range_is_a_warning() -> None:
    """A rising rate is first met, then not excluded, then refused."""
    asked: dict[str, Any] = {"gpu": "a100-sxm-80g"}
    said = []
    for rate in (1.0, 20.0, 40.0, 1000.0):
        try:
            made = recommend(Request(**asked, rps=rate), STORE)
            warned = {each.constraint for each in made.findings} & {"goal-rps", "rate-near-limit"}
            said.append("warned" if warned else "met")
        except NothingFits:
            said.append("refused")
    assert said == sorted(said, key=["met", "warned", "refused"].index)
    assert set(said) == {"met", "warned", "refused"}


@pytest.mark.parametrize(
    ("model", "asked", "offered"),
    [("gemma-3-4b-it", "turbomind", "pytorch"), ("internvl3-8b-awq", "pytorch", "turbomind")],
)
def test_the_engine_that_serves_the_model_is_offered(model: str, asked: str, offered: str) -> None:
    """It is the smallest change: the same model on the same GPU."""
    assert {each.engine for each in STORE.models[model].support} == {offered}
    with pytest.raises(NothingFits) as raised:
        recommend(Request("h100-sxm-80g", model=model, backend=asked))  # type: ignore[arg-type]
    assert raised.value.change.options == f"--backend {offered}"
    assert recommend(Request("h100-sxm-80g", model=model, backend=offered)).config.backend == offered  # type: ignore[arg-type]
