"""An adviser's configuration: how its settings are read, what stands where it is silent, what speaks against it."""

import re
from dataclasses import replace
from typing import Any

import pytest
from variants import IMAGES, STORE, TEXT, configuration, resolve, store_with, variant

from recommender import review
from recommender.choose import advisers, batch_room, problems
from recommender.choose.recommend import recommend_adviser
from recommender.choose.select import predict
from recommender.common.errors import RequestError, UnknownName
from recommender.request.request import Request

MOE = "qwen3-30b-a3b"


def setting(option: str, value: str, **changed: Any) -> Any:
    base = STORE.advisers["claude"].settings[0]
    return variant(base, **{"option": option, "value": value, "up_to": "", "final": True, "reason": "", **changed})


def adviser(*settings: Any) -> Any:
    return variant(STORE.advisers["claude"], id="mine", name="My Adviser", settings=settings)


def knowing(*settings: Any, **kinds: Any) -> Any:
    return store_with(advisers={"mine": adviser(*settings)}, **kinds)


def follow(
    *settings: Any,
    added: dict[str, str] | None = None,
    left: tuple[str, ...] = (),
    kinds: dict[str, Any] | None = None,
    **asked: Any,
) -> tuple[Any, advisers.GivenSettings]:
    resolved = resolve(knowing(*settings, **(kinds or {})), **asked)
    return resolved, advisers.follow(resolved, "mine", added or {}, left)


# --- whose settings


def test_an_adviser_is_known_by_id_and_name() -> None:
    """In any case, with dashes or blanks; one that is not known gets near names, LMDeploy's defaults among them."""
    store = knowing(setting("tp", "1"))
    for name in ("mine", "MINE", "My Adviser", "my-adviser"):
        assert advisers.resolve_adviser(store, name).id == "mine"
    with pytest.raises(UnknownName, match=r"unknown adviser 'mime': did you mean mine"):
        advisers.resolve_adviser(store, "mime")
    with pytest.raises(UnknownName, match="did you mean defaults"):
        advisers.resolve_adviser(store, "default")


def test_of_a_range_the_upper_end_counts_and_remarks_do_not() -> None:
    """What is said in passing is not the adviser's configuration; a reason is given or said to be missing."""
    made = advisers.list_settings(
        adviser(
            setting("session-len", "2048", up_to="4096", reason="Room."),
            setting("tp", "1"),
            setting("max-batch-size", "64", final=False),
        )
    )
    assert {option: (advice.value, advice.reason) for option, advice in made.items()} == {
        "session-len": ("4096", "Room."),
        "tp": ("1", "No reason given."),
    }


def test_what_is_added_and_left_out_is_told() -> None:
    """By the options' ids, however they were written; what is added wins."""
    _, made = follow(
        setting("session-len", "2048"),
        setting("tp", "1"),
        setting("quant-policy", "8"),
        added={"--Session_Len": "8192", "trust-remote-code": "", "OMP_NUM_THREADS": "8"},
        left=("--TP", "quant_policy"),
    )
    assert (made.id, made.name) == ("mine", "My Adviser")
    assert made.added == (("omp-num-threads", "8"), ("session-len", "8192"), ("trust-remote-code", "true"))
    assert made.left_out == ("quant-policy", "tp")
    assert {option: advice.value for option, advice in made.settings.items()} == {
        "session-len": "8192",
        "omp-num-threads": "8",
        "trust-remote-code": "true",
    }
    assert made.settings["session-len"].reason == "Added with --with."


def test_the_engine_that_is_asked_for_runs_the_advice() -> None:
    """With --backend, whatever the adviser says; --with may repeat it and not contradict it."""
    request = Request(gpu="H100-80G", backend="pytorch", model="qwen2.5-7b-instruct")
    made = recommend_adviser(request, "defaults")
    assert made.config.backend == "pytorch"
    assert recommend_adviser(request, "defaults", {"backend": "pytorch"}).config == made.config
    with pytest.raises(RequestError, match="--with backend=turbomind: you asked for the pytorch engine too"):
        recommend_adviser(request, "defaults", {"backend": "turbomind"})


def test_problems_are_those_of_the_engine_that_runs() -> None:
    """Where LMDeploy falls back: one problem says why, the others and their figures are of the engine it takes."""
    request = Request(gpu="T4", model="phi-4-mini-instruct", concurrency=64, lmdeploy="0.16.0")
    made = recommend_adviser(request, "defaults", {"cache-block-seq-len": "16"})
    assert made.config.backend == "pytorch"
    problems = {finding.constraint: finding.message for finding in made.findings}
    assert "falls back to the PyTorch engine" in problems["turbomind-serves-model"]
    assert f"would hold {made.memory.kv_tokens:,} tokens" in problems["kv-holds-concurrency"]
    assert "block-length-before-ampere" not in problems  # TurboMind alone needs more than 16
    asked = recommend_adviser(replace(request, backend="pytorch"), "defaults", {"cache-block-seq-len": "16"})
    assert problems.keys() - {"turbomind-serves-model"} == {finding.constraint for finding in asked.findings}


def test_defaults_are_followed_like_an_adviser_without_settings() -> None:
    """Under that name in any case."""
    for name in ("defaults", "DEFAULTS"):
        made = advisers.follow(resolve(), name, {}, ())
        assert (made.id, made.name, dict(made.settings)) == ("defaults", "LMDeploy's defaults", {})
    added = advisers.follow(resolve(), "defaults", {"tp": "2"}, ())
    assert added.settings["tp"] == advisers.AdvisedValue("2", "Added with --with.")


@pytest.mark.parametrize(
    ("added", "left", "error", "said"),
    [
        ({"sesion-len": "1"}, (), UnknownName, "--with: unknown option 'sesion-len': did you mean session-len"),
        (
            {"session-len": ""},
            (),
            RequestError,
            "--with session-len: value missing; write --with session-len=VALUE",
        ),
        # Of the release, not of any: the async engine came in 0.12.0.
        ({"async": "1"}, (), UnknownName, "--with: unknown option 'async'"),
        # Only what the adviser gave can be left out.
        ({}, ("max-batch-size",), UnknownName, "--without: unknown option 'max-batch-size'"),
        ({"omp-num-threads": ""}, (), RequestError, "value missing"),
    ],
)
def test_what_cannot_be_added_or_left_out(
    added: dict[str, str], left: tuple[str, ...], error: type[Exception], said: str
) -> None:
    """Unknown options, options of other releases, options without their value."""
    with pytest.raises(error, match=said):
        follow(setting("tp", "1"), added=added, left=left, lmdeploy="0.10.0")


# --- the configuration


# Read in the wheel of 0.9.2, lmdeploy/utils.py:344: {'a100': 256, 'a800': 256, 'h100': 512, 'h800': 512}, others 128.
@pytest.mark.parametrize("release", ["0.7.0", "0.9.2", "0.9.2.post1"])
@pytest.mark.parametrize(
    ("gpu", "batch"),
    [("a100-sxm-80g", 256), ("a800-pcie-80g", 256), ("h100-sxm-80g", 512), ("h800-sxm-80g", 512), ("h200-sxm", 128)],
)
def test_the_default_batch_was_smaller_before_0_10(release: str, gpu: str, batch: int) -> None:
    """Up to 0.9.2.post1: 256 on an A100 or A800, 512 on an H100 or H800, 128 elsewhere, the H200 too."""
    assert batch_room.default_batch(resolve(gpu=gpu, lmdeploy=release)) == batch


# LMDeploy's own defaults of the batch by the GPU's product name: lmdeploy/utils.py of the release.
@pytest.mark.parametrize("release", ["0.10.0", "0.18.0"])
@pytest.mark.parametrize(
    ("gpu", "batch"),
    [
        ("a100-sxm-80g", 384), ("a100-pcie-40g", 384), ("a100-sxm-80g-mig-2g", 384), ("h100-sxm-80g", 1024),
        ("h100-nvl-94g", 1024), ("h200-sxm", 1024), ("a800-sxm-80g", 384), ("h800-sxm-80g", 1024),
        ("gh200-96g", 1024), ("h20-96g", 128), ("l4", 128), ("a10", 128), ("b200", 128), ("rtx-4090", 128),
    ],
)  # fmt: skip
def test_the_default_batch_is_the_gpus(release: str, gpu: str, batch: int) -> None:
    """From 0.10.0: 384 on an A100, 1024 on an H100 or H200, 128 elsewhere (0.10.0 lmdeploy/utils.py:340)."""
    resolved = resolve(gpu=gpu, lmdeploy=release)
    assert batch_room.default_batch(resolved) == batch
    config = advisers.build_configuration(resolved, advisers.follow(resolved, "defaults", {}, ()))
    assert config.max_batch_size == batch


@pytest.mark.parametrize(("model", "positions"), [(IMAGES, 32_768), ("llama-3-8b-instruct", 8192)])
def test_where_an_adviser_is_silent_lmdeploys_defaults_stand(model: str, positions: int) -> None:
    """0.18.0: a session as long as the model, 8192 tokens of prefill, 0.8 of the free memory, no code, no schema."""
    resolved = resolve(model=model, cpus=24, gpu_count=4, concurrency=64)
    config = advisers.build_configuration(resolved, advisers.follow(resolved, "defaults", {}, ()))
    expected = {
        "session_len": positions, "prefill_tokens": 8192, "cache_ratio": 0.8, "block_len": 64, "kv_bits": 16,
        "prefix_caching": False, "omp_threads": 24, "max_tiles": 0, "tp": 1, "servers": 1, "share": 1,
        "proxy_url": "", "trust_remote_code": False, "disable_docs": False, "server_name": "0.0.0.0",
        "structured_output": False, "backend": "turbomind", "port": 23333,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in expected} == expected
    # Where the release's options have a default of their own, it is this one.
    for option, value in (("cache-max-entry-count", "0.8"), ("max-prefill-token-num", "8192"), ("tp", "1")):
        assert resolved.options[option].default == value
    assert resolved.options["server-name"].default == "0.0.0.0"


def test_a_zero_that_stands_for_nothing_else_stays() -> None:
    """No era of the prefill budget gives 0 a meaning, of the batch the default."""
    resolved = resolve()
    options = {"max-prefill-token-num": "0", "max-batch-size": "0"}
    config = advisers.build_configuration(resolved, advisers.follow(resolved, "defaults", options, ()))
    usual = advisers.build_configuration(resolved, advisers.follow(resolved, "defaults", {}, ()))
    assert (config.prefill_tokens, config.max_batch_size) == (0, usual.max_batch_size)


def test_a_request_for_which_only_one_configuration_is_considered_has_defaults_too() -> None:
    """A short text on one card: a single budget, a single server."""
    resolved = resolve(model=TEXT, prompt_tokens=10, output_tokens=28, concurrency=1)
    assert advisers.build_configuration(resolved, advisers.follow(resolved, "defaults", {}, ())).prefill_tokens == 8192


def test_given_values_are_read_as_their_settings() -> None:
    """Numbers, shares, switches, texts; of the cache's bits what the option's number means."""
    resolved, made = follow(
        setting("session-len", "2048"),
        setting("cache-max-entry-count", "0.25"),
        setting("enable-prefix-caching", "true"),
        setting("trust-remote-code", "false"),
        setting("quant-policy", "8"),
        setting("proxy-url", "http://10.0.0.1:8000"),
        setting("omp-num-threads", "2"),
        setting("max-dynamic-patch", "6"),
        setting("eager-mode", "true"),
        setting("no-such-option", "1"),
    )
    config = advisers.build_configuration(resolved, made)
    assert (config.session_len, config.cache_ratio, config.kv_bits) == (2048, 0.25, 8)
    assert (config.prefix_caching, config.trust_remote_code) == (True, False)
    assert (config.proxy_url, config.omp_threads, config.max_tiles) == ("http://10.0.0.1:8000", 2, 6)
    for text, bits in (("0", 16), ("4", 4)):
        resolved, made = follow(setting("quant-policy", text))
        assert advisers.build_configuration(resolved, made).kv_bits == bits


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("session-len", "long", "session-len: expected a whole number, got 'long'"),
        ("cache-max-entry-count", "half", "cache-max-entry-count: expected a number, got 'half'"),
    ],
)
def test_a_value_that_is_none_is_refused(option: str, value: str, said: str) -> None:
    """With the option, what was written and what is wanted."""
    resolved, made = follow(setting(option, value))
    with pytest.raises(RequestError, match=f"^{said}$"):
        advisers.build_configuration(resolved, made)


# --- how it is written


def explained(*settings: Any, **asked: Any) -> dict[str, Any]:
    resolved, made = follow(*settings, **asked)
    candidate = predict(resolved, advisers.build_configuration(resolved, made))
    return {each.option: each for each in advisers.explain_given(resolved, made, candidate)}


def test_what_is_given_is_written_and_nothing_else() -> None:
    """With the adviser's reason; whatever is not given has its default and is left out, even what we always write."""
    found = explained(setting("session-len", "2048", reason="Enough."), setting("eager-mode", "true"))
    assert {name for name, each in found.items() if each.emitted} == {"session-len", "eager-mode"}
    given = found["session-len"]
    assert (given.value, given.reason) == ("2048", "Enough.")
    batch = found["max-batch-size"]
    assert (batch.value, batch.default, batch.emitted) == ("", "", False)


def test_a_switch_that_is_off_and_an_empty_value_are_not_written() -> None:
    """They would turn it on, or end the option early."""
    found = explained(
        setting("trust-remote-code", "false"), setting("enable-prefix-caching", "true"), setting("proxy-url", "")
    )
    assert [found[name].emitted for name in ("trust-remote-code", "enable-prefix-caching", "proxy-url")] == [
        False,
        True,
        False,
    ]


def test_an_option_that_the_release_lacks_is_written_as_given() -> None:
    """As the adviser's command has it, with its last default; a switch only where it is on."""
    settings = (
        setting("disable-vision-encoder", "true", reason="No images."),
        setting("dp-rank", "1"),
        setting("no-such-option", "1"),
    )
    found = explained(*settings)
    assert "no-such-option" not in found
    gone = found["disable-vision-encoder"]
    assert (gone.kind, gone.name, gone.value) == ("flag", "--disable-vision-encoder", "true")
    assert (gone.switch, gone.emitted, gone.reason) == (True, True, "No images.")
    assert (gone.advice, gone.verdicts) == ((), ())
    assert gone.sources is STORE.flags["disable-vision-encoder"].sources
    rank = found["dp-rank"]
    assert (rank.switch, rank.emitted, rank.value) == (False, True, "1")
    assert rank.default == STORE.flags["dp-rank"].eras[-1].default
    assert not explained(setting("disable-vision-encoder", "false"))["disable-vision-encoder"].emitted


# --- what speaks against it


def against(*settings: Any, kinds: dict[str, Any] | None = None, **asked: Any) -> list[tuple[str, str, str, str]]:
    resolved, made = follow(*settings, kinds={"constraints": {}, "claims": {}} | (kinds or {}), **asked)
    candidate = predict(resolved, advisers.build_configuration(resolved, made))
    return [
        (each.constraint, each.severity, each.message, each.remedy)
        for each in problems.find_problems(resolved, made, candidate)
    ]


def test_an_option_that_does_not_exist_keeps_the_server_from_starting() -> None:
    """--disable-vision-encoder is gone from 0.15.0 on; a switch that is off says nothing."""
    assert against(setting("disable-vision-encoder", "true")) == [
        (
            "unknown-option",
            "reject",
            "LMDeploy 0.18.0 has no --disable-vision-encoder: the server does not start",
            "remove --disable-vision-encoder",
        )
    ]
    assert against(setting("disable-vision-encoder", "false")) == []
    before = against(setting("disable-vision-encoder", "true"), lmdeploy="0.12.3", model=TEXT)
    assert [constraint for constraint, *_ in before] == ["unread-option"]


def test_an_option_that_nothing_here_reads_does_nothing() -> None:
    """--eager-mode is the PyTorch engine's; what a server or TurboMind reads is not told of, nor what is no flag."""
    assert against(setting("eager-mode", "true")) == [
        (
            "unread-option",
            "warn",
            "--eager-mode does nothing here: in LMDeploy 0.18.0 only pytorch reads it",
            "remove --eager-mode",
        )
    ]
    assert against(setting("eager-mode", "false")) == []
    assert against(setting("session-len", "2048"), setting("server-port", "23333")) == []
    assert against(setting("omp-num-threads", "2"), setting("no-such-option", "1")) == []


def test_a_spread_that_no_prediction_knows_is_told() -> None:
    """--dp 2 is not in the speed that is shown; 1 spreads nothing, and a release without the option refuses it."""
    assert against(setting("dp", "2"), setting("ep", "1"), gpu_count=2) == [
        (
            "unpredicted-option",
            "warn",
            "The prediction ignores --dp 2: it is for 1 GPU without it",
            "measure it: recommend smoke",
        )
    ]
    assert [name for name, *_ in against(setting("dp", "2"), lmdeploy="0.7.0", model=TEXT)] == ["unknown-option"]


@pytest.mark.parametrize(
    ("model", "gpus", "engine", "given", "refusals"),
    [
        # 0.18.0 lmdeploy/turbomind/parallel_config.py:45-79: attention on one GPU, experts on two
        (MOE, 2, "turbomind", {"ep": "2"}, ["TurboMind has no layout for tp 1, ep 2."]),
        (MOE, 2, "turbomind", {"ep": "2", "tp": "2"}, []),
        (MOE, 1, "turbomind", {"ep": "2", "tp": "2"}, ["tp 2 needs 2 cards; the host has 1."]),
        (MOE, 4, "turbomind", {"ep": "8", "dp": "8"}, ["dp 8, ep 8 needs at least 8 GPUs, but the server sees 4."]),
        (MOE, 8, "turbomind", {"ep": "8", "dp": "8"}, []),
        (
            TEXT,
            2,
            "turbomind",
            {"nnodes": "2"},
            ["--nnodes 2 needs --dist-init-addr: host and port of the first host."],
        ),
        # 0.18.0 lmdeploy/serve/openai/launch_server.py:120 and lmdeploy/pytorch/config.py:240-263
        (TEXT, 2, "pytorch", {"dp": "2"}, ["The PyTorch engine starts replicas only with tp or ep above 1, not for"]),
        (MOE, 8, "pytorch", {"dp": "3", "ep": "8"}, ["has no layout for tp 1, dp 3, ep 8: dp must divide its 8"]),
        (MOE, 8, "pytorch", {"dp": "4", "ep": "8"}, []),
        # 28 heads on 8 GPUs; with 8 replicas each has its own GPU
        (TEXT, 8, "pytorch", {"tp": "8"}, ["28 attention heads cannot be split evenly across 8 cards."]),
        (TEXT, 8, "turbomind", {"tp": "8", "dp": "8"}, []),
    ],
)
def test_an_estimate_refuses_what_review_refuses(
    model: str, gpus: int, engine: str, given: dict[str, str], refusals: list[str]
) -> None:
    """LMDeploy stops at each of these, so the estimate rejects it, and the review reports an error."""
    request = Request(gpu="a100-80g", gpu_count=gpus, model=model, backend=engine)
    findings = recommend_adviser(request, "defaults", given, store=STORE).findings
    rejected = [finding.message for finding in findings if finding.severity == "reject"]
    assert len(rejected) == len(refusals)
    assert all(wanted in message for wanted, message in zip(refusals, rejected, strict=True))
    words = " ".join(f"--{option} {value}" for option, value in given.items())
    command = f"lmdeploy serve api_server {STORE.models[model].hub} --backend {engine} {words}"
    errors = [finding.rule.id for finding in review(command, model=model, gpu=f"a100-80g:{gpus}").findings]
    assert len({"LMD110", "LMD111", "LMD131"}.intersection(errors)) == len(refusals)


def test_an_option_that_changes_the_speed_unpredicted_is_told() -> None:
    """One that the engine reads, and a limit below the load; a default, and what leaves the speed alone, is not."""
    pytorch: dict[str, Any] = {"model": TEXT, "backend": "pytorch", "concurrency": 16}
    for given, value, told in (
        ("eager-mode", "true", "--eager-mode"),
        ("async", "0", ""),  # TurboMind's
        ("max-concurrent-requests", "15", "--max-concurrent-requests 15"),
        ("max-concurrent-requests", "16", ""),
        ("kernel-block-size", "-1", ""),
        ("enable-microbatch", "true", "--enable-microbatch"),
        ("distributed-executor-backend", "mp", ""),
        ("ssl", "true", ""),
    ):
        found = [each for each in against(setting(given, value), **pytorch) if each[0] == "unpredicted-option"]
        wanted = [f"The prediction ignores {told}, which may change the speed"] if told else []
        assert [message for _, _, message, _ in found] == wanted


def test_a_record_says_whether_an_option_changes_the_speed() -> None:
    """However its effect is worded: no text decides."""
    for changes in (True, False):
        for words in ("None.", "Negligible.", "Lower at small batches."):
            eager = STORE.flags["eager-mode"]
            effect = variant(eager.effect, throughput=words)
            flags = {**STORE.flags, "eager-mode": variant(eager, effect=effect, changes_throughput=changes)}
            told = against(setting("eager-mode", "true"), kinds={"flags": flags}, model=TEXT, backend="pytorch")
            assert [name for name, *_ in told] == ["unpredicted-option"] * changes


def test_each_fault_is_told_wherever_it_stands() -> None:
    """One that says nothing does not hide those after it; a number is told of whatever it is."""
    settings = (
        setting("no-such-option", "1"),
        setting("trust-remote-code", "false"),
        setting("eager-mode", "true"),
        setting("session-len", "2048"),
        setting("dp-rank", "1"),
        setting("num-tokens-per-iter", "0"),
    )
    told = [(constraint, *re.findall(r"--[\w-]+", message)) for constraint, _, message, _ in against(*settings)]
    assert told == [
        ("unread-option", "--eager-mode"),
        ("unknown-option", "--dp-rank"),
        ("unread-option", "--num-tokens-per-iter"),
    ]


def test_rejections_are_told_before_warnings() -> None:
    """Both by the constraints on the adviser's own values."""
    base = STORE.constraints["batch-positive"]
    texts = {"message": "{config.session_len}", "remedy": "Less.", "when": ()}
    rules = {
        name: variant(base, id=name, severity=severity, require=("config.session_len < 2048",), **texts)
        for name, severity in (("soft", "warn"), ("hard", "reject"))
    }
    found = against(setting("session-len", "2048"), setting("eager-mode", "true"), kinds={"constraints": rules})
    assert [each[:2] for each in found] == [("unread-option", "warn"), ("hard", "reject"), ("soft", "warn")]
    assert found[1][2:] == ("2048", "Less.")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"verdict": "refuted"}, True),
        ({"verdict": "no-effect"}, True),
        ({"verdict": "outdated"}, True),
        ({"verdict": "confirmed"}, False),
        ({"verdict": "unverified"}, False),
        ({"advisers": ("claude",)}, False),
        ({"until": "0.18.0"}, False),
        ({"since": "0.18.1"}, False),
        ({"since": "0.18.0"}, True),
        ({"when": ("request.images == 0",)}, False),
        ({"when": ("request.images >= 1",)}, True),
    ],
)
def test_refuted_premises_of_the_adviser_are_told(changed: dict[str, Any], told: bool) -> None:
    """Those of its own that do not hold in this release, with the verdict and because of what."""
    base = next(iter(STORE.claims.values()))
    values = {"id": "claim", "advisers": ("mine",), "verdict": "refuted", "since": "0.7.0", "until": "", "when": ()}
    claim = variant(base, statement="It helps.", because="It does not.", **(values | changed))
    found = against(setting("session-len", "2048"), kinds={"claims": {"claim": claim}})
    verdict = changed.get("verdict", "refuted").capitalize()
    assert found == ([("claim", "claim", f"It helps. {verdict}: It does not.", "")] if told else [])
    resolved, made = follow(setting("session-len", "2048"), kinds={"constraints": {}, "claims": {"claim": claim}})
    candidate = predict(resolved, configuration())
    assert all(each.sources is base.sources for each in problems.find_problems(resolved, made, candidate))
