"""What the comments of a fleet's files tell to type or to set exists and works."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from artefacts import BASH, command, found, need
from layouts import GRID, layout

from recommender.fleet import FORMS
from recommender.fleet.layout import Layout
from recommender.fleet.write import find_work, render_files, write

CASES = [(form, name) for form in FORMS for name in (*GRID, "shared")]


def texts(form: str, name: str) -> dict[str, str]:
    """The files of a layout; those of Kubernetes are for one host or for several alike."""
    return render_files(layout(name), form)


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith(("#", "--", "//"))]


@pytest.mark.parametrize(("form", "name"), CASES)
def test_formats_are_named_with_their_command(form: str, name: str) -> None:
    """``--format client`` is one of ``recommend``, not of ``plan``, which made these files."""
    for path, text in texts(form, name).items():
        for line in comments(text):
            for option in re.findall(r"--format (\w+)", line):
                owner = re.search(r"recommend (plan )?--format " + option, line)
                assert owner, (path, line)
                assert (option in FORMS) == bool(owner[1]), (path, line)


SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_the_readme_names_each_file_and_no_other(form: str, name: str) -> None:
    """By its name or its folder; ``server-N.env`` and ``lmdeploy@N`` stand for those of all numbers."""
    files = render_files(layout(name), form)
    named = set(re.findall(r"`([^` ]+)`", files["README.md"].split("## Start")[0])) - {".written.sha256"}
    kinds = {re.sub(r"(?<=server-)\d+|(?<=lmdeploy@)\d+", "N", path) for path in files} - {"README.md"}
    folders = {kind.partition("/")[0] for kind in kinds}
    services = {"lmdeploy", "lmdeploy-servers"} if form == "k8s" else {".env"}
    assert {kind for kind in kinds if not named & {kind, kind.partition("/")[0]}} == set()
    assert named - kinds - folders - services == set()


@pytest.mark.parametrize(("form", "name"), CASES)
def test_the_commands_of_the_readme_are_those_of_the_files(form: str, name: str) -> None:
    """They are shell, start before they stop, and name services, units and jobs that the files define."""
    files = render_files(layout(name), form)
    (block,) = SHELL.findall(files["README.md"])
    assert subprocess.run([BASH, "-n"], input=block, text=True, check=False).returncode == 0
    starts, stops = {"compose": ("up -d", "compose down"), "systemd": ("enable --now", "stop lmdeploy.target"),
                     "k8s": ("apply -k", "scale --replicas 0")}[form]  # fmt: skip
    assert 0 < block.index(starts) < block.index(stops)
    whole = files["README.md"]
    if form == "compose":
        services = yaml.safe_load(files["compose.yaml"])["services"]
        assert set(re.findall(r"\b(front|fetch|server\d+)(?=[`\s#])", whole.split("## Start")[1])) <= set(services)
        assert ("--rm fetch" in block) == ("fetch" in services)
    elif form == "systemd":
        units = {path.replace("@.service", "@") for path in files if path.startswith("lmdeploy")}
        assert {f"{unit}.service" for unit in re.findall(r"-u (lmdeploy-\w+)", whole)} <= units
        assert "lmdeploy@" in units
    else:
        kinds = {"deployment": "Deployment", "job": "Job"}
        there = {
            (document["kind"], document["metadata"]["name"])
            for path, text in files.items()
            if re.fullmatch(r"[a-z]+\.yaml", path) and path != "values.yaml"
            for document in yaml.safe_load_all(text)
            if "metadata" in document
        }
        assert {(kinds[kind], resource) for kind, resource in re.findall(r"(deployment|job)/([\w-]+)", whole)} <= there
        assert set(re.findall(r"-f ([a-z]+\.yaml)", block)) <= files.keys()


@pytest.mark.parametrize("form", FORMS)
def test_an_edited_readme_is_the_user_s(form: str, tmp_path: Path) -> None:
    """As every file of the folder: a later plan names it and does not replace it."""
    files = render_files(layout("tp-2"), form)
    write(files, tmp_path)
    path = tmp_path / "README.md"
    assert hashlib.sha256(path.read_bytes()).hexdigest() in (tmp_path / ".written.sha256").read_text("utf-8")
    assert find_work(files, tmp_path) == []
    path.write_text(path.read_text("utf-8").replace("nvidia-smi", "nvidia-smi -q"), "utf-8")
    changed = {**files, "README.md": files["README.md"] + "More.\n"}
    assert find_work(changed, tmp_path) == [path]


def checking(text: str) -> list[str]:
    """The lines that the head of ``haproxy.cfg`` says to type, up to the check."""
    typed = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    end = next(place for place, line in enumerate(typed) if " -c " in line)
    return [line for line in typed[: end + 1] if line.startswith("export") or " -c " in line]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["one-card", "tp-2"])
def test_the_check_in_the_head_of_the_front_works(form: str, name: str, tmp_path: Path) -> None:
    """As it stands there, with an address for ADDRESS, in the folder."""
    need("haproxy")
    files = texts(form, name)
    for path in ("haproxy.cfg", "front.sh", "front.lua"):
        (tmp_path / path).write_text(files[path], "utf-8")
    lines = [line.replace("ADDRESS", "127.0.0.1") for line in checking(files["haproxy.cfg"])]
    done = subprocess.run([BASH, "-ec", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("given", [{}, {"HOST_1": "10.0.0.1"}, {"HOST_1": "10.0.0.1", "HOST_2": ""}])
def test_a_front_without_a_host_s_address_does_not_start(given: dict[str, str], tmp_path: Path) -> None:
    """HAProxy reads an empty address as this host: all servers would be this one's."""
    need("haproxy")
    files = render_files(Layout(found(gpu="l4", load="single"), 2), "compose")
    for path in ("haproxy.cfg", "front.sh", "front.lua"):
        (tmp_path / path).write_text(files[path], "utf-8")
    words = shlex.split("bash front.sh haproxy -c -f haproxy.cfg")
    environment = {**os.environ, **given}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"HOST_{2 if given else 1} is not set" in done.stderr


@pytest.mark.parametrize("name", [*GRID, "shared"])
def test_compose_names_every_variable_that_it_needs(name: str) -> None:
    """A command fails until they are set, ``docker compose down`` too; the head names them, and no other."""
    text = texts("compose", name)["compose.yaml"]
    needed = set(re.findall(r"\$\{(\w+):\?", text))
    head = text[: text.index("\nname: ")]
    said = re.search(r"# Every command needs these, in \.env: (.*)\.", head)
    assert set(re.findall(r"[A-Z][A-Z_0-9]+", said[1]) if said else ()) == needed


@pytest.mark.parametrize("name", [*GRID, "shared"])
def test_units_name_every_variable_to_set(name: str) -> None:
    """Those that are empty in server.env, and the addresses in front.env; nothing starts until they are set."""
    files = texts("systemd", name)
    head = files["lmdeploy.target"].partition("[Unit]")[0]
    empty = set(re.findall(r"^([A-Z_]+)=$", files["server.env"], re.MULTILINE))
    said = re.search(r"set ([A-Z_]+(?: and [A-Z_]+)*) in server\.env", head)
    assert set(said[1].split(" and ") if said else ()) == empty
    assert ("addresses in front.env" in head) == ("HOST_1=" in files["front.env"])


@pytest.mark.parametrize("name", [*GRID, "shared"])
@pytest.mark.parametrize("form", ["compose", "systemd"])
def test_every_rollout_that_is_told_names_its_host(form: str, name: str) -> None:
    """Of several hosts the script refuses to run without it."""
    several = layout(name).hosts > 1
    files = texts(form, name)
    assert ("HOST=${HOST:?" in files["rollout.sh"]) == several
    for path, text in files.items():
        for line in comments(text):
            if "bash" in line and "rollout.sh" in line:
                assert ("HOST=1 bash" in line) == several, (path, line)


def test_new_keys_reach_the_load_balancer_too(tmp_path: Path) -> None:
    """Both read the keys when they start, so both are restarted after a change."""
    words = ("--rps", "5", "--gpu", "L4", "--tp", "1", "--format", "k8s", "-o", str(tmp_path / "fleet"))
    assert command("plan", *words)[0] == 0
    text = (tmp_path / "fleet" / "secret.example.yaml").read_text("utf-8")
    (restart,) = [line for line in text.splitlines() if "rollout restart" in line]
    named = set(re.findall(r"deployment/([\w-]+)", restart))
    readers = set()
    for path in ("deployment.yaml", "front.yaml"):
        manifest = (tmp_path / "fleet" / path).read_text("utf-8")
        if "secretName: lmdeploy-api-keys" in manifest:
            readers.add(re.search(r"^  name: ([\w-]+)$", manifest, re.MULTILINE)[1])  # type: ignore[index]
    assert named == readers == {"lmdeploy-server", "lmdeploy-front"}
