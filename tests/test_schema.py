"""``recommend schema``, and outputs against the schemas that it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from recommender.cli import root

SCRIPT = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ --session-len 100\n"


def output(*words: str, text: str | None = None) -> str:
    """What a command prints on stdout."""
    done = CliRunner().invoke(root, list(words), input=text)
    assert done.exit_code in (0, 1), done.output
    return done.stdout


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("recommendation", ("--gpu", "A100-80G", "--json", "-q"), None),
        ("recommendation", ("--gpu", "H100:2", "--load", "high", "--format", "json", "-q"), None),
        (
            "recommendation",
            ("--gpu", "L4", "--model", "qwen2.5-3b-instruct", "--workload", "chat", "--json", "-q"),
            None,
        ),
        ("recommendation", ("--gpu", "A100-80G", "--load", "64", "--p99", "2000", "--json", "-q"), None),
        ("recommendation", ("--gpu", "A100-80G", "--follow", "gemini", "--json", "-q"), None),
        ("review", ("review", "--gpu", "A100-80G", "--format", "json", "-"), SCRIPT),
        ("plan", ("plan", "--rps", "20", "--gpu", "L40S:4", "--json"), None),
    ],
)
def test_outputs_follow_their_schema(name: str, words: tuple[str, ...], text: str | None) -> None:
    """The schema is valid, closed, and holds for the output."""
    schema = json.loads(output("schema", name))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(output(*words, text=text)))


def test_the_list_has_every_file() -> None:
    """Each schema by its name, with what it is of."""
    folder = Path(__file__).parents[1] / "knowledge" / "schema"
    names = [line.split()[0] for line in output("schema").splitlines()]
    assert names == sorted(path.stem for path in folder.glob("*.json"))
    assert "recommend review --format json" in output("schema")


def test_an_unknown_name_gets_the_nearest() -> None:
    """One line."""
    done = CliRunner().invoke(root, ["schema", "reviews"])
    assert "unknown schema 'reviews': did you mean review" in str(done.exception)
