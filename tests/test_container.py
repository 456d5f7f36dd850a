"""The env file and the docker command: read by independent readers, run against stand-ins."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from artefacts import BASH, RELEASES, Machine, found, parser, recommend_here, shellcheck, text
from hypothesis import given
from hypothesis import strategies as st

from recommender.choose import recommend
from recommender.common.errors import RequestError
from recommender.knowledge.load import load
from recommender.render import container_image, json_output
from recommender.render.formats import render
from recommender.render.quoting import variable
from recommender.request.request import Request

STORE = load()
TABLE: list[dict[str, Any]] = [
    {},
    {"lmdeploy": "0.7.0", "model": "qwen2.5-7b-instruct-awq"},
    {"lmdeploy": "0.9.2", "model": "internvl3-8b-awq"},
    {"lmdeploy": "0.12.3", "concurrency": 4},
    {"lmdeploy": "0.16.0", "kv": "int8", "image_width": 1280, "image_height": 720, "images": 2},
    {"gpu": "a100-sxm-40g", "gpu_count": 4, "goal": "latency", "model": "internvl3-38b-awq"},
    {"model": "qwen2.5-7b-instruct", "goal": "memory"},
]


def dotenv(body: str) -> dict[str, str]:
    """A file of variables as systemd and docker read it: whole lines, comments, no quotes, no expansion."""
    read: dict[str, str] = {}
    for line in body.splitlines():
        if line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals
            assert re.fullmatch(r"[A-Z_][A-Z0-9_]*", name), line
            assert not set(value) & set("'\"\\$`#;&|<>()* \t~!{}[]?"), line
            assert name not in read
            read[name] = value
    return read


# --- env


@pytest.mark.parametrize("asked", TABLE)
def test_the_env_file_holds_what_the_script_is_made_of(asked: dict[str, Any]) -> None:
    """Each emitted option and variable stands in it with its value, and the model; nothing else does."""
    made = found(**asked)
    emitted = [each for each in made.explanations if each.emitted and each.kind != "client"]
    expected = {each.name if each.kind == "environment" else variable(each.option): each.value for each in emitted}
    assert dotenv(render(made, "env")) == expected | {"MODEL": made.resolved.model_source}


@pytest.mark.parametrize("asked", TABLE)
def test_a_shell_reads_the_env_file_the_same(asked: dict[str, Any], tmp_path: Path) -> None:
    """Sourced by bash in an empty environment it sets the same variables."""
    body = text("env", **asked)
    file = tmp_path / "serve.env"
    file.write_text(body)
    script = f"set -a; . {shlex.quote(str(file))}; exec env -0"
    done = subprocess.run(["env", "-i", BASH, "-c", script], capture_output=True, check=True)
    read = dict(pair.split("=", 1) for pair in done.stdout.decode().split("\0") if pair)
    assert {name: value for name, value in read.items() if name not in ("PWD", "SHLVL", "_")} == dotenv(body)


def test_the_env_file_steers_the_script(machine: Machine) -> None:
    """serve.sh of one request takes the values of another's file."""
    asked = {"model": "qwen2.5-7b-instruct", "concurrency": 4}
    other = {"model": "qwen2.5-7b-instruct", "concurrency": 32, "kv": "int8"}
    words = machine.words(text("bash", **asked), **dotenv(text("env", **other)))
    assert words == machine.words(text("bash", **other))


def test_every_adviser_has_an_env_file() -> None:
    """What advisers gave can be written so, options of other releases too."""
    for adviser in STORE.advisers:
        made = recommend.recommend_adviser(Request(gpu="A100-80G"), adviser, store=STORE)
        assert dotenv(render(made, "env"))["MODEL"] == made.resolved.model_source


@given(value=st.text(min_size=1) | st.from_regex(r"[A-Za-z0-9_./:@%+=,~#-]+", fullmatch=True))
def test_a_value_is_bare_or_refused(value: str) -> None:
    """What passes is one word of a shell as it stands; all else is refused in one line that names it."""
    if not container_image.BARE.fullmatch(value):
        with pytest.raises(RequestError, match="NAME") as raised:
            container_image.bare(value, "NAME")
        assert "\n" not in str(raised.value)
        return
    assert container_image.bare(value, "NAME") == value
    assert shlex.quote(value) == value
    assert shlex.split(value, comments=True) == [value]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gpu A100-80G --follow defaults --format env --with", b"CHAT_TEMPLATE"),
        ("--gpu A100-80G:4 --load high --goal throughput --format docker", b"--format bash"),
    ],
    ids=["a value with a blank", "several servers"],
)
def test_what_a_container_cannot_hold_is_refused(words: str, said: bytes) -> None:
    """Status 2, nothing on stdout, one line that names the variable or what to use instead."""
    done = recommend_here(*words.split(), *["chat-template=a b"] * words.endswith("--with"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr
    assert done.stderr.count(b"\n") == 1


# --- docker


@pytest.mark.parametrize("asked", TABLE)
def test_docker_runs_the_command_of_the_script(asked: dict[str, Any], machine: Machine) -> None:
    """In the container runs what serve.sh runs, listening inside; the release's own parser takes it."""
    made = found(**asked)
    words = machine.words(render(made, "docker"))
    command = words[words.index("lmdeploy") :]
    release = made.resolved.release.id
    ours = vars(parser(release).parse_args([*json_output.command(made)[3:], "--revision", "abc"]))
    inside = vars(parser(release).parse_args(command[3:]))
    asks = made.resolved.model.remote_code
    assert inside | {"server_name": "", "revision": ""} == ours | {"server_name": "", "revision": ""}
    assert inside["server_name"] == "0.0.0.0"
    assert inside["revision"] == "abc" or not asks
    assert words[:3] == ["docker", "run", "--rm"]
    assert words[words.index("--gpus") + 1] == str(made.config.cards)
    assert words[words.index("-p") + 1] == "127.0.0.1:23333:23333"
    assert "--ipc=host" in words
    assert words[words.index("lmdeploy") - 1] == container_image.image(STORE.releases[release], STORE).name
    passed = [words[index + 1] for index, word in enumerate(words) if word == "-e"]
    expected = {each.name: each.value for each in made.explanations if each.emitted and each.kind == "environment"}
    assert dict(each.split("=", 1) for each in passed if "=" in each) == expected


def test_docker_scripts_pass_bash_and_shellcheck(tmp_path: Path) -> None:
    """One of each kind, advisers included."""
    bodies = [text("docker", **asked) for asked in TABLE]
    for name in STORE.advisers:
        bodies.append(render(recommend.recommend_adviser(Request(gpu="A100-80G"), name, store=STORE), "docker"))
    shellcheck(tmp_path, *bodies)


def test_keys_come_from_a_file_and_stand_nowhere_else(machine: Machine, tmp_path: Path) -> None:
    """With API_KEYS_FILE the keys are arguments of the server; an empty file is refused."""
    keys = tmp_path / "keys.txt"
    keys.write_text("one\r\n\ntwo\n")
    body = text("docker", model="qwen2.5-7b-instruct")
    assert machine.words(body, API_KEYS_FILE=str(keys))[-3:] == ["--api-keys", "one", "two"]
    assert "--api-keys" not in machine.words(body)
    keys.write_text("\n")
    done = machine.run(body, API_KEYS_FILE=str(keys))
    assert done.returncode == 3
    assert "no key in" in done.stderr


def test_what_the_user_sets_is_taken(machine: Machine) -> None:
    """Image, cards, port and address from the environment; an open address without keys is warned of."""
    body = text("docker", model="qwen2.5-7b-instruct")
    chosen = {"IMAGE": "mine:1", "GPUS": '"device=2"', "PORT": "8000", "PUBLISH": "0.0.0.0"}
    words = machine.words(body, **chosen)
    assert words[words.index("-p") + 1] == "0.0.0.0:8000:23333"
    assert words[words.index("--gpus") + 1] == '"device=2"'
    assert "mine:1" in words
    assert "without API keys" in machine.run(body, **chosen).stderr


def test_a_folder_is_mounted_under_its_own_path(machine: Machine, tmp_path: Path) -> None:
    """MODEL may be a folder, with blanks too; one that is not there, or has a colon, is refused."""
    body = text("docker", model="qwen2.5-7b-instruct")
    folder = tmp_path / "my model"
    folder.mkdir()
    words = machine.words(body, MODEL=str(folder))
    assert f"{folder}:{folder}:ro" in words
    assert words[words.index("api_server") + 1] == str(folder)
    assert machine.run(body, MODEL=str(tmp_path / "none")).returncode == 3
    colon = tmp_path / "a:b"
    colon.mkdir()
    assert "colon" in machine.run(body, MODEL=str(colon)).stderr


def test_remote_code_wants_a_revision(machine: Machine) -> None:
    """As serve.sh does: without one the container is not started."""
    done = machine.run(text("docker", model="internvl3-8b-awq"), REVISION="")
    assert done.returncode == 3
    assert "REVISION is not set" in done.stderr
    assert not machine.calls()


@pytest.mark.parametrize("release", RELEASES)
def test_the_image_is_of_the_release(release: str) -> None:
    """The tag begins with the release; where no workflow was read the text says that it is unverified."""
    made = container_image.image(STORE.releases[release], STORE)
    assert made.name.startswith(f"openmmlab/lmdeploy:v{release}-cu12")
    body = text("docker", lmdeploy=release, model="qwen2.5-7b-instruct-awq")
    assert made.name in body
    assert ("Unverified" in body) == (not made.source)
    assert bool(made.source) == (release not in ("0.17.0", "0.18.0"))


@pytest.mark.parametrize("release", ["0.17.0", "0.18.0"])
def test_a_release_without_a_workflow_has_the_endings_of_the_one_before(release: str) -> None:
    """Those that the workflow of 0.16.0 pushes (.github/workflows/docker.yml), not those of the first release."""
    made = container_image.image(STORE.releases[release], STORE)
    assert [made.name, *made.others] == [f"openmmlab/lmdeploy:v{release}-{ending}" for ending in ("cu12.8", "cu13.0")]


def test_old_images_lack_what_vision_models_want() -> None:
    """Said for a vision model before 0.11.1 only."""
    assert "timm" in text("docker", lmdeploy="0.9.2", model="internvl3-8b-awq")
    assert "timm" not in text("docker", lmdeploy="0.9.2", model="qwen2.5-7b-instruct-awq")
    assert "timm" not in text("docker", lmdeploy="0.12.3", model="internvl3-8b-awq")


def test_docker_artefacts_are_executable(tmp_path: Path) -> None:
    """-o makes the docker script executable, the env file not."""
    for form, executable in (("docker", True), ("env", False)):
        path = tmp_path / form
        done = recommend_here("--gpu", "A100-80G", "--format", form, "-q", "-o", str(path))
        assert done.returncode == 0, done.stderr
        assert bool(path.stat().st_mode & 0o100) == executable
