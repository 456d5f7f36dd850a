"""Which measured loads are shown beside a prediction: a small set of made-up runs, judged by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from variants import IMAGES, TEXT, configuration, resolve, store_with

from recommender import Request, recommend
from recommender.estimate import similar_runs

CONFIG = configuration(max_batch_size=16, prefill_tokens=1024, session_len=4096, omp_threads=4)


def load(**changed: Any) -> Any:
    """A measured load just like the one asked about: 16 in flight, one 448x448 image, 330 in, 16 out."""
    values = {"concurrency": 16, "image": "448x448", "pixels": 448 * 448, "input_tokens": 330, "output_tokens": 16}
    return SimpleNamespace(**(values | {"workload": "", "rps": 50.0, "p50_ms": 320.0} | changed))


def run(name: str, *loads: Any, **changed: Any) -> Any:
    """A run of just the configuration asked about, with these loads."""
    values = {
        "lmdeploy": "0.18.0", "random_weights": True, "gpu": "h100-sxm-80g", "model": IMAGES, "mps": False,
        "engine": "turbomind", "batch": 16, "prefill_tokens": 1024, "session": 4096,
    }  # fmt: skip
    return SimpleNamespace(id=name, loads=loads or (load(),), **(values | {"threads": 4} | changed))


def shown(*runs: Any, config: Any = CONFIG, **asked: Any) -> list[str]:
    """The runs that are shown, nearest first."""
    store = store_with(evidence={made.id: made for made in runs})
    request = {"model": IMAGES, "concurrency": 16, "prompt_tokens": 24, "output_tokens": 16}
    if asked.pop("seen", True):
        request |= {"images": 1, "image_width": 448, "image_height": 448}
    return [made.run for made in similar_runs.find_similar_runs(resolve(store, **(request | asked)), config)]


def test_what_is_shown_of_a_run() -> None:
    """What ran where under which load, and what it made."""
    measured = load(rps=88.5, p50_ms=181.0)
    store = store_with(evidence={"a": run("a", measured, lmdeploy="0.17.0", random_weights=False)})
    resolved = resolve(store, model=IMAGES, concurrency=16, images=1, image_width=448, image_height=448)
    (made,) = similar_runs.find_similar_runs(resolved, CONFIG)
    assert (made.run, made.gpu, made.model) == ("a", "h100-sxm-80g", IMAGES)
    assert (made.concurrency, made.image, made.rps, made.p50_ms) == (16, "448x448", 88.5, 181.0)
    assert (made.lmdeploy, made.random_weights) == ("0.17.0", False)


def test_three_are_shown_nearest_first() -> None:
    """By how many doublings of the load they are away; a run without loads is not."""
    runs = [run(name, load(concurrency=count)) for name, count in (("c", 128), ("a", 32), ("d", 256), ("b", 4))]
    empty = run("e")
    empty.loads = ()
    assert shown(empty, *runs) == ["a", "b", "c"]
    assert shown(*runs[:2]) == ["a", "c"]


def test_a_workload_is_nearer_than_requests_that_are_alike() -> None:
    """Chat with fewer in flight comes before equal requests; rag and a shared prefix are other workloads."""
    text = {"image": "", "pixels": 0, "input_tokens": 1318, "output_tokens": 177}
    runs = [
        run(name, load(workload=workload, concurrency=count, **text))
        for name, workload, count in (
            ("chat", "chat", 16),
            ("fewer", "chat", 11),
            ("alike", "", 16),
            ("rag", "rag", 20),
            ("prefix", "chat with a prefix", 24),
        )
    ]
    asked = {"seen": False, "model": TEXT, "workload": "chat", "prompt_tokens": 0, "output_tokens": 0}
    for made in runs:
        made.model = TEXT
    assert shown(*runs, **asked) == ["chat", "fewer", "alike"]
    assert shown(*runs[2:], **asked) == ["alike", "rag", "prefix"]


def test_what_was_measured_of_a_workload_is_shown() -> None:
    """Real runs: chat and retrieval of models and a card with many of them."""
    for asked in (
        {"gpu": "h100-sxm-80g", "model": "llama-3.1-8b-instruct", "workload": "chat", "concurrency": 64},
        {"gpu": "h100-sxm-80g", "model": "qwen2.5-7b-instruct-awq", "workload": "rag", "concurrency": 64},
    ):
        found = recommend(Request(**asked)).similar_runs
        assert {(each.gpu, each.model, each.workload) for each in found} == {
            (asked["gpu"], asked["model"], asked["workload"])
        }


def test_equally_near_ones_go_by_name() -> None:
    """So that the answer is the same twice."""
    assert shown(run("c"), run("d"), run("a"), run("b")) == ["a", "b", "c"]


def test_of_a_run_its_nearest_load_is_shown() -> None:
    """Once, whatever else it was put under."""
    loads = (load(concurrency=1, rps=1.0), load(concurrency=17, rps=2.0), load(concurrency=64, rps=3.0))
    store = store_with(evidence={"a": run("a", *loads)})
    resolved = resolve(store, model=IMAGES, concurrency=16, images=1, image_width=448, image_height=448)
    assert [made.rps for made in similar_runs.find_similar_runs(resolved, CONFIG)] == [2.0]


def between(worse: Any, closer: int, farther: int, **asked: Any) -> None:
    """A run that differs in one thing is farther off than a load of one concurrency, and nearer than another's."""
    low, high = run("low", load(concurrency=closer)), run("one", load(concurrency=farther))
    assert shown(worse, low, high, **asked) == ["low", worse.id, "one"]


def test_another_gpu_counts_as_three_doublings() -> None:
    """More than seven times the load, less than nine times: a run on another GPU is not one on this."""
    between(run("other", gpu="a100-sxm-80g"), 16 * 7, 16 * 9)


def test_another_model_counts_as_three_doublings() -> None:
    """As much as another GPU, and both together six: 63 times is nearer, 65 times farther."""
    between(run("other", model="internvl3-8b"), 16 * 7, 16 * 9)
    between(run("both", model="internvl3-8b", gpu="l4"), 16 * 63, 16 * 65)


@pytest.mark.parametrize(
    ("setting", "value", "closer", "farther"),
    [
        # Half as much as the load: four times a setting is as twice the load.
        ("batch", 64, 31, 33),
        ("batch", 4, 31, 33),
        ("threads", 16, 31, 33),
        ("threads", 1, 31, 33),
        ("prefill_tokens", 4096, 31, 33),
        ("prefill_tokens", 256, 31, 33),
        # An eighth: sixteen times the session is as 1.41 times the load.
        ("session", 65_536, 22, 23),
        ("session", 256, 22, 23),
    ],
)
def test_settings_count_by_their_doublings(setting: str, value: int, closer: int, farther: int) -> None:
    """Upwards as downwards."""
    between(run("other", **{setting: value}), closer, farther)


@pytest.mark.parametrize(
    ("changed", "closer", "farther"),
    [
        ({"output_tokens": 64}, 31, 33),  # half: four times the answer is twice the load
        ({"output_tokens": 4}, 31, 33),
        ({"pixels": 4 * 448 * 448}, 63, 65),  # four times the pixels are two doublings
        ({"input_tokens": 1320}, 63, 65),
        # Of pixels and tokens, which grow together, the larger.
        ({"pixels": 4 * 448 * 448, "input_tokens": 660}, 63, 65),
        ({"pixels": 2 * 448 * 448, "input_tokens": 1320}, 63, 65),
    ],
)
def test_loads_count_by_their_doublings(changed: dict[str, int], closer: int, farther: int) -> None:
    """Answers half as much as requests in flight; images by pixels or tokens."""
    between(run("other", load(**changed)), closer, farther)


def test_several_images_count_with_all_their_pixels() -> None:
    """Two of 448x448 are as one of twice as many pixels."""
    two = run("two", load(pixels=2 * 448 * 448, input_tokens=589))
    one = run("one", load(pixels=448 * 448, input_tokens=589))
    assert shown(one, two, images=2) == ["two", "one"]


def test_text_is_no_neighbour_of_images() -> None:
    """Eight doublings apart, either way: alone a run under one doubling more is still shown, two are not."""
    assert shown(run("text", load(image="", pixels=0))) == ["text"]
    assert shown(run("text", load(image="", pixels=0, concurrency=31))) == ["text"]
    assert shown(run("text", load(image="", pixels=0, concurrency=33))) == []
    text = {"seen": False, "model": TEXT, "prompt_tokens": 301}
    assert shown(run("image", load(concurrency=31), model=TEXT), **text) == ["image"]
    assert shown(run("image", load(concurrency=33), model=TEXT), **text) == []
    assert shown(run("text", load(image="", pixels=0, concurrency=16 * 500), model=TEXT), **text) == ["text"]
    # Of texts the length counts: twice the tokens are twice the load.
    longer = load(image="", pixels=0, input_tokens=660, concurrency=16)
    between_texts = [run("b", longer, model=TEXT)]
    for name, count in (("a", 31), ("c", 33)):
        between_texts.append(run(name, load(image="", pixels=0, concurrency=count), model=TEXT))
    assert shown(*between_texts, **text) == ["a", "b", "c"]


def test_nothing_that_is_far_is_shown() -> None:
    """Nine doublings are too far, a little less is not: 512 and 500 times the load, or another GPU and 64 times."""
    assert shown(run("a", load(concurrency=16 * 512))) == []
    assert shown(run("a", load(concurrency=16 * 500))) == ["a"]
    assert shown(run("a", load(concurrency=16 * 64), gpu="l4")) == []
    assert shown(run("a", load(concurrency=16 * 60), gpu="l4")) == ["a"]
    assert shown(run("a", gpu="l4", model="internvl3-8b", batch=16 * 64)) == []


def test_a_run_that_is_near_by_itself_may_be_far_by_its_load() -> None:
    """Runs are looked through until none can be nearer: a like configuration under another load comes later."""
    like = [run(name, load(concurrency=2048)) for name in ("a", "b", "c")]
    assert shown(*like, run("z", batch=32), run("y", batch=64)) == ["z", "y", "a"]


def test_a_run_is_looked_at_while_it_may_be_nearer_than_the_third() -> None:
    """Two exact ones and a like one under a distant load: one with other settings and the very load comes third."""
    runs = (run("a"), run("b"), run("c", load(concurrency=512)), run("d", batch=64), run("e", batch=128))
    assert shown(*runs) == ["a", "b", "d"]


def test_runs_too_far_by_themselves_end_the_search() -> None:
    """What is found by then is shown."""
    far = run("far", gpu="l4", model="internvl3-8b", batch=16 * 512)
    assert shown(far) == []
    assert shown(far, run("a")) == ["a"]


def test_of_loads_as_near_the_first_is_shown() -> None:
    """Half and twice as many in flight are as far."""
    loads = (load(concurrency=32, rps=1.0), load(concurrency=8, rps=2.0))
    store = store_with(evidence={"a": run("a", *loads)})
    resolved = resolve(store, model=IMAGES, concurrency=16, images=1, image_width=448, image_height=448)
    assert [made.rps for made in similar_runs.find_similar_runs(resolved, CONFIG)] == [1.0]


def test_fewer_tiles_make_another_prompt() -> None:
    """Of 1280x720 one tile: as many pixels, and the tokens of a small image."""
    pixels = 1280 * 720
    runs = (
        run("whole", load(pixels=pixels, input_tokens=2378)),
        run("one", load(pixels=pixels, input_tokens=330)),
    )
    asked = {"image_width": 1280, "image_height": 720}
    assert shown(*runs, **asked) == ["whole", "one"]
    assert shown(*runs, config=replace(CONFIG, max_tiles=1), **asked) == ["one", "whole"]


def test_one_in_flight_is_not_two() -> None:
    """Nor is one thread."""
    config = replace(CONFIG, omp_threads=1)
    assert shown(run("a", load(concurrency=2)), run("b", load(concurrency=1)), concurrency=1) == ["b", "a"]
    assert shown(run("a", threads=2), run("b", threads=1), config=config) == ["b", "a"]


def test_what_was_not_counted_is_taken_as_one() -> None:
    """A run that never told its budget is as far as one of a single token."""
    expected = ["two", "none", "one"]
    assert shown(run("none", prefill_tokens=0), run("one", prefill_tokens=1), run("two", prefill_tokens=2)) == expected
    assert shown(run("none", threads=0), run("two", threads=2)) == ["two", "none"]
