"""Numbers with units and the options that take them, as people write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from variants import STORE

from recommender.common.errors import RequestError
from recommender.common.text import shorten
from recommender.common.units import IN_GIB, MS, TOKENS, read_quantity
from recommender.options import build_request, question_options
from recommender.request import command_line
from recommender.request.request import Request

UNITS = {"time": MS, "memory": IN_GIB, "tokens": TOKENS}


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("time", "500", 500), ("time", "500ms", 500), ("time", "2s", 2000), ("time", "2 s", 2000),
        ("time", " 2s ", 2000), ("time", "2S", 2000), ("time", "500MS", 500), ("time", ".5s", 500),
        ("time", "5.s", 5000), ("time", "+1.5s", 1500), ("time", "2m", 120_000), ("time", "2min", 120_000),
        ("time", "1e3", 1000), ("time", "1e-3s", 1), ("time", "0", 0), ("memory", "20", 20), ("memory", "24g", 24),
        ("memory", "24G", 24), ("memory", "20GiB", 20), ("memory", "20gib", 20), ("memory", "20GB", 20e9 / 1024**3),
        ("memory", "20 gb", 20e9 / 1024**3), ("memory", "20480MiB", 20), ("memory", "20000MB", 20e9 / 1024**3),
        ("memory", "1TiB", 1024), ("tokens", "16", 16), ("tokens", "8k", 8000), ("tokens", "8K", 8192),
        ("tokens", "1.5k", 1500), ("tokens", "2m", 2_000_000), ("tokens", "2M", 2 * 1024**2),
    ],
)  # fmt: skip
def test_what_people_write(kind: str, text: str, expected: float) -> None:
    """In ms, GiB and tokens; only for tokens does the case of a unit say something."""
    assert read_quantity(text, UNITS[kind]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "s", "-1", "--1", "1_000", "1,000", "1 000", "nan", "inf", "infinity", "١٢", "１２", "²", "½",
     "0x10", "1e", "e3", "1e1.5", "1e1000", "1..5", "1.2.3", "2s500ms", "2 s 3", "s2", "2\u017f", "2\u212a", "2%",
     "1\x00", "1\n2", "1" * 41],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["time", "memory", "tokens"])
def test_what_is_no_number_with_a_unit(kind: str, text: str) -> None:
    """Neither Python's other numbers, nor other scripts' digits, nor letters that fold to a unit's (Kelvin's sign)."""
    assert read_quantity(text, UNITS[kind]) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [("time", "2g"), ("time", "2h"), ("time", "2k"), ("memory", "2s"), ("memory", "2k"), ("tokens", "2s")],
)
def test_a_unit_of_something_else(kind: str, text: str) -> None:
    """A unit is read where it means something."""
    assert read_quantity(text, UNITS[kind]) is None


@given(st.integers(0, 10**9), st.sampled_from(sorted(MS)), st.sampled_from(["", " "]))
def test_a_number_times_its_unit(number: int, unit: str, blank: str) -> None:
    """Of every unit; the same number twice as large is twice as much."""
    once = read_quantity(f"{number}{blank}{unit}", MS)
    assert once is not None
    assert read_quantity(f"{2 * number}{blank}{unit}", MS) == pytest.approx(2 * once)
    assert once == pytest.approx(number * {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000}[unit])


@given(st.text(max_size=60))
def test_any_text_is_a_number_or_none(text: str) -> None:
    """Nothing is raised, and what is found is not negative."""
    for units in UNITS.values():
        found = read_quantity(text, units)
        assert found is None or found >= 0


# --- options -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"), [("500", 500), ("500ms", 500), ("2s", 2000), ("1m", 60_000), ("24m", 1_440_000)]
)
def test_times(text: str, expected: float) -> None:
    """A number alone is in ms."""
    assert command_line.parse_time("--p99", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2s", ("mean", 2000)),
        ("mean:2s", ("mean", 2000)),
        ("p50:500", ("p50", 500)),
        ("p90:500ms", ("p90", 500)),
        ("p99:2s", ("p99", 2000)),
        (" P99 : 2s ", ("p99", 2000)),
    ],
)
def test_goals(text: str, expected: tuple[str, float]) -> None:
    """A quantile before the colon; without one the mean is meant."""
    assert command_line.parse_goal("--ttft", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("1.2", 1.2), ("20%", 1.2), (" 20 % ", 1.2), ("900%", 10), ("1", 1), ("10", 10)]
)
def test_headrooms(text: str, expected: float) -> None:
    """A factor, or a share that is added."""
    assert command_line.parse_headroom(text) == pytest.approx(expected, rel=1e-12)


def read(**options: str) -> Request:
    return command_line.read(
        {"gpu": "a100-80g", **options}, text_only=False, loads=STORE.loads, workloads=STORE.workloads
    )


BAD_NUMBERS = ("", " ", "nan", "inf", "-1", "0", "1e99", "1e400", "1_000", "١٢", "1" * 500, "five", "1;2", "\n")


@pytest.mark.parametrize("option", ["p99", "ttft", "tpot", "latency", "vram", "headroom", "rps", "burstiness", "turns",
                                    "prefix_tokens", "max_context", "prompt_tokens", "output_tokens", "cpus",
                                    "workload"])  # fmt: skip
@pytest.mark.parametrize("text", BAD_NUMBERS)
def test_no_option_takes_what_is_no_number(option: str, text: str) -> None:
    """An error of one line names the option, whatever it is of these: nothing else is raised."""
    with pytest.raises(RequestError) as caught:
        read(**{option: text})
    said = str(caught.value)
    assert said.startswith(f"--{option.replace('_', '-')}")
    assert "\n" not in said
    assert len(said) < 300


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("ttft", "p95:2s"), ("ttft", ":2s"), ("ttft", "p99:"), ("latency", "p99:p50:2s"), ("latency", "2s:p99"),
        ("p99", "p99:2s"), ("p99", "2GB"), ("ttft", "25000min"), ("vram", "20s"), ("vram", "11TiB"),
        ("headroom", "0.5"), ("headroom", "0%"), ("headroom", "%"), ("headroom", "-20%"), ("headroom", "20%%"),
        ("headroom", "901%"), ("prefix_tokens", "5:9"), ("max_context", "5:9"), ("turns", "2.0"), ("turns", "201"),
        ("workload", "chats"), ("rps", "10/day"),
    ],
)  # fmt: skip
def test_what_an_option_does_not_take(option: str, text: str) -> None:
    """One line says so."""
    with pytest.raises(RequestError, match=f"^--{option.replace('_', '-')} ") as caught:
        read(**{option: text})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "text"), [("ttft", "p99:"), ("latency", "p50: "), ("prefix_tokens", "500:"), ("output_tokens", ":9")]
)
def test_what_was_typed_is_told(option: str, text: str) -> None:
    """All of it, and not the empty half behind a colon."""
    with pytest.raises(RequestError) as caught:
        read(**{option: text})
    assert f"--{option.replace('_', '-')} {shorten(text, 40)}: " in str(caught.value)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"p99": "2s"}, {"p99_ms": 2000.0}),
        ({"ttft": "p90:.5s"}, {"ttft_ms": 500.0, "ttft_at": "p90"}),
        ({"ttft": "500"}, {"ttft_ms": 500.0, "ttft_at": "mean"}),
        ({"tpot": "p50:20"}, {"tpot_ms": 20.0, "tpot_at": "p50"}),
        ({"latency": "p99:1m"}, {"latency_ms": 60_000.0, "latency_at": "p99"}),
        ({"vram": "24g"}, {"vram_gib": 24.0}),
        ({"vram": "24576MiB"}, {"vram_gib": 24.0}),
        ({"headroom": "25%"}, {"headroom": 1.25}),
        ({"prompt_tokens": "500:2k"}, {"prompt_tokens": 500, "prompt_p99": 2000}),
        ({"output_tokens": "1K"}, {"output_tokens": 1024}),
        ({"output_tokens": "100:1K"}, {"output_tokens": 100, "output_p99": 1024}),
        ({"prefix_tokens": "1k", "max_context": "32K"}, {"prefix_tokens": 1000, "max_context": 32768}),
        ({"turns": "5", "rps": "2.5", "burstiness": "2"}, {"turns": 5, "rps": 2.5, "burstiness": 2.0}),
        ({"workload": " Chat "}, {"workload": "chat"}),
        ({"load": "16"}, {"concurrency": 16, "load": ""}),
        ({"load": "High"}, {"concurrency": 0, "load": "high"}),
    ],
)
def test_options_become_fields(options: Mapping[str, str], fields: Mapping[str, Any]) -> None:
    """Every other field keeps its default."""
    made, plain = read(**options), read()
    changed = {name: getattr(made, name) for name in Request.__dataclass_fields__}
    expected = {name: getattr(plain, name) for name in Request.__dataclass_fields__} | dict(fields)
    assert changed == expected


def test_an_unknown_workload_names_the_known_ones() -> None:
    """All of them."""
    with pytest.raises(RequestError) as caught:
        read(workload="nothing")
    assert all(name in str(caught.value) for name in STORE.workloads)


@pytest.fixture
def ask() -> Callable[..., Request]:
    found: list[Request] = []

    @click.command()
    def command(**options: Any) -> None:
        found.append(build_request(options))

    def run(*words: str) -> Request:
        CliRunner().invoke(asking, ["--gpu", "a100-80g", *words], catch_exceptions=False, standalone_mode=False)
        return found.pop()

    asking = question_options(command)
    return run


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (("--concurrency", "16"), ("--load", "16")),
        (("--concurrency", "high"), ("--load", "high")),
        (("--isl", "500:2000"), ("--input-tokens", "500:2000")),
        (("--isl", "8k"), ("--prompt-tokens", "8000")),
        (("--osl", "100:400"), ("--output-tokens", "100:400")),
        (("--images", "640x480x2"), ("--image", "640x480x2")),
    ],
)
def test_other_names_of_an_option(ask: Callable[..., Request], words: tuple[str, ...], same: tuple[str, ...]) -> None:
    """Benchmarks' names mean the same, and say something."""
    assert ask(*words) == ask(*same) != ask()


def test_a_whole_command_line(ask: Callable[..., Request]) -> None:
    """Every word arrives."""
    made = ask(
        "--workload", "chat", "--isl", "500:2000", "--osl", "200", "--rps", "3", "--ttft", "p99:2s", "--headroom", "20%"
    )
    plain: dict[str, Any] = {
        "gpu": "a100-80g",
        "workload": "chat",
        "prompt_tokens": 500,
        "prompt_p99": 2000,
        "output_tokens": 200,
    }
    assert made == Request(**plain, rps=3.0, ttft_ms=2000.0, ttft_at="p99", headroom=1.2)
