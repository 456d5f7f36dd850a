"""The question and the schema of a request: whose they are, and what is wrong with a file."""

import json
from pathlib import Path

import pytest
from artefacts import recommend_here
from click.testing import CliRunner

from recommender.choose.recommend import recommend
from recommender.cli import root
from recommender.common.errors import RequestError
from recommender.knowledge.load import load
from recommender.request.request import Request
from recommender.smoke.client import checks

SCHEMA = {"type": "object", "properties": {"colour": {"type": ["string", "null"]}}, "required": ["colour"]}
TEXT = ("--gpu", "H100-80G", "--model", "qwen2.5-7b-instruct")


def client(*words: str) -> str:
    done = CliRunner().invoke(root, [*words, "--format", "client", "-q"])
    assert done.exit_code == 0, done.exception
    return done.stdout


@pytest.mark.parametrize("workload", sorted(load().workloads))
def test_the_accident_is_of_one_workload(workload: str) -> None:
    """Only vision-json asks for it, and only it has its schema."""
    vision = load().workloads[workload].images
    words = ("--gpu", "H100-80G", "--workload", workload, *(() if vision else ("--model", "qwen2.5-7b-instruct")))
    assert ("accident" in client(*words)) == (workload == "vision-json")
    assert "accident" not in client("--gpu", "H100-80G", "--workload", "vision-json", "--text-only")


def test_a_question_of_ones_own(tmp_path: Path) -> None:
    """It replaces the workload's, with its schema; a schema of one's own comes with either."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA, indent=2))
    asked = client(*TEXT, "--prompt", "What colour 'is' it?", "--schema", str(path))
    values: dict[str, object] = {}
    lines = [line for line in asked.splitlines() if line.startswith(("PROMPT", "SCHEMA"))]
    exec("\n".join(["import os, json", *lines]), values)  # noqa: S102
    assert (values["PROMPT"], values["SCHEMA"]) == ("What colour 'is' it?", SCHEMA)
    without = client("--gpu", "H100-80G", "--prompt", "Is it red?")
    assert "Is it red?" in without
    assert "SCHEMA" not in without


def test_check_reads_them_back(tmp_path: Path) -> None:
    """A script that was made with both is its request's; a smoke run of it would ask them."""
    schema, script = tmp_path / "schema.json", tmp_path / "serve.sh"
    schema.write_text(json.dumps(SCHEMA))
    words = [*TEXT, "--prompt", "Which?", "--schema", str(schema), "-q", "-o", str(script)]
    assert CliRunner().invoke(root, words).exit_code == 0
    assert CliRunner().invoke(root, ["check", str(script)]).exit_code == 0


def test_the_smoke_run_asks_them() -> None:
    """The bodies that its checks send have the question and the schema."""
    made = recommend(Request("h100-sxm-80g", prompt="Which?", response_schema=json.dumps(SCHEMA)))
    sent: list[dict] = []  # type: ignore[type-arg]

    class Front:
        def chat(self, body: dict, _what: str) -> tuple[str, str]:  # type: ignore[type-arg]
            sent.append(body)
            return '{"colour": null}', "stop"

    list(checks.check_server(Front(), [], "m", made.resolved, "aGk=", 0, True, False))  # type: ignore[arg-type]
    texts = [body["messages"][0]["content"] for body in sent]
    assert texts[0] == "Which?"
    assert all(part[0]["text"] == "Which?" for part in texts[1:])
    assert sent[-1]["response_format"]["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "invalid JSON"),
        ("[1]", "a JSON schema is an object"),
        ('{"type": "text"}', "type 'text'; use one of array, boolean"),
        ('{"properties": []}', "properties must be an object"),
        ('{"required": "x"}', "required must be a list"),
        (json.dumps({"title": "x" * 9000}), "use up to 8,000"),
        (None, "No such file"),
    ],
)
def test_a_wrong_schema_is_one_line(text: str | None, wrong: str, tmp_path: Path) -> None:
    """The option, the file and what is wrong; exit code 2."""
    path = tmp_path / "schema.json"
    if text is not None:
        path.write_text(text)
    done = recommend_here(*TEXT, "--schema", str(path))
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("recommend: --schema ")
    assert wrong in line


@pytest.mark.parametrize("prompt", [" ", "a\0b", "x" * 9000, "\ud800"])
def test_a_question_can_be_sent(prompt: str) -> None:
    """An empty one, or no text, is refused."""
    with pytest.raises(RequestError, match="--prompt"):
        Request("h100-sxm-80g", prompt=prompt)


def test_a_release_without_schemas_says_so() -> None:
    """A schema that was asked for is not left out without a word."""
    with pytest.raises(Exception, match="rejects a JSON schema"):
        recommend(Request("h100-sxm-80g", lmdeploy="0.7.0", response_schema=json.dumps(SCHEMA)))
