"""Names of models that no record has: each kind has its own answer."""

import json
from pathlib import Path

import pytest
from artefacts import extracted, recommend_here
from variants import STORE

from recommender.choose.recommend import recommend
from recommender.common.errors import CheckpointError, UnknownName
from recommender.knowledge.names import resolve_model
from recommender.request.request import Request
from recommender.request.unknown_model import explain_unknown, family, served


def refusal(name: str) -> str:
    """What is said of an unknown model."""
    with pytest.raises(UnknownName) as raised:
        recommend(Request("h100-sxm-80g", model=name))
    return str(raised.value)


def suggestions(name: str) -> list[str]:
    """The models that are offered instead of an unknown one."""
    offered = explain_unknown(STORE, name, "0.18.0").partition("did you mean ")[2].partition("?")[0]
    return offered.split(", ") if offered else []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("qwen2.5-7b-instuct", "qwen2.5-7b-instruct"),
        ("internvl3-8b-awk", "internvl3-8b-awq"),
        ("lama-3.1-8b-instruct", "llama-3.1-8b-instruct"),
    ],
)
def test_a_typo_gets_the_nearest_names(name: str, meant: str) -> None:
    """The first of them is what was meant."""
    with pytest.raises(UnknownName, match=f"unknown model '{name}': did you mean .*{meant}"):
        recommend(Request("h100-sxm-80g", model=name))


@pytest.mark.parametrize("name", ["qwen3-vl-8b-instuct", "somebody-with-a-long-name/internvl3-8c"])
def test_three_names_are_near_at_most(name: str) -> None:
    """Of the many that differ in a number, whoever's model it is."""
    assert len(refusal(name).partition("did you mean ")[2].partition("?")[0].split(", ")) == 3


@pytest.mark.parametrize(
    "name", ["qwen", "Qwen/Qwen", "Qwen3", "qwen-2.5", "llama", "internvl3", "gpt", "glm", "QwQ", "phi"]
)
def test_models_that_begin_with_a_name_come_first(name: str) -> None:
    """As those of its maker do: Qwen is no DeepSeek model that was taught by a Qwen."""
    offers = suggestions(name)
    begin = name.rpartition("/")[2].casefold().replace("-", "")
    assert offers
    for each in offers:
        model = resolve_model(STORE, each)
        assert any(
            text.casefold().replace("-", "").startswith(begin) for text in (model.id, model.hub.rpartition("/")[2])
        )


def test_models_that_hold_a_name_come_after_those_that_begin_with_it() -> None:
    """Of DeepSeek's R1, those taught to a Qwen are still offered where no other model has the words."""
    assert set(suggestions("distill-qwen")) == {f"deepseek-r1-distill-qwen-{size}b" for size in ("1.5", 7, 14, 32)}


def test_no_model_is_suggested_twice() -> None:
    """Under its hub name and its id: whatever letter of either is missing."""
    for model in STORE.models.values():
        for name in (model.hub, model.id, *model.aliases):
            offers = suggestions(name[:5] + name[6:])
            meant = [resolve_model(STORE, each).id for each in offers]
            assert len(set(meant)) == len(meant), (name, offers)


def test_a_name_near_others_may_be_a_folder() -> None:
    """A checkpoint that no record has, but whose neighbours are known, is told the same."""
    with pytest.raises(
        UnknownName, match=r"did you mean .*Qwen3-8B-AWQ.*\? .* folder with config.json: --model path/to/it"
    ):
        recommend(Request("h100-sxm-80g", model="Qwen/Qwen3-4B-AWQ"))


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "Qwen2ForCausalLM"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "LlamaForCausalLM"),
        ("my-qwen3-finetune", "Qwen3ForCausalLM"),
        ("my-org/my-finetune-qwen2.5", "Qwen2ForCausalLM"),
        ("someone/sft_qwen2.5-vl_invoices", "Qwen2_5_VLForConditionalGeneration"),
        ("me/tuned-mixtral", "MixtralForCausalLM"),
        ("arcee-ai/Arcee-Distill-Llama-9B", "LlamaForCausalLM"),
        ("meta-llama/Llama-Guard-3-8B", "LlamaForCausalLM"),
    ],
)
def test_a_covered_architecture_is_used_as_a_folder(name: str, architecture: str) -> None:
    """With its config.json; no other model is suggested."""
    said = refusal(name)
    assert "did you mean" not in said
    assert "--model path/to/it" in said
    assert architecture in said


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "DeepseekV4ForCausalLM"),
        ("openbmb/MiniCPM3-4B", "MiniCPM3ForCausalLM"),
        ("zai-org/cogvlm-chat-hf", "CogVLMForCausalLM"),
    ],
)
def test_what_only_pytorch_serves_is_said_so(name: str, architecture: str) -> None:
    """By the table of the release's wheel."""
    facts = extracted().release("0.18.0")
    assert architecture in facts.entries("pytorch") - facts.entries("turbomind")
    done = recommend_here("--gpu", "H100-80G", "--model", name)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert f"({architecture}) with its PyTorch engine only" in line


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((name, "GGUF") for name in ("bartowski/Llama-3.1-8B-Instruct-GGUF", "./q/model-Q4_K_M.gguf", "/m/gguf")),
        *(("unsloth/gemma-3-27b-it-bnb-4bit", "BNB"), ("mlx-community/Qwen3-8B-4bit", "MLX")),
        *(("turboderp/Llama-3.1-8B-Instruct-exl2", "EXL2"), ("nvidia/DeepSeek-R1-FP4", "NVFP4")),
        *((name, "embedding") for name in ("BAAI/bge-m3", "intfloat/multilingual-e5-large", "Qwen/Qwen3-Embedding-8B")),
    ],
)
def test_a_name_that_says_what_lmdeploy_does_not_read_is_no_folder_to_try(name: str, what: str) -> None:
    """Its folder would be refused too, or would be served as what it is not."""
    said = refusal(name)
    assert f"by its name it{'s' if what != 'embedding' else ''}" in said
    assert what in said
    assert "path/to/it" not in said
    assert "did you mean" not in said


@pytest.mark.parametrize("name", ["me/gpt-oss-9b-MXFP4", "me/qwen3-bnbx", "me/llama-embedded-controller"])
def test_words_that_only_resemble_such_a_format_say_nothing(name: str) -> None:
    """MXFP4 is read."""
    assert "by its name" not in refusal(name)


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.2-90B-Vision-Instruct", "llama-3.2-11b-vision", "me/qwen-audio"])
def test_a_model_that_sees_is_none_that_reads_text_only(name: str) -> None:
    """No architecture of text is named, and no engine: the name does not say which it is."""
    said = refusal(name)
    assert "ForCausalLM" not in said
    assert "pass the folder of a checkpoint" in said


ONLY_PYTORCH, AS_A_FOLDER = "serves this family with its PyTorch engine only", "--model path/to/it"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *(("kimi-k1.5", ONLY_PYTORCH), ("JetLM/SDAR-30B-A3B", ONLY_PYTORCH), ("phi-5", AS_A_FOLDER)),
        *(("deepseek-r1-zero-next", AS_A_FOLDER), ("deepseek-ai/deepseek-prover", AS_A_FOLDER)),
    ],
)
def test_a_family_alone_names_no_class(name: str, what: str) -> None:
    """Which of the family's architectures it is, its name does not say; a folder's config.json does."""
    said = refusal(name)
    assert what in said
    assert not [each for each in extracted().release("0.18.0").entries("pytorch") if each in said]


def test_no_helper_of_decoding_is_a_model() -> None:
    """Draft models and heads are not what a checkpoint's name means, whichever name is asked."""
    helpers = {each for each in extracted().release("0.18.0").entries("pytorch") if "MTP" in each or "Eagle" in each}
    assert helpers
    for helper in helpers:
        assert family(helper.partition("ForC")[0], "0.18.0", set())[0] not in helpers


def test_the_tables_are_the_extracted_ones() -> None:
    """Read without the maintenance code, they are the same."""
    for release in ("0.7.0", "0.12.3", "0.18.0"):
        for engine in ("turbomind", "pytorch"):
            assert served(release, engine) == extracted().release(release).entries(engine)


def test_a_folder_of_another_architecture_names_its_engine(tmp_path: Path) -> None:
    """Its config.json says for sure what a name only suggests."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["DeepseekV4ForCausalLM"]}))
    with pytest.raises(CheckpointError, match=r"DeepseekV4ForCausalLM' is not supported: .* PyTorch engine only"):
        recommend(Request("h100-sxm-80g", model=str(tmp_path)))
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["NoSuchForCausalLM"]}))
    with pytest.raises(CheckpointError, match=r"supported: .*Qwen2ForCausalLM"):
        recommend(Request("h100-sxm-80g", model=str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("zai-org/GLM-4.5V", "Glm4vMoeForConditionalGeneration"),
        ("zai-org/GLM-4.6V", "Glm4vMoeForConditionalGeneration"),
        ("openbmb/MiniCPM-V-4_5", "MiniCPM-V 2.5 and 2.6 only"),
    ],
)
def test_what_no_release_serves_is_said_and_no_other_model_offered(name: str, why: str) -> None:
    """The tables of all releases lack the first; LMDeploy's own check refuses the second."""
    said = explain_unknown(STORE, name, "0.18.0")
    assert why in said
    assert "did you mean" not in said
    served_somewhere = {
        each for release in STORE.releases for engine in ("turbomind", "pytorch") for each in served(release, engine)
    }
    assert "Glm4vMoeForConditionalGeneration" not in served_somewhere
