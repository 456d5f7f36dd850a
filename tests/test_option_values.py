"""Every option and request field against about thirty values; random command lines. Nothing may be a defect.

COMMAND_LINES=20000 runs that many command lines; SEED=N makes others.
"""

import ast
import contextlib
import io
import os
import random
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator

import pytest
from artefacts import GPUS, KNOWLEDGE, MODELS, RELEASES, command
from cpu_time import is_within
from packaging.version import Version

from recommender import api
from recommender.choose.recommend import recommend_adviser
from recommender.common.errors import RequestError
from recommender.knowledge import option_values
from recommender.knowledge.eras import options_of
from recommender.knowledge.load import load
from recommender.maintenance.argparse_rebuild import rebuild_parser
from recommender.maintenance.wheel_facts import load_extracted
from recommender.render.formats import render
from recommender.request.request import Request
from recommender.review import engine

LINES = int(os.environ.get("COMMAND_LINES", "500"))
SEED = int(os.environ.get("SEED", "20261123"))
HANDLED = {0, 1, 2, 3}
"""Exit codes that are an answer; 4 is a broken knowledge base and 70 a defect."""
MOST_S = 20.0
"""CPU seconds that no command line may take: eight on an idle machine, more under coverage."""

VALUES = (
    *("0", "1", "-1", "2", "8", "007", "+4", " 5 ", "65536", "2147483647", "2147483648"),
    *("1" + "0" * 30, "0.5", "1.0", "1e-9", "-0.0", "1e308", "1e999", "nan", "inf", "-inf", "9" * 5000),
    *("", " ", "1_000", "0x10", "٣", "½", "true", "None", "abc", "INT8", "int8", "fp8", "{}", '{"a": NaN}', "[" * 3000),
)  # fmt: skip
ENDLESS = ('{"a": NaN}', "nan", "1e999", "NaN")
"""What Python's json takes and a Python file could not write."""
STORE = load()
FACTS = load_extracted(KNOWLEDGE / "extracted" / "api_server.json")
NEWEST = RELEASES[-1]


def refuses(parser: ArgumentParser, option: str, value: str) -> bool:
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            parser.parse_args(["model", f"{option}={value}"])
        except (SystemExit, RecursionError):
            return True
    return False


@pytest.mark.parametrize("release", ["0.7.0", "0.11.0", "0.14.0", NEWEST])
def test_the_records_refuse_what_the_parser_refuses(release: str) -> None:
    """And nothing that it accepts, but for a range, for which the record cites LMDeploy's own check."""
    differ, parser = [], rebuild_parser(FACTS, release)
    for name, era in options_of(STORE, Version(release)).items():
        for value in VALUES if era.type != "bool" else ():
            refusal = option_values.refuse(era, value)
            ours = refusal is not None and refusal.by == "parser"
            theirs = refuses(parser, STORE.flags[name].option, value)
            if ours != theirs and not (era.type == "json" and value in ENDLESS):
                differ.append((name, value[:40], ours))
    assert not differ


NAMES = [(name, STORE.flags[name].option) for name in options_of(STORE, Version(NEWEST))]
NAMES += [(parameter.id, parameter.name) for kind in (STORE.environment, STORE.client) for parameter in kind.values()]
"""Every option that a user can set, by id, with its name."""


def keywords(text: str) -> Iterator[ast.expr]:
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "TurbomindEngineConfig":
            yield from (keyword.value for keyword in call.keywords)


@pytest.mark.parametrize(("name", "written"), NAMES, ids=[name for name, _ in NAMES])
def test_every_value_of_every_option_is_answered(name: str, written: str) -> None:
    """A value is estimated and written, with Python literals only, or refused in one line that names the option."""
    flag = STORE.flags.get(name)
    in_python = flag is not None and any(field.config == "TurbomindEngineConfig" for field in flag.fields)
    for value in VALUES:
        made, told = None, ""
        try:
            made = recommend_adviser(Request(gpu="l4"), "defaults", {name: value}, store=STORE)
        except RequestError as error:
            told = str(error)
        assert made or (written in told or name in told), value
        assert len(told) < 400
        assert "\n" not in told
        if made and in_python:
            assert all(ast.literal_eval(each) is not ... for each in keywords(render(made, "python")))


RANGES = [
    ("tp", "0", "1"), ("max-batch-size", "-1", "0"), ("session-len", "0", "1"),
    ("max-prefill-token-num", "-1", "0"), ("cache-block-seq-len", "0", "64"),
    ("cache-max-entry-count", "0", "0.01"), ("server-port", "65536", "65535"), ("quant-policy", "42", "int8"),
    ("omp-num-threads", "0", "1"), ("temperature", "2.1", "2"), ("top-p", "0", "1"), ("max-tokens", "0", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "bad", "good"), RANGES, ids=[row[0] for row in RANGES])
def test_a_range_ends_where_lmdeploys_does(name: str, bad: str, good: str) -> None:
    """By LMDeploy's own checks, read in its code: the last value outside and the first inside."""
    recommend_adviser(Request(gpu="l4"), "defaults", {name: good})
    with pytest.raises(RequestError):
        recommend_adviser(Request(gpu="l4"), "defaults", {name: bad})


@pytest.mark.parametrize(
    ("release", "option", "expected"),
    [("0.9.2", "session-len", 32768), ("0.11.0", "cache-block-seq-len", 128), ("0.18.0", "max-batch-size", 128)],
)
def test_a_zero_that_stands_for_another_value(release: str, option: str, expected: int) -> None:
    """The model's own length before 0.10.0; blocks of 128 before 0.12.0; the card's own batch."""
    made = recommend_adviser(Request(gpu="l4", lmdeploy=release), "defaults", {option: "0"})
    assert getattr(made.config, str(STORE.flags[option].setting)) == expected


@pytest.mark.parametrize(
    ("model", "said"), [("qwen3-vl-8b-instruct", "'fp8' has no prediction"), ("qwen3-8b", "TurboMind accepts")]
)
def test_an_error_names_no_engine_that_does_not_run(model: str, said: str) -> None:
    """The PyTorch engine takes a KV cache in FP8, so TurboMind's values are no reason to refuse it there."""
    with pytest.raises(RequestError, match=said):
        recommend_adviser(Request(gpu="h200", model=model), "defaults", {"quant-policy": "fp8"})


@pytest.mark.parametrize("name", [name for name, _, _ in RANGES if name in STORE.flags])
def test_review_and_estimate_refuse_the_same_values(name: str) -> None:
    """A value that estimate refuses is an error of a review, and the other way round."""
    flag = STORE.flags[name]
    for value in VALUES:
        if not value.strip() or not value.isascii() or set(value) & set("{["):
            continue
        script = f"lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ {flag.option}='{value}'\n"
        found = engine.review("x.sh", script, {"gpu": "l4"}).findings
        errors = {each.rule.id for each in found} & {"LMD104", "LMD105", "LMD106"}
        try:
            made = recommend_adviser(Request(gpu="l4"), "defaults", {name: value})
        except RequestError:
            assert errors, value[:40]
            continue
        # Some values are refused by a constraint, which needs the card or an estimate: cache blocks, ratios above 1.
        assert not errors or any(each.severity == "reject" for each in made.findings), (value[:40], errors)


# --- request options

FIELDS = ("--load", "--rps", "--image", "--prompt-tokens", "--output-tokens", "--p99", "--ttft", "--vram", "--cpus")
PLAN = ("--peak", "--burst", "--spare", "--network", "--tp", "--cpus")


@pytest.mark.parametrize("option", FIELDS)
def test_every_value_of_a_request_is_answered(option: str) -> None:
    """Only plain decimal digits are numbers; what is refused is one line that names the option."""
    for value in VALUES:
        status, _, err = command("--gpu", "L4", f"{option}={value}", "-q")
        assert status in HANDLED, (value, err)
        if set("_xabcn٣½") & set(value) and option != "--image":
            assert status == 2, value
            assert option in err or "unknown load" in err, err


@pytest.mark.parametrize("option", PLAN)
@pytest.mark.usefixtures("few_simulated")
def test_every_value_of_a_plan_is_answered(option: str) -> None:
    """As for a request."""
    for value in VALUES:
        status, _, err = command("plan", "--gpu", "L4:2", "--rps", "2", f"{option}={value}")
        assert status in HANDLED, (value, err)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 10**400, 1e308])
def test_a_request_made_in_python_is_checked_too(value: float) -> None:
    """Numbers that no command line can give."""
    for field in ("rps", "p99_ms", "ttft_ms", "vram_gib", "host_scale", "card_scale", "output_tokens", "concurrency"):
        with pytest.raises(RequestError):
            Request(gpu="L4", **{field: value})  # type: ignore[arg-type]
    for field in ("peak", "burst", "spare", "network_gbps"):
        with pytest.raises(RequestError):
            api.plan(Request(gpu="L4", rps=1.0), ["L4:2"], **{field: value})  # type: ignore[arg-type]


# --- command lines


def line(random_: random.Random) -> list[str]:
    """A random command line: mostly sensible, with a few odd values."""
    pick = random_.choice

    def odd(*usual: str) -> str:
        return pick(VALUES) if random_.random() < 0.04 else pick(usual)

    def gpu() -> str:
        return odd(pick(GPUS) + pick(("", ":2", ":4", ":8", ":64")), "L4", "A100-80G", "H100-80G:8")

    def request(most: int) -> list[str]:
        choices = {
            "--model": lambda: odd(*MODELS),
            "--load": lambda: odd("single", "low", "medium", "high", "1", "7", "64", "4096"),
            "--rps": lambda: odd("1e-9", "0.001", "1", "12.5", "1e5"),
            "--image": lambda: odd("448x448", "1280x720", "1x100000", "4000x3000x64"),
            "--prompt-tokens": lambda: odd("1", "100", "100000", "2000000"),
            "--output-tokens": lambda: odd("1", "16", "74440", "2000000"),
            "--goal": lambda: odd("latency", "throughput", "memory", "balanced"),
            "--p99": lambda: odd("1", "500", "86400000"),
            "--ttft": lambda: odd("1", "500"),
            "--vram": lambda: odd("4", "24", "0.001"),
            "--cpus": lambda: odd("1", "64", "4096"),
            "--kv": lambda: odd("auto", "fp16", "int8", "int4"),
            "--lmdeploy": lambda: odd(*RELEASES),
        }
        names = random_.sample(list(choices), random_.randint(0, most))
        return [word for name in names for word in (name, choices[name]())] + ["--text-only"] * (random_.random() < 0.1)

    def settings() -> list[str]:
        flag = pick(list(STORE.flags.values()))
        return [f"{flag.option}={odd('1', '2', '4', '16', '0.5', 'auto')}"]

    head = ["--gpu", gpu()]
    kind = pick(("", "", "estimate", "estimate", "follow", "plan", "compare", "explain", "diff", "list"))
    if kind == "estimate":
        given = [word for _ in range(random_.randint(0, 4)) for word in settings()]
        return ["estimate", *head, *request(4), "--", *given, *["OMP_NUM_THREADS=" + odd("1", "4")]]
    if kind == "follow":
        added = [word for _ in range(random_.randint(0, 3)) for word in ("--with", settings()[0].removeprefix("--"))]
        form = pick(("bash", "python", "client", "env", "docker", "json", "report"))
        adviser = odd(*STORE.advisers, "defaults")
        return [*head, *request(3), "--follow", adviser, *added, "--format", form]
    if kind == "plan":
        hosts = [word for _ in range(random_.randint(0, 2)) for word in ("--gpu", gpu())]
        more = [word for name in random_.sample(PLAN, 2) for word in (name, odd("1", "1.5", "2", "1000"))]
        return ["plan", *head, *hosts, "--rps", odd("1e-9", "1", "300", "1e5"), *request(4), *more]
    if kind in ("explain", "diff", "list"):
        words = {"explain": 1, "diff": 2, "list": 2}[kind]
        return [kind, *(odd("tp", "session-len", "gpus", "models", *RELEASES, *STORE.flags) for _ in range(words))]
    return [*([kind] if kind else []), *head, *request(6)]


def test_no_command_line_is_a_defect_or_takes_long() -> None:
    """Five hundred random ones: an answer or one line of error, never exit 70 or a traceback, and within seconds."""
    random_, seen = random.Random(SEED), Counter[int]()
    for _ in range(LINES):
        words = line(random_)
        began = time.process_time()
        status, out, err = command(*words)
        spent = time.process_time() - began
        seen[status] += 1
        assert status in HANDLED, (words, err)
        assert "Traceback" not in out + err, words
        assert status != 2 or err.count("\n") == 1, (words, err)
        assert is_within(spent, MOST_S), (words, spent)
    assert min(seen[0], seen[1], seen[2]) > LINES / 50, seen


@pytest.mark.parametrize("kind", ["gpu", "model", "flag", "claim"])
@pytest.mark.parametrize("name", ["1" * 5000, "a" * 101, "", "٣", "a/b", "-x\n"])
def test_a_name_that_is_no_id_is_one_line(kind: str, name: str) -> None:
    """Of a new record: too long for a file's name or a number, or with other characters."""
    status, _, err = command("knowledge", "new", "--", kind, name)
    assert (status, err.count("\n")) == (2, 1)
    assert len(err) < 300
