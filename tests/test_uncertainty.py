"""Ranges: how wide they are where nothing alike ran, and what they say they rest on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from artefacts import answer, found, requests
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from variants import IMAGES, STORE, TEXT, configuration, resolve, store_with, variant

from recommender.choose.recommend import Recommendation, recommend_adviser
from recommender.estimate import speed, uncertainty
from recommender.render.formats import render
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request

SAME = "modelled from measurements on the same GPU"
KINDS = "modelled from measurements of other kinds of models"
CARDS = "modelled from measurements of fewer cards a server"
OWN = "calibrated by runs of your own"
SHEETS = "extrapolated from datasheets"


def fitted() -> Any:
    """Knowledge fitted on one and two H100s, to InternVL3 AWQ; 1.5 for other kinds, 2 and 3 for other GPUs."""
    cards = ("h100-sxm-80g x1", "h100-sxm-80g x2")
    residuals = {
        name: variant(known, gpus=("h100-sxm-80g",), models=(IMAGES, "internvl3-14b-awq"), cards=cards)
        for name, known in STORE.residuals.items()
    }
    spreads = {"unmeasured-gpu-spread": 2.0, "unmeasured-gpu-spread-other": 3.0, "unmeasured-kind-spread": 1.5}
    changed = {name: variant(STORE.coefficients[name], value=value) for name, value in spreads.items()}
    return store_with(residuals=residuals, coefficients={**STORE.coefficients, **changed})


FITTED = fitted()


@pytest.mark.parametrize(
    ("asked", "tp", "basis", "factor"),
    [
        ({}, 1, SAME, 1.0),
        ({"gpu_count": 2}, 2, SAME, 1.0),
        ({"model": "internvl3-38b-awq"}, 1, SAME, 1.0),
        ({"model": "internvl3-8b"}, 1, KINDS, 1.5),
        ({"gpu_count": 4}, 4, CARDS, 3.0),
        ({"model": "internvl3-8b", "gpu_count": 4}, 4, CARDS, 3.0),
        ({"model": "qwen2.5-7b-instruct", "gpu_count": 4}, 4, CARDS, 2.0),
        ({"gpu": "l4"}, 1, SHEETS, 3.0),
        ({"gpu": "l4", "model": "internvl3-8b"}, 1, SHEETS, 3.0),
        ({"gpu": "l4", "model": "qwen2.5-7b-instruct"}, 1, SHEETS, 2.0),
        # Runs of one's own tell of a card: what else is unlike still widens.
        ({"host_scale": 1.2}, 1, OWN, 1.0),
        ({"card_scale": 1.2}, 1, OWN, 1.0),
        ({"calibrated_by": "a"}, 1, OWN, 1.0),
        ({"gpu": "l4", "calibrated_by": "a"}, 1, OWN, 1.0),
        ({"gpu": "l4", "calibrated_by": "a", "gpu_count": 2}, 2, OWN, 3.0),
        ({"calibrated_by": "a", "gpu_count": 4}, 4, OWN, 3.0),
        ({"model": "internvl3-8b", "calibrated_by": "a"}, 1, OWN, 1.5),
        ({"gpu": "l4", "model": "internvl3-8b", "card_scale": 0.9}, 1, OWN, 1.5),
    ],
)
def test_what_a_prediction_rests_on_and_how_much_that_widens_it(
    asked: dict[str, Any], tp: int, basis: str, factor: float
) -> None:
    """Unmeasured GPUs and numbers of cards by two factors, other kinds of models by another, the rest not at all."""
    resolved = resolve(FITTED, **asked)
    config = configuration(tp=tp)
    assert uncertainty.find_basis(resolved, config) == basis
    assert uncertainty.find_widening(resolved, config) == factor
    assert speed.estimate(resolved, config).basis == basis


@pytest.mark.parametrize(
    ("asked", "factor"),
    [
        ({"model": "qwen3-vl-4b-instruct"}, 1.7),
        ({"model": "qwen3-vl-4b-instruct", "host_scale": 1.2}, 1.0),  # the user's own host was measured
        ({"model": "qwen3-vl-4b-instruct", "gpu": "l4"}, 3.0),
    ],
)
def test_hosts_that_prepare_images_for_the_pytorch_engine_differ(asked: dict[str, Any], factor: float) -> None:
    """Only where that decides a load; the larger of two reasons counts."""
    spreads = {"pytorch-image-spread": 1.7, "unmeasured-gpu-spread-other": 3.0}
    changed = {name: variant(STORE.coefficients[name], value=value) for name, value in spreads.items()}
    resolved = resolve(store_with(coefficients={**STORE.coefficients, **changed}), **asked)
    config = configuration(backend=resolved.engine)
    assert uncertainty.find_widening(resolved, config, host_bound=True) == factor
    assert uncertainty.find_widening(resolved, config) == (factor if factor != 1.7 else 1.0)


@pytest.mark.parametrize(("workload", "clients", "wide"), [("vision-json", 32, True), ("caption", 32, False)])
def test_short_answers_to_images_have_the_wide_range(workload: str, clients: int, wide: bool) -> None:
    """With long ones the host has time to spare; one request at a time is as certain as before."""
    resolved = resolve(gpu="h200-sxm", model="qwen3-vl-8b-instruct", workload=workload, concurrency=clients)
    config = configuration(backend="pytorch", max_batch_size=clients)
    predicted = speed.estimate(resolved, config)
    assert (predicted.latency_ms.high / predicted.latency_ms.value > 1.4) is wide
    alone = speed.estimate(replace(resolved, concurrency=1), config)
    assert (predicted.alone_ms.low, predicted.alone_ms.high) == (alone.alone_ms.low, alone.alone_ms.high)


def test_a_range_is_the_errors_of_unseen_runs_made_wider() -> None:
    """Both ends by the factor; the middle stays where all errors lay to one side."""
    known = {"two-sided": (0.8, 1.25), "above": (1.1, 1.2), "below": (0.7, 0.9)}
    residuals = {name: variant(STORE.residuals["rps-load"], low=low, high=high) for name, (low, high) in known.items()}
    store = store_with(residuals=residuals)

    def ends(name: str, widen: float = 1.0) -> tuple[float, ...]:
        made = uncertainty.make_range(store, name, 100.0, widen)
        return made.low, made.value, made.high

    assert ends("two-sided") == pytest.approx((80, 100, 125))
    assert ends("two-sided", 2.0) == pytest.approx((40, 100, 250))
    assert ends("above") == pytest.approx((100, 100, 120))
    assert ends("below", 1.5) == pytest.approx((70 / 1.5, 100, 150))


def test_a_figure_that_no_run_tested_may_be_half_or_twice() -> None:
    """As the p99 of one request at a time, which no record of errors has."""
    assert "p99-alone" not in STORE.residuals
    made = uncertainty.make_range(STORE, "p99-alone", 100.0, 1.0)
    assert (made.low, made.value, made.high) == (50.0, 100.0, 200.0)
    wider = uncertainty.make_range(STORE, "p99-alone", 100.0, 1.5)
    assert (wider.low, wider.high) == pytest.approx((100 / 3, 300))


def test_a_rate_is_as_sure_as_the_time_it_follows_from() -> None:
    """One at a time in 100 ms, 80 at best and 200 at worst: 10 a second, 12.5 at best, 5 at worst."""
    made = uncertainty.derive_rate(uncertainty.Range(100.0, 80.0, 200.0), 10.0)
    assert (made.value, made.low, made.high) == pytest.approx((10.0, 5.0, 12.5))


@pytest.mark.parametrize(
    ("alone", "load", "asked"), [("alone", "load", {}), ("text-alone", "text", {"model": TEXT, "images": 0})]
)
def test_every_figure_has_the_errors_of_its_own_record(alone: str, load: str, asked: dict[str, Any]) -> None:
    """Images and text, alone and under load apart; the rate of one at a time follows from its latency."""
    # In this order, and so near to each other that no end is impossible beside another.
    names = [f"rps-{load}", f"latency-{alone}", f"latency-{load}", f"p99-{load}"]
    names += [f"{figure}-{each}" for figure in ("ttft", "token") for each in (alone, load)]
    factors = {name: 1.1 + index / 500 for index, name in enumerate(names)}
    residuals = {
        name: variant(known, high=factors[name], low=1 / factors[name])
        for name, known in STORE.residuals.items()
        if name in factors
    }
    store = store_with(residuals=residuals | {"memory": STORE.residuals["memory"]})
    config = configuration(max_batch_size=16)

    def ups(concurrency: int) -> dict[str, float]:
        made = speed.estimate(resolve(store, concurrency=concurrency, **asked), config)
        figures = ("alone_ms", "latency_ms", "p99_ms", "ttft_ms", "token_ms", "rps")
        return {name: getattr(made, name).high / getattr(made, name).value for name in figures}

    lone = {"alone_ms": "latency", "latency_ms": "latency", "ttft_ms": "ttft", "token_ms": "token", "rps": "latency"}
    wanted = {name: factors[f"{figure}-{alone}"] for name, figure in lone.items()}
    assert ups(1) == pytest.approx(wanted | {"p99_ms": 2.0})
    loaded = {"latency_ms": "latency", "p99_ms": "p99", "ttft_ms": "ttft", "token_ms": "token", "rps": "rps"}
    wanted = {name: factors[f"{figure}-{load}"] for name, figure in loaded.items()}
    assert ups(16) == pytest.approx(wanted | {"alone_ms": factors[f"latency-{alone}"]})


def ends(figure: uncertainty.Range) -> bool:
    """Whether a range holds its value."""
    return figure.low <= figure.value <= figure.high


@settings(max_examples=150)
@given(request=requests())
def test_no_predicted_figure_is_impossible(request: Request) -> None:
    """Over models, GPUs, loads and releases: every field of the JSON output, against what no server can do."""
    recommendation = answer(request)
    assume(isinstance(recommendation, Recommendation))
    assert isinstance(recommendation, Recommendation)
    plain = json.loads(render(recommendation, "json"))
    figures, memory, case = plain["speed"], plain["memory"], plain["case"]
    ranges = {name: figure for name, figure in figures.items() if isinstance(figure, dict) and name != "profile"}
    assert ranges.keys() == {"alone_ms", "latency_ms", "p99_ms", "ttft_ms", "token_ms", "rps"}
    assert all(0 < each["low"] <= each["value"] <= each["high"] < float("inf") for each in ranges.values())
    alone, latency, p99, ttft, token, rps = (ranges[name] for name in ranges)
    near = 1 + 1e-9
    for end in ("low", "value", "high"):
        assert alone[end] <= latency[end] * near <= p99[end] * near**2
        assert ttft[end] <= latency[end] * near
    later = case["output_tokens"] - 1
    assert later * token["high"] <= max(latency["high"], later * token["value"]) * near
    # Little's law: N in flight that take at least T each.
    assert rps["high"] <= case["concurrency"] / latency["low"] * 1e3 * near
    assert rps["value"] == pytest.approx(case["concurrency"] / latency["value"] * 1e3)
    for times in ((figures["profile"] or {}).get(name) for name in ("ttft", "tpot", "latency") if figures["profile"]):
        assert 0 <= times["p50"] <= times["p90"] <= times["p99"]
    available = (request.vram_gib * 2**30) or recommendation.resolved.gpu.memory_mib * 2**20
    assert memory["low_bytes"] <= memory["total_bytes"] <= memory["high_bytes"] <= available
    assert memory["likely_low_bytes"] <= memory["total_bytes"] <= memory["likely_high_bytes"] <= available
    assert all(0 <= item["low"] <= item["bytes"] <= item["high"] for item in memory["items"])
    assert 0 < plain["config"]["cache_ratio"] < 1


@settings(max_examples=60)
@given(request=requests(), adviser=st.sampled_from((*STORE.advisers, "defaults")))
def test_no_figure_of_a_given_configuration_is_impossible(request: Request, adviser: str) -> None:
    """Nor for what an adviser says, which may not even start."""
    made = recommend_adviser(request, adviser).speed
    figures = (made.alone_ms, made.latency_ms, made.p99_ms, made.ttft_ms, made.token_ms, made.rps)
    assert all(map(ends, figures))
    assert made.alone_ms.low <= made.latency_ms.low <= made.p99_ms.low
    assert made.rps.high <= resolve_request(request, STORE).concurrency / made.latency_ms.low * 1e3 * (1 + 1e-9)


@pytest.mark.parametrize("load", ["single", "medium"])
def test_a_p99_begins_at_the_time_of_one_request(load: str) -> None:
    """An A100 was never measured, so its ranges are wide; still none begins below a request alone."""
    made = found(gpu="a100-sxm-80g", load=load).speed
    assert made.p99_ms.low >= made.latency_ms.low >= made.alone_ms.low


@pytest.mark.parametrize(("output", "high"), [(11, 150.0), (1, 400.0)])
def test_later_tokens_take_no_longer_than_the_answer(output: int, high: float) -> None:
    """Ten of them within the 1,500 ms that an answer takes at most; an answer of one token has none."""
    values = {"latency_ms": (1000, 500, 1500), "alone_ms": (200, 200, 200), "ttft_ms": (100, 100, 100)}
    values |= {"token_ms": (90, 30, 400), "p99_ms": (1400, 1000, 2000), "rps": (4, 3, 5)}
    figures = {name: uncertainty.Range(*each) for name, each in values.items()}
    least = uncertainty.Range(1, 1, 1)
    assert uncertainty.remove_impossible(figures, least, least, 4, output)["token_ms"].high == high
