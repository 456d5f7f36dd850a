"""Check that every cited token is on its line of the LMDeploy release it is cited from."""

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recommender.common.errors import MaintenanceError
from recommender.knowledge.provenance import in_wheel
from recommender.knowledge.records import CodeSource
from recommender.maintenance.knowledge_folder import KnowledgeFolder

PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
PYTHONS = ("3.10", "3.12")
SHOWN_LINES = 5
OpenText = Callable[[str, str], str | None]


@dataclass(frozen=True)
class Cited:
    """A code source and where it is cited: the record's file and the field that holds it."""

    where: str
    source: CodeSource


@dataclass(frozen=True)
class CitationProblem:
    """A citation that does not hold. ``lines``: where the token is in that file, nearest first."""

    cited: Cited
    what: str
    lines: tuple[int, ...] = ()

    def __str__(self) -> str:
        source = self.cited.source
        place = f"{self.cited.where}: {source.path}:{source.line} of {source.release}"
        if not self.lines:
            return f"{place}: {self.what}; correct the citation or remove it"
        rest = ", ".join(str(line) for line in self.lines[1:SHOWN_LINES])
        also = f" (also {rest}{', ...' if len(self.lines) > SHOWN_LINES else ''})" if rest else ""
        return f"{place}: {self.what}; write line: {self.lines[0]}{also}"


@dataclass(frozen=True)
class CheckedCitations:
    """The outcome of a verification. ``skipped``: citations of places that could not be opened here."""

    problems: tuple[CitationProblem, ...]
    correct: int
    skipped: tuple[Cited, ...]

    def __str__(self) -> str:
        counts = f"{self.correct} citations hold, {len(self.problems)} do not"
        if not self.skipped:
            return counts
        return f"{counts}, {len(self.skipped)} skipped (outside the wheel; name a checkout of LMDeploy's repository)"


def citations(knowledge: KnowledgeFolder, only: str = "") -> Iterator[Cited]:
    """Yield the code sources of records whose file has ``only`` in its name, with the fields that lead to each."""
    for file, where, part in knowledge.parts:
        if only in file and isinstance(part, CodeSource):
            yield Cited(f"{file}: {where}", part)


def lines_with(text: str, token: str, near: int) -> tuple[int, ...]:
    """Return the 1-based lines of a text that have a token, nearest to a line first."""
    numbers = [number for number, line in enumerate(text.split("\n"), 1) if token in line]
    return tuple(sorted(numbers, key=lambda number: (abs(number - near), number)))


def check(cited: Cited, text: str) -> CitationProblem | None:
    """Return the problem of one citation given its file's text, or None when it holds."""
    source = cited.source
    lines = lines_with(text, source.token, source.line)
    if source.line in lines:
        return None
    if lines:
        return CitationProblem(cited, f"{source.token!r} is not on this line", lines)
    return CitationProblem(cited, f"{source.token!r} is nowhere in this file of {text.count(chr(10)) + 1} lines")


def verify_all(sources: Iterable[Cited], open_text: OpenText) -> CheckedCitations:
    """Check citations. ``open_text(release, path)`` gives a file's text, or None to skip it.

    A missing file is a problem: ``open_text`` raises FileNotFoundError for it. Each file is opened once.
    """
    texts: dict[tuple[str, str], str | FileNotFoundError | None] = {}
    problems: list[CitationProblem] = []
    skipped: list[Cited] = []
    correct = 0
    for cited in sources:
        key = (cited.source.release, cited.source.path)
        if key not in texts:
            try:
                texts[key] = open_text(*key)
            except FileNotFoundError as error:
                texts[key] = error
        text = texts[key]
        if text is None:
            skipped.append(cited)
            continue
        missing = CitationProblem(cited, str(text)) if isinstance(text, FileNotFoundError) else None
        if problem := missing or check(cited, str(text)):
            problems.append(problem)
        else:
            correct += 1
    return CheckedCitations(tuple(problems), correct, tuple(skipped))


def read_from_wheel(wheel: Path, path: str) -> str:
    """Return the text of a wheel's file; ``METADATA`` is that of its dist-info. Raises FileNotFoundError."""
    try:
        with zipfile.ZipFile(wheel) as opened:
            names = opened.namelist()
            if path == "METADATA":
                path = next((name for name in names if name.endswith(".dist-info/METADATA")), path)
            if path not in names:
                raise FileNotFoundError(f"{wheel.name} has no {path}")
            return opened.read(path).decode("utf-8")
    except zipfile.BadZipFile as error:
        raise MaintenanceError(f"{wheel}: not a wheel; remove it and try again") from error


def read_from_repository(repository: Path, release: str, path: str) -> str:
    """Return the text of a file of a git checkout (or bare clone) at a release's tag.

    Raises FileNotFoundError if there is no such tag, or no such file at it.
    """
    git = ["git", "-C", str(repository)]
    tag = f"v{release}"
    try:
        known = subprocess.run([*git, "rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}"], capture_output=True)
        shown = subprocess.run([*git, "show", f"{tag}:{path}"], capture_output=True)
    except OSError as error:
        raise MaintenanceError(f"git could not be run: {error}") from error
    if known.returncode:
        raise FileNotFoundError(f"the repository given has no tag {tag}")
    if shown.returncode:
        raise FileNotFoundError(f"{tag} has no {path}")
    return shown.stdout.decode("utf-8")


def find_wheel(version: str, folder: Path) -> Path | None:
    """Return the wheel of a version in a folder, or None. If there are several, return the first by name."""
    return next(iter(sorted(folder.glob(f"lmdeploy-{version}-*.whl"))), None)


def download_wheel(version: str, cache_dir: Path) -> Path:
    """Return the wheel of a version for Linux x86-64, from the cache folder or the package index (about 100 MB).

    Raises MaintenanceError with pip's last line where no index has it.
    """
    cache_dir.mkdir(parents=True, exist_ok=True)
    if wheel := find_wheel(version, cache_dir):
        return wheel
    message = "no message"
    for python in PYTHONS:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--implementation", "cp", "--python-version", python, "--dest", str(cache_dir)]
        command += [part for platform in PLATFORMS for part in ("--platform", platform)]
        done = subprocess.run([*command, f"lmdeploy=={version}"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and (wheel := find_wheel(version, cache_dir)):
            return wheel
        message = (done.stderr.strip().splitlines() or [message])[-1]
    raise MaintenanceError(f"the wheel of lmdeploy {version} could not be downloaded: {message}")


def opener(wheel_of: Callable[[str], Path], repository: Path | None) -> OpenText:
    """Return an ``open_text`` that reads wheels, and the repository where one is given; the rest is skipped."""

    def open_text(release: str, path: str) -> str | None:
        if in_wheel(path):
            return read_from_wheel(wheel_of(release), path)
        return None if repository is None else read_from_repository(repository, release, path)

    return open_text
