"""Test what holds for every recommendation."""

from __future__ import annotations

import json
import os
import random
import sys
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
import yaml
from artefacts import (
    GPUS,
    KNOWLEDGE,
    LOADS,
    MODELS,
    RELEASES,
    answer,
    fits,
    found,
    grid,
    recommend_process,
    release_facts,
    requests,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from recommender.choose.recommend import NothingFits, Recommendation, recommend
from recommender.knowledge.conditions import parse
from recommender.knowledge.load import load
from recommender.knowledge.store import Store
from recommender.render.formats import render
from recommender.request.request import Request

GIB = 2**30


@cache
def records(folder: str) -> dict[str, dict[str, Any]]:
    """The records of a folder as they are written, not as the recommender reads them."""
    return {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted((KNOWLEDGE / folder).glob("*.yaml"))}


def in_release(since: str, until: str, release: str) -> bool:
    return Version(since) <= Version(release) and (not until or Version(release) < Version(until))


def values(plain: dict[str, Any]) -> dict[str, Any]:
    """Every name of the condition vocabulary, from a recommendation's JSON and the written records."""
    case, config, request, memory, speed = (plain[key] for key in ("case", "config", "request", "memory", "speed"))
    gpu, model = records("gpus")[case["gpu"]], records("models")[case["model"]]
    text = model["text"]
    vision = (model.get("vision") or [None])[0]
    quantization = (model.get("quantization") or [{"method": "none", "bits": 16, "group": 0, "version": ""}])[0]
    engines = {
        each["engine"]
        for each in model["support"]
        if in_release(each["since"], each.get("until", ""), case["lmdeploy"])
    }
    items = {each["name"]: each["bytes"] for each in memory["items"]}
    total = sum(items.values())
    known: dict[str, Any] = {
        "lmdeploy": Version(case["lmdeploy"]),
        "gpu.id": gpu["id"],
        "gpu.name": gpu["name"],
        "gpu.compute_capability": Version(gpu["compute_capability"]),
        "gpu.count": request["gpu_count"],
        "gpu.memory_gib": gpu["memory_mib"] / 1024,
        "gpu.available_gib": request["vram_gib"] or gpu["memory_mib"] / 1024,
        "gpu.nvlink": gpu["nvlink_gb_s"] > 0,
        "model.id": model["id"],
        "model.hub": model["hub"],
        "model.architecture": model["architecture"],
        "model.family": text["family"],
        "model.vision": vision is not None,
        "model.tiled": vision is not None and not vision.get("pixels"),
        "model.mixture": bool(text.get("mixture")),
        "model.remote_code": model["remote_code"],
        "model.turbomind": "turbomind" in engines,
        "model.pytorch": "pytorch" in engines,
        "model.needs": " ".join(
            f"{records('flags')[each['option']]['option']} {each['value']}"
            for each in model.get("needs", ())
            if in_release(each["since"], each.get("until", ""), case["lmdeploy"])
        ),
        "model.quantization": quantization["method"],
        "model.quantization_version": quantization["version"],
        "model.quantization_bits": quantization["bits"],
        "model.quantization_group": quantization["group"],
        "model.max_tiles": vision["max_tiles"] if vision else 0,
        "model.tile_tokens": vision["tokens_per_tile"] if vision else 0,
        "request.total_tokens": case["input_tokens"] + case["output_tokens"],
        "request.longest_tokens": case["input_tokens"] + case["output_tokens"],  # all requests are alike here
        "request.prompt_tokens": request["prompt_tokens"] or 1,
        "request.concurrency_per_server": -(-case["concurrency"] // config["servers"]),
        "config.cards": config["tp"] * config["servers"] // config["share"],
        "estimate.forward_tokens": config["prefill_tokens"] + config["max_batch_size"],
        "estimate.kv_tokens": memory["kv_blocks"] * config["block_len"],
        "estimate.weights_gib": items["weights"] / GIB,
        "estimate.kv_gib": items["kv cache"] / GIB,
        "estimate.total_gib": total / GIB,
        "estimate.peak_gib": memory["high_bytes"] / GIB,
        "estimate.free_gib": memory["free_after_weights_bytes"] / GIB,
    }
    counted = "images image_width image_height tiles image_tokens input_tokens output_tokens concurrency"
    counted += " prefix_tokens turns"
    wished = "rps cpus goal kv p99_ms ttft_ms tpot_ms latency_ms ttft_at tpot_at latency_at"
    known |= {f"model.{name}": value for name, value in text.items()}
    known |= {f"request.{name}": case[name] for name in counted.split()}
    known |= {f"request.{name}": request[name] for name in wished.split()}
    known |= {f"config.{name}": value for name, value in config.items()}
    known["config.unmet_needs"] = " ".join(
        records("flags")[each["option"]]["option"]
        for each in model.get("needs", ())
        if in_release(each["since"], each.get("until", ""), case["lmdeploy"])
        and config[records("flags")[each["option"]]["setting"]] != each["value"]
    )
    known |= {f"estimate.{n}": memory[n] for n in ("kv_requests", "kv_blocks", "kv_needed_tokens", "warmup_tokens")}
    known |= {
        f"estimate.{name}_at_ms": quantile(speed, name, request[f"{name}_at"]) for name in ("ttft", "tpot", "latency")
    }
    return known | {f"estimate.{n}": speed[n]["value"] for n in ("latency_ms", "p99_ms", "ttft_ms", "rps")}


def quantile(speed: dict[str, Any], name: str, at: str) -> float:
    """A predicted time in ms: of a simulated load its own quantile, else one that spreads as the latency does."""
    if speed["profile"]:
        return float(speed["profile"][name][at])
    mean = speed["token_ms" if name == "tpot" else f"{name}_ms"]["value"]
    normal = NormalDist()
    share = {"mean": 0.0, "p50": 0.0, "p90": normal.inv_cdf(0.9) / normal.inv_cdf(0.99), "p99": 1.0}[at]
    return float(mean * max(speed["p99_ms"]["value"] / speed["latency_ms"]["value"], 1.0) ** share)


def violated(plain: dict[str, Any], severity: str) -> set[str]:
    known = values(plain)
    return {
        name
        for name, record in records("constraints").items()
        if record["severity"] == severity
        and all(parse(each).holds(known) for each in record.get("when", ()))
        and not all(parse(each).holds(known) for each in record["require"])
    }


@settings(max_examples=80)
@given(request=requests())
def test_the_choice_passes_every_constraint(request: Request) -> None:
    """Evaluated again from the JSON alone, no rejecting constraint is violated, and each warning is shown."""
    plain = json.loads(render(fits(request), "json"))
    assert not violated(plain, "reject")
    assert {each["constraint"] for each in plain["findings"]} == violated(plain, "warn")


@pytest.mark.parametrize("goals", [{"p99_ms": 2000.0}, {"ttft_ms": 500.0}, {"rps": 3.0}, {"p99_ms": 900.0, "rps": 5.0}])
def test_the_choice_keeps_the_users_goals(goals: dict[str, float]) -> None:
    """What is recommended for a latency or a rate is predicted to keep it."""
    speed = found(gpu="h100-sxm-80g", load="low", **goals).speed
    assert speed.p99_ms.value <= goals.get("p99_ms", float("inf"))
    assert speed.ttft_ms.value <= goals.get("ttft_ms", float("inf"))
    assert speed.rps.value >= goals.get("rps", 0)


# --- more memory


def monotone(outcomes: list[bool]) -> bool:
    return outcomes == sorted(outcomes)


@settings(max_examples=6)
@given(request=requests(gpu="a100-sxm-80g"))
def test_more_of_a_shared_card_never_costs_feasibility(request: Request) -> None:
    """What fits in so many GiB of a card fits in more."""
    plain = {name: getattr(request, name) for name in request.__slots__}
    sizes = (4, 6, 7, 8, 9, 10, 12, 16, 20, 24, 32, 40, 60, 79)
    outcomes = [isinstance(answer(Request(**{**plain, "vram_gib": float(size)})), Recommendation) for size in sizes]
    assert monotone(outcomes), list(zip(sizes, outcomes, strict=True))


@cache
def with_memory(mib: int) -> Store:
    """The knowledge with an A10 of another memory size; all else stays as it is."""
    index = {
        kind: json.loads(json.dumps(dict(getattr(load(), kind)), default=plainly)) for kind in Store.__annotations__
    }
    index["gpus"]["a10"] |= {"memory_mib": mib, "memory_gb": mib / 1024}
    return Store(json.dumps(index))


def plainly(record: object) -> Any:
    return dict(vars(record))


@pytest.mark.parametrize("asked", [{}, {"kv": "fp16", "concurrency": 64}, {"model": "internvl3-14b", "concurrency": 8}])
def test_a_larger_card_never_costs_feasibility(asked: dict[str, Any]) -> None:
    """What fits on a card fits on the same card with more memory."""
    outcomes = []
    for gib in (6, 8, 9, 10, 12, 16, 24, 32, 48, 80):
        try:
            recommend(Request(gpu="a10", **asked), with_memory(gib * 1024))
            outcomes.append(True)
        except NothingFits:
            outcomes.append(False)
    assert monotone(outcomes), outcomes
    assert set(outcomes) == {True, False}


# --- the same request


def test_the_order_of_options_changes_nothing(tmp_path: Path) -> None:
    """The same options in any order give the same bytes."""
    from recommender.cli import root

    options = [
        ("--gpu", "A100-80G"), ("--load", "medium"), ("--image", "1280x720"), ("--goal", "throughput"),
        ("--lmdeploy", "0.16.0"), ("--output-tokens", "32"), ("--format", "json"),
    ]  # fmt: skip
    texts = set()
    for seed in range(6):
        random.Random(seed).shuffle(options)
        target = tmp_path / f"{seed}.json"
        words = [word for pair in options for word in pair]
        root.main([*words, "-q", "-o", str(target)], prog_name="recommend", standalone_mode=False)
        texts.add(target.read_bytes())
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"gpu": "A100-80G"}, {"gpu": "a100 80g"}),
        ({"gpu": "H100-80G"}, {"gpu": "h100_80g"}),
        ({"model": "internvl3-8b-awq"}, {"model": "OpenGVLab/InternVL3-8B-AWQ"}),
        ({"lmdeploy": "0.16.0"}, {"lmdeploy": "v0.16.0"}),
        ({"load": "medium"}, {"concurrency": 16, "load": ""}),
    ],
)
def test_aliases_change_nothing(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Two spellings of the same thing give the same command, prediction and reasons."""
    outputs = [json.loads(render(found(**asked), "json")) for asked in (first, second)]
    for output in outputs:
        del output["request"], output["rendered"], output["case"]["notes"]  # as it was asked, and a digest of that
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("form", ["bash", "python", "client", "json", "report"])
def test_the_same_request_gives_the_same_bytes(form: str) -> None:
    """Asked twice in one process, an artefact is the same to the byte."""
    asked = Request(gpu="l4", load="medium")
    assert render(recommend(asked), form) == render(recommend(asked), form)


@pytest.mark.parametrize("form", ["bash", "json"])
def test_no_surrounding_changes_the_artefact(form: str, tmp_path: Path) -> None:
    """A fresh process elsewhere, with another hash seed, time zone, language and width, writes the same bytes."""
    words = ("--gpu", "H100:2", "--load", "high", "--format", form)
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(KNOWLEDGE.parent)}
    one = recommend_process(*words, environment={**base, "PYTHONHASHSEED": "1", "TZ": "UTC", "LANG": "C"})
    other = recommend_process(
        *words,
        environment={
            **base,
            "PYTHONHASHSEED": "4242",
            "TZ": "Asia/Ho_Chi_Minh",
            "LANG": "vi_VN.UTF-8",
            "COLUMNS": "40",
            "HOME": str(tmp_path),
            "CUDA_VISIBLE_DEVICES": "7",
            "OMP_NUM_THREADS": "3",
        },
        cwd=tmp_path,
    )
    assert one.returncode == other.returncode == 0, one.stderr
    assert one.stdout == other.stdout
    assert str(KNOWLEDGE.parent).encode() not in one.stdout
    assert sys.executable.encode() not in one.stdout


# --- what is emitted


@settings(max_examples=120)
@given(request=requests())
def test_emitted_limits_hold_the_operating_point(request: Request) -> None:
    """The batch holds the load, the session one request, the cache all of them; cards and CPUs are not overdrawn."""
    plain = json.loads(render(fits(request), "json"))
    case, config, memory = plain["case"], plain["config"], plain["memory"]
    words = plain["command"]

    def word(option: str, otherwise: int) -> int:
        return int(words[words.index(option) + 1]) if option in words else otherwise

    batch = word("--max-batch-size", 0)
    assert batch * config["servers"] >= case["concurrency"]
    assert word("--session-len", 0) > case["input_tokens"] + case["output_tokens"]
    assert config["max_tokens"] >= case["output_tokens"]
    each = -(-(case["input_tokens"] + case["output_tokens"]) // config["block_len"]) * config["block_len"]
    assert memory["kv_tokens"] >= max(memory["kv_needed_tokens"], each * batch, memory["warmup_tokens"])
    assert word("--tp", 1) * config["servers"] <= case["gpu_count"] * config["share"]
    threads = int(plain["environment"].get("OMP_NUM_THREADS", 0))
    assert threads >= 1
    assert threads * config["servers"] <= max(request.cpus, config["servers"])
    ratio = float(words[words.index("--cache-max-entry-count") + 1])
    assert 0 < ratio < 1
    available = records("gpus")[case["gpu"]]["memory_mib"] * 2**20
    assert memory["high_bytes"] <= (request.vram_gib * GIB or available)


@settings(max_examples=60)
@given(request=requests(kv="auto"))
def test_accuracy_is_given_up_only_when_memory_demands_it(request: Request) -> None:
    """Unasked, KV goes below 16 bits only where 16 do not fit at full detail, and tiles go only where no KV does."""
    recommendation = fits(request)
    if recommendation.config.kv_bits == 16 and not recommendation.config.max_tiles:
        return
    plain = {name: getattr(request, name) for name in request.__slots__}
    for kv in ("fp16", "int8", "int4") if recommendation.config.max_tiles else ("fp16",):
        other = answer(Request(**{**plain, "kv": kv}))
        assert isinstance(other, NothingFits) or other.config.max_tiles, kv
    report = render(recommendation, "report")
    assert "accuracy" in report


@pytest.mark.parametrize(("kv", "bits", "policy"), [("fp16", 16, "0"), ("int8", 8, "8"), ("int4", 4, "4")])
def test_kv_precision_is_the_one_asked_for(kv: str, bits: int, policy: str) -> None:
    """--kv decides the precision, and the command carries it or leaves LMDeploy's own 16 bits."""
    plain = json.loads(render(found(kv=kv), "json"))
    assert plain["config"]["kv_bits"] == bits
    words = plain["command"]
    said = words[words.index("--quant-policy") + 1] if "--quant-policy" in words else "0"
    assert said in (policy, {"0": "none", "8": "int8", "4": "int4"}[policy])


# Options that no release's TurboMind acts on for this, and those said to help that do not.
USELESS = {"--eager-mode", "--vision-max-batch-size", "--num-tokens-per-iter", "--max-prefill-iters"}


def unread(release: str) -> set[str]:
    """The options that neither TurboMind nor the server reads in a release, by the written records."""
    return {
        flag["option"]
        for flag in records("flags").values()
        for era in flag["eras"]
        if in_release(era["since"], era.get("until", ""), release) and not {"turbomind", "server"} & set(era["read_by"])
    }


def test_nothing_useless_is_emitted_for_any_release() -> None:
    """Over the grid no option is emitted that the engine does not read, or that the release does not have."""
    seen = 0
    for request in grid():
        recommendation = answer(request)
        if isinstance(recommendation, NothingFits):
            continue
        seen += 1
        emitted = {each.name for each in recommendation.explanations if each.kind == "flag" and each.emitted}
        names = {each.name for each in release_facts(request.lmdeploy).options}
        assert emitted <= names, (request.lmdeploy, emitted - names)
        assert not emitted & (unread(request.lmdeploy) | USELESS)
    assert seen > 150
    assert "--eager-mode" in unread("0.18.0")


@pytest.mark.parametrize("release", RELEASES)
def test_remote_code_is_allowed_exactly_where_it_must_be(release: str) -> None:
    """--trust-remote-code stands from 0.13.0 on, for checkpoints whose configuration is code, and nowhere else."""
    seen, place = set(), RELEASES.index(release)
    since = RELEASES.index("0.13.0")
    # At both ends and where it changes all models; between, where nothing does, each in its turn.
    for model in MODELS if place in (0, since - 1, since, len(RELEASES) - 1) else MODELS[place % 6 :: 6]:
        recommendation = answer(Request(gpu="h200-sxm", gpu_count=1, load="single", model=model, lmdeploy=release))
        if isinstance(recommendation, NothingFits):
            continue
        emitted = any(each.name == "--trust-remote-code" and each.emitted for each in recommendation.explanations)
        wanted = records("models")[model]["remote_code"] and Version(release) >= Version("0.13.0")
        assert emitted == wanted, (release, model)
        seen.add(wanted)
    assert seen == ({True, False} if Version(release) >= Version("0.13.0") else {False})


@pytest.mark.parametrize("release", ["0.9.0", "0.13.0", "0.18.0"])
def test_every_option_is_explained(release: str) -> None:
    """Each option of the release is in the JSON once, with its reason, sources, advice and verdicts."""
    options = json.loads(render(found(lmdeploy=release), "json"))["options"]
    flags = [each for each in options if each["kind"] == "flag"]
    assert sorted(each["name"] for each in flags) == sorted(
        each.name for each in release_facts(release).options if each.options
    )
    assert all(each["reason"] for each in options)
    advised = next(each for each in flags if each["name"] == "--session-len")["advice"]
    assert {each["adviser"]: each["value"] for each in advised}.items() >= {"chatgpt": "256", "grok": "2048"}.items()


@settings(max_examples=40)
@given(request=requests(), width=st.integers(1, 9000), height=st.integers(1, 9000))
def test_memory_items_add_up(request: Request, width: int, height: int) -> None:
    """The items sum to the total, each lies in its range, and KV bytes follow from what a token takes."""
    memory = json.loads(render(fits(request), "json"))["memory"]
    assert memory["total_bytes"] == sum(each["bytes"] for each in memory["items"])
    assert all(0 <= each["low"] <= each["bytes"] <= each["high"] for each in memory["items"])
    assert memory["low_bytes"] <= memory["total_bytes"] <= memory["high_bytes"]
    cache_ = next(each["bytes"] for each in memory["items"] if each["name"] == "kv cache")
    assert memory["kv_tokens"] * memory["kv_bytes_per_token"] <= cache_ * 1.05 + 2**26


def test_the_known_shape_gives_the_known_bytes_a_token() -> None:
    """28 layers of 4 KV heads of 128: 57,344 bytes a token at 16 bits, 51.6 % and 26.6 % of it at 8 and 4."""
    sizes = [found(kv=kv).memory.kv_token_bytes for kv in ("fp16", "int8", "int4")]
    assert sizes == [28 * 2 * 4 * 256, 28 * 2 * 4 * 132, 28 * 2 * 4 * 68]


@pytest.mark.parametrize("load_name", LOADS)
@pytest.mark.parametrize("gpu", GPUS)
def test_the_reference_model_has_an_answer_on_every_card(gpu: str, load_name: str) -> None:
    """InternVL3-8B-AWQ at any named load fits every card of the knowledge, or a change is named that fits."""
    recommendation = answer(Request(gpu=gpu, load=load_name))
    assert isinstance(recommendation, Recommendation) or recommendation.change is not None
