"""A program's settings in a YAML or JSON file beside it are read as if the program held them."""

import json
from pathlib import Path

import pytest
from scripts import given_options

from recommender.review.engine import review
from recommender.review.readers.detect_kind import read
from recommender.review.script.model import Launch

SETTINGS = {"model": "Qwen/Qwen3-8B", "engine": {"tp": 2, "session_len": 8192}, "server": {"port": 8001}}
HEAD = "import json, yaml\nfrom lmdeploy import TurbomindEngineConfig, pipeline\n"
PIPELINE = 'pipeline(cfg["model"], backend_config=TurbomindEngineConfig(**cfg["engine"]))\n'


def launched(tmp_path: Path, text: str, name: str = "cfg.yaml") -> Launch:
    """Return what a program starts, beside a file of settings; JSON is YAML too."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(json.dumps(SETTINGS), encoding="utf-8")
    (launch,) = read(str(tmp_path / "x.py"), text).launches
    return launch


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("cfg.yaml", 'with open("cfg.yaml") as f:\n    cfg = yaml.safe_load(f)\n'),
        ("cfg.yaml", 'cfg = yaml.load(open("cfg.yaml"), Loader=yaml.SafeLoader)\n'),
        ("cfg.json", 'cfg = json.load(open("cfg.json"))\n'),
        (
            "conf/cfg.yaml",
            'from pathlib import Path\ncfg = yaml.safe_load((Path(__file__).parent / "conf" / "cfg.yaml").open())\n',
        ),
        (
            "cfg.yaml",
            'from pathlib import Path\ncfg = yaml.safe_load(Path(__file__).with_name("cfg.yaml").read_text())\n',
        ),
        (
            "cfg.yaml",
            'def load(path):\n    with open(path) as f:\n        return yaml.safe_load(f)\ncfg = load("cfg.yaml")\n',
        ),
    ],
    ids=range(6),
)
def test_a_file_is_found_by_the_path_that_the_program_opens(tmp_path: Path, name: str, load: str) -> None:
    """Of a name, of a path below the program's folder, or as the argument of a function."""
    launch = launched(tmp_path, HEAD + load + PIPELINE, name)
    assert launch.model.value == "Qwen/Qwen3-8B"
    assert given_options(launch) == {"tp": ["2"], "session_len": ["8192"]}
    assert not launch.unsure


def test_values_go_into_a_command_too(tmp_path: Path) -> None:
    """By subscript, and by ``get``."""
    text = (
        'import subprocess, yaml\ncfg = yaml.safe_load(open("cfg.yaml"))\n'
        'subprocess.run(["lmdeploy", "serve", "api_server", cfg["model"], "--server-port", str(cfg["server"]["port"]),'
        ' "--tp", str(cfg.get("engine").get("tp"))])\n'
    )
    assert given_options(launched(tmp_path, text)) == {"--server-port": ["8001"], "--tp": ["2"]}


def test_hydra_passes_the_settings_to_a_function(tmp_path: Path) -> None:
    """With the file of a group that the defaults name."""
    (tmp_path / "conf" / "engine").mkdir(parents=True)
    (tmp_path / "conf" / "run.yaml").write_text("defaults: [{engine: small}, _self_]\nmodel: Qwen/Qwen3-8B\n", "utf-8")
    (tmp_path / "conf" / "engine" / "small.yaml").write_text("tp: 1\nquant_policy: 8\n", "utf-8")
    text = (
        "import hydra\nfrom lmdeploy import TurbomindEngineConfig, pipeline\nfrom omegaconf import OmegaConf\n"
        '@hydra.main(config_path="conf", config_name="run")\ndef main(cfg):\n'
        "    engine = TurbomindEngineConfig(**OmegaConf.to_container(cfg.engine))\n"
        "    pipeline(cfg.model, backend_config=engine)\n"
    )
    (launch,) = read(str(tmp_path / "x.py"), text).launches
    assert given_options(launch) == {"tp": ["1"], "quant_policy": ["8"]}


@pytest.mark.parametrize("text", ["engine: {tp: ${TP}}", "engine: [1", "&a [*a]", "", "--- 1\n--- 2\n", "\0"])
def test_an_odd_file_is_no_defect(tmp_path: Path, text: str) -> None:
    """A reference, a broken file, one that contains itself, an empty one, two documents, no text."""
    (tmp_path / "cfg.yaml").write_text(text, encoding="utf-8")
    program = f'{HEAD}cfg = yaml.safe_load(open("cfg.yaml"))\n{PIPELINE}'
    assert not review(str(tmp_path / "x.py"), program).defects


def test_a_file_that_is_not_there_is_said_to_be_unread(tmp_path: Path) -> None:
    """Nothing is guessed."""
    program = f'{HEAD}cfg = yaml.safe_load(open("cfg.yaml"))\n{PIPELINE}'
    assert "LMD002" in {finding.rule.id for finding in review(str(tmp_path / "x.py"), program).findings}


def test_the_entries_of_a_file_may_be_options(tmp_path: Path) -> None:
    """A loop over them gives a name and a value in each turn."""
    text = (
        'import subprocess, yaml\ncfg = yaml.safe_load(open("cfg.yaml"))\n'
        'cmd = ["lmdeploy", "serve", "api_server", cfg["model"]]\n'
        'for key, value in cfg["engine"].items():\n    cmd += [f"--{key}", str(value)]\n'
        "subprocess.run(cmd)\n"
    )
    assert given_options(launched(tmp_path, text)) == {"--tp": ["2"], "--session_len": ["8192"]}


@pytest.mark.parametrize(
    ("base", "call"),
    [
        ("pydantic.BaseModel", "settings.engine.model_dump()"),
        ("pydantic.BaseModel", "settings.engine.dict()"),
        ("object", "asdict(settings.engine)"),
        ("object", "vars(settings.engine)"),
    ],
)
def test_the_fields_of_an_object_may_be_keywords(base: str, call: str) -> None:
    """Of a class of the file, nested in another one."""
    text = (
        "import pydantic\nfrom dataclasses import asdict\nfrom lmdeploy import TurbomindEngineConfig, pipeline\n"
        f"class Engine({base}):\n    tp: int = 2\n    session_len: int = 8192\n"
        f"class Settings({base}):\n    engine: Engine = Engine()\n"
        f"settings = Settings()\npipeline('m', backend_config=TurbomindEngineConfig(**{call}))\n"
    )
    (launch,) = read("x.py", text).launches
    assert given_options(launch) == {"tp": ["2"], "session_len": ["8192"]}
    assert not launch.unsure


def test_a_table_of_the_file_may_be_keywords_too() -> None:
    """By its key, as for a choice of models."""
    text = (
        "from lmdeploy import PytorchEngineConfig, pipeline\n"
        'ENGINES = {"small": {"tp": 1}, "large": {"tp": 4}}\n'
        "pipeline('m', backend_config=PytorchEngineConfig(**ENGINES['large']))\n"
    )
    (launch,) = read("x.py", text).launches
    assert given_options(launch) == {"tp": ["4"]}


@pytest.mark.parametrize("take", ['model = cfg.pop("model")\n', 'model = cfg["model"]\ndel cfg["model"]\n'])
def test_what_the_program_takes_out_is_no_keyword(tmp_path: Path, take: str) -> None:
    """The rest goes to the engine."""
    (tmp_path / "cfg.yaml").write_text("model: Qwen/Qwen3-8B\ntp: 2\n", encoding="utf-8")
    start = "pipeline(model, backend_config=TurbomindEngineConfig(**cfg))\n"
    text = f'{HEAD}cfg = yaml.safe_load(open("cfg.yaml"))\n{take}{start}'
    found = review(str(tmp_path / "x.py"), text)
    (launch,) = found.script.launches
    assert launch.model.value == "Qwen/Qwen3-8B"
    assert given_options(launch) == {"tp": ["2"]}
    assert [finding.rule.id for finding in found.findings if finding.severity != "info"] == []


TOML = 'model = "m"\n[engine]\ntp = 2\nsession_len = 8192\n'


@pytest.mark.parametrize(("text", "options"), [(TOML, {"tp": ["2"], "session_len": ["8192"]}), (f"{TOML}x = [", {})])
def test_a_toml_file_is_read(tmp_path: Path, text: str, options: dict[str, list[str]]) -> None:
    """A broken one leaves all unknown."""
    (tmp_path / "cfg.toml").write_text(text)
    load = 'import os, tomllib\nwith open(os.path.join(os.path.dirname(__file__), "cfg.toml"), "rb") as f:\n'
    (launch,) = read(str(tmp_path / "x.py"), f"{HEAD}{load}    cfg = tomllib.load(f)\n{PIPELINE}").launches
    assert given_options(launch) == options
    assert launch.unsure is not bool(options)
