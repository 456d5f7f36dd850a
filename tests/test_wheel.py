"""What is shipped: the wheel's contents, its main job away from the checkout, and README's words about both."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parent.parent
KNOWLEDGE = ROOT / "knowledge"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def build(folder: Path, version: str = "standard") -> Path:
    return Path(next(iter(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=[version]))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_every_record_template_and_the_index(wheel: Path) -> None:
    """All files of knowledge/ and templates/ are in the wheel, beside the index made from them."""
    expected = {
        f"recommender/_data/{path.relative_to(ROOT).as_posix()}"
        for folder in ("knowledge", "templates")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    }
    shipped = {name for name in names(wheel) if name.startswith("recommender/_data/")}
    assert shipped == expected | {"recommender/_data/index.json"}


def test_wheel_holds_the_package_and_nothing_of_the_build(wheel: Path) -> None:
    """The package's modules and its typing marker are there; tests and the build hook are not."""
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "recommender").rglob("*.py")}
    top = {name for name in names(wheel) if ".dist-info/" not in name and not name.startswith("recommender/_data/")}
    assert top == modules | {"recommender/py.typed"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names(wheel))


def test_same_tree_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Two builds are equal to the byte."""
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_editable_install_reads_the_checkout(tmp_path: Path) -> None:
    """An editable wheel brings no copy of the knowledge that could go stale."""
    assert not [name for name in names(build(tmp_path, "editable")) if "_data" in name]


def test_broken_record_fails_the_build(tmp_path: Path) -> None:
    """The build stops at a record that does not validate and names the file."""
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "recommender", "templates"):
        (tmp_path / name).symlink_to(ROOT / name)
    for path in KNOWLEDGE.rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(path)
    broken = tmp_path / "knowledge" / "gpus" / "t4.yaml"
    broken.unlink()
    broken.write_text("id: t4\nname: 7\n", encoding="utf-8")
    with pytest.raises(Exception, match=r"gpus/t4\.yaml"):
        next(iter(WheelBuilder(str(tmp_path)).build(directory=str(tmp_path / "out"), versions=["standard"])))


def test_main_job_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, the wheel writes the same script as the checkout, with a source in its report."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "lib")
    command = [sys.executable, "-m", "recommender", "--gpu", "A100-80G", "--load", "single", "-v"]

    def run(where: Path) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONPATH": str(where)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)

    shipped = run(tmp_path / "lib")
    assert shipped.stdout.startswith("#!/usr/bin/env bash\n")
    assert re.search(r"\[\d+\.\d+\.\d+ (lmdeploy|src)/\S+:\d+", shipped.stderr)
    assert shipped.stdout == run(ROOT).stdout


def test_readme_shows_what_is_printed() -> None:
    """README's excerpt is what its first command says, line by line."""
    command = [sys.executable, "-m", "recommender", "--gpu", "A100-80G", "--load", "single"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    excerpt = re.search(r"^```text\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert excerpt, "README.md has no ```text block"
    assert excerpt[1].splitlines() == done.stderr.splitlines(), "README.md: bring the excerpt up to date"


def test_dependencies_stand_where_they_belong() -> None:
    """What a run needs is a dependency; testing, the site and LMDeploy itself are asked for by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def bare(requirements: list[str]) -> set[str]:
        return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}

    assert {"pydantic", "jinja2", "pyyaml"} <= bare(project["project"]["dependencies"])
    assert "hypothesis" in bare(project["dependency-groups"]["test"])
    extras = project["project"]["optional-dependencies"]
    assert (bare(extras["site"]), bare(extras["lmdeploy"])) == ({"babel", "mkdocs-material", "pillow"}, {"lmdeploy"})


@pytest.mark.parametrize(
    ("pattern", "folder"), [(r"(\d+) GPUs", "gpus"), (r"(\d+) checkpoints", "models"), (r"(\d+) releases", "releases")]
)
def test_readme_counts_what_is_covered(pattern: str, folder: str) -> None:
    """README's numbers are those of the knowledge; a new record changes them too."""
    found = re.search(pattern, README)
    assert found, f"README.md should say how many records {folder}/ holds, as {pattern}"
    assert int(found[1]) == len(list((KNOWLEDGE / folder).glob("*.yaml"))), f"README.md: mend the count of {folder}/"
