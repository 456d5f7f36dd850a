"""Citations of LMDeploy's code are held against the release they cite."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from recommender.common.errors import MaintenanceError
from recommender.knowledge.records import CodeSource, Release, Sources
from recommender.maintenance import citations
from recommender.maintenance.knowledge_folder import KnowledgeFolder

TEXT = "alpha\nbeta\ngamma\nbeta two\n\nbeta three\n"


def cited(line: int, token: str, path: str = "lmdeploy/a.py", release: str = "0.18.0") -> citations.Cited:
    return citations.Cited("knowledge/x.yaml", CodeSource(release=release, path=path, line=line, token=token))


def opened(release: str, path: str) -> str | None:
    """One file in the wheel; the repository is not given."""
    if path == "lmdeploy/a.py":
        return TEXT
    if citations.in_wheel(path):
        raise FileNotFoundError(f"no {path}")
    return None


@pytest.mark.parametrize(
    ("line", "token", "expected"),
    [
        (2, "beta", None),
        (4, "two", None),
        (3, "beta", "a.py:3 of 0.18.0: 'beta' is not on this line; write line: 2 (also 4, 6)"),
        (5, "beta", "a.py:5 of 0.18.0: 'beta' is not on this line; write line: 4 (also 6, 2)"),
        (99, "gamma", "a.py:99 of 0.18.0: 'gamma' is not on this line; write line: 3"),
        (1, "delta", "a.py:1 of 0.18.0: 'delta' is nowhere in this file of 7 lines; correct the citation or remove it"),
    ],
)
def test_a_wrong_line_is_told_with_the_right_one(line: int, token: str, expected: str | None) -> None:
    """A token that is elsewhere in the file is told with its lines, nearest first."""
    problems = citations.verify_all([cited(line, token)], opened).problems
    assert [str(problem) for problem in problems] == (
        [] if expected is None else [f"knowledge/x.yaml: lmdeploy/{expected}"]
    )


def test_absent_files_are_problems_and_unopened_ones_are_counted() -> None:
    """A missing file is a problem; what lies in the repository is skipped and said where none is given."""
    sources = [cited(1, "alpha"), cited(1, "a", "lmdeploy/b.py"), cited(1, "a", "src/c.cc"), cited(1, "a", "src/c.cc")]
    outcome = citations.verify_all(sources, opened)
    assert [problem.what for problem in outcome.problems] == ["no lmdeploy/b.py"]
    assert (outcome.correct, len(outcome.skipped)) == (1, 2)
    assert "1 citations hold, 1 do not, 2 skipped" in str(outcome)


def test_each_file_is_opened_once() -> None:
    """Many citations of one file cost one look."""
    asked: list[tuple[str, str]] = []

    def counting(release: str, path: str) -> str | None:
        asked.append((release, path))
        return TEXT

    citations.verify_all([cited(1, "alpha"), cited(2, "beta"), cited(1, "alpha", release="0.17.0")], counting)
    assert asked == [("0.18.0", "lmdeploy/a.py"), ("0.17.0", "lmdeploy/a.py")]


def test_citations_are_found_however_deep() -> None:
    """Sources of a record and of records in it are found, with the fields that lead there."""
    source = CodeSource(release="0.18.0", path="METADATA", line=1, token="x")
    record = Release(
        id="0.18.0",
        published="2026-01-01",
        python=">=3.10",
        torch=">=2",
        transformers=">=4",
        cuda="12",
        sources=Sources(code=(source, source)),
    )
    knowledge = KnowledgeFolder(Path("knowledge"), {"releases": {"0.18.0": record}}, (), {})
    found = list(citations.citations(knowledge))
    file = "knowledge/releases/0.18.0.yaml"
    assert [item.where for item in found] == [f"{file}: sources.code[0]", f"{file}: sources.code[1]"]
    assert {item.source for item in found} == {source}
    assert list(citations.citations(knowledge, "releases/0.18")) == found
    assert list(citations.citations(knowledge, "flags/")) == []


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A cached wheel of 0.18.0 with one file and its METADATA."""
    path = tmp_path / "lmdeploy-0.18.0-cp310-cp310-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("lmdeploy/a.py", TEXT)
        made.writestr("lmdeploy-0.18.0.dist-info/METADATA", "Version: 0.18.0\n")
    return path


def test_wheel_files_are_read_from_the_cache(wheel: Path) -> None:
    """A cached wheel is used without the network; METADATA is that of its dist-info."""
    assert citations.download_wheel("0.18.0", wheel.parent) == wheel
    open_text = citations.opener(lambda version: citations.download_wheel(version, wheel.parent), None)
    assert open_text("0.18.0", "lmdeploy/a.py") == TEXT
    assert open_text("0.18.0", "METADATA") == "Version: 0.18.0\n"
    assert open_text("0.18.0", "src/turbomind/x.cc") is None
    with pytest.raises(FileNotFoundError, match=r"has no lmdeploy/b\.py"):
        open_text("0.18.0", "lmdeploy/b.py")
    wheel.write_bytes(b"cut short")
    with pytest.raises(MaintenanceError, match=r"not a wheel; remove it"):
        open_text("0.18.0", "lmdeploy/a.py")


def test_a_post_release_is_not_taken_for_its_release(wheel: Path) -> None:
    """The folder holds 0.18.0; neither 0.18 nor 0.18.0.post1 is found in it."""
    assert citations.find_wheel("0.18.0.post1", wheel.parent) is None
    assert citations.find_wheel("0.18", wheel.parent) is None


def test_a_failed_download_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's last line is told, not its whole output."""
    failed = subprocess.CompletedProcess[str]([], 1, "", "noise\nERROR: No matching distribution\n")
    monkeypatch.setattr(citations.subprocess, "run", lambda *args, **kwargs: failed)
    with pytest.raises(
        MaintenanceError, match=r"lmdeploy 9\.9\.9 could not be downloaded: ERROR: No matching"
    ) as error:
        citations.download_wheel("9.9.9", tmp_path / "cache")
    assert "noise" not in str(error.value)


def test_repository_files_are_read_at_the_tag(tmp_path: Path) -> None:
    """A file is read as it was at the release's tag; an absent tag or file is told."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "c.cc").write_text("old\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "c"], ["tag", "v0.16.0"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    (tmp_path / "src" / "c.cc").write_text("new\n", encoding="utf-8")
    open_text = citations.opener(lambda version: tmp_path / version, tmp_path)
    assert open_text("0.16.0", "src/c.cc") == "old\n"
    wrong = [cited(1, "x", "src/c.cc", "0.17.0"), cited(1, "x", "src/d.cc", "0.16.0")]
    problems = citations.verify_all(wrong, open_text).problems
    expected = ["the repository given has no tag v0.17.0", "v0.16.0 has no src/d.cc"]
    assert [problem.what for problem in problems] == expected
