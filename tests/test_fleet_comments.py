"""What the comments of a fleet's files tell to type or to set exists and works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from artefacts import BASH, command, found, need
from layouts import GRID, layout

from recommender.fleet import FORMS
from recommender.fleet.layout import Layout
from recommender.fleet.write import render_files

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
