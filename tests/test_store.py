"""Records are read as they are now, and a name nobody knows is answered with near ones."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from recommender.common.errors import KnowledgeError, UnknownName
from recommender.knowledge import load as load_module
from recommender.knowledge import records, store
from recommender.knowledge.index import read_record
from recommender.knowledge.load import _load_default, data_root, load
from recommender.knowledge.names import resolve_gpu, resolve_model, resolve_release
from recommender.request.unknown_model import explain_unknown

KNOWLEDGE = data_root() / "knowledge"
SMALL = """\
id: chat
summary: One question.
images: 0
image_width: 0
image_height: 0
prompt: Hello
prompt_tokens: 2
output_tokens: 3
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of few records, taken for the program's own."""
    for folder in store.FOLDERS.values():
        (tmp_path / "knowledge" / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "knowledge/workloads/chat.yaml").write_text(SMALL, encoding="utf-8")
    shutil.copy(KNOWLEDGE / "gpus/l4.yaml", tmp_path / "knowledge/gpus")
    monkeypatch.setattr(load_module, "data_root", lambda: tmp_path)
    return tmp_path


def fresh() -> store.Store:
    """The knowledge as the next run of the program would read it."""
    return _load_default.__wrapped__()


def indexes(checkout: Path) -> list[Path]:
    return sorted((checkout / "build/index").glob("*"))


def test_the_index_is_kept_and_read(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run reads the index and no YAML."""
    assert fresh().gpus["l4"].name == "NVIDIA L4"
    assert len(indexes(checkout)) == 1
    monkeypatch.setattr("recommender.knowledge.index.compile_index", lambda _: pytest.fail("it was compiled again"))
    assert fresh().gpus["l4"].name == "NVIDIA L4"


def test_an_edited_record_is_seen_at_once(checkout: Path) -> None:
    """No index of other files is ever read: one changed digit gives the new value, and one index stays."""
    assert fresh().workloads["chat"].prompt_tokens == 2
    path = checkout / "knowledge/workloads/chat.yaml"
    path.write_text(SMALL.replace("prompt_tokens: 2", "prompt_tokens: 7"), encoding="utf-8")
    assert fresh().workloads["chat"].prompt_tokens == 7
    assert len(indexes(checkout)) == 1


@pytest.mark.parametrize("change", ["added", "removed", "renamed"])
def test_a_changed_set_of_files_is_seen_at_once(checkout: Path, change: str) -> None:
    """A record that was added, removed or renamed is so in the next run."""
    fresh()
    path = checkout / "knowledge/workloads/chat.yaml"
    if change != "added":
        path.unlink()
    if change != "removed":
        path.with_name("talk.yaml").write_text(SMALL.replace("id: chat", "id: talk"), encoding="utf-8")
    assert sorted(fresh().workloads) == {"added": ["chat", "talk"], "removed": [], "renamed": ["talk"]}[change]


@pytest.mark.parametrize("content", [b"", b'{"gpus":{', b"{}", b"\xff\xfe", b"[]", b"null"])
def test_a_corrupt_index_is_made_again(checkout: Path, content: bytes) -> None:
    """An index cut short or overwritten is replaced, and nobody notices."""
    fresh()
    (kept,) = indexes(checkout)
    whole = kept.read_bytes()
    kept.write_bytes(content)
    assert fresh().gpus["l4"].name == "NVIDIA L4"
    assert kept.read_bytes() == whole


def test_a_checkout_that_cannot_be_written_goes_without_an_index(checkout: Path) -> None:
    """Where no index can be kept the YAML files are read each time."""
    (checkout / "build").write_text("a file, so that no folder can be made", encoding="utf-8")
    assert fresh().gpus["l4"].name == "NVIDIA L4"
    assert fresh().gpus["l4"].name == "NVIDIA L4"


def test_the_shipped_index_comes_first(checkout: Path) -> None:
    """A wheel's own index is read without a look at the YAML files."""
    (checkout / "index.json").write_text(
        json.dumps({kind: {} for kind in (*store.FOLDERS, "measured")}), encoding="utf-8"
    )
    assert dict(fresh().gpus) == {}


def test_every_field_survives_the_index() -> None:
    """What the index gives back is what the YAML file holds, however deep."""
    gpu = load().gpus["l4"]
    typed = read_record(KNOWLEDGE / "gpus/l4.yaml", records.Gpu)
    assert (gpu.aliases, gpu.memory_mib, gpu.rates[0].tera) == (typed.aliases, typed.memory_mib, typed.rates[0].tera)
    assert [page.says for page in gpu.sources.pages] == [page.says for page in typed.sources.pages]


RUN = "evidence/h100-2026-11-21-ours-16.yaml"


def test_the_index_has_no_raw_figures_of_runs(checkout: Path) -> None:
    """Of a run it holds what ran and one line a load, so that no start gets slower with every run that is kept."""
    shutil.copy(KNOWLEDGE / RUN, checkout / "knowledge/evidence")
    shutil.copy(KNOWLEDGE / "evidence/earlier/h100-2026-11-21.yaml", checkout / "knowledge/evidence/earlier")
    made = fresh()
    (index,) = indexes(checkout)
    kept = json.loads(index.read_text("utf-8"))
    assert kept["probes"] == {"h100-2026-11-21": {"id": "h100-2026-11-21", "lmdeploy": "0.18.0", "startup_s": 24.7}}
    (run,) = kept["evidence"].values()
    raw = yaml.safe_load((KNOWLEDGE / RUN).read_text("utf-8"))
    assert {"gpu": raw["gpu"], "model": raw["model"]}.items() <= run.items()
    assert [each["image"] for each in run["loads"]] == [each["image"] for each in raw["phases"]]
    assert len(json.dumps(run)) < 0.2 * len((KNOWLEDGE / RUN).read_text("utf-8"))
    assert made.evidence[Path(RUN).stem].gpu == "h100-sxm-80g"


def test_a_broken_run_is_told_all_the_same(checkout: Path) -> None:
    """A record is held against its type though little of it is kept, and one changed byte is seen."""
    path = checkout / "knowledge" / RUN
    shutil.copy(KNOWLEDGE / RUN, path)
    fresh()
    path.write_text(path.read_text("utf-8").replace("ready_mib: ", "ready_mib: -"), encoding="utf-8")
    with pytest.raises(KnowledgeError, match="ready_mib"):
        fresh()


def test_records_are_immutable() -> None:
    """Nothing can change a record that all share."""
    with pytest.raises(AttributeError):
        load().gpus["l4"].name = "other"  # type: ignore[misc]


RELEASE = """\
id: "0.18.0"
published: "2026-01-01"
python: ">=3.10"
torch: ">=2"
transformers: ">=4"
cuda: "12"
sources: {}
"""
TRAPS = [
    ('cuda: "12"', "cuda: 12", "cuda: Input should be a valid string: put the value in quotes"),
    ('cuda: "12"', "cuda: 0.10", "cuda: Input should be a valid string: put the value in quotes"),
    ('cuda: "12"', "cuda: no", "cuda: Input should be a valid string: put the value in quotes"),
    ('cuda: "12"', "cuda:", "cuda: Input should be a valid string: put the value in quotes"),
    ('id: "0.18.0"', "id: 0.18", "id: Input should be a valid string: put the value in quotes"),
    ("sources: {}", "sources: {pages: {}}", "sources.pages: Input should be a valid array"),
    ("sources: {}", "source: {}", "sources: Field required: add it (and 1 more)"),
    ("sources: {}", "sources: {}\nnote: a: b", "invalid YAML: mapping values are not allowed"),
    ("sources: {}", "sources: {}\n2026-01-01: x", ""),
    ('python: ">=3.10"', "python: >=3.10", "python: String should have at least 1 character|invalid YAML"),
]


@pytest.mark.parametrize(("old", "new", "said"), TRAPS)
def test_what_yaml_misreads_is_told_with_the_repair(tmp_path: Path, old: str, new: str, said: str) -> None:
    """Unquoted versions, yes and no, and colons in text are one line with file, field and repair."""
    path = tmp_path / "0.18.0.yaml"
    path.write_text(RELEASE.replace(old, new), encoding="utf-8")
    with pytest.raises(KnowledgeError) as told:
        read_record(path, records.Release)
    assert str(told.value).startswith(f"{path}: ")
    assert any(each in str(told.value) for each in said.split("|"))
    assert "\n" not in str(told.value)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are a broken record, not a crash."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"id: \xff\n")
    with pytest.raises(KnowledgeError, match="line 1 is not UTF-8"):
        read_record(path, records.Gpu)


@pytest.mark.parametrize("name", ["A100-80G", "a100 80g", "A100_80G", "a100-sxm-80g", "NVIDIA A100-SXM4-80GB"])
def test_a_gpu_is_known_by_all_its_names(name: str) -> None:
    """Case, blanks, dashes and underscores do not count, and the driver's name is a name."""
    assert resolve_gpu(load(), name)[0].id == "a100-sxm-80g"


@pytest.mark.parametrize("name", ["InternVL3-8B-AWQ", "OpenGVLab/InternVL3-8B-AWQ", "opengvlab/internvl3_8b_awq"])
def test_a_model_is_known_by_id_and_hub_name(name: str) -> None:
    """The hub's name is a name."""
    assert resolve_model(load(), name).id == "internvl3-8b-awq"


def test_a_name_nobody_knows_is_answered_with_near_ones() -> None:
    """The nearest known names are offered, or where none is near a list of those that are known."""
    with pytest.raises(UnknownName, match=r"unknown GPU 'A10O-80G': did you mean .*A100-80G"):
        resolve_gpu(load(), "A10O-80G")
    with pytest.raises(UnknownName, match=r"unknown model 'internvl3-9b': did you mean .*internvl3-8b"):
        resolve_model(load(), "internvl3-9b")
    with pytest.raises(UnknownName, match=r"unknown LMDeploy release '0\.18': did you mean 0\.18\.0"):
        resolve_release(load(), "0.18")
    for other in ("?????", "MI300X", "gaudi3", "Apple M3", "TPU v5e", "Ascend 910B", "GTX 1080"):
        with pytest.raises(UnknownName, match=r"only some NVIDIA GPUs are covered; see recommend list gpus"):
            resolve_gpu(load(), other)
    for misspelt, meant in (("TRX4090", "rtx-4090"), ("L40SS", "l40s"), ("H1000", "H100"), ("6000", "6000 Ada")):
        with pytest.raises(UnknownName, match=f"did you mean .*{meant}"):
            resolve_gpu(load(), misspelt)


def test_a_hostile_name_stays_one_short_line() -> None:
    """Line breaks, escape codes and great length of a name do not reach the message."""
    with pytest.raises(UnknownName) as told:
        resolve_gpu(load(), "x\n\x1b[31m" + "y" * 10_000)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 400


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("InternVL3_5-38B", "internvl3.5-38b"),  # the hub's name without its owner
        ("llama 3 70b", "llama-3-70b-instruct"),
        ("mixtral 8x7b", "mixtral-8x7b-instruct"),
        ("Meta-Llama-3-70B-Instruct", "llama-3-70b-instruct"),
        ("gemma-3-12b", "gemma-3-12b-it"),
        ("qwen3 30b a3b", "qwen3-30b-a3b"),
    ],
)
def test_a_model_by_the_words_that_people_write(written: str, meant: str) -> None:
    """Without instruct, chat or it; the owner may be missing."""
    assert resolve_model(load(), written).id == meant


@pytest.mark.parametrize(
    ("written", "offered"),
    [
        ("Mixtral", {"mixtral-8x22b", "mixtral-8x7b-instruct"}),
        ("llama 70b", {"llama-2-70b-chat", "llama-3-70b-instruct", "llama-3.3-70b-instruct"}),
        ("gpt oss", {"gpt-oss-20b", "gpt-oss-120b"}),
    ],
)
def test_words_that_several_models_have_name_them(written: str, offered: set[str]) -> None:
    """Never another model than one with all of these words."""
    with pytest.raises(UnknownName):
        resolve_model(load(), written)
    said = explain_unknown(load(), written, "0.18.0")
    named = said.partition("did you mean ")[2].partition("?")[0].split(", ")
    assert offered <= set(named)
    assert all(word in name for name in named for word in written.casefold().split())


@pytest.mark.parametrize(
    ("written", "meant"),
    [("a100 80", "A100-80G"), ("nvidia tesla v100", "Tesla V100"), ("NVIDIA 4090", "4090"), ("h100-80", "H100-80G")],
)
def test_a_card_without_its_unit_or_with_its_maker(written: str, meant: str) -> None:
    """The same card and the same note on what else it may be."""
    assert resolve_gpu(load(), written) == resolve_gpu(load(), meant)
