"""Tab completion of values, and options named as they were typed."""

import os
import subprocess
import sys
from typing import Any

import click
import pytest
from artefacts import recommend_here, run_program
from click.shell_completion import ShellComplete

from recommender.cli import root
from recommender.common.text import as_typed
from recommender.knowledge.load import load


def completed(line: str) -> list[str]:
    """What bash would be offered for the last word of a line."""
    words = line.split(" ")
    environment = os.environ | {
        "_RECOMMEND_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = run_program(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'recommend'; from recommender.cli import main; main()"],
        env=environment,
        timeout=30,
    )
    return [each.partition(",")[2] for each in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("recommend --gpu A100-8", "A100-80G"), ("recommend --gpu au", "auto"),
        ("recommend --gpu H100 --model qwen2.5-7b-instruct-a", "qwen2.5-7b-instruct-awq"),
        ("recommend --gpu H100 --model OpenGVLab/InternVL3-8B-A", "OpenGVLab/InternVL3-8B-AWQ"),
        ("recommend --workload ch", "chat"), ("recommend --load hi", "high"), ("recommend --concurrency hi", "high"),
        ("recommend --lmdeploy 0.18", "0.18.0"), ("recommend --follow gem", "gemini"),
        ("recommend --follow def", "defaults"), ("recommend --kv in", "int8"), ("recommend --goal th", "throughput"),
        ("recommend --format comm", "command"), ("recommend estimate --gpu A100-8", "A100-80G"),
        ("recommend explain session", "session-len"), ("recommend sm", "smoke"),
    ],
)  # fmt: skip
def test_values_are_completed(line: str, offered: str) -> None:
    """Each begins as typed, and none holds a blank."""
    found = completed(line)
    assert offered in found
    begun = line.rpartition(" ")[2].casefold()
    assert all(each.casefold().startswith(begun) and " " not in each for each in found), found


OFFERED = {
    "--gpu": "A100-80G", "--model": "qwen2.5-7b-instruct", "--workload": "chat", "--concurrency": "high",
    "--lmdeploy": "0.9.2", "--follow": "gemini", "--kv": "int8", "--goal": "throughput", "--backend": "turbomind",
    "--with": "session-len", "--without": "session-len",
}  # fmt: skip
"""One of the values of every option that takes a name."""


def commands(group: click.Group = root, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:  # type: ignore[assignment]
    context: Any = click.Context(group)
    found: list[tuple[tuple[str, ...], click.Command]] = [(path, group)]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += commands(command, (*path, name)) if isinstance(command, click.Group) else [((*path, name), command)]
    return found


def offered(words: tuple[str, ...], begun: str = "") -> list[tuple[str, str]]:
    """Kind and value of what is offered after these words of a command line."""
    found = ShellComplete(root, {}, "recommend", "_RECOMMEND_COMPLETE").get_completions(list(words), begun)
    return [(each.type, each.value) for each in found]


NAMED = [
    (path, option)
    for path, command in commands()
    for each in command.params
    for option in each.opts
    if option in OFFERED
]


@pytest.mark.parametrize(("path", "option"), NAMED, ids=lambda each: each if isinstance(each, str) else " ".join(each))
def test_every_command_completes_the_names_that_it_takes(path: tuple[str, ...], option: str) -> None:
    """Wherever the option is taken, its values are offered, in full and from a beginning."""
    value = OFFERED[option]
    assert ("plain", value) in offered((*path, option))
    assert ("plain", value) in offered((*path, option), value[:2])


def test_all_such_commands_are_tried() -> None:
    """Of each of these options at least the commands that the reference lists."""
    having = {option: {path[0] if path else "" for path, each in NAMED if each == option} for option in OFFERED}
    asking = {"", "estimate", "compare", "review", "smoke"}
    assert having["--gpu"] == having["--lmdeploy"] - {"explain"} == having["--model"] | {"bench-prompt"}
    assert having["--gpu"] == asking | {"plan", "bench-prompt"}
    assert having["--workload"] == having["--kv"] | {"estimate"} == having["--gpu"] - {"bench-prompt"}
    assert having["--concurrency"] == having["--goal"] | {"estimate"} == asking
    assert having["--backend"] == asking - {"review"} | {"plan"}


@pytest.mark.parametrize(
    "words",
    [
        ("review",), ("check",), ("smoke",), ("bench-prompt",), ("--schema",), ("--trace",), ("-o",), ("--calibrate",),
        ("plan", "-o"), ("smoke", "--save-evidence"), ("bench-prompt", "--labels"), ("campaign",),
    ],
)  # fmt: skip
def test_files_are_completed(words: tuple[str, ...]) -> None:
    """The shell is told to offer files."""
    assert "file" in {kind for kind, _ in offered(words)}


def test_an_option_of_lmdeploy_is_completed_with_its_dashes() -> None:
    """As people paste it: beside the command's own options."""
    found = {value for _, value in offered(("explain",), "--cache")}
    assert found == {"--cache-max-entry-count", "--cache-block-seq-len"}
    assert {"--session-len", "--short"} <= {value for _, value in offered(("explain",), "--s")}


def test_all_names_are_offered() -> None:
    """Every id of a record."""
    store = load()
    for option, kind in (("--gpu", store.gpus), ("--model", store.models), ("--follow", store.advisers)):
        assert set(kind) <= set(completed(f"recommend {option} "))


def test_it_is_fast() -> None:
    """It reads the compiled index, and loads neither templates nor record types."""
    load()
    program = (
        "import atexit, sys; sys.argv[0] = 'recommend'; heavy = {'jinja2', 'pydantic', 'yaml'}\n"
        "atexit.register(lambda: print(sorted(heavy & sys.modules.keys()), file=sys.stderr))\n"
        "from recommender.cli import main; main()"
    )
    line = {"_RECOMMEND_COMPLETE": "bash_complete", "COMP_WORDS": "recommend --model qwen", "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | line, capture_output=True, text=True)
    assert "qwen" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--concurrency", "0"), "--concurrency '0'"),
        (("--load", "0"), "--load '0'"),
        (("--prompt-tokens", "x"), "--prompt-tokens 'x'"),
        (("--isl=x",), "--isl 'x'"),
        (("--osl", "x"), "--osl 'x'"),
        (("--images", "x"), "--images 'x'"),
        (("--input-tokens", "10", "--prefix-tokens", "10"), "use fewer, or raise --input-tokens"),
    ],
)
def test_errors_name_the_option_as_typed(words: tuple[str, ...], said: str) -> None:
    """One line, with no other name of it."""
    done = recommend_here("--gpu", "A100-80G", *words)
    assert done.returncode == 2
    assert said in done.stderr.decode()


def test_only_other_names_of_one_option_change() -> None:
    """Where both names were typed, or none, the message stays; parts of longer names do too."""
    options = [["--concurrency", "--load"], ["-o", "--output"]]
    assert as_typed("--load 8, --load-x", options, ["--concurrency", "9"]) == "--concurrency 8, --load-x"
    assert as_typed("--load 8", options, ["--concurrency=9"]) == "--concurrency 8"
    for words in ([], ["--load", "8"], ["--load", "8", "--concurrency", "9"]):
        assert as_typed("--load 8", options, words) == "--load 8"
