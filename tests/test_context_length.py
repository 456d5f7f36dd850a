"""Requests longer than the model's context: every command says so in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from recommender.cli import root
from recommender.common.errors import UserError

LLAMA = ("--gpu", "h100-sxm-80g", "--model", "llama-3-8b-instruct", "--output-tokens", "100")
SAID = (
    "prompt and answer take up to 20,100 tokens, but llama-3-8b-instruct has a context of 8,181 without its "
    "chat template; ask for less, or cut prompts with --max-context 8181"
)
SCRIPT = "lmdeploy serve api_server meta-llama/Meta-Llama-3-8B-Instruct --session-len 8192\n"


def run(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout, and the error or stderr of a command line."""
    done = CliRunner().invoke(root, [*words])
    if isinstance(done.exception, UserError):
        return done.exception.exit_code, done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("length", ["20000", "2000:20000"])
@pytest.mark.parametrize(
    "command", [(), ("--follow", "gemini"), ("estimate",), ("compare",), ("plan", "--rps", "3")], ids=" ".join
)
def test_a_prompt_beyond_the_context_is_refused(command: tuple[str, ...], length: str) -> None:
    """One line, whether all prompts or only the longest exceed it."""
    code, out, error = run(*command, *LLAMA, "--input-tokens", length)
    assert (code, out) == (2, "")
    assert error == SAID


def test_text_beyond_the_context_is_refused_beside_images() -> None:
    """Images come on top; they may be cut into fewer tiles, a text may not."""
    asked = ("--gpu", "h100-sxm-80g", "--model", "internvl3-8b", "--image", "1280x720", "--output-tokens", "100")
    code, _, error = run("estimate", *asked, "--input-tokens", "40000")
    assert code == 2
    assert "take up to 40,100 tokens, but internvl3-8b has a context of" in error
    assert run("estimate", *asked, "--input-tokens", "20000")[0] != 2


@pytest.mark.parametrize(
    "command", [(), ("--follow", "gemini"), ("estimate",), ("compare",), ("plan", "--rps", "3")], ids=" ".join
)
@pytest.mark.parametrize(
    ("model", "size", "images", "fewer", "context"),
    [
        ("internvl3-8b", "1280x720", 50, 14, 32768),  # 9 tiles of 256 tokens and 2 markers: 2306 an image
        ("internvl3-8b", "4032x3024", 30, 9, 32768),  # 13 tiles: 3330
        ("llava-1.5-7b-hf", "336x336", 50, 6, 4096),
    ],
)
def test_images_beyond_the_context_are_refused(
    command: tuple[str, ...], model: str, size: str, images: int, fewer: int, context: int
) -> None:
    """As a text beyond it is; what is proposed is the most images, or the largest, that fit, and is accepted."""
    asked = (*command, "--gpu", "h200-sxm", "--model", model, "--image")
    code, _, error = run(*asked, f"{size}x{images}")
    assert code == 2
    assert f"tokens, but {model} has a context of {context:,}; nearest that fit" in error
    offers = error.partition("nearest that fit: ")[2].split(", ")
    assert offers[0] == f"--image {size}x{fewer}"
    assert len(offers) == (1 if model == "llava-1.5-7b-hf" else 2)  # each of its images has as many tokens
    for offer in offers:
        assert "has a context" not in run(*asked, offer.removeprefix("--image "))[2]
    assert "has a context" in run(*asked, f"{size}x{fewer + 1}")[2]


def test_an_image_that_no_context_holds_beside_its_text_asks_for_less_text() -> None:
    """One image of 576 tokens beside a text of 4,000 of 4,096."""
    asked = ("--gpu", "h200-sxm", "--model", "llava-1.5-7b-hf", "--image", "336x336", "--input-tokens", "4000")
    code, out, error = run(*asked)
    assert (code, out) == (2, "")
    assert error.endswith("has a context of 4,096; ask for less text")


def test_a_session_beyond_the_context_is_estimated() -> None:
    """Whoever asks for it may scale the positions; a warning says what else happens."""
    words = ("estimate", *LLAMA, "--input-tokens", "20000", "--", "--session-len")
    code, out, _ = run(*words, "32768")
    assert code == 0
    assert "20,011 input and 100 output tokens" in out
    assert "session_len 32,768 exceeds the model's 8192 positions" in out
    assert run(*words, "8192")[0] == 2


@pytest.mark.parametrize("length", ["20000", "2000:20000"])
def test_a_review_warns_of_prompts_beyond_the_context(tmp_path: Path, length: str) -> None:
    """A file is judged all the same; only its values are not chosen."""
    script = tmp_path / "serve.sh"
    script.write_text(SCRIPT)
    asked = ("--gpu", "h100-sxm-80g", "--load", "8", "--output-tokens", "100", "--input-tokens", length, str(script))
    code, out, _ = run("review", *asked)
    assert code == 1
    assert "but session_len is 8192" in out
    _, _, error = run("review", "--optimize", *asked)
    assert f"not optimized: {SAID}" in error
    assert script.read_text() == SCRIPT


@pytest.mark.parametrize("command", [(), ("estimate",), ("compare",), ("plan", "--rps", "3")], ids=" ".join)
def test_a_workload_whose_prefix_fills_the_context_is_refused(command: tuple[str, ...]) -> None:
    """Agents begin with 10,279 tokens: cut to 8,181 they were planned as if all of those came again."""
    code, out, error = run(*command, *LLAMA[:4], "--workload", "agent")
    assert (code, out) == (2, "")
    assert error == (
        "--workload agent: its prompts begin with 10,279 tokens, but llama-3-8b-instruct has a context of 8,181 "
        "without its chat template; name another workload or model"
    )
