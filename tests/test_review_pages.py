"""What a review reads of pages, of programs for several engines, and of lists of commands."""

import pytest
from scripts import given_options, only_launch, rules_found

from recommender.knowledge.load import load
from recommender.review.context import first_release
from recommender.review.engine import review
from recommender.review.readers.detect_kind import read

SERVE = "lmdeploy serve api_server Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("block", "rules"),
    [
        (f"```\nFROM openmmlab/lmdeploy:v0.10.1\nCMD {SERVE} --async 0\n```", ["LMD102"]),
        (f"```\nservices:\n  llm:\n    command: {SERVE} --tpp 2\n```", ["LMD101"]),
        (f"Serve it:\n\n    {SERVE} --tpp 2\n", ["LMD101"]),
        (f"- Serve it:\n\n   ```bash\n   {SERVE} --tpp 2\n```", ["LMD101"]),
        (f"```bash\n{SERVE} <--other-options> --tpp 2\n```", ["LMD101"]),
        (f"```bash\ngdb --args python3 -m {SERVE}\n(gdb) run\n```", []),
        (f"```bash\n{SERVE}\n```\n```bash\norigin\tgit@github.com:{{me}}/lmdeploy.git (fetch)\n```", []),
        (f'```bash\n{SERVE} --model-name "qwen\n```', ["LMD103", "LMD002"]),
    ],
)
def test_blocks_of_a_page_are_read_by_their_content(block: str, rules: list[str]) -> None:
    """What no command is has no wrong syntax; a command has."""
    assert rules_found("README.md", f"# Demo\n\n{block}\n") == rules


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (f"Serve it:\n\n- {SERVE} --tpp 2\n", ["LMD101"]),
        (f"1. {SERVE} \\\n     --tpp 2\n2. Ask it.\n", ["LMD101"]),
        (f"{SERVE} --tpp 2\n", ["LMD101"]),
        (f"Run\n`{SERVE} --tpp 2` and wait.\n", ["LMD101"]),
        ("The server:\nlmdeploy serve api_server takes `--tpp 2` no more.\n", []),
        (f"Not `{SERVE} --tpp 2`.\n", []),
    ],
)
def test_a_line_of_prose_that_is_a_command_is_read(text: str, rules: list[str]) -> None:
    """A sentence about one is none; nor is one within a sentence."""
    assert rules_found("README.md", text) == rules


def test_what_no_rule_judges_of_answers_may_be_unknown() -> None:
    """Not so the number of tokens."""
    text = "from lmdeploy import GenerationConfig, pipeline\nfrom tn import EOS\npipe = pipeline('Qwen/Qwen3-8B')\n"
    assert rules_found("x.py", f"{text}pipe('a', gen_config=GenerationConfig(stop_token_ids=[EOS]))\n") == []
    assert rules_found("x.py", f"{text}pipe('a', gen_config=GenerationConfig(max_new_tokens=EOS))\n") == ["LMD002"]


def test_all_commands_of_a_long_page_are_read() -> None:
    """Blocks without LMDeploy do not count."""
    text = "```bash\nls\n```\n" * 60 + f"```bash\n{SERVE} --tpp 2\n```\n"
    assert rules_found("README.md", text) == ["LMD101"]


ENGINES = """
import subprocess
def launch(engine, model):
    if engine == "vllm":
        cmd = ["vllm", "serve", model]
        cmd += ["--gpu-memory-utilization", "0.9"]
    else:
        cmd = ["lmdeploy", "serve", "api_server", model]
        cmd += ["--cache-max-entry-count", "0.5"]
    cmd += ["--log-level", "ERROR"]
    return subprocess.Popen(cmd)
launch("lmdeploy", "Qwen/Qwen3-8B")
"""


def test_the_command_of_the_branch_is_the_servers() -> None:
    """Words of another engine's branch are not; those behind both are."""
    launch = only_launch(ENGINES, "python", "x.py")
    assert launch.model.value == "Qwen/Qwen3-8B"
    assert given_options(launch) == {"--cache-max-entry-count": ["0.5"], "--log-level": ["ERROR"]}
    assert not launch.unsure


@pytest.mark.parametrize(
    ("line", "launches"),
    [
        ('pid=$(pgrep -f "lmdeploy serve api_server")', 0),
        ('f() {\n  _pid=$(pgrep -f "lmdeploy serve api_server")\n}', 0),
        (f'bash -c "$(echo "{SERVE}")"', 1),
    ],
)
def test_what_is_looked_for_is_not_started(line: str, launches: int) -> None:
    """What echo prints may be."""
    assert len(read("x.sh", f"#!/bin/bash\n{line}\n").launches) == launches


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("EXTRA=${EXTRA:-}", False),
        ('EXTRA="${EXTRA:-}"', False),
        ("EXTRA=$2", True),
    ],
)
def test_further_options_may_be_empty(line: str, said: bool) -> None:
    """A script that says so needs no caller."""
    assert rules_found("x.sh", f"#!/bin/bash\n{line}\n{SERVE} --tp 1 $EXTRA\n") == ["LMD002"] * said


def test_a_value_that_may_be_empty_is_unknown() -> None:
    """Without a value, the option takes the next word."""
    assert rules_found("x.sh", f"#!/bin/bash\nTP=${{TP:-}}\n{SERVE} --tp $TP\n") == ["LMD002"]


JOB = "smoke:\n  image: openmmlab/lmdeploy:v0.12.0\n  script:\n    - {} &\n    - {}curl -sf localhost:23333/v1/models\n"


@pytest.mark.parametrize(
    ("before", "rules"), [("", ["LMD604"]), ("until nc -z localhost 23333; do sleep 1; done; ", [])]
)
def test_a_jobs_commands_are_one_script(before: str, rules: list[str]) -> None:
    """The container of a job holds its request too."""
    assert rules_found(".gitlab-ci.yml", JOB.format(SERVE, before)) == rules


def test_a_docker_command_is_not_asked_within() -> None:
    """The port of a container that a command starts is mapped."""
    start = f"docker run -d -p 80:23333 openmmlab/lmdeploy:v0.12.0 {SERVE}"
    assert "LMD604" not in rules_found(".gitlab-ci.yml", JOB.format(start, ""))


def test_an_entry_of_a_table_is_known() -> None:
    """By a key that has a default."""
    text = """
import click
from lmdeploy import pipeline
MODELS = {"small": "Qwen/Qwen3-8B", "large": "Qwen/Qwen3-32B"}
@click.command()
@click.option("--name", default="large")
def main(name):
    pipeline(MODELS[name])
"""
    assert only_launch(text, "python", "x.py").model.value == "Qwen/Qwen3-32B"


@pytest.mark.parametrize(("names", "rules"), [("ServerContext, handle_torchrun", []), ("serve", ["LMD002"])])
def test_an_import_starts_nothing(names: str, rules: list[str]) -> None:
    """Unless it is of what serves."""
    pipe = "from lmdeploy import pipeline\npipeline('Qwen/Qwen3-8B')\n"
    assert rules_found("x.py", f"from lmdeploy.serve.openai.api_server import {names}\n{pipe}") == rules


def test_lists_of_inputs_are_no_values() -> None:
    """They are texts for fromJSON."""
    text = (
        "on:\n  workflow_dispatch:\n    inputs:\n      backend: {default: \"['turbomind', 'pytorch']\"}\n"
        f"jobs:\n  a:\n    steps:\n      - run: {SERVE} --backend ${{{{matrix.backend}}}}\n"
    )
    assert rules_found(".github/workflows/x.yml", text) == ["LMD002"]


def test_an_old_release_is_reviewed_as_the_oldest() -> None:
    """Versions are compared as versions: 0.7.0 comes before 0.10.0."""
    assert first_release(load()) == "0.7.0"
    text = "pip install lmdeploy==0.5.3\nlmdeploy serve api_server Qwen/Qwen2-7B-Instruct --chat-template qwen\n"
    messages = [each.message for each in review("x.sh", text, {}).findings if each.severity != "info"]
    assert messages == ["LMDeploy 0.5.3 is not among the covered releases, 0.7.0 and newer."]


@pytest.mark.parametrize(
    "command",
    [
        '"lmdeploy serve api_server {} --tp {}".format(model, 2)',
        '"lmdeploy serve api_server {model} --tp {tp}".format(model=model, tp=2)',
        '"lmdeploy serve api_server %s --tp %d" % (model, 2)',
        '"lmdeploy serve api_server %(model)s --tp 2" % {"model": model}',
    ],
)
def test_a_formatted_text_is_what_it_becomes(command: str) -> None:
    """By position and by name."""
    launch = only_launch(f'import os\nmodel = "Qwen/Qwen3-8B"\nos.system({command})\n', "python", "x.py")
    assert launch.model.value == "Qwen/Qwen3-8B"
    assert given_options(launch) == {"--tp": ["2"]}


def test_what_a_format_pads_or_spreads_is_unknown() -> None:
    """The place of the field says so."""
    text = 'import os\nos.system("lmdeploy serve api_server x --tp {:02d}".format(2))\n'
    assert given_options(only_launch(text, "python", "x.py")) == {"--tp": [None]}
    text = 'import os\nos.system("lmdeploy serve api_server x --tp {tp}".format(**given))\n'
    assert given_options(only_launch(text, "python", "x.py")) == {"--tp": [None]}


@pytest.mark.parametrize("table", ['{"--tp": 2, "--session-len": 4096}', '{"--tp": 2} | {"--session-len": 4096}'])
def test_each_turn_of_a_loop_adds_its_words_in_order(table: str) -> None:
    """An option and its value; of a table that is not known, nothing is."""
    text = f"""
import subprocess
cmd = ["lmdeploy", "serve", "api_server", "Qwen/Qwen3-8B"]
for name, value in ({table}).items():
    cmd.append(name)
    cmd.append(str(value))
subprocess.run(cmd)
"""
    launch = only_launch(text, "python", "x.py")
    known = {} if "|" in table else {"--tp": ["2"], "--session-len": ["4096"]}
    assert given_options(launch) == known
    assert launch.unsure == ("|" in table)
