"""What differs between the engines: memory of the PyTorch engine by hand, and which engine is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from packaging.version import Version
from variants import GIB, MIB, STORE, TEXT, coefficients, configuration, resolve

from recommender.choose.recommend import NothingFits, recommend
from recommender.estimate import memory, memory_items, model_shape, speed
from recommender.estimate.engines import pytorch, turbomind
from recommender.estimate.engines.engine import ENGINES
from recommender.fleet import compose
from recommender.knowledge.engines import LABELS, is_read
from recommender.knowledge.eras import options_of
from recommender.knowledge.startup_times import longest_start
from recommender.request.request import Request

SURE = coefficients(
    pytorch_context_mib=1000.0, pytorch_workspace_token=2.0, pytorch_workspace_slot=10.0,
    driver_reserve_mib=500.0,
)  # fmt: skip
"""Coefficients without a spread."""
VOCAB, TOKEN = 152_064, 57_344
"""Qwen2.5-7B: words, and bytes of a token's keys and values: 28 layers, 2 x 4 heads of 128, 16 bits."""


def asked(**given: Any) -> Any:
    return resolve(SURE, **({"model": TEXT, "prompt_tokens": 71, "output_tokens": 28, "backend": "pytorch"} | given))


def config(**given: Any) -> Any:
    return configuration(**({"backend": "pytorch", "prefill_tokens": 8192, "max_batch_size": 64} | given))


def test_each_engine_has_a_name_and_a_part() -> None:
    """Those that records know."""
    assert ENGINES.keys() == LABELS.keys() == {"turbomind", "pytorch"}


def test_the_cache_is_a_share_of_what_the_runtime_leaves() -> None:
    """0.18.0 executor/base.py:232 keeps (prefill + 2 x batch) x vocabulary x 2 bytes apart; one block is padding."""
    resolved = asked()
    made = memory.estimate(resolved, config(cache_ratio=0.5))
    free = (81_559 - 500 - 1000) * MIB - memory_items.weights(resolved, 1)
    assert made.free == free
    region = (free - (8192 + 2 * 64) * VOCAB * 2) // 2
    assert made.item("kv cache").bytes == pytest.approx(region, abs=1)
    assert made.kv_blocks == region // (64 * TOKEN) - 1
    assert made.kv_tokens == 64 * made.kv_blocks


def test_buffers_grow_with_the_pass_and_the_batch() -> None:
    """Rows of two hidden vectors, queries, keys, values and two MLP vectors; bytes for each word and slot."""
    assert asked().input_tokens() == 100
    row = 2 * 3584 + (28 + 8) * 128 + 2 * 18_944
    for batch, likely, largest in ((1, 100, 8192), (64, 6400, 8192), (82, 8192, 8192), (10_000, 10_000, 10_000)):
        item = memory.estimate(asked(), config(max_batch_size=batch)).item("workspace")
        assert item.bytes == likely * row * 2 * 2 + batch * VOCAB * 10
        assert item.high == largest * row * 2 * 2 + batch * VOCAB * 10  # prompts that fill the budget


@pytest.mark.parametrize(("goal", "sessions"), [("balanced", 1), ("memory", 0)])
def test_the_cache_has_the_blocks_without_which_the_engine_ends(goal: Any, sessions: int) -> None:
    """Sixteen, one of them for padding (0.18.0 executor/base.py:237); where memory is free also those of a session.

    Gemma 3 12B takes 786 kB for a token, and 320 tokens for a request with an image.
    """
    found = recommend(Request(gpu="h100-sxm-80g", model="gemma-3-12b-it", goal=goal))
    assert found.memory.kv_needed_tokens == 320
    assert found.memory.kv_blocks >= 15
    assert (found.memory.kv_tokens >= found.config.session_len) == bool(sessions)
    few = memory.estimate(found.resolved, replace(found.config, cache_ratio=0.0065))
    assert few.kv_blocks == 13


def test_a_cache_of_few_tokens_has_the_blocks_without_which_the_engine_ends() -> None:
    """Sixteen (0.18.0 executor/base.py:237), of 64 tokens; one is for padding."""
    for tokens in (1, 14 * 64):
        assert pytorch.region_for(asked(), config(), tokens) == 16 * 64 * TOKEN
    assert pytorch.region_for(asked(), config(), 14 * 64 + 1) == 17 * 64 * TOKEN


def test_an_image_is_never_cut() -> None:
    """Nine tiles of 256 tokens in one pass, whatever the budget (0.16.0 pytorch/long_context.py:78)."""
    small = config(prefill_tokens=512)
    passes = [
        pytorch.prompt_tokens(asked(model="internvl3-8b", images=images, image_width=1280, image_height=720), small)
        for images in (0, 1, 2)
    ]
    assert passes[0] == 512
    assert 9 * 256 <= passes[1] < 9 * 256 + 10  # and the marks around it
    assert passes[2] == passes[1]


def test_only_latent_attention_takes_longer_to_launch() -> None:
    """In each of 47 layers; a graph launches a share of TurboMind's kernels, Python each of a pass with prompts."""
    known = {name: each.value for name, each in STORE.coefficients.items()}
    for name, layers in ((TEXT, 0), ("glm-4.7-flash", 47)):
        model = STORE.models[name]
        graph = known["pytorch-step-share"] * turbomind.step_launch_ms(model, known)
        more = pytorch.step_launch_ms(model, known) - graph
        assert more == pytest.approx(layers * known["pytorch-step-latent-ms"])
        plain = known["pytorch-prompt-layer-ms"] * model.text.layers
        more = pytorch.prompt_launch_ms(asked(model=name), known) - plain
        assert more == pytest.approx(layers * known["pytorch-prompt-latent-ms"])


def test_python_launches_each_layer_of_the_encoder() -> None:
    """24 of InternViT-300M, where a request has images. C++ launches faster than the GPU works."""
    known = {name: each.value for name, each in STORE.coefficients.items()}
    text, image = (
        pytorch.prompt_launch_ms(asked(model="internvl3-8b", images=images, image_width=448, image_height=448), known)
        for images in (0, 1)
    )
    assert image - text == pytest.approx(24 * known["pytorch-vision-layer-ms"])
    assert turbomind.prompt_launch_ms(asked(), known) == 0


@pytest.mark.parametrize(("release", "again"), [("0.15.0", False), ("0.16.0", True)])
def test_turbomind_encodes_images_again_since_it_encodes_them(release: str, again: bool) -> None:
    """Before, the server's process did, once for a request."""
    known = {name: each.value for name, each in STORE.coefficients.items()}
    share = turbomind.encoded_again(asked(lmdeploy=release).version, known)
    assert share == (known["encoded-again"] if again else 0)


def test_before_0_9_2_logits_of_every_prompt_token_are_kept_apart() -> None:
    """0.7.0 model_agent.py:51: prefill x vocabulary x 7 bytes, whatever the batch."""
    for batch in (1, 64):
        kept = pytorch.reserved_bytes(asked(lmdeploy="0.9.1"), config(max_batch_size=batch))
        assert kept == 8192 * VOCAB * 7
    assert pytorch.reserved_bytes(asked(lmdeploy="0.9.2"), config()) == (8192 + 128) * VOCAB * 2


def test_latent_attention_keeps_copies_for_decoding() -> None:
    """GLM-4.7-Flash: 47 layers of 20 heads, 512 x (192 + 256) numbers a head, 16 bits, beside the stored weights."""
    resolved = asked(model="glm-4.7-flash")
    _, weights = pytorch.items_before_cache(resolved, 1)
    text, (latent,) = resolved.model.text, resolved.model.text.latent
    assert (text.layers, text.heads, latent.rank, latent.key, latent.value) == (47, 20, 512, 192, 256)
    assert weights.bytes - model_shape.weight_bytes(resolved.model) == 47 * 20 * 512 * (192 + 256) * 2


def test_latent_weights_are_split_over_gpus() -> None:
    """Two hold half each."""
    resolved = asked(model="glm-4.7-flash")
    whole, half = (pytorch.items_before_cache(resolved, tp)[1].bytes for tp in (1, 2))
    assert half == whole // 2


def test_a_warm_up_takes_no_cache() -> None:
    """It runs on the block for padding."""
    assert pytorch.warmup_tokens(asked().version, 8192, 4096) == 0
    assert memory.estimate(asked(), config(cache_ratio=0.0)).warmup_tokens == 0


def test_states_of_linear_attention_are_apart_from_the_cache() -> None:
    """A slot for each of the batch and two more (executor/base.py:269); the cache keeps its blocks."""
    resolved = asked(model="qwen3.5-9b")
    own = 25.5 * MIB * 2  # by test_memory's hand: 24 layers of 1 MiB and 1.5 for the convolution, here with twice
    few, many = (memory.estimate(resolved, config(max_batch_size=batch)).item("workspace").high for batch in (1, 2))
    per_slot = many - few - resolved.model.text.vocab * 10
    reserved = [pytorch.reserved_bytes(resolved, config(max_batch_size=batch)) for batch in (1, 2)]
    assert reserved[1] - reserved[0] == 2 * resolved.model.text.vocab * 2 + per_slot
    assert 0 < per_slot <= own


@pytest.mark.parametrize(("release", "slots"), [("0.12.2", 8), ("0.12.3", 1), ("0.13.0", 1), ("0.14.0", 2)])
def test_slots_for_states_beside_those_of_the_batch(release: str, slots: int) -> None:
    """0.13.0 and 0.14.0 pytorch/engine/executor/base.py (:231, :264): a batch of 1 has this many more."""
    resolved = replace(asked(model="qwen3.5-9b"), version=Version(release))
    kept = [pytorch.reserved_bytes(resolved, config(max_batch_size=batch)) for batch in (1, 2)]
    logits = 2 * resolved.model.text.vocab * 2  # of each request two rows of 16-bit numbers
    slot = kept[1] - kept[0] - logits
    assert kept[0] == 8192 * resolved.model.text.vocab * 2 + logits + (1 + slots) * slot


@pytest.mark.parametrize(
    ("backend", "release", "engine"),
    [
        ("auto", "0.18.0", "turbomind"),
        ("auto", "0.14.0", "pytorch"),  # TurboMind dropped Qwen2-VL in 0.14.0, and took it back in 0.16.0
        ("pytorch", "0.18.0", "pytorch"),
        ("turbomind", "0.18.0", "turbomind"),
    ],
)
def test_auto_takes_turbomind_where_it_serves_the_model(backend: Any, release: str, engine: str) -> None:
    """And the other engine elsewhere."""
    found = recommend(Request(gpu="a100-sxm-80g", model="qwen2-vl-7b-instruct", lmdeploy=release, backend=backend))
    assert (found.resolved.engine, found.config.backend) == (engine, engine)
    written = {each.option: each.value for each in found.explanations if each.emitted}
    assert written["backend"] == engine


def test_where_no_engine_can_the_first_says_why() -> None:
    """FP8 weights on Ampere: TurboMind reads them from 0.10.1 on, the PyTorch engine never."""
    with pytest.raises(NothingFits) as raised:
        recommend(Request("rtx-3090", model="qwen3-8b-fp8", load="low", lmdeploy="0.9.1"))
    assert raised.value.nothing.binding.constraint == "fp8-weights-hopper-first"
    assert raised.value.change.options.startswith("--lmdeploy")


def test_an_engine_that_does_not_serve_the_model_is_refused() -> None:
    """By the constraint that cites the release's table."""
    request = Request(gpu="a100-sxm-80g", model="qwen2-vl-7b-instruct", lmdeploy="0.14.0", backend="turbomind")
    with pytest.raises(NothingFits) as refused:
        recommend(request)
    assert refused.value.nothing.binding.constraint == "turbomind-serves-model"


@pytest.mark.parametrize("model", [TEXT, "internvl3-8b"])
@pytest.mark.parametrize("release", ["0.7.0", "0.12.0", "0.18.0"])
def test_only_what_the_engine_or_the_server_reads_is_written(model: str, release: str) -> None:
    """Each option's era says who reads it."""
    found = recommend(Request(gpu="a100-sxm-80g", model=model, lmdeploy=release, backend="pytorch", load="low"))
    eras = options_of(STORE, found.resolved.version)
    for each in found.explanations:
        assert not each.emitted or each.kind != "flag" or is_read(eras[each.option], "pytorch"), each.option


FOLDERS = {"turbomind": ("src/turbomind/", "lmdeploy/turbomind/"), "pytorch": ("lmdeploy/pytorch/",)}
"""Folders of LMDeploy's repository that only one engine runs."""
CITED = (
    {"model": TEXT, "workload": "chat"},
    {"model": TEXT, "workload": "rag", "kv": "int8"},
    {"model": TEXT, "workload": "rag", "kv": "int4", "concurrency": 16},
    {"model": "internvl3-8b", "concurrency": 64},
    {"model": "internvl3-8b", "workload": "chat", "gpu": "a100-sxm-80g"},
    {"model": "qwen3-30b-a3b", "workload": "agent", "gpu": "h100-sxm-80g", "gpu_count": 4, "concurrency": 8},
    {"model": "phi-4", "workload": "rag", "gpu": "l4", "concurrency": 64},
    {"model": TEXT, "workload": "rag", "gpu": "l4", "concurrency": 200},
)


@pytest.mark.parametrize("engine", ["turbomind", "pytorch"])
@pytest.mark.parametrize("release", ["0.9.2", "0.14.0", "0.18.0"])
@pytest.mark.parametrize("given", CITED, ids=str)
def test_what_is_written_rests_on_the_engine_that_runs(given: dict[str, Any], release: str, engine: Any) -> None:
    """No reason and no refusal cites code that this start never runs; the reason for the engine itself may."""
    request = Request(**({"gpu": "h100-sxm-80g", "lmdeploy": release, "backend": engine} | given))
    try:
        made = recommend(request)
    except NothingFits as refused:
        cited = {each.constraint: each.sources for each in (refused.nothing.binding, *refused.nothing.others)}
    else:
        written = [each for each in made.explanations if each.emitted or each.option == "tp"]
        cited = {each.option: each.sources for each in written if each.option != "backend"}
        cited |= {each.constraint: each.sources for each in made.findings}
    assert cited
    (other,) = (folders for name, folders in FOLDERS.items() if name != engine)
    wrong = {name for name, sources in cited.items() for line in sources.code if line.path.startswith(other)}
    assert not wrong - {"turbomind-serves-model", "pytorch-serves-model"}


@pytest.mark.parametrize(("backend", "name"), [("turbomind", "rps-text"), ("pytorch", "pytorch-rps-text")])
def test_ranges_are_the_errors_of_the_engine(backend: Literal["turbomind", "pytorch"], name: str) -> None:
    """On a card and with a model that both ran."""
    made = recommend(Request(gpu="h100-sxm-80g", model=TEXT, backend=backend, load="medium"))
    assert made.speed.basis == "modelled from measurements on the same GPU"
    rps, residual = made.speed.rps, STORE.residuals[name]
    assert rps.low == pytest.approx(rps.value * residual.low)
    assert rps.high == pytest.approx(rps.value * residual.high)


def test_a_card_that_only_the_other_engine_ran_on_is_not_measured() -> None:
    """Four H200s ran TurboMind with one server over them; the PyTorch engine ran on one card."""
    asked = Request(gpu="h200-sxm", gpu_count=4, tp=4, model=TEXT, load="medium")
    ours = recommend(asked)
    other = recommend(replace(asked, backend="pytorch"))
    assert ours.speed.basis == "modelled from measurements on the same GPU"
    assert other.speed.basis == "modelled from measurements of fewer cards a server"


def test_images_run_as_the_scheduler_has_them() -> None:
    """A pass of prompts holds up decoding, so tokens of images come later with the PyTorch engine, not first tokens."""
    made = recommend(Request(gpu="h100-sxm-80g", model="internvl3-8b", backend="pytorch", concurrency=16))
    alone = recommend(Request(gpu="h100-sxm-80g", model="internvl3-8b", backend="pytorch", concurrency=1))
    assert made.speed.profile is not None
    assert alone.speed.profile is None
    launch = STORE.coefficients["pytorch-prompt-layer-ms"].value * 28  # of a pass that holds up to 16 prompts
    least = made.speed.rps.value / 1000 * launch / 16
    assert made.speed.token_ms.value > alone.speed.token_ms.value / (1 - least)


def test_a_first_token_waits_until_python_has_launched_its_pass() -> None:
    """28 layers, whatever the GPU; TurboMind's C++ launches while the GPU works."""
    for backend, slowest in (("pytorch", 280.0), ("turbomind", 0.0)):
        plain, slow = (
            speed.estimate(
                resolve(coefficients(pytorch_prompt_layer_ms=ms), model=TEXT, backend=backend), config(backend=backend)
            )
            for ms in (0.0, 10.0)
        )
        assert slow.ttft_ms.value >= slowest
        assert (slow.ttft_ms == plain.ttft_ms) == (not slowest)


def test_memory_of_the_engine_is_fitted_to_nothing() -> None:
    """Its parts say that they are assumed."""
    slow = recommend(Request(gpu="h100-sxm-80g", model=TEXT, backend="pytorch", load="medium"))
    assert all(each.basis == "assumed" for each in slow.memory.items if each.name in ("context", "workspace"))


def test_a_card_too_small_for_the_runtime_holds_no_cache() -> None:
    """Where what is kept apart exceeds what is free, nothing is left to share."""
    resolved = asked(vram_gib=16.5)
    made = memory.estimate(resolved, config(cache_ratio=0.9, prefill_tokens=8192))
    assert made.free < 3 * GIB
    assert made.kv_tokens == 0


@pytest.mark.parametrize("tokens", [8192, 8193])
def test_a_session_is_never_shortened(tokens: int) -> None:
    """0.18.0 pytorch/engine/engine.py:336: min(session_len, tokens of the pool less a block), without a word."""
    resolved, chosen = asked(), config(session_len=tokens)
    pool = pytorch.count_blocks(resolved, chosen, pytorch.region_for(resolved, chosen, tokens), 1)
    assert 0 <= pool * chosen.block_len - chosen.block_len - tokens < chosen.block_len


def test_the_pytorch_engine_may_take_longer_to_start() -> None:
    """As the longest of its own starts did: whoever waits for a start waits for so much longer."""
    request = Request("h100-sxm-80g", model="llama-3.1-8b-instruct", workload="chat")
    patience = [compose.patience_s(recommend(replace(request, backend=each))) for each in ("turbomind", "pytorch")]
    assert patience[1] - patience[0] == pytest.approx(compose.STARTS * (130.5 - longest_start()), rel=0.02)
