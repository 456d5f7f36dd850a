"""``recommend mcp``: its tools over stdio with the SDK's client, against what the commands print; and the skill."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pydantic
import pytest
from artefacts import run_program
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from packaging.version import Version

from recommender.cli import root
from recommender.commands.mcp.tools import TOOLS, call
from recommender.knowledge.load import load

if Version(pydantic.VERSION) < Version("2.12"):
    pytest.skip("the MCP SDK needs a later pydantic than the recommender", allow_module_level=True)

from mcp import Client, StdioServerParameters, stdio_client

ROOT = Path(__file__).parents[1]
SERVER = (sys.executable, "-m", "recommender", "mcp")
SCRIPT = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ --session-len 100\n"

Case = tuple[str, Mapping[str, Any]]
GOOD: dict[str, tuple[Case, tuple[str, ...]]] = {
    "recommend": (
        ("recommend", {"gpu": "A100-80G", "concurrency": 16, "image": "1280x720", "ttft": "p99:2s"}),
        ("--gpu", "A100-80G", "--load", "16", "--image", "1280x720", "--ttft", "p99:2s", "--format", "command"),
    ),
    "recommend text": (
        ("recommend", {"gpu": "H100:2", "model": "qwen2.5-7b-instruct", "text_only": True, "input_tokens": "512:2048",
                       "output_tokens": 128, "rps": 4, "goal": "latency", "lmdeploy": "0.16.0"}),
        ("--gpu", "H100:2", "--model", "qwen2.5-7b-instruct", "--text-only", "--input-tokens", "512:2048",
         "--output-tokens", "128", "--rps", "4", "--goal", "latency", "--lmdeploy", "0.16.0", "--format", "command"),
    ),
    "estimate": (
        ("estimate", {"gpu": "L4", "concurrency": 16, "settings": {"--quant-policy": 8, "OMP_NUM_THREADS": "4"}}),
        ("estimate", "--gpu", "L4", "--load", "16", "--", "--quant-policy", "8", "OMP_NUM_THREADS=4"),
    ),
    "explain": (("explain", {"option": "session-len", "full": True}), ("explain", "session-len")),
    "explain an old release": (
        ("explain", {"option": "tp", "lmdeploy": "0.9.2", "full": True}),
        ("explain", "tp", "--lmdeploy", "0.9.2"),
    ),
    "diff": (("diff", {"old": "0.9.2", "new": "0.18.0", "full": True}), ("diff", "0.9.2", "0.18.0")),
    "review": (
        ("review", {"text": SCRIPT, "name": "a.sh", "gpu": "A100-80G", "concurrency": 4}),
        ("review", "a.sh", "--gpu", "A100-80G", "--load", "4", "--severity", "info"),
    ),
    "review a path": (
        ("review", {"path": "a.sh", "gpu": "A100-80G", "concurrency": 4}),
        ("review", "a.sh", "--gpu", "A100-80G", "--load", "4", "--severity", "info"),
    ),
}  # fmt: skip
"""A call, and the command whose every line its answer holds."""
WRONG: dict[str, tuple[Case, str]] = {
    "unknown GPU": (("recommend", {"gpu": "A1000-80"}), r"unknown GPU 'A1000-80': did you mean A100-80G"),
    "wrong type": (("recommend", {"gpu": 5}), "gpu: use a valid string"),
    "no GPU": (("estimate", {}), "gpu is missing"),
    "misspelt argument": (("compare", {"gpu": "L4", "concurency": 3}), "unknown argument .*did you mean concurrency"),
    "number out of range": (("recommend", {"gpu": "L4", "concurrency": -3}), "concurrency '-3': use a whole number"),
    "not a time": (("recommend", {"gpu": "L4", "ttft": "soon"}), "ttft 'soon': use a number"),
    "not a goal": (("recommend", {"gpu": "L4", "goal": "speed"}), "goal: use 'latency'"),
    "a truth for a number": (("recommend", {"gpu": "L4", "turns": True}), "turns: use a valid integer"),
    "a whole number as a fraction": (
        ("recommend", {"gpu": "L4", "concurrency": 16.0}),
        "^concurrency: use a valid integer or use a valid string, not 16.0$",
    ),
    "a number as a text": (("recommend", {"gpu": "L4", "turns": "2"}), '^turns: use a valid integer, not "2"$'),
    "a rate that is none": (("recommend", {"gpu": "L4", "rps": "5x"}), "^rps '5x': use a number"),
    "what only our choice heeds": (("estimate", {"gpu": "L4", "kv": "int8"}), "unknown argument 'kv'"),
    "another server's option": (("explain", {"option": "max-model-len"}), "in LMDeploy use --session-len"),
    "unknown option": (
        ("explain", {"option": "sesion-len"}),
        "'sesion-len': did you mean --session-len",
    ),
    "unknown setting": (("estimate", {"gpu": "L4", "settings": {"--sesion-len": 1}}), "did you mean --session-len"),
    "wrong setting": (("estimate", {"gpu": "L4", "settings": {"tp": "two"}}), "expected a whole number, got 'two'"),
    "unknown release": (("diff", {"old": "0.1", "new": "0.18.0"}), "unknown LMDeploy release '0.1'"),
    "no release": (("diff", {"old": "0.9.2"}), "new is missing"),
    "no script": (("review", {}), "give either text or path"),
    "two scripts": (("review", {"text": "ls", "path": "a.sh"}), "give either text or path"),
    "no such file": (("review", {"path": "nowhere.sh"}), "cannot be read: No such file"),
    "a folder": (("review", {"path": "/"}), "a folder, not a regular file"),
    "not UTF-8": (("review", {"path": "latin.sh"}), "UTF-8"),
    "an unknown GPU of no launch": (("review", {"text": "ls", "gpu": "zz"}), "unknown GPU 'zz'"),
    "an option's name": (("recommend", {"gpu": "L4", "load": 4}), "unknown argument 'load': did you mean concurrency"),
    "a setting without a value": (
        ("estimate", {"gpu": "L4", "settings": {"tp": None}}),
        "'tp'.: use a valid string or",
    ),
    "a path as a name": (("review", {"text": "ls", "name": "../a.sh"}), "name: "),
    "unknown tool": (("reviews", {}), "unknown tool 'reviews': did you mean review"),
}


@cache
def session() -> tuple[dict[str, Any], dict[str, tuple[str, bool]]]:
    """The schema of every tool, and of every case the answer and whether it is an error: one server's."""
    return asyncio.run(_session())


async def _session() -> tuple[dict[str, Any], dict[str, tuple[str, bool]]]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.sh").write_text(SCRIPT)
        (Path(folder) / "latin.sh").write_bytes("# gr\u00fc\u00dfe\n".encode("latin-1") + SCRIPT.encode())
        server = StdioServerParameters(command=SERVER[0], args=list(SERVER[1:]), cwd=folder)
        async with Client(stdio_client(server)) as client:
            tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            cases = {name: case for each in (GOOD, WRONG) for name, (case, _) in each.items()}
            answers = {}
            for name, (tool, given) in cases.items():
                done = await client.call_tool(tool, dict(given))
                answers[name] = ("".join(block.text for block in done.content), done.is_error)
    return tools, answers


def test_tools_are_listed_with_closed_schemas() -> None:
    """Six tools; every good case holds to its tool's schema, and a misspelt argument does not."""
    tools, _ = session()
    assert list(tools) == ["recommend", "estimate", "review", "explain", "compare", "diff"]
    for (tool, given), _ in GOOD.values():
        Draft202012Validator(tools[tool]).validate(given)
        assert not Draft202012Validator(tools[tool]).is_valid(given | {"gpus": "L4"})


@pytest.mark.parametrize("name", GOOD)
def test_an_answer_holds_what_the_command_prints(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").write_text(SCRIPT)
    done = CliRunner().invoke(root, GOOD[name][1])
    assert len(done.stdout.splitlines()) > 5
    text, failed = session()[1][name]
    assert not failed
    assert [line for line in done.stdout.splitlines() if line not in text] == []
    assert re.search(r"\d+\.\d+\.\d+ [\w/]+\.\w+:\d+|evidence \w+-|https://", text)


def test_recommend_gives_the_prediction_and_sources() -> None:
    """The figures and settings of the JSON, each setting with its reason and a source or none."""
    (_, given), words = GOOD["recommend"]
    found = json.loads(CliRunner().invoke(root, [*words[:-2], "--json", "-q"]).stdout)
    text, failed = call("recommend", given)
    assert not failed
    assert f"{found['memory']['total_bytes'] / 2**30:.3g} GiB" in text
    rate = re.search(r"rate +([\d.]+) requests/s", text)
    assert rate
    assert float(rate[1]) == pytest.approx(found["speed"]["rps"]["value"], rel=0.02)
    for option in found["options"]:
        if option["emitted"]:
            assert f"  {option['name']}" in text
            assert " ".join(option["reason"].split()) in " ".join(text.split())
            for line in option["sources"]["code"][-1:]:
                assert f"{line['release']} {line['path']}:{line['line']}" in text


def test_compare_gives_every_value() -> None:
    """In full those of the JSON; in short where somebody differs from ours; with an option, that one."""
    words = ("compare", "--gpu", "A100-80G", "--load", "8")
    found = json.loads(CliRunner().invoke(root, [*words, "--json"]).stdout)
    asked = {"gpu": "A100-80G", "concurrency": 8}
    whole = CliRunner().invoke(root, words).stdout
    assert call("compare", asked | {"full": True}) == (whole, False)
    text, failed = call("compare", asked)
    assert not failed
    one, failed = call("compare", asked | {"option": "session_len"})
    assert not failed
    assert "\n".join(one.splitlines()[-5:]) in whole
    assert "--quant-policy" not in one
    for setting in found["settings"]:
        ours = "" if setting["ours"]["left"] else setting["ours"]["value"]
        given = {each["adviser"]: each["value"] for each in setting["given"] if not each["left"]}
        shown = re.search(rf"^  {re.escape(setting['name'])}: (.*?)\[", text, re.M | re.S)
        assert bool(shown) == bool(ours and any(value != ours for value in given.values())), setting["name"]
        for adviser, value in (given | {"ours": ours}).items() if shown else ():
            assert re.search(rf"(^|; ){re.escape(value)}( to \S+)? [^;]*\b{adviser}\b", " ".join(shown[1].split()))


SHORT: list[Case] = [
    *(("explain", {"option": each.id, "lmdeploy": release}) for each in load().options() for release in ("", "0.7.0")),
    *(("diff", {"old": old, "new": "0.18.0"}) for old in load().releases),
    *(("compare", {"gpu": gpu, "concurrency": load}) for gpu in ("A100-80G", "L4") for load in (1, 64)),
    ("compare", {"gpu": "H100:2", "model": "qwen2.5-7b-instruct", "workload": "chat", "rps": 3.0}),
    ("compare", {"gpu": "T4", "model": "internvl3-78b"}),
]  # fmt: skip


def test_short_answers_are_short_and_have_sources() -> None:
    """Of every option and release; the full one is longer, unless little is known."""
    for name, given in SHORT:
        (short, failed), (full, _) = call(name, given), call(name, given | {"full": True})
        assert not failed
        assert len(short.encode()) <= 3200, (name, given)
        assert len(short) < max(len(full) + 200, 900), (name, given)
        assert max(map(len, short.splitlines())) <= 80 or "://" in short
        assert (
            given.get("old") == "0.18.0"
            or "nothing fits" in short
            or re.search(r"\d+\.\d+\.\d+ [\w/.-]+:\d+|evidence |://|unverified", short)
        )


def test_a_switch_is_a_truth() -> None:
    """As JSON writes it, or as a text."""
    for setting in (True, "true"):
        text, failed = call("estimate", {"gpu": "A100-80G", "settings": {"trust_remote_code": setting}})
        assert not failed
        assert "PROBLEMS" not in text
    assert "Turn on trust_remote_code" in call("estimate", {"gpu": "A100-80G", "settings": {"tp": 1}})[0]


def test_a_rate_may_be_a_text() -> None:
    """Chatbots write numbers so."""
    asked = {"gpu": "H100", "model": "qwen3-8b", "workload": "chat"}
    assert call("recommend", asked | {"rps": "5"}) == call("recommend", asked | {"rps": 5})


def test_what_no_tool_does_is_said_so() -> None:
    """A fleet is a command of the shell."""
    text, failed = call("recommend", {"gpu": "L4", "model": "qwen3-8b", "workload": "chat", "rps": 500})
    assert not failed
    assert "or, in a shell: recommend plan --rps 500 --gpu l4 --model qwen3-8b --workload chat" in " ".join(
        text.split()
    )


def test_nothing_fits_is_an_answer() -> None:
    """It names the limit, as on the command line."""
    text, failed = call("recommend", {"gpu": "H100", "model": "internvl3-78b"})
    assert not failed
    assert "nothing fits: No memory is left for a KV cache" in text


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_gets_one_line(name: str) -> None:
    """An error result that says what is wrong."""
    text, failed = session()[1][name]
    assert failed
    assert re.search(WRONG[name][1], text)
    assert "\n" not in text
    assert "Traceback" not in text


def test_a_huge_script_gets_an_answer() -> None:
    """It was not read, and the answer says so."""
    text, failed = call("review", {"text": SCRIPT * 40_000})
    assert not failed
    assert "the limit is 1048576" in text


def test_a_text_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit's environment file beside the server is not read for a text, but is for a path."""
    monkeypatch.chdir(tmp_path)
    unit = f"[Service]\nEnvironmentFile={tmp_path}/server.env\nExecStart=/usr/bin/{SCRIPT.strip()} --tp ${{SECRET}}\n"
    (tmp_path / "server.env").write_text("SECRET=3\n")
    (tmp_path / "serve.service").write_text(unit)
    rules = []
    for subject in (
        {"text": unit, "name": "serve.service"},
        {"text": unit, "name": "serve"},
        {"path": "serve.service"},
    ):
        text, failed = call("review", {"gpu": "A100-80G:4"} | subject)
        assert not failed
        assert "/dev/null" not in text
        rules.append(set(re.findall(r"(?m)^\S+: (LMD\d+) ", text)) - {"LMD002"})  # a value that is not known
    assert rules[0] == rules[1] < rules[2]


def test_stdout_is_pure_protocol() -> None:
    """Every line is JSON-RPC, also after what is no message; the end of stdin ends the server."""
    messages = (
        {"id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "recommend", "arguments": {"gpu": "L4"}}},
        {"id": 3, "method": "tools/call", "params": {"name": "review", "arguments": {"text": SCRIPT}}},
    )  # fmt: skip
    server = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert server.stdin
    assert server.stdout
    assert server.stderr
    with server:
        server.stdin.write(b"not a message\n\xff\xfe\n")
        answers = []
        for message in messages:
            server.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
            server.stdin.flush()
            while "id" in message and message["id"] not in [each.get("id") for each in answers]:
                answers.append(json.loads(server.stdout.readline()))
        server.stdin.close()
        assert server.stdout.read() == b""
        assert b"Traceback" not in server.stderr.read()
        assert server.wait(20) == 0
    assert {each["jsonrpc"] for each in answers} == {"2.0"}


def test_ctrl_c_ends_the_server() -> None:
    """At once, while stdin is open, and without a traceback."""
    with subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        assert server.stderr
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        server.stdin.write(json.dumps(ping).encode() + b"\n")
        server.stdin.flush()
        server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(10) == -signal.SIGINT
        assert server.stderr.read() == b""


def test_without_the_sdk_one_line_says_what_to_install(tmp_path: Path) -> None:
    """Exit 3; the other commands run."""
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError('mcp', name='mcp')\n")
    for words, code in (("mcp", 3), ("mcp --help", 0), ("explain tp", 0)):
        done = run_program(
            [sys.executable, "-m", "recommender", *words.split()],
            env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, done.stderr
        if code:
            assert done.stderr == "recommend: mcp needs the MCP SDK; run: pip install 'mcp>=2'\n"


# --- the skill


EXAMPLE = re.compile(r"^`(\w+)` with `(\{[^\n]*\})`\n\n```text\n(.*?)```", re.MULTILINE | re.DOTALL)


def test_the_skill_is_written_whole(tmp_path: Path) -> None:
    """Its head has a name and a description, its links lead to its files, and it names every tool."""
    folder = tmp_path / "new" / "skill"
    done = CliRunner().invoke(root, ["mcp", "--skill", str(folder)])
    assert done.exit_code == 0
    assert done.stdout.split() == [str(folder / "SKILL.md"), str(folder / "examples.md")]
    text = (folder / "SKILL.md").read_text()
    head = dict(line.split(": ", 1) for line in text.split("---\n")[1].splitlines())
    assert re.fullmatch(r"[a-z0-9-]{1,64}", head["name"])
    assert len(head["description"]) <= 1024
    assert all((folder / link).is_file() for link in re.findall(r"\]\((.*?)\)", text))
    assert all(f"`{name}`" in text for name in TOOLS)


def test_the_examples_are_what_the_tools_answer() -> None:
    """Each line that is shown, in its order."""
    examples = EXAMPLE.findall((ROOT / "templates" / "skill" / "examples.md").read_text("utf-8"))
    assert len(examples) == 3
    for name, given, shown in examples:
        text, failed = call(name, json.loads(given))
        assert not failed
        lines = iter(text.splitlines())
        for line in shown.splitlines():
            assert line == "..." or line in lines, (name, line)
