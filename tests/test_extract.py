"""Extraction of facts from wheels, the committed facts, and what is rebuilt from them."""

import contextlib
import io
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from recommender.commands.knowledge import command
from recommender.common.errors import MaintenanceError
from recommender.knowledge.load import data_root, load
from recommender.knowledge.records import Flag
from recommender.maintenance import extract, scaffold, subcommands
from recommender.maintenance.argparse_rebuild import rebuild_parser
from recommender.maintenance.flag_diff import differences, release_differences, scaffold_flag
from recommender.maintenance.wheel_facts import (
    Definition,
    ReleaseFacts,
    WheelFacts,
    dump_extracted,
    eras,
    load_extracted,
)
from recommender.review import accepted_options

KNOWLEDGE = data_root() / "knowledge"
FACTS = KNOWLEDGE / "extracted" / "api_server.json"

CLI = """
import argparse
import torch
from pydantic.dataclasses import dataclass
from ..version import __version__

class LoudParser(argparse.ArgumentParser):
    def parse_args(self, args=None, namespace=None):
        return super().parse_args([arg.replace("_", "-") for arg in args], namespace)

class CLI:
    parser = LoudParser(prog="lmdeploy")
    subparsers = parser.add_subparsers(dest="command")
"""
SERVE = """
import enum
import json
from torch.nn import Module
from .cli import CLI

class Mode(enum.Enum):
    FAST = "fast-mode"
    SLOW = "slow-mode"

class Policy(enum.IntEnum):
    NONE = 0
    INT8 = 8

class Layer(Module):
    pass

def add_policy(group):
    known = {item.name.lower(): item.value for item in Policy}
    def parse(text):
        if text.lower() in known:
            return known[text.lower()]
        if int(text) not in list(Policy):
            raise ValueError(text)
        return int(text)
    return group.add_argument("--policy", type=parse, default=Policy.INT8, help="100% secret help")

class SubCliServe:
    parser = CLI.subparsers.add_parser("serve")
    subparsers = parser.add_subparsers()

    @staticmethod
    def add_parsers():
        parser = SubCliServe.subparsers.add_parser("api_server")
        parser.add_argument("model_path", type=str)
        parser.add_argument("--names", "-n", nargs="+", default=["a", "b"])
        parser.add_argument("--mode", choices=list(Mode), default=Mode.FAST)
        parser.add_argument("--level", type=int, choices=list(Policy), default=0)
        parser.add_argument("--maybe", choices=[None, "x"], default=None)
        parser.add_argument("--extra", type=json.loads, default=None)
        parser.add_argument("--on", action="store_true")
        left = parser.add_argument_group("PyTorch engine arguments")
        shared = left.add_argument("--ratio", type=float, default=0.8)
        add_policy(left)
        right = parser.add_argument_group("TurboMind engine arguments")
        right._group_actions.append(shared)
"""
MESSAGES = """
from pydantic.dataclasses import dataclass

@dataclass
class TurbomindEngineConfig:
    ratio: float = 0.8
    devices: list[int] = None
    devices: list[int] | None = None
    name: str
    LIMIT = 3

@dataclass
class Elsewhere:
    other: int = 1
"""
MODEL = """
@dataclasses.dataclass
class ChatTemplateConfig:
    model_name: str
"""
SUPPORTED = """
SUPPORTED_ARCHS = dict(
    OneLM='one',
    WrapLM='wrap',
)
OTHER = dict(No=1)
"""
CONVERTER = """
def f():
    if quant_method == 'awq':
        pass
    elif other == 'x':
        pass
"""
MODULE_MAP = """
MODULE_MAP = {'OneLM': 'a'}
MODULE_MAP.update({'TwoLM': f'{PATH}.b'})
ELSE = {'No': 1}
"""
TABLES = {
    "turbomind/supported_models.py": SUPPORTED,
    "turbomind/converter.py": CONVERTER,
    "pytorch/models/module_map.py": MODULE_MAP,
}
METADATA = """Metadata-Version: 2.1
Name: lmdeploy
Version: 9.9.9
Requires-Python: >=3.9
Requires-Dist: torch <=2.5.1,>=2.0.0
Requires-Dist: transformers
Requires-Dist: nvidia-cublas-cu12
Requires-Dist: nvidia-curand-cu12 ; extra == 'all'

Body
"""


def make_wheel(folder: Path, serve: str = SERVE, tables: Mapping[str, str] = TABLES) -> Path:
    """A wheel as small as one can be that looks like LMDeploy's."""
    path = folder / "lmdeploy-9.9.9-cp310-cp310-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("lmdeploy/__init__.py", "import torch\nfrom .version import __version__\n")
        wheel.writestr("lmdeploy/version.py", "__version__ = '9.9.9'\n")
        wheel.writestr("lmdeploy/messages.py", MESSAGES)
        wheel.writestr("lmdeploy/model.py", MODEL)
        for name, text in tables.items():
            wheel.writestr(f"lmdeploy/{name}", text)
        wheel.writestr("lmdeploy/cli/__init__.py", "")
        wheel.writestr("lmdeploy/cli/cli.py", CLI)
        wheel.writestr("lmdeploy/cli/serve.py", serve)
        wheel.writestr("lmdeploy/lib/_turbomind.so", b"\x00")
        wheel.writestr("lmdeploy-9.9.9.dist-info/METADATA", METADATA)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ReleaseFacts:
    return extract.extract_wheel(make_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def facts() -> WheelFacts:
    return load_extracted(FACTS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model_path", {"options": (), "type": "str", "required": True}),
        ("--names", {"options": ("--names", "-n"), "nargs": "+", "default": "a b"}),
        ("--mode", {"type": "str", "default": "FAST", "choices": ("FAST", "SLOW")}),
        ("--level", {"type": "int", "default": "0", "choices": ("0", "8")}),
        ("--maybe", {"default": "", "choices": ("x",)}),
        ("--extra", {"type": "json", "default": ""}),
        ("--on", {"type": "bool", "action": "store_true", "default": "false", "nargs": ""}),
        ("--ratio", {"default": "0.8", "groups": ("PyTorch engine arguments", "TurboMind engine arguments")}),
        ("--policy", {"type": "int", "default": "8", "choices": ("0", "8", "int8", "none")}),
    ],
)
def test_an_option_is_described_as_it_parses(made: ReleaseFacts, name: str, expected: Mapping[str, object]) -> None:
    """Types, defaults, choices and shared groups of each kind of option come out as text."""
    item = next(item for item in made.options if item.name == name)
    assert {key: getattr(item, key) for key in expected} == expected


def test_fields_and_requirements_are_read_without_importing(made: ReleaseFacts) -> None:
    """Only annotated fields of the engine configurations count, a repeated one once; extras are left out."""
    assert [(item.field, item.type, item.default) for item in made.fields] == [
        ("model_name", "str", ""),
        ("devices", "list[int] | None", "None"),
        ("name", "str", ""),
        ("ratio", "float", "0.8"),
    ]
    assert (made.version, made.requires_python, made.flexible) == ("9.9.9", ">=3.9", True)
    assert made.requires == {"torch": "<=2.5.1,>=2.0.0", "transformers": ""}
    assert made.cuda == ("nvidia-cublas-cu12",)


def test_tables_of_models_are_read_as_text(made: ReleaseFacts, tmp_path: Path) -> None:
    """Keys of literals, calls and updates; up to 0.13.0 the language parts that InternVL has readers for."""
    assert made.entries("turbomind") == made.entries("inside") == {"OneLM", "WrapLM"}
    assert (made.entries("format"), made.entries("pytorch")) == ({"awq"}, {"OneLM", "TwoLM"})
    readers = "def f():\n    relations = dict(OneLM=('one', InternVLReader), WrapLM=('wrap', InternS1Reader))\n"
    older = extract.extract_wheel(
        make_wheel(tmp_path, tables=TABLES | {"turbomind/deploy/source_model/internvl.py": readers})
    )
    assert older.entries("inside") == {"OneLM"}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("text", ["", None])
def test_a_table_that_moved_is_told(name: str, text: str | None, tmp_path: Path) -> None:
    """A release that keeps a table elsewhere is not read as one that serves nothing."""
    tables = (
        TABLES | {name: text or ""} if text is not None else {each: TABLES[each] for each in TABLES if each != name}
    )
    with pytest.raises(MaintenanceError, match=r"lmdeploy-9.*model_tables\.py"):
        extract.extract_wheel(make_wheel(tmp_path, tables=tables))


@pytest.mark.parametrize(
    ("release", "table", "lists", "lacks"),
    [  # read by eye in the wheels
        ("0.7.0", "turbomind", "InternVLChatModel", "Qwen3ForCausalLM"),
        ("0.7.3", "turbomind", "Qwen3MoeForCausalLM", "InternVLForConditionalGeneration"),
        ("0.9.2", "inside", "Qwen2ForCausalLM", "Qwen3MoeForCausalLM"),
        ("0.10.0", "inside", "GptOssForCausalLM", "InternVLChatModel"),
        ("0.8.0", "format", "gptq", "fp8"),
        ("0.15.0", "turbomind", "GptOssForCausalLM", "Qwen2_5_VLForConditionalGeneration"),
        ("0.7.1", "pytorch", "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"),
        ("0.18.0", "pytorch", "InternVLChatModel", "LlavaLlamaForCausalLM"),
    ],
)
def test_the_committed_tables(facts: WheelFacts, release: str, table: str, lists: str, lacks: str) -> None:
    """What a release's table lists and lacks."""
    entries = facts.release(release).entries(table)
    assert lists in entries
    assert lacks not in entries


def test_extraction_leaves_the_process_clean(made: ReleaseFacts) -> None:
    """Neither LMDeploy nor a stand-in is left among the caller's modules, and no help text is kept."""
    assert not [name for name in sys.modules if name.split(".")[0] in {"lmdeploy", "torch"}]
    assert "secret" not in dump_extracted([made])


def test_a_broken_wheel_is_one_clear_line(tmp_path: Path) -> None:
    """What cannot be read says which file and why."""
    junk = tmp_path / "junk.whl"
    junk.write_bytes(b"no zip")
    with pytest.raises(MaintenanceError, match=r"junk\.whl: not a readable wheel"):
        extract.extract_wheel(junk)
    with pytest.raises(MaintenanceError, match=r"could not be imported with stand-ins: .*boom") as error:
        extract.extract_wheel(make_wheel(tmp_path, "raise RuntimeError('boom')"))
    assert "\n" not in str(error.value)


def test_facts_survive_writing_and_reading(made: ReleaseFacts, tmp_path: Path) -> None:
    """Written and read again, facts are the same, and the same facts give the same bytes."""
    later = replace(made, version="9.10.0", options=made.options[1:])
    text = dump_extracted([later, made])
    path = tmp_path / "facts.json"
    path.write_text(text, encoding="utf-8")
    again = load_extracted(path)
    assert again.releases == (made, later)
    assert dump_extracted(again.releases) == text


@pytest.mark.parametrize("text", ["", "{}", '{"format":99}', '{"format":2,"definitions":[{}]}'])
def test_a_broken_facts_file_is_named(tmp_path: Path, text: str) -> None:
    """A file of another form is refused with its name and the repair."""
    path = tmp_path / "facts.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MaintenanceError, match=r"facts\.json: .*extract again"):
        load_extracted(path)


def test_the_committed_facts_cover_the_release_records(facts: WheelFacts) -> None:
    """Every release record has facts and the other way round, and they agree on what it requires."""
    releases = load(KNOWLEDGE).releases
    assert {release.version for release in facts.releases} == set(releases)
    for release in facts.releases:
        record = releases[release.version]
        assert SpecifierSet(release.requires["torch"]) == SpecifierSet(record.torch)
        assert SpecifierSet(release.requires["transformers"] or ">=0") == SpecifierSet(record.transformers)
        assert {name.rpartition("-cu")[2] for name in release.cuda} == {record.cuda}


def test_the_committed_file_is_what_its_facts_write(facts: WheelFacts) -> None:
    """The file is canonical: nobody edited it by hand."""
    assert FACTS.read_text(encoding="utf-8") == dump_extracted(facts.releases)


@pytest.mark.parametrize(
    ("release", "count", "some"),
    [
        ("0.7.0", 34, "--eager-mode"),
        ("0.7.2", 38, "--communicator"),
        ("0.9.2", 50, "--disable-vision-encoder"),
        ("0.13.0", 66, "--trust-remote-code"),
        ("0.18.0", 77, "--empty-init"),
    ],
)
def test_known_counts_of_options(facts: WheelFacts, release: str, count: int, some: str) -> None:
    """The number of options of releases that were counted by hand."""
    names = [item.name for item in facts.release(release).options if item.options]
    assert len(names) == count == len(set(names))
    assert some in names


LINES = [
    ("0.7.0", "m --eager-mode", True),
    ("0.7.0", "m --eager-mode true", False),
    ("0.7.0", "m --max-concurrent-requests 4", False),
    ("0.7.0.post3", "m --max-concurrent-requests 4", True),
    ("0.12.3", "m --quant-policy 42", False),
    ("0.13.0", "m --quant-policy 42", True),
    ("0.13.0", "m --quant-policy int8", False),
    ("0.14.0", "m --quant-policy INT8", True),
    ("0.14.0", "m --quant-policy fp8_e4m3", True),
    ("0.14.0", "m --quant-policy 5", False),
    ("0.12.3", "m --trust-remote-code", False),
    ("0.13.0", "m --trust-remote-code", True),
    ("0.18.0", "m --server-name 0.0.0.0 --server-port 8000", True),
    ("0.18.0", "m --server-port eighty", False),
    ("0.18.0", "m --vllm-option 1", False),
    ("0.18.0", "--server-port 8000", False),
    ("0.13.0", "m --log-level REQUEST", False),
    ("0.14.0", "m --log-level REQUEST", True),
    ("0.9.1", "m --session_len 4096", False),
    ("0.9.2", "m --session_len 4096", True),
    ("0.9.2", "m --hf-overrides.rope_scaling.factor 2.0", True),
    ("0.18.0", "m --allow-origins a b", True),
    ("0.12.0", "m --async 2", False),
    ("0.9.2.post1", "m --model-format mxfp4", False),
    ("0.10.0", "m --model-format mxfp4", True),
]


@pytest.mark.parametrize(("release", "line", "taken"), LINES)
def test_a_rebuilt_parser_takes_what_the_release_takes(facts: WheelFacts, release: str, line: str, taken: bool) -> None:
    """Known command lines are taken or refused as the release does."""
    parser = rebuild_parser(facts, release)
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            parser.parse_args(line.split())
        except SystemExit:
            assert not taken
        else:
            assert taken


def test_a_rebuilt_parser_has_the_defaults_as_values(facts: WheelFacts) -> None:
    """Defaults are of the option's type, lists and switches included."""
    found = rebuild_parser(facts, "0.18.0").parse_args(["m", "--hf-overrides.a.b_c", "2", "--hf-overrides.d=x"])
    assert (found.cache_max_entry_count, found.session_len, found.allow_origins) == (0.8, None, ["*"])
    assert (found.eager_mode, found.quant_policy, found.async_) == (False, "0", 1)
    assert found.hf_overrides == {"a": {"b_c": 2}, "d": "x"}


def test_every_release_gives_a_parser(facts: WheelFacts) -> None:
    """Each parser can be built and takes a bare model; an unknown release is refused."""
    for release in facts.releases:
        assert rebuild_parser(facts, release.version).parse_args(["m"]).model_path == "m"
    with pytest.raises(MaintenanceError, match=r"release 1\.0\.0 is not among"):
        rebuild_parser(facts, "1.0.0")


def test_eras_are_half_open_and_in_order(facts: WheelFacts) -> None:
    """An option's ranges do not overlap; one that went away ends."""
    ranges = eras(facts, "--log-level")
    expected = [("0.7.0", "0.10.0", "ERROR"), ("0.10.0", "0.14.0", "WARNING"), ("0.14.0", "", "WARNING")]
    assert [(since, until, item.default) for since, until, item in ranges] == expected
    assert [item[:2] for item in eras(facts, "--dp-rank")] == [("0.8.0", "0.9.0")]
    assert eras(facts, "--nothing") == []
    for name in facts.names():
        edges = [Version(edge) for since, until, _ in eras(facts, name) for edge in (since, until) if edge]
        assert edges == sorted(edges)


def flag(facts: WheelFacts, option: str, /, **changes: object) -> Flag:
    """A record of an option with the scaffold's eras, some parts replaced."""
    raw = yaml.safe_load(scaffold_flag(facts, option))
    effect = dict.fromkeys(("memory", "latency", "throughput", "accuracy"), "none")
    words = {"id": option[2:], "option": option, "topic": "server", "summary": "s", "choose": "c", "effect": effect}
    words["changes_throughput"] = False
    return Flag.model_validate({**words, **raw, **changes}, strict=False)


def told(facts: WheelFacts, record: Flag) -> list[str]:
    """Differences of one record, without the missing ones."""
    return [line for line in differences(facts, {record.id: record}) if ": missing:" not in line]


def test_a_scaffold_agrees_with_the_facts(facts: WheelFacts) -> None:
    """What is started from the facts has no differences, for every option; unknown options get near names."""
    for option in facts.names():
        assert told(facts, flag(facts, option)) == []
    with pytest.raises(MaintenanceError, match=r"no covered release has --sesion-len; near: --session-len"):
        scaffold_flag(facts, "--sesion-len")


def era(since: str, until: str, **other: object) -> dict[str, object]:
    rest = {"type": "int", "default": "23333", "read_by": ["server"], "sources": {}}
    return {**rest, "since": since, "until": until, **other}


PORTS = [era("0.7.0", "0.15.0"), era("0.15.0", "", default="")]
DRIFTED = [
    ([era("0.7.0", "0.9.0"), era("0.9.0", "0.15.0", read_by=["nobody"]), PORTS[1]], []),
    ([era("0.7.0", "0.14.0"), era("0.14.0", "", default="")], ["eras: expected 0.7.0..0.15.0, 0.15.0..now, found"]),
    ([era("0.7.0", "")], ["eras: expected"]),
    ([PORTS[0], era("0.15.0", "", default="1")], ['since 0.15.0: default: expected "", found "1"; write default: ""']),
    ([era("0.7.0", "0.15.0", type="str"), PORTS[1]], ["since 0.7.0: type: expected int, found str; write type: int"]),
    ([era("0.7.0", "0.15.0", choices=["1"]), PORTS[1]], ['choices: expected [], found ["1"]; write choices: []']),
]


@pytest.mark.parametrize(("record_eras", "expected"), DRIFTED)
def test_eras_that_drifted_are_told(facts: WheelFacts, record_eras: object, expected: list[str]) -> None:
    """A wrong range, type, default or choice is told with its repair; a finer split is none."""
    lines = told(facts, flag(facts, "--server-port", eras=record_eras))
    assert len(lines) == len(expected)
    for line, part in zip(lines, expected, strict=True):
        assert line.startswith("knowledge/flags/server-port.yaml: ")
        assert part in line


@pytest.mark.parametrize(
    ("field", "since", "until", "expected"),
    [
        ("async_", "0.12.0", "", []),
        ("async_", "0.11.0", "", ["TurbomindEngineConfig.async_: expected 0.12.0..now, found 0.11.0..now"]),
        ("async_", "0.13.0", "", ["TurbomindEngineConfig.async_: expected 0.12.0..now, found 0.13.0..now"]),
        ("a_sync", "0.12.0", "", ["TurbomindEngineConfig.a_sync: expected a field of a covered release"]),
    ],
)
def test_fields_that_drifted_are_told(
    facts: WheelFacts, field: str, since: str, until: str, expected: list[str]
) -> None:
    """A configuration field must exist where a record says so."""
    fields = [{"config": "TurbomindEngineConfig", "field": field, "since": since, "until": until}]
    lines = told(facts, flag(facts, "--async", fields=fields))
    assert len(lines) == len(expected)
    assert all(part in line for line, part in zip(lines, expected, strict=True))


def test_unknown_and_missing_options_are_told(facts: WheelFacts) -> None:
    """An option that no release has, and an option without a record."""
    lines = differences(facts, {"x": flag(facts, "--tp", id="x", option="--x")})
    assert "knowledge/flags/x.yaml: option: expected an option of a covered release, found --x" in lines[-1]
    assert any(line.startswith("knowledge/flags/tp.yaml: missing:") for line in lines)


def test_a_release_read_again_is_compared(made: ReleaseFacts) -> None:
    """A changed default is told from both sides; the same facts are no difference."""
    assert release_differences(made, made) == []
    options = (*made.options[1:], replace(made.options[0], default="changed"))
    lines = release_differences(made, replace(made, options=options, flexible=False))
    expected = [(True, False, False), (False, True, False), (False, False, True)]
    assert [("in the file but" in line, "in the wheel but" in line, "flexible" in line) for line in lines] == expected


if os.environ.get("LMDEPLOY_WHEELS"):

    @pytest.mark.parametrize("wheel", sorted(Path(os.environ["LMDEPLOY_WHEELS"]).glob("lmdeploy-*.whl")))
    def test_the_committed_facts_are_those_of_the_wheels(facts: WheelFacts, wheel: Path) -> None:
        """Wheels in the folder that LMDEPLOY_WHEELS names say what is committed."""
        read = extract.extract_wheel(wheel)
        assert release_differences(facts.release(read.version), read) == []


def test_a_new_release_starts_from_its_wheel(made: ReleaseFacts, facts: WheelFacts, tmp_path: Path) -> None:
    """The draft of its record has what METADATA says, each on its line; an option without a record gets a draft too."""
    wheel = make_wheel(tmp_path)
    templates = KNOWLEDGE / "templates-for-contributors"
    text = scaffold.release((templates / "release.yaml").read_text("utf-8"), made, wheel)
    draft = yaml.safe_load(text)
    assert (draft["id"], draft["python"], draft["torch"], draft["cuda"]) == ("9.9.9", ">=3.9", "<=2.5.1,>=2.0.0", "12")
    lines = METADATA.splitlines()
    for source in draft["sources"]["code"]:
        assert source["token"] in lines[source["line"] - 1].replace(" ", "").replace("(", "").replace(")", "")
    assert "TODO" in draft["published"]
    known = {name for name in facts.names() if name != "--session-len"}
    ((name, flag),) = scaffold.flags((templates / "flag.yaml").read_text("utf-8"), facts, known)
    assert name == "session-len"
    assert yaml.safe_load(flag)["option"] == "--session-len"


def test_an_option_that_was_drafted_is_not_missing(tmp_path: Path) -> None:
    """Neither as its draft is written nor while a TODO is left in it; --check drafts nothing, nor are older options."""
    shutil.copytree(KNOWLEDGE, tmp_path / "knowledge", ignore=shutil.ignore_patterns("h?00-*", "session-len.yaml"))
    make_wheel(tmp_path)
    asked = ["extract", "9.9.9", "--wheels", str(tmp_path), "--knowledge", str(tmp_path / "knowledge")]
    before, first, again = (CliRunner().invoke(command, words) for words in ([*asked, "--check"], asked, asked))
    draft = tmp_path / "knowledge" / "flags" / "ratio.yaml"
    for run, missing in (
        (before, {"--ratio", "--session-len"}),
        (first, {"--session-len"}),
        (again, {"--session-len"}),
    ):
        said = set(re.findall(r"missing: expected a record of (\S+), found none; add one", run.output))
        assert said & {"--ratio", "--session-len"} == missing
        assert run.exit_code == 1
    assert f"{draft}: a draft; replace every TODO" in first.output
    assert "knowledge/flags/ratio.yaml: " in again.output


def test_the_other_commands_have_a_file_of_their_own(tmp_path: Path) -> None:
    """Each release's commands with their options; what is equal is stored once; a release that is read again changes
    nothing."""
    path = tmp_path / "subcommands.json"
    small = Definition(("--tp",), "tp", "store", "int", "", "1", (), False, ())
    word = Definition((), "model", "store", "str", "", "", (), True, ())
    older, newer = {"chat": (small, word), "convert": (word,)}, {"chat": (small, word)}
    path.write_text(subcommands.dump({"0.10.0": newer, "0.9.2": older}, path))
    raw = json.loads(path.read_text())
    assert [len(raw["definitions"]), len(raw["parsers"])] == [2, 2]
    assert list(raw["releases"]) == ["0.9.2", "0.10.0"]
    assert raw["parsers"][raw["releases"]["0.9.2"]] == {"chat": [0, 1], "convert": [1]}
    assert subcommands.dump({"0.10.0": newer}, path) == path.read_text()


def test_what_the_review_reads_of_other_commands() -> None:
    """Spot checks against LMDeploy's documentation of its releases."""
    assert "convert" in accepted_options.commands("0.9.2")
    assert "convert" not in accepted_options.commands("0.10.0")
    assert accepted_options.parser("0.8.0", "serve proxy").keys() >= {"--strategy"}
    assert accepted_options.parser("0.18.0", "serve proxy")["--routing-strategy"].choices == (
        "min_expected_latency", "min_observed_latency", "random",
    )  # fmt: skip
    assert "ptb" not in accepted_options.parser("0.12.0", "lite auto_awq")["--calib-dataset"].choices
    assert accepted_options.positionals("0.9.2", "convert") == 2
    assert accepted_options.accepts("0.18.0", "--calib_sam", "lite auto_awq")
    assert not accepted_options.accepts("0.18.0", "--calib", "lite auto_awq")
