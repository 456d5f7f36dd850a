"""What rendered launches make of hostile environments: keys, switches, addresses and models, in every format."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml
from artefacts import BASH, RECORD, Machine, command, recommend_process, run_program, text
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import layout

from recommender.fleet import compose, kubernetes, systemd
from recommender.knowledge.load import data_root
from recommender.render.template import environment as templates
from recommender.smoke.failures import Failure
from recommender.smoke.process.api_keys import read_api_keys

Ran = tuple[int, str, list[str]]
"""Exit status, stderr, and the words and keys of what was started; no words if nothing was."""
HAPROXY = RECORD + 'cp "${API_KEYS_FILE:-/dev/null}" "$RECORD/keys"\n[[ -z ${API_KEYS+set} ]]\n'


@cache
def rendered(form: str) -> dict[str, str]:
    if form in ("bash", "docker"):
        return {"serve.sh": text(form)}
    return {"compose": compose, "systemd": systemd, "k8s": kubernetes}[form].files(layout("two-servers"))


def started(machine: Machine, command: list[str], variables: dict[str, str]) -> Ran:
    done = run_program(command, env=machine.environment(**variables), cwd=machine.folder / "work", timeout=30)
    calls = machine.calls()
    assert len(calls) <= 1
    return done.returncode, done.stderr, calls[0].words if calls else []


def serve(form: str) -> Callable[[Machine, dict[str, str]], Ran]:
    def run(machine: Machine, variables: dict[str, str]) -> Ran:
        return started(machine, [BASH, str(machine.script(rendered(form)["serve.sh"]))], variables)

    return run


def pod(machine: Machine, variables: dict[str, str]) -> Ran:
    """The servers' container of Kubernetes, whose manifest names a file of keys."""
    container = yaml.safe_load(rendered("k8s")["deployment.yaml"])["spec"]["template"]["spec"]["containers"][0]
    own = {each["name"]: each["value"].replace("$$", "$") for each in container["env"]}
    del own["API_KEYS_FILE"]
    words = [each.replace("$$", "$") for each in (*container["command"], *container["args"])]
    return started(machine, words, {**own, "REVISION": "abc", **variables})


HOST_FILES = ("API_KEYS_FILE", "TLS_FILE", "PRIORITY_FILE")
"""What Compose sets always: to the secret's place if the host has it, else to nothing."""


def front(form: str) -> Callable[[Machine, dict[str, str]], Ran]:
    """The load balancer of a fleet, as its files start it."""

    def run(machine: Machine, variables: dict[str, str]) -> Ran:
        machine.tool("haproxy", HAPROXY)
        files = rendered(form)
        starter = machine.folder / "front.sh"
        starter.write_text(files["front.sh"])
        if form == "systemd":
            (line,) = re.findall(r"^ExecStart=(.*)$", files["lmdeploy-front.service"], re.MULTILINE)
            words = shlex.split(line)
        elif form == "compose":
            service = yaml.safe_load(files["compose.yaml"])["services"]["front"]
            words = [each.replace("$$", "$") for each in service["command"]]
            listed = dict(each.partition("=")[::2] for each in service["environment"] if "=" in each)
            assert listed["API_KEYS_FILE"] == "${API_KEYS_FILE+/run/secrets/api_keys}"
            assert "API_KEYS" in service["environment"]
            given = {name: value or "/dev/null" for name, value in variables.items() if name in HOST_FILES}
            variables = {**dict.fromkeys(HOST_FILES, ""), **variables, **given}
        else:
            container = yaml.safe_load(files["front.yaml"])["spec"]["template"]["spec"]["containers"][0]
            words = [*container["command"], *container["args"]]
        words = [re.sub(r"/\S*/front\.sh", str(starter), re.sub(r"^/\S*/haproxy$", "haproxy", each)) for each in words]
        code, said, called = started(machine, words, variables)
        if called:
            assert called[0] == "haproxy"
            assert called[-1].endswith("haproxy.cfg")
            keys = (machine.folder / "record" / "keys").read_text().splitlines()
            called += ["--api-keys", *keys] if keys else []
        return code, said, called

    return run


STARTS = {
    "bash": serve("bash"),
    "docker": serve("docker"),
    "k8s-server": pod,
    "k8s-front": front("k8s"),
    "systemd-front": front("systemd"),
    "compose-front": front("compose"),
}
EVERY = pytest.mark.parametrize("start", STARTS)


def keys_of(words: list[str]) -> tuple[str, ...]:
    if "--api-keys" not in words:
        return ()
    return tuple(itertools.takewhile(lambda word: word != "--server-name", words[words.index("--api-keys") + 1 :]))


# --- API keys

BOM = b"\xef\xbb\xbf"
PUBLISHED = systemd.KEYS.encode()
"""What --format systemd writes into every folder."""
TEXTS: list[tuple[str, tuple[str, ...]]] = [
    ("k1", ("k1",)),
    ("k1 k2\tk3", ("k1", "k2", "k3")),
    ("k1,k2, k3,", ("k1", "k2", "k3")),
    ("\nsecret", ("secret",)),
    ("k1\nk2", ("k1", "k2")),
    ("k1\r\nk2\r\n", ("k1", "k2")),
    ("# mine\nk1\n  # yours\n", ("k1",)),
    ("a$b`c'd\"e\\f*?[a-z]!{}~", ("a$b`c'd\"e\\f*?[a-z]!{}~",)),
    ("$(touch,x)", ("$(touch", "x)")),
]
FILES: list[tuple[bytes, tuple[str, ...]]] = [
    (b"k1", (("k1"),)),
    (b"k1\r\n\r\n \t\r\nk2\r\n", ("k1", "k2")),
    (BOM + b"k1\nk2\n\n\n", ("k1", "k2")),
    (b"# one\n\t# two\n\n  k1  \n#k2\n", ("k1",)),
    (b"sk-$(touch p)\n`id` ${HOME} * ?\n", ("sk-$(touch p)", "`id` ${HOME} * ?")),
    (b"a,b\n'x' \"y\" \\z\n", ("a,b", "'x' \"y\" \\z")),
    (PUBLISHED + b"k1\n", ("k1",)),
]
NO_KEYS = ["", " ", "\t", "\n", " \r\n\t", "#k1", " # k1\n", ",", " , "]
NOT_KEYS = [
    "-x", "--trust-remote-code", "k1\n-5", "k1 # mine", "schl\u00fcssel", "k\x1b[31m", "k1\rk2", "\u00a0",
    "k1 k\x7f",
]  # fmt: skip
NO_FILES = [b"", b"\n", b" \r\n\t\n", b"# only\n  # this\n", BOM, BOM + b"# k1", PUBLISHED]
NOT_FILES = [
    b"-x", b"k1\n--trust-remote-code\n", b"k1 # mine", "caf\u00e9".encode(), b"k\0e\0y\0",
    "\ufeffk1".encode("utf-16-le"), b"\tk1\tk2", b"k1\n\x07",
]  # fmt: skip


@EVERY
@pytest.mark.parametrize(("given_keys", "expected"), TEXTS)
def test_keys_of_the_environment(machine: Machine, start: str, given_keys: str, expected: tuple[str, ...]) -> None:
    """API_KEYS gives the same keys in every format, and so does the reader that smoke has."""
    code, said, words = STARTS[start](machine, {"API_KEYS": given_keys})
    assert (code, keys_of(words)) == (0, expected), said
    assert read_api_keys({"API_KEYS": given_keys}) == expected


@EVERY
@pytest.mark.parametrize(("content", "expected"), FILES)
def test_keys_of_a_file(
    machine: Machine, tmp_path: Path, start: str, content: bytes, expected: tuple[str, ...]
) -> None:
    """A file's lines are its keys in every format, whatever system wrote it."""
    keys = tmp_path / "my keys"
    keys.write_bytes(content)
    code, said, words = STARTS[start](machine, {"API_KEYS_FILE": str(keys)})
    assert (code, keys_of(words)) == (0, expected), said
    assert read_api_keys({"API_KEYS_FILE": str(keys)}) == expected


def refused(start: str, machine: Machine, variables: dict[str, str], secret: str = "") -> None:
    """Fail unless nothing is started, in one line that does not show the text of the keys."""
    code, said, words = STARTS[start](machine, variables)
    assert (code, words) == (3, [])
    assert len(said.splitlines()) == 1, said
    assert "API_KEYS" in said
    assert not secret.strip() or secret.strip() not in said
    with pytest.raises(Failure):
        read_api_keys(variables)


@EVERY
@pytest.mark.parametrize("given_keys", [*NO_KEYS, *NOT_KEYS])
def test_a_text_without_a_usable_key_starts_nothing(machine: Machine, start: str, given_keys: str) -> None:
    """Set but empty, a comment alone or no key at all: refused, and never started without keys."""
    refused(start, machine, {"API_KEYS": given_keys}, given_keys if len(given_keys.strip()) > 2 else "")


@EVERY
@pytest.mark.parametrize("content", [*NO_FILES, *NOT_FILES])
def test_a_file_without_a_usable_key_starts_nothing(
    machine: Machine, tmp_path: Path, start: str, content: bytes
) -> None:
    """The api-keys file of --format systemd holds a comment: it is no key."""
    keys = tmp_path / "keys"
    keys.write_bytes(content)
    refused(start, machine, {"API_KEYS_FILE": str(keys)})


@EVERY
@pytest.mark.parametrize("name", ["absent", ".", "", "/dev/null", "/dev/zero", "two\nlines"])
def test_a_file_that_cannot_be_read_starts_nothing(machine: Machine, start: str, name: str) -> None:
    """Missing, a folder, empty or endless: one line."""
    refused(start, machine, {"API_KEYS_FILE": name})


@EVERY
def test_the_text_wins_over_the_file(machine: Machine, start: str) -> None:
    """Both set: API_KEYS counts and stderr says so; where it is empty, nothing starts, whatever the file has."""
    (machine.folder / "work" / "keys").write_text("of-the-file\n")
    both = {"API_KEYS": "of-the-text", "API_KEYS_FILE": "keys"}
    code, said, words = STARTS[start](machine, both)
    assert (code, keys_of(words)) == (0, ("of-the-text",))
    assert "using API_KEYS" in said
    assert "of-the" not in said
    machine.forget()
    code, _, words = STARTS[start](machine, both | {"API_KEYS": " "})
    assert (code, words) == (3, [])


@EVERY
def test_without_either_no_key_is_asked_for(machine: Machine, start: str) -> None:
    """Neither set is the documented way to serve without keys."""
    code, said, words = STARTS[start](machine, {})
    assert (code, keys_of(words)) == (0, ()), said
    assert words


@settings(max_examples=80)
@given(
    st.text(st.one_of(st.sampled_from(" \t\r\n#-,ab$'\"\\*\ufeff\u00e9"), st.characters(codec="utf-8")), max_size=30),
    st.booleans(),
)
def test_both_readers_agree(tmp_path_factory: pytest.TempPathFactory, written: str, file: bool) -> None:
    """Whatever is set, smoke reads the keys that a script reads, and refuses what it refuses."""
    script = "set -euo pipefail\ndie() { exit 3; }\n" + templates().get_template("shell/keys.j2").render()
    script += "\n((${#keys[@]} == 0)) || printf '%s\\0' \"${keys[@]}\"\n"
    variables = {"API_KEYS": written.replace("\0", "")}
    if file:
        path = tmp_path_factory.getbasetemp() / "keys"
        path.write_bytes(written.encode())
        variables = {"API_KEYS_FILE": str(path)}
    done = subprocess.run([BASH, "-c", script], env={"PATH": "/usr/bin:/bin"} | variables, capture_output=True)
    try:
        expected = read_api_keys(variables)
    except Failure:
        assert (done.returncode, done.stdout) == (3, b"")
        return
    assert done.returncode == 0, done.stderr
    assert tuple(done.stdout.decode().split("\0")[:-1]) == expected


def test_no_unit_of_a_server_takes_keys_that_it_would_ignore() -> None:
    """The servers of systemd ask for no key: one in their settings ends the start."""
    unit = rendered("systemd")["lmdeploy@.service"]
    (check,) = re.findall(r"^ExecStartPre=/bin/bash -c '(.*API_KEYS.*)'$", unit, re.MULTILINE)
    for variables in ({"API_KEYS": ""}, {"API_KEYS": "k"}, {"API_KEYS_FILE": "/x"}):
        done = subprocess.run([BASH, "-c", check.replace("$$", "$")], env=variables, capture_output=True)
        assert done.returncode == 2
    assert subprocess.run([BASH, "-c", check.replace("$$", "$")], env={}).returncode == 0


# --- switches

TRUE = ("true", "TRUE", "True", "yes", "Yes", "1", "on", "ON")
FALSE = ("false", "FALSE", "no", "No", "0", "off")
WRONG = ("maybe", "2", "tru", " true", "y", "-1", "true\nfalse", "$(id)")
SWITCHING = pytest.mark.parametrize("start", ["bash", "k8s-server"])
"""The formats whose switches are variables; the others have them in the file."""


@SWITCHING
@pytest.mark.parametrize("value", [*TRUE, *FALSE])
def test_a_switch_is_understood(machine: Machine, start: str, value: str) -> None:
    """True and false in the ways that people write them."""
    code, said, words = STARTS[start](machine, {"TRUST_REMOTE_CODE": value, "DISABLE_FASTAPI_DOCS": value})
    assert code == 0, said
    assert [each in words for each in ("--trust-remote-code", "--disable-fastapi-docs")] == [value in TRUE] * 2


@SWITCHING
@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("name", ["TRUST_REMOTE_CODE", "DISABLE_FASTAPI_DOCS"])
def test_a_switch_that_is_not_understood_starts_nothing(machine: Machine, start: str, name: str, value: str) -> None:
    """One line names the variable."""
    code, said, words = STARTS[start](machine, {name: value})
    assert (code, words) == (3, [])
    assert name in said
    assert len(said.splitlines()) == 1


def test_an_empty_value_means_the_default(machine: Machine) -> None:
    """As for every other variable of serve.sh."""
    _, _, default = STARTS["bash"](machine, {})
    machine.forget()
    names = ("TRUST_REMOTE_CODE", "DISABLE_FASTAPI_DOCS", "SERVER_NAME", "SESSION_LEN", "MODEL", "RESTART")
    assert STARTS["bash"](machine, dict.fromkeys(names, "")) == (0, "", default)


@pytest.mark.parametrize("value", ["maybe", "2", "noo"])
def test_a_check_is_not_skipped_by_a_word_that_is_not_understood(machine: Machine, value: str) -> None:
    """PREFLIGHT is a switch as well."""
    code, said, words = STARTS["bash"](machine, {"PREFLIGHT": value})
    assert (code, words, "PREFLIGHT" in said) == (3, [], True)


@pytest.mark.parametrize("value", ["0", "off", "False", "NO"])
def test_the_checks_can_be_skipped(machine: Machine, value: str) -> None:
    """Without LMDeploy or a GPU the server is launched all the same."""
    assert STARTS["bash"](machine, {"PREFLIGHT": value})[0] == 0


@pytest.mark.parametrize("value", ["-1", "1.5", "yes", "08", "99999999999999999999", "1\n2"])
def test_restarts_are_a_whole_number(machine: Machine, value: str) -> None:
    """Anything else is refused in one line."""
    code, said, words = STARTS["bash"](machine, {"RESTART": value})
    assert (code, words, len(said.splitlines())) == (3, [], 1)


# --- addresses

LOCAL = (
    "127.0.0.1", "127.0.0.53", "127.1.2.3", "localhost", "LOCALHOST", "::1", "[::1]", "0:0:0:0:0:0:0:1",
    "::ffff:127.0.0.1",
)  # fmt: skip
OPEN = (
    "0.0.0.0", "::", "[::]", "10.0.0.1", "::2", "127.0.0.1.example.org", "example.org", "localhost.example.org",
    "1127.0.0.1", "::11", "fe80::1", " ",
)  # fmt: skip


@pytest.mark.parametrize(("start", "name"), [("bash", "SERVER_NAME"), ("docker", "PUBLISH")])
@pytest.mark.parametrize("address", [*LOCAL, *OPEN])
def test_an_open_address_without_keys_is_warned_of(machine: Machine, start: str, name: str, address: str) -> None:
    """Only addresses that other hosts reach, and never where keys are asked for."""
    code, said, words = STARTS[start](machine, {name: address})
    assert code == 0
    assert ("without API keys" in said) == (address in OPEN), said
    if start == "bash":
        assert words[words.index("--server-name") + 1] == address.removeprefix("[").removesuffix("]")
    else:
        host = address if "[" in address or ":" not in address else f"[{address}]"
        assert words[words.index("-p") + 1].startswith(f"{host}:")
    machine.forget()
    assert STARTS[start](machine, {name: address, "API_KEYS": "k"})[1] == ""


# --- the model

STARTED = pytest.mark.parametrize("start", ["bash", "docker", "k8s-server"])


@STARTED
@pytest.mark.parametrize("model", ["--help", "-h", "--trust-remote-code"])
def test_no_model_is_an_option(machine: Machine, start: str, model: str) -> None:
    """MODEL=--help would print LMDeploy's help and end with status 0."""
    code, said, words = STARTS[start](machine, {"MODEL": model})
    assert (code, words, "MODEL" in said) == (3, [], True)


@pytest.mark.parametrize("name", ["org/thing", "./--help", "a b", "x\n", "link/../other"])
def test_docker_mounts_a_relative_folder_under_its_real_path(machine: Machine, tmp_path: Path, name: str) -> None:
    """The container's path is absolute and exists there."""
    work = machine.folder / "work"
    (tmp_path / "far" / "inside").mkdir(parents=True)
    (tmp_path / "far" / "other").mkdir()
    (work / "link").symlink_to(tmp_path / "far" / "inside")
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    code, said, words = STARTS["docker"](machine, {"MODEL": name, "HF_HOME": "cache"})
    assert code == 0, said
    real = str(folder.resolve())
    mounts = [after for word, after in itertools.pairwise(words) if word == "-v"]
    assert mounts == [f"{work}/cache:/root/.cache/huggingface", f"{real}:{real}:ro"]
    assert words[words.index("api_server") + 1] == real


def test_docker_mounts_what_a_snapshot_links_to(machine: Machine) -> None:
    """The files of the hub's cache are links to a folder beside the snapshots."""
    root = machine.folder / "hub" / "models--org--thing"
    (root / "snapshots" / "abc").mkdir(parents=True)
    (root / "blobs").mkdir()
    _, _, words = STARTS["docker"](machine, {"MODEL": str(root / "snapshots" / "abc")})
    assert f"{root}:{root}:ro" in words
    assert words[words.index("api_server") + 1] == str(root / "snapshots" / "abc")


# --- local models, as the command line names them

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
NAMES = {
    "./org/thing": "org/thing", "org/thing": "org/thing", "org/thing/": "org/thing",
    "../work/org//thing": "org/thing", "./--help": "--help", "~/its model": "../home/its model",
    "link/../thing": "../far/thing", ".": ".",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_local_model_is_absolute_in_every_format(
    machine: Machine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere ``org/thing`` is a repository on the hub."""
    work = machine.folder / "work"
    (machine.folder / "far" / "inside").mkdir(parents=True)
    (work / "link").symlink_to(machine.folder / "far" / "inside")
    folder = (work / NAMES[name]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    path, out = str(folder), machine.folder / "out"

    monkeypatch.setenv("HOME", str(machine.folder / "home"))
    monkeypatch.chdir(work)

    def recommend(form: str, *words: str) -> str:
        asked = ("--gpu", "H100-80G", "--load", "single", f"--model={name}", "-q", "--format", form)
        status, out, err = command(*asked, *words)
        assert status == 0, err
        return out

    for form in ("bash", "docker"):
        body = recommend(form)
        assert json.loads(re.search(r"^# request: (.*)$", body, re.MULTILINE)[1])["model"] == path  # type: ignore[index]
        words = started(machine, [BASH, str(machine.script(body))], {})[2]
        assert words[words.index("api_server") + 1] == path
        assert form == "bash" or f"{path}:{path}:ro" in words
        machine.forget()
    assert json.loads(recommend("json"))["command"][3] == path
    for form in ("python", "client"):
        strings = {node.value for node in ast.walk(ast.parse(recommend(form))) if isinstance(node, ast.Constant)}
        assert path in strings
        assert name == path or name not in strings
    for form in ("compose", "systemd", "k8s"):
        recommend(form, "-o", str(out / form))
    server = yaml.safe_load((out / "compose" / "compose.yaml").read_text())["services"]["server0"]
    (volume,) = server["volumes"]
    assert volume["source"].removeprefix("${MODEL:-").removesuffix("}") == path
    assert server["command"][3] == volume["target"] == "/model"
    assert f'\nMODEL="{path}"\n' in (out / "systemd" / "server.env").read_text()
    container = yaml.safe_load((out / "k8s" / "deployment.yaml").read_text())["spec"]["template"]["spec"]["containers"][
        0
    ]
    assert {"name": "MODEL", "value": f"/models/{folder.name}"} in container["env"]
    assert not list(out.glob("*/*fetch*")) + list(out.glob("*/download.yaml"))


def test_a_name_on_the_hub_stays_one(machine: Machine) -> None:
    """Also where a folder of that name exists: the knowledge knows the model."""
    (machine.folder / "OpenGVLab" / "InternVL3-8B-AWQ").mkdir(parents=True)
    (machine.folder / "OpenGVLab" / "InternVL3-8B-AWQ" / "config.json").write_text(json.dumps(CONFIG))
    words = ("--gpu", "H100-80G", "--load", "single", "--model", "OpenGVLab/InternVL3-8B-AWQ", "-q")
    environment = os.environ | {"PYTHONPATH": str(data_root())}
    done = recommend_process(*words, environment=environment, cwd=machine.folder)
    assert b"MODEL=${MODEL:-OpenGVLab/InternVL3-8B-AWQ}\n" in done.stdout
