"""What runs were made of, on made-up records of held-out errors."""

from typing import Any

from variants import STORE, store_with, variant

from recommender.estimate import coverage

H100, L4 = STORE.gpus["h100-sxm-80g"], STORE.gpus["l4"]


def fitted(**changed: Any) -> Any:
    """The knowledge fitted to these GPUs, models and cards of a server."""
    known = STORE.residuals["rps-load"]
    return store_with(residuals={"one": variant(known, **{"gpus": (), "models": (), "cards": (), **changed})})


def test_gpus_are_those_of_any_figure() -> None:
    """Of every record, once."""
    base = STORE.residuals["rps-load"]
    both = {"a": variant(base, gpus=("l4", "t4")), "b": variant(base, gpus=("t4", "h100-sxm-80g"))}
    assert coverage.list_measured_gpus(store_with(residuals=both)) == {"l4", "t4", "h100-sxm-80g"}
    assert coverage.list_measured_gpus(fitted()) == set()


def test_a_kind_is_experts_weights_images_and_tiles() -> None:
    """Models of one kind differ in size only; whatever differs otherwise is another kind."""
    kinds = {
        name: coverage.classify_model(STORE.models[name])
        for name in (
            "internvl3-8b-awq", "internvl3-38b-awq", "internvl3-8b", "qwen2.5-7b-instruct", "qwen3-30b-a3b",
            "qwen2.5-vl-7b-instruct", "qwen2.5-7b-instruct-awq", "qwen2.5-7b-instruct-gptq-int4", "qwen3-32b-fp8",
            "internvl3.5-30b-a3b", "qwen3.5-9b", "glm-4.7-flash",
        )
    }  # fmt: skip
    assert kinds["internvl3-8b-awq"] == kinds["internvl3-38b-awq"] == (False, "awq", True, False)
    assert kinds["internvl3-8b"] == (False, "", True, False)
    assert kinds["qwen2.5-7b-instruct"] == (False, "", False, False)
    assert kinds["qwen3-30b-a3b"] == (True, "", False, False)
    assert kinds["qwen2.5-vl-7b-instruct"] == (False, "", True, True)
    assert kinds["qwen2.5-7b-instruct-gptq-int4"] == (False, "gptq", False, False)
    assert (kinds["qwen3.5-9b"][1], kinds["glm-4.7-flash"][1]) == ("linear", "latent")
    assert len(set(kinds.values())) == len(kinds) - 1


def test_a_model_that_is_gone_has_no_kind() -> None:
    """Its runs still count for GPUs and cards."""
    store = fitted(models=("internvl3-8b", "removed-model"), gpus=("l4",))
    assert coverage.list_measured_kinds(store) == {(False, "", True, False)}


def test_one_model_makes_no_kind_predictable() -> None:
    """Two with the same weights do, of text or images; a model with images needs two with its kind of encoder too."""
    store = fitted(models=("internvl3-8b", "qwen2.5-7b-instruct", "gpt-oss-20b", "qwen2.5-vl-7b-instruct-awq"))

    def measured(name: str) -> bool:
        return coverage.is_speed_measured(store, STORE.models[name])

    assert measured("llama-3.1-8b-instruct")
    assert not measured("internvl3-8b"), "one encoder with tiles"
    assert not measured("gpt-oss-20b")
    assert not measured("qwen2.5-vl-7b-instruct-awq")
    store = fitted(models=("internvl3-8b", "internvl3-14b", "gpt-oss-20b", "gpt-oss-120b"))
    assert measured("internvl3-8b")
    assert measured("gpt-oss-120b")
    assert not measured("qwen2.5-vl-7b-instruct"), "no encoder that resizes by pixels"


def test_an_encoder_counts_only_where_images_ran() -> None:
    """Qwen3.5 ran with texts; so of encoders that resize by pixels, one model's saw images."""
    assert "qwen2.5-vl-7b-instruct-awq" in STORE.residuals["rps-load"].models
    assert "qwen3.5-9b" in STORE.residuals["rps-text"].models
    assert not coverage.is_speed_measured(STORE, STORE.models["qwen2.5-vl-7b-instruct"])


def test_cards_of_a_server_were_run_over_nvlink() -> None:
    """Two H100s were run, four were not; nor two of a GPU without NVLink, whatever the records say; one always can."""
    store = fitted(cards=("h100-sxm-80g x1", "h100-sxm-80g x2", "l4 x1", "l4 x2"))
    assert [coverage.is_group_measured(store, H100, tp) for tp in (1, 2, 4)] == [True, True, False]
    assert [coverage.is_group_measured(store, L4, tp) for tp in (1, 2)] == [True, False]
    assert not coverage.is_group_measured(store, STORE.gpus["t4"], 1)
    assert coverage.name_group(H100, 2) == "h100-sxm-80g x2"


def test_engines_are_measured_apart() -> None:
    """What one engine ran says nothing of the other."""
    known = STORE.residuals["rps-load"]
    ours = variant(known, engines=("turbomind",), gpus=("l4",), models=("internvl3-8b",), cards=("l4 x1",))
    other = variant(known, engines=("pytorch",), gpus=("t4",), models=("qwen2.5-7b-instruct",), cards=("t4 x1",))
    store = store_with(residuals={"one": ours, "two": other})
    assert coverage.list_measured_gpus(store) == {"l4"}
    assert coverage.list_measured_gpus(store, "pytorch") == {"t4"}
    assert coverage.list_measured_kinds(store, "pytorch") == {(False, "", False, False)}
    assert coverage.is_group_measured(store, L4, 1)
    assert not coverage.is_group_measured(store, L4, 1, "pytorch")
    assert coverage.name_residual("turbomind", "memory") == "memory"
    assert coverage.name_residual("pytorch", "memory") == "pytorch-memory"
