"""Every architecture that a release's TurboMind lists is planned for, or its reason not to be is listed here."""

import json
from pathlib import Path

import pytest
from packaging.version import Version
from variants import STORE

from recommender.common.errors import CheckpointError
from recommender.knowledge.eras import within
from recommender.maintenance.wheel_facts import ReleaseFacts, load_extracted
from recommender.request import checkpoint
from recommender.smoke.weights import layouts

FACTS = load_extracted(Path(__file__).parent.parent / "knowledge" / "extracted" / "api_server.json")
DROPPED = "0.14.0 dropped it"
REFUSED = {
    **dict.fromkeys(
        [
            "BaiChuanForCausalLM", "BaichuanForCausalLM", "ChatGLMForConditionalGeneration", "ChatGLMModel",
            "InternLMForCausalLM", "InternLMXComposer2ForCausalLM",
            "LlavaLlamaForCausalLM", "LlavaMistralForCausalLM",
            "MGMLlamaForCausalLM", "MiniGeminiLlamaForCausalLM",
            "MolmoForCausalLM", "MultiModalityCausalLM", "QWenLMHeadModel",
        ],
        DROPPED,
    ),
}  # fmt: skip
"""Architectures without a record, each with the reason."""
OTHER_ENGINE = {"DeepseekV2ForCausalLM": "TurboMind's cache of whole heads, gone since 0.14.0, is not described"}
"""Architectures with records of the PyTorch engine only, though old releases list them for TurboMind."""
REFUSED_THERE = {
    ("InternS1ForConditionalGeneration", "0.9.2"): "with Qwen3-MoE only, which the extracted tables do not tell",
    ("InternS1ForConditionalGeneration", "0.9.2.post1"): "with Qwen3-MoE only, which the extracted tables do not tell",
}
"""Releases in which an architecture with records is listed and not planned for."""


def planned(release: str) -> set[str]:
    """Architectures of the records that TurboMind serves in the release."""
    return {
        model.architecture
        for model in STORE.models.values()
        for support in model.support
        if support.engine == "turbomind" and within(support.since, support.until, Version(release))
    }


@pytest.mark.parametrize("release", FACTS.releases, ids=lambda release: release.version)
def test_what_turbomind_lists_is_planned_for(release: ReleaseFacts) -> None:
    """No architecture is refused without a reason, and none is planned for that the release does not list."""
    listed = set(release.entries("turbomind"))
    there = {name for name, version in REFUSED_THERE if version == release.version}
    assert planned(release.version) == listed - set(REFUSED) - set(OTHER_ENGINE) - there
    assert there <= listed


def test_no_reason_is_stale() -> None:
    """A refused architecture has no record and is listed somewhere; a dropped one is not listed from 0.14.0 on."""
    known = {model.architecture for model in STORE.models.values()}
    lists = {release.version: release.entries("turbomind") for release in FACTS.releases}
    assert not known & set(REFUSED)
    assert set(OTHER_ENGINE) <= known
    for name, reason in (REFUSED | dict.fromkeys(OTHER_ENGINE, DROPPED)).items():
        last = max((Version(version) for version, names in lists.items() if name in names), default=None)
        assert last is not None, name
        assert (last < Version("0.14.0")) == (reason == DROPPED), name


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_of_a_refused_architecture_is_refused(name: str, tmp_path: Path) -> None:
    """One line says who serves it in the newest release, or which architectures are supported."""
    newest = max(FACTS.releases, key=lambda release: Version(release.version))
    why = "; supported: .*Qwen3MoeForCausalLM"
    if name in newest.entries("turbomind"):
        why = f": TurboMind {newest.version} serves it, but no record"
    elif name in newest.entries("pytorch"):
        why = f": LMDeploy {newest.version} serves it with its PyTorch engine only"
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name]}))
    with pytest.raises(CheckpointError, match=f"{name[:20]}.* is not supported{why}"):
        checkpoint.read(tmp_path, STORE)


def test_random_weights_cover_what_is_planned_for() -> None:
    """Every architecture with a record can be written, and all that the newest TurboMind serves are among them."""
    written = {*layouts.DECODERS, *layouts.TILED, *layouts.QWEN_VL, layouts.LLAVA, layouts.MINICPM}
    assert written == {model.architecture for model in STORE.models.values()}
    newest = max(FACTS.releases, key=lambda release: Version(release.version))
    assert planned(newest.version) <= written
