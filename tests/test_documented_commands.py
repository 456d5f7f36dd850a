"""Each command of README and of the how-to pages: run, checked in dry run, or its options parsed."""

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from recommender.choose.recommend import NothingFits
from recommender.cli import root
from recommender.smoke.failures import KINDS

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "site" / "how-to").glob("*.md"))),
    *sorted((ROOT / "site" / "reference").glob("exit*.md")),
    ROOT / "site" / "index.md",
]
TWINS = [page for page in PAGES if page.name.endswith(".vi.md")]
"""Vietnamese pages: their commands are those of the English ones."""
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDS_MACHINE = {"bench-prompt", "campaign"}
"""Commands without a dry run that launch servers; their options are parsed."""
RUN = ROOT / "knowledge" / "evidence" / "h100-2026-11-21-ours-16.yaml"
REFUSED = "recommend --gpu T4 --model internvl3-38b-awq"
"""Shown because nothing fits."""
INSTALLED = {".", ".[mcp]", ".[smoke]", "pip>=25.1", "-e", "--group", "test"}
"""What pages may install: this checkout, and what an index has."""


def lines(page: Path) -> list[str]:
    """The lines of a page's shell blocks, continued lines joined."""
    text = "".join(BLOCK.findall(page.read_text("utf-8"))).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


def words(line: str) -> list[list[str]]:
    """The commands of a line as words, without variables before them and without redirections."""
    commands: list[list[str]] = [[]]
    line = re.sub(r"\s+>+\s*\S+", "", line)
    for word in shlex.split(line, comments=True):
        if word in ("&&", ";", "|"):
            commands.append([])
        elif commands[-1] or not re.match(r"[A-Z_]+=", word):
            commands[-1].append(word)
    return [command for command in commands if command]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the pages take for granted."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(root, ["--gpu", "A100-80G", "--load", "16", "-q"])
    for name in ("serve.sh", "deploy.sh", "images.sh"):
        (tmp_path / name).write_text(done.stdout)
    (tmp_path / "mine.yaml").write_text((ROOT / "knowledge" / "campaigns" / "h100.yaml").read_text())
    (tmp_path / "requests.jsonl").write_text(
        "".join(f'{{"timestamp": {n * 500}, "input_length": {500 + n}, "output_length": 100}}\n' for n in range(40))
    )
    CliRunner().invoke(root, ["--gpu", "H200:2", "--load", "64", "--format", "compose", "-o", "fleet"])
    return tmp_path


def parse(command: list[str]) -> None:
    context = root.make_context("recommend", list(command), resilient_parsing=False)
    name, found, rest = root.resolve_command(context, [*context._protected_args, *context.args])
    found.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in TWINS], ids=lambda page: page.name)
def test_documented_commands_work(page: Path, folder: Path) -> None:
    """In the page's order, in one folder: a command that writes a file serves a later one."""
    for line in lines(page):
        for command in words(line):
            if command[0] == "recommend":
                run(command[1:], line)
            elif command[0].endswith("/recommend"):
                pytest.fail(f"{line}: other commands of the page say recommend: activate the environment instead")
            elif command[0] == "cp":
                assert (ROOT / command[1]).exists(), line
            elif command[:2] == ["pip", "install"]:
                installs = {word for word in command[2:] if word != "-q"}
                assert installs <= INSTALLED or all("lmdeploy==" in word for word in installs), line


def run(command: list[str], line: str) -> None:
    """Run one command; what needs a GPU in dry run."""
    if command[0] in NEEDS_MACHINE and "--list" not in command:
        parse(command)
        return
    if command[:2] == ["knowledge", "new"]:
        command = [word for word in command if word != "--write"]
    if command[0] == "smoke" and "--dry-run" not in command:
        command = [*command, "--dry-run"]
    done = CliRunner().invoke(root, command)
    known = {1} if command[0] == "review" else set()
    exit_code = 1 if isinstance(done.exception, NothingFits) and line == REFUSED else done.exit_code
    failed = done.exception is not None and not isinstance(done.exception, SystemExit) and line != REFUSED
    assert not failed, f"{line}: {done.exception!r}"
    assert exit_code in known | {int(line == REFUSED)}, f"{line}: {done.output}"[-600:]
    if "--save-evidence" in command:
        path = Path(command[command.index("--save-evidence") + 1])
        path.write_text(RUN.read_text().replace(f"id: {RUN.stem}\n", f"id: {path.stem}\n"))


def test_blocks_are_shell(tmp_path: Path) -> None:
    """Each block is bash that parses."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text("utf-8")):
            subprocess.run(["bash", "-n"], input=block, text=True, check=True, timeout=30)


def test_commands_in_text_have_the_options_they_name() -> None:
    """`recommend NAME --option` within a sentence: the command and its options exist."""
    for page in PAGES:
        for found in re.findall(r"`recommend ([a-z][a-z-]*(?: [a-z]+)?[^`]*)`", page.read_text("utf-8")):
            name, *rest = found.split()
            context = click.Context(root, info_name="recommend")
            command = root.get_command(context, name)
            assert command is not None, f"{page.name}: {found}"
            if isinstance(command, click.Group) and rest:
                command = command.get_command(context, rest[0])
                assert command is not None, f"{page.name}: {found}"
            known = {option for each in command.params for option in each.opts} | {"--help"}
            assert {word for word in rest if word.startswith("--") and word != "--"} <= known, f"{page.name}: {found}"


@pytest.mark.parametrize("page", TWINS, ids=lambda page: page.name)
def test_the_twin_has_the_same_commands(page: Path) -> None:
    """A Vietnamese page differs in comments only."""
    english = page.with_name(page.name.replace(".vi.md", ".md"))
    assert [words(line) for line in lines(page)] == [words(line) for line in lines(english)]


def test_the_page_of_exit_codes_has_those_of_smoke() -> None:
    """The range ends with the last code of a failure, in each language."""
    last = max(kind.code for kind in KINDS.values())
    pages = [page for page in PAGES if page.name.startswith("exit-codes")]
    assert pages
    for page in pages:
        assert re.search(rf"^\| 10 \w+ {last} \|", page.read_text("utf-8"), re.MULTILINE), page.name


def test_readme_is_short() -> None:
    """It is read in five minutes."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1200
