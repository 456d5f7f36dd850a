"""What cannot be meant is refused: one line, status 2, nothing on stdout."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from artefacts import command
from hypothesis import given
from hypothesis import strategies as st
from test_checkpoint import hub_config

from recommender.common.errors import RequestError
from recommender.knowledge.load import load
from recommender.request.command_line import (
    parse_gpu,
    parse_image,
    parse_images,
    parse_rate,
    positive_float,
    positive_int,
)
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request

GPU = ["--gpu", "A100-80G"]
INTERNVL, QWEN2 = (hub_config(load().models[name]) for name in ("internvl3-8b", "qwen2.5-7b-instruct"))


NO_VALUES = {
    "--load": ("0", "-1", "1.5", "1" + "0" * 30, "1e3", ""),
    "--rps": ("0", "-3", "inf", "1e30", "many", "/min", "3/day", "0/h", "1/60", "2/s/s"),
    "--image": ("0x0", "10x", "x10", "448", "-1x5", "448x448x0", "448x448x1000", "999999999x1",
                "\uff14\uff14\uff18x448", ""),
    "--p99": ("-1", "0", "nan", "NaN", ""),
    "--ttft": ("-inf", "1e999"),
    "--vram": ("0", "1e30", "81", "24 boxes"),
    "--cpus": ("0", "\u0661"),
    "--prompt-tokens": ("0", "9" * 40),
    "--output-tokens": ("-5", "16.0"),
    "--goal": ("",), "--lmdeploy": ("",), "--model": ("",),
}  # fmt: skip
NO_GPUS = ("A100-80G:0", "A100-80G:-1", "A100-80G:", ":2", "A100-80G:" + "9" * 30, "A100-80G:\uff12", "", "   ")
NAMED = {
    "--load \uff11": "load", "--load nan": "load", "--load hihg": "high", "--goal fast": "latency", "--kv int5": "int4",
    "--lmdeploy 0.18": "0.18.0", "--lmdeploy 1.0.0": "0.1", "--model internvl3-8b-awk": "internvl3-8b-awq",
    "--model OpenGVLab/InternVL3-8B-AWG": "InternVL3-8B-AWQ", "--model /no/such/folder": "config.json",
    "--follow gemni": "gemini", "--format yaml": "bash", "--formt json": "--format", "extra": "extra", "--gpu": "--gpu",
    "--image 448x448 --text-only": "--text-only", "--model qwen2.5-7b-instruct --image 448x448": "--image",
}  # fmt: skip
"""What the line names, where that is not the option."""
BAD: list[tuple[list[str], str]] = [
    *(([*GPU, option, value], option) for option, values in NO_VALUES.items() for value in values),
    *(([*GPU, *words.split()], named) for words, named in NAMED.items()),
    *((["--gpu", gpu], "--gpu") for gpu in NO_GPUS),
    ([*GPU, "--follow", ""], "adviser"),
    (["--gpu", "A100-81G"], "A100-80G"),
    (["--gpu", "x$(touch p)'\"; rm"], "GPU"),
    (["--gpu", "two\nlines\x1b[31m"], "GPU"),
    (["--load", "single"], "--gpu"),
    ([], "--gpu"),
]


@pytest.mark.parametrize(
    ("words", "named"), BAD, ids=[" ".join(words)[-50:].encode("unicode_escape").decode() for words, _ in BAD]
)
def test_bad_input_is_one_line(words: list[str], named: str) -> None:
    """Status 2, one printable line on stderr that names the option or the near match, nothing on stdout."""
    code, out, err = command(*words)
    assert (code, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.isprintable()
    assert line.startswith("recommend: ")
    assert named.lower() in line.lower()
    assert "Traceback" not in err
    assert len(line) < 400


def test_a_model_folder_with_a_broken_config_is_one_line(tmp_path: Path) -> None:
    """A config.json that is no JSON, no object, of an unknown architecture or with nonsense in it: status 2."""
    for content in (
        "",
        "[1]",
        "{",
        "[" * 100_000,
        "{}",
        json.dumps({"architectures": ["Strange"]}),
        json.dumps(INTERNVL | {"llm_config": INTERNVL["llm_config"] | {"hidden_size": "many"}}),
        json.dumps(INTERNVL | {"llm_config": INTERNVL["llm_config"] | {"hidden_size": -1}}),
        json.dumps(INTERNVL | {"llm_config": INTERNVL["llm_config"] | {"num_attention_heads": 0}}),
        json.dumps(INTERNVL | {"llm_config": [1]}),
        json.dumps({"architectures": {"a": 1}}),
        json.dumps(INTERNVL | {"quantization_config": "awq"}),
    ):
        (tmp_path / "config.json").write_text(content)
        code, out, err = command(*GPU, "--model", str(tmp_path))
        assert (code, out) == (2, ""), (content[:80], err)
        assert len(err.splitlines()) == 1
        assert "config.json" in err


def test_a_model_folder_with_broken_weights_is_one_line(tmp_path: Path) -> None:
    """A safetensors file that was cut short is named."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN2))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    code, out, err = command(*GPU, "--model", str(tmp_path))
    assert (code, out) == (2, "")
    assert "model.safetensors" in err


def test_the_weights_of_a_folder_are_read_from_its_headers(tmp_path: Path) -> None:
    """The bytes that the safetensors headers name are the weights of the prediction."""
    size = 5_000_000_000
    header = json.dumps({"w": {"dtype": "F16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (tmp_path / "config.json").write_text(json.dumps(QWEN2))
    code, out, err = command(*GPU, "--model", str(tmp_path), "--format", "json", "-q")
    assert (code, err) == (0, "")
    items = {each["name"]: each["bytes"] for each in json.loads(out)["memory"]["items"]}
    assert items["weights"] == size


@pytest.mark.parametrize(
    ("text", "expected"),
    [("448x448", (448, 448, 1)), ("1280X720", (1280, 720, 1)), ("10x20x3", (10, 20, 3)), (" 7x8 ", (7, 8, 1))],
)
def test_an_image_is_width_height_count(text: str, expected: tuple[int, int, int]) -> None:
    """WxH is one image, WxHxN are N of them."""
    assert parse_image(text) == expected


def test_a_mix_plans_for_its_largest_image() -> None:
    """The one with the most pixels, wherever it stands: 448 x 448 are 704 more than 2000 x 100."""
    for mix in ("2000x100:0.5,448x448:0.5", "448x448:50%,2000x100:50%"):
        asked = parse_images(mix)
        assert (asked["image_width"], asked["image_height"], asked["images"]) == (448, 448, 1)


@pytest.mark.parametrize(
    ("text", "expected"), [("A100-80G", ("A100-80G", 1)), ("H100:2", ("H100", 2)), ("L4:64", ("L4", 64))]
)
def test_a_gpu_is_name_and_count(text: str, expected: tuple[str, int]) -> None:
    """NAME is one card, NAME:COUNT so many."""
    assert parse_gpu(text) == expected


@given(text=st.text(max_size=30))
def test_a_number_is_read_or_refused(text: str) -> None:
    """Any text is a number within the bounds, or a RequestError of one line; nothing else is ever raised."""
    said = []
    for read in (
        lambda: positive_int("--x", text, 4096),
        lambda: positive_float("--x", text, 1e6),
        lambda: parse_image(text)[0],
        lambda: parse_gpu(text)[1],
    ):
        try:
            number = read()
        except RequestError as error:
            said.append(str(error))
        else:
            assert 0 < number <= 1e6
    assert all(each.isprintable() for each in said)


@pytest.mark.parametrize(
    "asked",
    [
        {"gpu_count": 0}, {"cpus": 0}, {"concurrency": -1}, {"concurrency": 10**30}, {"rps": math.nan},
        {"p99_ms": -1.0}, {"ttft_ms": math.inf}, {"vram_gib": 1e30},
        {"images": 1, "image_width": 0, "image_height": 5}, {"images": 65, "image_width": 5, "image_height": 5},
        {"goal": "fast"}, {"kv": "fp8"}, {"gpu": " "}, {"lmdeploy": ""},
    ],
    ids=str,
)  # fmt: skip
def test_a_request_checks_itself(asked: dict[str, Any]) -> None:
    """A request made in Python refuses the same nonsense as the command line."""
    with pytest.raises(RequestError):
        Request(**{"gpu": "l4"} | asked)


@pytest.mark.parametrize(
    ("text", "hourly"),
    [("2", 7200), ("2/s", 7200), ("30/min", 1800), (" 30 / MIN ", 1800), ("0.5/m", 30), ("90/h", 90), ("1e2/h", 100)],
)
def test_a_rate_is_written_by_the_second_the_minute_or_the_hour(text: str, hourly: float) -> None:
    """What arrives in an hour does not depend on how it is written."""
    assert parse_rate("--rps", text) * 3600 == pytest.approx(hourly, rel=1e-12)


@pytest.mark.parametrize("load", [16, 0, 2.5])
def test_a_number_as_load_names_the_field_for_it(load: Any) -> None:
    """Programs make this mistake; the command line takes both."""
    with pytest.raises(RequestError, match=f"^load {load}: expected a name; .* use concurrency$"):
        Request(gpu="l4", load=load)


@pytest.mark.parametrize("count", [8, 9, 16])
def test_more_gpus_than_a_usual_host_has_are_taken_to_be_in_one(count: int) -> None:
    """Two hosts of 8 need options that no output sets, so a note says what is assumed."""
    notes = resolve_request(Request(gpu="h100-sxm-80g", gpu_count=count), load()).notes
    assert any("to be in one host" in note and str(count) in note for note in notes) is (count > 8)
