"""What a browser loads to run the recommender: complete, small, the pinned packages, and no compiled module."""

from __future__ import annotations

import gzip
import io
import json
import sys
import urllib.error
import urllib.request
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from artefacts import run_program
from questions import question, words

from recommender.site.browser import bundle, npm
from recommender.site.browser.run import run

ASK = """
import sys
sys.path[:] = [each for each in sys.path if "site-packages" not in each]
sys.path.insert(0, sys.argv[1])
class Compiled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pydantic", "pydantic_core", "tree_sitter", "tree_sitter_bash", "rich", "numpy"}:
            raise ImportError(f"{name} is imported")
sys.meta_path.insert(0, Compiled())
import json
from recommender.site.browser.run import run
from recommender.site.browser.answer import answer
print(json.dumps([[run(words).stdout, answer(words)["exit"]] for words in json.loads(sys.argv[2])]))
assert "yaml" not in sys.modules
"""
"""Answer questions with the bundle alone, without the packages of this environment."""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a worker unpacks the recommender to."""
    folder = tmp_path_factory.mktemp("bundle")
    with zipfile.ZipFile(io.BytesIO(bundle.archive_of_app())) as archive:
        archive.extractall(folder)
    return folder


def test_the_main_job_needs_no_compiled_package(unpacked: Path) -> None:
    """Every form, with the bundled files alone and neither pydantic, yaml nor a parser, gives the command's bytes."""
    forms = ("bash", "command", "python", "client", "env", "docker", "json", "report")
    asked = [["--gpu", "A100-80G", "--load", "16", "--format", form] for form in forms]
    asked += [["--gpu", "L4", "--text-only", "--workload", "chat", "--rps", "2"], ["--gpu", "A1000"]]
    done = run_program([sys.executable, "-I", "-c", ASK, str(unpacked), json.dumps(asked)])
    assert done.returncode == 0, done.stderr
    for each, (stdout, code) in zip(asked, json.loads(done.stdout), strict=True):
        outcome = run(each)
        assert (stdout, code) == (outcome.stdout, outcome.code), each


@pytest.mark.parametrize("number", [1, 5, 12, 24, 31])
def test_a_run_in_this_process_is_the_command(number: int, tmp_path: Path) -> None:
    """Streams, exit code and files are those of the installed command."""
    values, form = question(number)
    asked = [*words(values), "--format", form, "-o", "files"]
    done = run_program([sys.executable, "-m", "recommender", *asked], cwd=tmp_path)
    outcome = run(asked)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (done.returncode, done.stdout, done.stderr)
    place = tmp_path / "files"
    if place.is_dir():
        files = {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*") if path.is_file()}
        assert outcome.files == files


def test_nothing_of_the_bundle_is_there_without_use(unpacked: Path) -> None:
    """No folder that only a terminal needs, no evidence, no test."""
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    parts = {*bundle.LIBRARIES, "recommender", "tree_sitter", "tree_sitter_bash"}
    assert {name.split("/")[0] for name in names} == parts
    left_out = tuple(f"recommender/{folder}/" for folder in ("smoke", "maintenance", "site/pages", "site/charts"))
    assert not [name for name in names if name.startswith(left_out) or "evidence" in name]


@pytest.mark.usefixtures("npm_packages")
def test_the_runtime_is_small() -> None:
    """Under 8.5 MB in all, under 7 MB for the first answer, as a browser receives it."""
    files = bundle.files()
    sizes = {name: len(each if name.endswith(".bin") else gzip.compress(each)) for name, each in files.items()}
    assert sum(sizes.values()) < 7_300_000
    assert sum(sizes[name] for name in bundle.START) < 6_600_000
    assert sum(len(content) for content in files.values()) < 8_500_000


@pytest.mark.usefixtures("npm_packages")
def test_the_grammar_is_that_of_the_command() -> None:
    """The parser of scripts reads the same grammar in a browser and in a terminal."""
    assert version("tree-sitter-bash") == npm.BASH_GRAMMAR.version


def test_an_unreachable_registry_is_one_clear_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It names the address, the reason, and the two ways out; nothing is kept."""

    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(npm, "data_root", lambda: tmp_path)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("npm_config_registry", "https://npm.example/")
    with pytest.raises(npm.NotFetched) as caught:
        npm.read_members(npm.PYODIDE, ("package.json",))
    said = str(caught.value)
    assert said.startswith("https://npm.example/pyodide/-/pyodide-314.0.7.tgz: no route; ")
    assert bundle.WITHOUT in said
    assert str(tmp_path / "build" / ".cache" / "npm") in said


def test_a_changed_package_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tarball with another hash is neither used nor kept, and one that was cut short in the cache is fetched anew."""
    monkeypatch.setattr(npm, "data_root", lambda: tmp_path)
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(b"other"))
    cached = tmp_path / "build" / ".cache" / "npm" / npm.PYODIDE.file_name
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"cut short")
    with pytest.raises(npm.NotFetched, match="its hash is not that of"):
        npm.read_members(npm.PYODIDE, ("package.json",))
    assert cached.read_bytes() == b"cut short"
