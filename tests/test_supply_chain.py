"""What workflows and texts install: actions by commit, this project by address, what publishes by exact version."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from artefacts import KNOWLEDGE
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recommender.common.version import __version__

ROOT = KNOWLEDGE.parent
NAME = "lmdeploy-recommender"
OURS = sorted((ROOT / ".github/workflows").glob("*.yml"))
WORKFLOWS = [*OURS, ROOT / "templates/review-workflow.yml"]
CONSTRAINTS = "${{ github.workspace }}/.github/constraints.txt"
PUBLISHING = ("pages.yml", "release.yml")
ENDINGS = {".md", ".yml", ".yaml", ".toml", ".j2", ".py", ".sh", ".txt", ""}


def parsed(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text("utf-8"))


def texts() -> list[tuple[Path, str]]:
    """All texts of the repository but the evidence, the changelog and this file."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in listed.stdout.split("\n") if name] if not listed.returncode else []
    paths = paths or [
        path for folder in ("recommender", "templates", "site", ".github") for path in (ROOT / folder).rglob("*")
    ]
    left_out = (ROOT / "knowledge/evidence", ROOT / "CHANGELOG.md", Path(__file__))
    return [
        (path, path.read_text("utf-8"))
        for path in paths
        if path.is_file() and path.suffix in ENDINGS and not any(path.is_relative_to(other) for other in left_out)
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can move, a commit cannot; the release that it was is beside it, for people and for Dependabot."""
    used = [step["uses"] for job in parsed(path)["jobs"].values() for step in job["steps"] if "uses" in step]
    lines = re.findall(r"^ *(?:- )?uses: (.*)$", path.read_text("utf-8"), re.MULTILINE)
    assert len(lines) == len(used) > 0
    for line in lines:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_version() -> None:
    """All workflows use the same commit of it."""
    lines = {line for path in WORKFLOWS for line in re.findall(r"uses: (.*)", path.read_text("utf-8"))}
    assert len({line.partition("@")[0] for line in lines}) == len(lines)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_workflows_have_few_rights(path: Path) -> None:
    """None by default but reading; what a job needs beyond that, it names."""
    flow = parsed(path)
    assert set(flow["permissions"].items()) <= {("contents", "read")}
    for job in flow["jobs"].values():
        code = any("run" in step and "gh release" not in step["run"] for step in job["steps"])
        assert not (code and "id-token" in job.get("permissions", {})), "a job that may sign runs no other code"


def test_no_text_installs_a_name_that_no_index_has() -> None:
    """This project is on no index: whoever takes its name there would be installed."""
    found = []
    for path, text in texts():
        for line in text.splitlines():
            installs = re.search(r"\b(pip3?|pipx|uv|uvx|poetry|pdm|conda)\b.*\b(install|add|run|tool)\b(.*)", line)
            words = re.findall(r"[^\s'\"`]+", installs[3]) if installs else []
            named = re.search(r"(?:RECOMMENDER|additional_dependencies)\s*[:=]\s*(.*)", line)
            words += re.findall(r"[^\s'\"`\[\]]+", named[1]) if named else []
            found += [f"{path}: {line}" for word in words if re.fullmatch(rf"{NAME}(\[.*|[=<>~!@].*)?", word)]
    assert not found


def test_the_workflow_for_users_installs_a_tag() -> None:
    """By a git address that fails until its owner is written, with the tag of this version."""
    flow = parsed(ROOT / "templates/review-workflow.yml")
    address = flow["jobs"]["review"]["env"]["RECOMMENDER"]
    assert address == f"git+https://github.com/<OWNER>/{NAME}@v{__version__}"


@pytest.mark.parametrize("name", PUBLISHING)
def test_what_publishes_installs_exact_versions(name: str) -> None:
    """Every job that runs pip sets the constraints, which name each dependency exactly once."""
    for job in parsed(ROOT / ".github/workflows" / name)["jobs"].values():
        if any("pip " in step.get("run", "") for step in job["steps"]):
            assert job["env"]["PIP_CONSTRAINT"] == CONSTRAINTS
    lines = (ROOT / ".github/constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins)
    versions = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins}
    assert len(versions) == len(pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = project["dependency-groups"]
    for text in (*project["project"]["dependencies"], *groups["docs"], *groups["release"], "hatchling>=1.25", "pip"):
        wanted = Requirement(text)
        assert versions[canonicalize_name(wanted.name)] in wanted.specifier, text


def test_a_release_is_built_checked_hashed_and_attested() -> None:
    """In this order, and the tag must be the version."""
    jobs = parsed(ROOT / ".github/workflows/release.yml")["jobs"]
    steps = [step for name in ("build", "publish") for step in jobs[name]["steps"]]
    words = "\n".join(step.get("run", step.get("uses", "")) for step in steps)
    order = ["__version__", "-m build", "twine check --strict", "sha256sum"]
    order += ["upload-artifact@", "attest-build-provenance@", "gh release create"]
    places = [words.index(word) for word in order]
    assert places == sorted(places)
    assert jobs["publish"]["needs"] == "build"


def test_ci_covers_the_supported_pythons_and_the_lowest_versions() -> None:
    """From the lowest of ``requires-python`` on; each floor is one that exact pins can name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    matrix = parsed(ROOT / ".github/workflows/ci.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    lowest = [entry["python"] for entry in matrix["include"] if entry["dependencies"] == "lowest"]
    assert [f">={python}" for python in lowest] == [project["requires-python"]]
    done = subprocess.run([sys.executable, ".ci/floors.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    floors = {canonicalize_name(Requirement(line).name) for line in done.stdout.split()}
    assert floors >= {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
