"""Evaluating constraints: which apply, which reject, and the values by name that they compare."""

from collections.abc import Iterable
from typing import Any

import pytest
from packaging.version import Version
from variants import GIB, IMAGES, MIB, STORE, TEXT, configuration, resolve, store_with, variant

from recommender.choose import constraints
from recommender.common.plain import Plain
from recommender.estimate import memory, memory_items, speed
from recommender.knowledge.conditions import NAMES
from recommender.knowledge.load import data_root

CODE = Plain({"release": "0.16.0", "path": "src/turbomind/turbomind.cc", "line": 1, "token": "x"})


def record(name: str, require: Iterable[str], when: Iterable[str] = (), severity: str = "reject") -> Any:
    """A constraint of its own."""
    base = STORE.constraints["batch-positive"]
    texts = {"message": f"{name} has {{config.tp}}", "remedy": "Use {gpu.count}."}
    return variant(base, id=name, severity=severity, when=tuple(when), require=tuple(require), **texts)


def rules(*records: Any) -> tuple[constraints.ParsedConstraint, ...]:
    """The constraints as they are evaluated."""
    return constraints.parse_all(store_with(constraints={each.id: each for each in records}))


# --- evaluation


@pytest.mark.parametrize(
    ("tp", "count", "violated"),
    [(1, 1, False), (2, 1, False), (3, 2, True), (4, 2, True), (2, 2, False), (4, 4, True), (2, 4, False)],
)
def test_where_all_of_when_holds_each_of_require_must(tp: int, count: int, violated: bool) -> None:
    """Of two or more cards: a tp of 2 at the most, and even."""
    (rule,) = rules(record("a", ["config.tp <= 2", "config.tp multiple of 2"], ["gpu.count >= 2", "config.tp >= 1"]))
    assert rule.is_violated({"config.tp": tp, "gpu.count": count}) is violated


def test_any_condition_of_when_that_fails_lets_it_pass() -> None:
    """Both must hold for the constraint to apply."""
    (rule,) = rules(record("a", ["config.tp == 8"], ["gpu.count >= 2", "config.tp >= 2"]))
    assert rule.is_violated({"config.tp": 2, "gpu.count": 2})
    assert not rule.is_violated({"config.tp": 1, "gpu.count": 2})
    assert not rule.is_violated({"config.tp": 2, "gpu.count": 1})
    (both,) = rules(record("a", ["config.tp == 8", "gpu.count == 8"]))
    assert both.is_violated({"config.tp": 8, "gpu.count": 1})
    assert both.is_violated({"config.tp": 1, "gpu.count": 8})
    assert not both.is_violated({"config.tp": 8, "gpu.count": 8})


def test_a_finding_tells_what_why_and_how_to_mend_it() -> None:
    """Filled with the values; warnings and rejections apart, in the order of the records."""
    among = rules(
        record("b", ["config.tp == 1"]), record("a", ["config.tp == 1"]), record("c", ["config.tp == 1"], (), "warn")
    )
    values = {"config.tp": 2, "gpu.count": 4}
    rejected = constraints.evaluate(among, values)
    assert [finding.constraint for finding in rejected] == ["b", "a"]
    first = rejected[0]
    assert (first.severity, first.message, first.remedy) == ("reject", "b has 2", "Use 4.")
    assert first.sources is STORE.constraints["batch-positive"].sources
    (warned,) = constraints.evaluate(among, values, "warn")
    assert (warned.constraint, warned.severity) == ("c", "warn")
    assert constraints.evaluate(among, {"config.tp": 1, "gpu.count": 4}) == ()


def test_those_that_need_an_estimate_are_told_apart() -> None:
    """By what they compare, whether in ``when`` or in ``require``."""
    among = rules(
        record("plain", ["config.tp == 1"]),
        record("required", ["estimate.rps >= 10"]),
        record("conditional", ["config.tp == 1"], ["estimate.rps < 10"]),
    )
    assert [rule.estimated for rule in among] == [False, True, True]
    values = {"config.tp": 2, "gpu.count": 1, "estimate.rps": 5.0}

    def found(estimated: tuple[bool, ...]) -> list[str]:
        return [each.record.id for each in constraints.find_violated(among, values, estimated=estimated)]

    assert found((False,)) == ["plain"]
    assert found((True,)) == ["required", "conditional"]
    assert found((True, False)) == ["plain", "required", "conditional"]
    assert [each.constraint for each in constraints.evaluate(among, values)] == found((True, False))


def test_a_constraint_that_the_facts_rule_out_is_not_looked_at_again() -> None:
    """Only facts decide that: what a configuration decides may still make it hold."""
    store = store_with(
        constraints={
            each.id: each
            for each in (
                record("always", ["config.tp == 1"]),
                record("here", ["config.tp == 1"], ["gpu.count == 2"]),
                record("elsewhere", ["config.tp == 1"], ["gpu.count == 4"]),
                record("perhaps", ["config.tp == 1"], ["gpu.count == 2", "config.tp == 4"]),
                record("never", ["config.tp == 1"], ["config.tp == 4", "gpu.count == 4"]),
            )
        }
    )
    resolved = resolve(store, gpu_count=2)
    kept = constraints.select_applicable(resolved, constraints.fact_values(resolved))
    assert [rule.record.id for rule in kept] == ["always", "here", "perhaps"]


def test_goals_are_what_compares_an_estimate_with_the_request() -> None:
    """The five of the knowledge; neither an estimate nor a wish alone is one."""
    assert constraints.list_goal_constraints(STORE) == {
        "goal-latency",
        "goal-p99",
        "goal-rps",
        "goal-tpot",
        "goal-ttft",
    }
    own = {
        each.id: each
        for each in (
            record("fits", ["estimate.total_gib <= gpu.available_gib"]),
            record("wish", ["request.rps <= 100"]),
            record("when", ["estimate.rps >= 1"], ["request.rps > 0"]),
            record("p99", ["estimate.p99_ms <= request.p99_ms"]),
        )
    }
    assert constraints.list_goal_constraints(store_with(constraints=own)) == {"p99"}


def test_another_engine_helps_against_rules_of_the_engine_alone() -> None:
    """Not where an estimate, or what was asked for, breaks the rule."""
    rules_of = (
        record("engine", ["config.tp == 1"], ['config.backend == "turbomind"']),
        record("room", ["estimate.kv_blocks >= 8"], ['config.backend == "turbomind"']),
        record("asked", ["config.tp == 1"]),
    )
    resolved = resolve(store_with(constraints={each.id: each for each in rules_of}))
    values = {"config.tp": 2, "config.backend": "turbomind", "estimate.kv_blocks": 1, "gpu.count": 1}
    found = constraints.evaluate(constraints.parse_all(resolved.store), values)
    assert {each.constraint: constraints.is_of_engine(resolved, each) for each in found} == {
        "engine": True,
        "room": False,
        "asked": False,
    }


def test_a_finding_tells_where_its_releases_code_is_not_public() -> None:
    """LMDeploy's repository ends with 0.16.0; a rule read there may be another in the wheel of 0.18.0."""
    sources = variant(STORE.constraints["batch-positive"].sources, code=(CODE,))
    (rule,) = rules(variant(record("a", ["config.tp == 1"]), sources=sources))
    values = {"config.tp": 2, "gpu.count": 1, "config.backend": "turbomind"}
    caveats = {
        release: constraints.evaluate((rule,), {**values, "lmdeploy": Version(release)})[0].caveat
        for release in ("0.16.0", "0.18.0")
    }
    assert caveats == {"0.16.0": "", "0.18.0": "code of 0.16.0; later code is not public"}


# --- values


def test_every_name_has_a_value_of_its_kind() -> None:
    """Facts, settings and estimates together are the vocabulary, and nothing else."""
    resolved, config = resolve(), configuration()
    used, fast = memory.estimate(resolved, config), speed.estimate(resolved, config)
    parts = (
        constraints.fact_values(resolved),
        constraints.config_values(resolved, config),
        constraints.estimate_values(used, fast, resolved.request),
    )
    values = {name: value for part in parts for name, value in part.items()}
    unnamed = {"config.revision"}
    assert values.keys() - unnamed == NAMES.keys()
    kinds = {"number": (int, float), "text": str, "flag": bool, "version": Version}
    for name, kind in NAMES.items():
        assert isinstance(values[name], kinds[kind]), name
    assert parts[0].keys().isdisjoint(parts[1])


def test_facts_of_a_model_that_sees() -> None:
    """InternVL3-8B-AWQ on two H100s, two photos asked about."""
    resolved = resolve(
        gpu_count=2,
        images=2,
        image_width=1280,
        image_height=720,
        concurrency=16,
        goal="latency",
        kv="int8",
        p99_ms=500.0,
        ttft_ms=200.0,
        tpot_ms=20.0,
        latency_ms=400.0,
        ttft_at="p90",
        latency_at="p99",
        rps=5.0,
        cpus=32,
        prompt_tokens=40,
        output_tokens=20,
    )
    expected = {
        "lmdeploy": Version("0.18.0"),
        "gpu.id": "h100-sxm-80g",
        "gpu.name": "NVIDIA H100 80GB SXM",
        "gpu.compute_capability": Version("9.0"),
        "gpu.count": 2,
        "gpu.memory_gib": 81_559 / 1024,
        "gpu.available_gib": (81_559 - 480) * MIB / GIB,
        "gpu.nvlink": True,
        "model.id": IMAGES,
        "model.hub": "OpenGVLab/InternVL3-8B-AWQ",
        "model.architecture": "InternVLChatModel",
        "model.family": "qwen2.5",
        "model.mixture": False,
        "model.vision": True,
        "model.tiled": True,
        "model.request_tiles": True,
        "model.needs": "",
        "model.remote_code": True,
        "model.turbomind": True,
        "model.pytorch": False,
        "model.quantization": "awq",
        "model.quantization_version": "gemm",
        "model.quantization_bits": 4,
        "model.quantization_group": 128,
        "model.hidden": 3584,
        "model.layers": 28,
        "model.heads": 28,
        "model.kv_heads": 4,
        "model.head_dim": 128,
        "model.intermediate": 18_944,
        "model.vocab": 151_674,
        "model.max_positions": 32_768,
        "model.dtype": "float16",
        "model.max_tiles": 12,
        "model.tile_tokens": 256,
        "request.images": 2,
        "request.image_width": 1280,
        "request.image_height": 720,
        "request.prompt_tokens": 40,
        "request.output_tokens": 20,
        "request.concurrency": 16,
        "request.rps": 5.0,
        "request.cpus": 32,
        "request.goal": "latency",
        "request.kv": "int8",
        "request.backend": "auto",
        "request.p99_ms": 500.0,
        "request.ttft_ms": 200.0,
        "request.tpot_ms": 20.0,
        "request.latency_ms": 400.0,
        "request.ttft_at": "p90",
        "request.tpot_at": "mean",
        "request.latency_at": "p99",
        "request.prefix_tokens": 0,
        "request.turns": 1,
    }
    assert constraints.fact_values(resolved) == expected


def test_facts_of_a_model_that_reads_only() -> None:
    """No quantisation, no tiles; a GPU without NVLink; both engines."""
    facts = constraints.fact_values(resolve(gpu="l4", model=TEXT))
    expected = {
        "gpu.nvlink": False,
        "model.mixture": False,
        "model.vision": False,
        "model.tiled": False,
        "model.request_tiles": False,
        "model.quantization": "none",
        "model.quantization_version": "",
        "model.quantization_bits": 16,
        "model.quantization_group": 0,
        "model.max_tiles": 0,
        "model.tile_tokens": 0,
        "model.turbomind": True,
        "model.pytorch": True,
    }
    assert {name: facts[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("model", "tiled", "reads"),
    [("internvl3-8b", True, True), ("internvl3-8b-hf", True, False), ("qwen2.5-vl-7b-instruct", False, False)],
)
def test_tiles_and_who_may_limit_them(model: str, tiled: bool, reads: bool) -> None:
    """InternVL cuts tiles and reads a limit; the -hf layout cuts and reads none; Qwen2.5-VL takes pixels."""
    facts = constraints.fact_values(resolve(model=model))
    assert (facts["model.tiled"], facts["model.request_tiles"]) == (tiled, reads)


def test_support_is_that_of_the_release() -> None:
    """InternVL3 is known in all releases, its transformers layout from 0.9.0 on, Qwen3 from 0.7.3 on."""
    for model, release, known in (
        ("internvl3-8b-awq", "0.7.0", True),
        ("internvl3-8b-hf", "0.8.0", False),
        ("internvl3-8b-hf", "0.9.0", True),
        ("qwen3-8b", "0.7.2.post1", False),
        ("qwen3-8b", "0.7.3", True),
    ):
        assert constraints.fact_values(resolve(model=model, lmdeploy=release))["model.turbomind"] is known


def test_needs_are_those_of_the_release() -> None:
    """What is needed, and what of it a configuration leaves out; an equal value and a file leave nothing out."""
    resolved = resolve(model="llama-3.3-70b-instruct", lmdeploy="0.9.2")
    assert constraints.fact_values(resolved)["model.needs"] == "--chat-template llama3_1"
    for given, unmet in (("", "--chat-template llama3_1"), ("llama3", "--chat-template llama3_1"), ("llama3_2", "")):
        assert constraints.config_values(resolved, configuration(chat_template=given))["config.unmet_needs"] == unmet
    assert constraints.fact_values(resolve(model="llama-3.3-70b-instruct"))["model.needs"] == ""


def test_a_share_of_a_card_is_what_is_available() -> None:
    """All of --vram, or the card without the driver's part."""
    assert constraints.fact_values(resolve(vram_gib=10.0))["gpu.available_gib"] == 10.0


def test_settings_and_the_tokens_of_a_request_under_them() -> None:
    """Every setting by its name; a photo of nine tiles cut to three; seven over two servers are four at the fullest."""
    resolved = resolve(images=1, image_width=1280, image_height=720, prompt_tokens=24, output_tokens=16, concurrency=7)
    config = configuration(max_tiles=6, servers=2, tp=2)
    values = constraints.config_values(resolved, config)
    for name in vars(config):
        assert values[f"config.{name}"] == getattr(config, name)
    expected = {
        "config.cards": 4,
        "request.concurrency_per_server": 4,
        "request.tiles": 3,
        "request.image_tokens": 768,
        "request.input_tokens": 842,
        "request.total_tokens": 858,
        "request.longest_tokens": 858,
        "request.largest_tokens": 7 * 256 + 74,  # six tiles and the thumbnail
        "request.ending_per_pass": 0.2,  # 4 / 16, to one digit
        "request.steady_budget": 0,
    }
    assert {name: values[name] for name in expected} == expected
    busy = resolve(images=1, image_width=448, image_height=448, prompt_tokens=24, output_tokens=16, concurrency=128)
    values = constraints.config_values(busy, configuration(servers=2))
    assert values["request.steady_budget"] == 1024  # 64 at each: three prompts of 330 tokens in blocks of 64
    assert values["request.ending_per_pass"] == 4.0


def test_estimates_in_gib_and_ms() -> None:
    """Of the memory the item, the likely total, the most and what is free; of the speed the middle."""
    resolved, config = resolve(concurrency=4), configuration(max_batch_size=4)
    used, fast = memory.estimate(resolved, config), speed.estimate(resolved, config)
    values = constraints.estimate_values(used, fast, resolved.request)
    assert values["estimate.weights_gib"] == pytest.approx(memory_items.weights(resolved, 1) / 2**30)
    assert values["estimate.kv_gib"] == pytest.approx(used.item("kv cache").bytes / 2**30)
    assert values["estimate.total_gib"] == pytest.approx(used.total / 2**30)
    assert values["estimate.peak_gib"] == pytest.approx(used.high / 2**30)
    assert values["estimate.free_gib"] == pytest.approx(used.free / 2**30)
    for name in ("forward_tokens", "kv_tokens", "kv_requests", "kv_blocks", "kv_needed_tokens", "warmup_tokens"):
        assert values[f"estimate.{name}"] == getattr(used, name)
    for name in ("latency_ms", "p99_ms", "ttft_ms", "rps"):
        assert values[f"estimate.{name}"] == getattr(fast, name).value


def test_what_no_run_has_done_is_not_said_of_what_one_has() -> None:
    """Runs have used an 8-bit cache with heads of 64; what is missing is a comparison of its answers."""
    run = (data_root() / "knowledge/evidence/h100-sweep-gpt-oss-code-2026-11-26-kv-8.yaml").read_text("utf-8")
    assert "- --quant-policy\n- '8'\n" in run
    assert STORE.models["gpt-oss-20b"].text.head_dim == 64
    message = STORE.constraints["kv-quantised-heads-not-128"].message
    assert "no run" not in message or "compared their answers" in message


def test_no_message_says_that_one_gpu_are_there() -> None:
    """A host may have one: what a message says of its number fits any."""
    messages = [record.message for record in STORE.constraints.values() if "{gpu.count}" in record.message]
    assert messages
    assert not [message for message in messages if "are {gpu.count}" in message or "{gpu.count} are" in message]
