"""``recommend smoke FOLDER``: a fleet's servers and front on a stand-in machine, and a server that dies under load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from artefacts import found
from test_smoke import BUSY_S, RECOMMEND, ports, prepared, rendered

from recommender.fleet.layout import Layout
from recommender.fleet.written import made
from recommender.render import render
from recommender.request import RequestError
from recommender.smoke import folder, launch

FORMS = ("systemd", "compose")
PORT = 23333


@dataclass
class Ran:
    """One run of a folder, and what is left of it."""

    code: int
    out: str
    err: str
    left: dict[int, str]
    first: int

    @property
    def told(self) -> dict[str, Any]:
        """The JSON on stdout."""
        told: dict[str, Any] = json.loads(self.out)
        return told


def smoke(
    place: Path, form: str, *words: str, cards: int = 2, fault: str = "", gpu: str = "H100-80G:2", load: str = "32",
    change: Callable[[dict[str, str]], object] = lambda _: None, **variables: str,
) -> Ran:  # fmt: skip
    """Writes a fleet's folder for free ports, changes it, and runs it."""
    if not shutil.which("haproxy", path="/usr/bin:/usr/sbin:/usr/local/sbin"):
        pytest.skip("haproxy is not installed; .ci/run installs it (apt-get install haproxy)")
    machine, environment = prepared(place, fault, cards, variables)
    first = ports()
    environment |= {"FRONT_PORT": str(first + 2), "STATS_PORT": str(first + 3)}
    request = {"gpu": gpu.partition(":")[0], "gpu_count": int(gpu.partition(":")[2] or 1), "concurrency": int(load)}
    files = made(Layout(found(load="", **request)), form)
    for number in range(2):
        files = {name: text.replace(str(PORT + number), str(first + number)) for name, text in files.items()}
    change(files)
    target = place / "work" / "fleet"
    target.mkdir()
    for name, text in files.items():
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_text(text)
    command = [*RECOMMEND, "smoke", "fleet", "--seconds", "0.6", "--patience", "20", "--json", *words]
    done = subprocess.run(
        command, env=environment, cwd=place / "work", capture_output=True, text=True, timeout=BUSY_S, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr, machine.processes(), first)


# --- a host's servers and front --------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_is_started_proved_and_stopped(form: str, tmp_path: Path) -> None:
    """Two servers, each on its card, with the settings that their engines read back; requests reach both."""
    ran = smoke(tmp_path, form, "--phase", "8")
    assert ran.code == 0, ran.err
    assert not ran.left
    run = ran.told["run"]
    assert (run["kind"], run["servers"], run["gpu_count"]) == (form, 2, 2)
    assert all(each["asked"] == each["found"] for each in run["effective"])
    assert len(run["checks"]) == 5
    assert run["phases"][0]["window_requests"] > 8
    assert run["environment"] == ["OMP_NUM_THREADS=4"]
    assert not run["killed"]


@pytest.mark.parametrize("form", FORMS)
def test_a_killed_server_costs_what_was_in_flight_there(form: str, tmp_path: Path) -> None:
    """The front goes on with the other one and uses the first again; the report says so."""
    ran = smoke(tmp_path, form, "--phase", "8", "--kill")
    assert ran.code == 0, ran.err
    assert not ran.left
    (killed,) = ran.told["run"]["killed"]
    assert killed["lost_later"] == 0
    assert killed["lost"] <= 8
    assert killed["answered"] > 100
    assert killed["restarted_s"] >= 5
    assert killed["back_s"] > killed["restarted_s"]
    assert min(killed["rps_before"], killed["rps_down"], killed["rps_after"]) > 0


def test_a_server_that_never_comes_back_is_told(tmp_path: Path) -> None:
    """Its end is an error of the run, not a figure that looks well."""
    started = tmp_path / "started"
    once = f"#!/bin/bash\n[[ $* != *CARD1* ]] || {{ [[ ! -e {started} ]] || exit 9; touch {started}; }}\n"

    def wrapped(files: dict[str, str]) -> None:
        # The second server's program starts once and never again.
        own = tmp_path / "bin" / "lmdeploy-once"
        own.write_text(once + f'exec {tmp_path}/bin/lmdeploy "${{@/CARD1/}}"\n')
        own.chmod(0o755)
        files["server.env"] = files["server.env"].replace("/opt/lmdeploy/bin/lmdeploy", str(own))
        files["lmdeploy@.service"] = files["lmdeploy@.service"].replace(
            "--server-name", "--model-name ${NAME_OF} --server-name"
        )
        files["server-0.env"] += "NAME_OF=m\n"
        files["server-1.env"] += "NAME_OF=CARD1m\n"

    ran = smoke(tmp_path, "systemd", "--phase", "4", "--kill", change=wrapped)
    assert ran.code == 17, (ran.out, ran.err)
    assert "got no request again" in ran.err
    assert not ran.left


def test_pinned_servers_have_these_cores_alone(tmp_path: Path) -> None:
    """The kernel's word for it, of each server; the record says so too."""

    def told(files: dict[str, str]) -> None:
        own = tmp_path / "bin" / "lmdeploy-told"
        lines = ("#!/bin/bash", f"grep Cpus_allowed_list /proc/$$/status >> {tmp_path}/cores")
        own.write_text("\n".join((*lines, f'exec {tmp_path}/bin/lmdeploy "$@"\n')))
        own.chmod(0o755)
        files["server.env"] = files["server.env"].replace("/opt/lmdeploy/bin/lmdeploy", str(own))

    first = min(os.sched_getaffinity(0))
    ran = smoke(tmp_path, "systemd", "--phase", "4", "--pin", str(first), change=told)
    assert ran.code == 0, ran.err
    assert (tmp_path / "cores").read_text().split() == ["Cpus_allowed_list:", str(first)] * 2
    assert ran.told["run"]["pinned"] == str(first)
    assert ran.told["run"]["cpus"] == len(os.sched_getaffinity(0))


def test_a_server_that_dies_at_start_ends_the_run(tmp_path: Path) -> None:
    """With its own name for what happened, and the front never starts."""
    ran = smoke(tmp_path, "systemd", "--phase", "4", fault="crash-start")
    assert ran.code == 24, (ran.out, ran.err)
    assert not ran.left


def test_a_front_that_does_not_start_is_told(tmp_path: Path) -> None:
    """HAProxy's own words are shown."""

    def broken(files: dict[str, str]) -> None:
        files["haproxy.cfg"] = files["haproxy.cfg"].replace("balance leastconn", "balance nonsense")

    ran = smoke(tmp_path, "compose", "--phase", "4", change=broken)
    assert ran.code == 24, (ran.out, ran.err)
    assert "the front ended" in ran.err
    assert "balance" in ran.err
    assert not ran.left


# --- reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "request_", [{"gpu": "L4", "gpu_count": 4}, {"gpu": "H100-80G", "gpu_count": 4, "tp": 2, "model": "internvl3-38b"}]
)
def test_a_folder_says_what_the_script_says(form: str, request_: dict[str, Any]) -> None:
    """Options and environment are those of serve.sh for the same request, its proxy and port aside."""
    answer = found(load="", concurrency=32, **request_)
    fleet = folder.of(made(Layout(answer), form), form, "fleet")
    script = launch.of(render(answer, "bash"), "serve.sh")
    theirs = dict(_pairs(script.words(answer.facts, {})))
    for name in ("--proxy-url", "--server-port", "--server-name"):
        theirs.pop(name, None)
    assert dict(_pairs(fleet.words(answer.facts, {}))) == theirs
    assert set(fleet.exported({})) == set(script.exported({}))
    parts = fleet.parts({"REVISION": "main"})
    tp = request_.get("tp", 1)
    assert [each.cards for each in parts] == [",".join(map(str, range(first, first + tp))) for first in range(0, 4, tp)]
    assert [each.port for each in parts] == [PORT + number for number in range(4 // tp)]


def _pairs(words: tuple[str, ...]) -> list[tuple[str, str]]:
    after = (*words[1:], "--")
    return [(each, "" if after[n].startswith("--") else after[n]) for n, each in enumerate(words) if each[:2] == "--"]


def test_of_several_hosts_the_first_is_started() -> None:
    """The others are addresses that refuse at once."""
    fleet = folder.of(
        made(Layout(found(load="", concurrency=32, gpu="H100-80G", gpu_count=2), 3), "systemd"), "systemd", "fleet"
    )
    assert fleet.hosts == 3
    front = fleet.front({"HOST_2": "10.0.0.2", "FRONT_ADDRESS": "0.0.0.0"})
    assert front["FRONT_ADDRESS"] == "127.0.0.1"
    assert {name: value for name, value in front.items() if name.startswith("HOST_")} == {
        "HOST_1": "127.0.0.1", "HOST_2": folder.NOWHERE, "HOST_3": folder.NOWHERE,
    }  # fmt: skip
    assert len(fleet.parts({"REVISION": "main"})) == 2


@pytest.mark.parametrize(
    ("form", "name", "old", "new", "said"),
    [
        ("systemd", "lmdeploy@.service", "# request:", "# wish:", "recommend did not write lmdeploy@.service"),
        ("systemd", "haproxy.cfg", "", "", "no haproxy.cfg in it"),
        ("systemd", "server.env", 'MAX_BATCH_SIZE="', 'OTHER="', "MAX_BATCH_SIZE is not set"),
        ("systemd", "lmdeploy@.service", "api_server", "gradio", "starts no api_server"),
        ("compose", "compose.yaml", "services:", "services: [", "cannot be read"),
        ("compose", "compose.yaml", "- api_server", "- gradio", "it starts no server"),
        ("compose", "compose.yaml", "device_ids", "ids", "reserves no card"),
        ("compose", "compose.yaml", "# request: {", "# request: {,", "the request in its head cannot be read"),
    ],
)
def test_a_folder_that_cannot_be_read_is_one_line(form: str, name: str, old: str, new: str, said: str) -> None:
    """What, where, and how to mend."""
    texts = made(Layout(found(load="", concurrency=32, gpu="H100-80G", gpu_count=2)), form)
    texts[name] = texts[name].replace(old, new) if old else ""
    if not old:
        del texts[name]
    with pytest.raises(RequestError, match=said):
        folder.of(texts, form, "fleet").parts({"REVISION": "main"})


def test_compose_variables() -> None:
    """As the compose specification has them: interpolation, section "Interpolation syntax"."""
    given = {"SET": "v", "EMPTY": ""}
    for text, value in (
        ("${SET}", "v"), ("${SET:-d}", "v"), ("${EMPTY:-d}", "d"), ("${NONE-d}", "d"), ("${NONE:-}", ""),
        ("${SET:?no}", "v"), ("${SET:+r}", "r"), ("${NONE:+r}", ""), ("$${SET}", "${SET}"), ("a${SET}b", "avb"),
    ):  # fmt: skip
        assert folder.expanded(text, given, "here") == value, text
    with pytest.raises(RequestError, match="here: NONE is not set: why"):
        folder.expanded("${NONE:?why}", given, "here")


# --- the command line ---------------------------------------------------------------------------------


def cli(*words: str, cwd: Path) -> tuple[int, str, str]:
    """One call; its exit code and output."""
    done = subprocess.run(
        [*RECOMMEND, "smoke", *words], cwd=cwd, capture_output=True, text=True, timeout=BUSY_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with three fleets, a script and an empty folder."""
    layout = Layout(found(load="", concurrency=32, gpu="H100-80G", gpu_count=2))
    for form in ("compose", "systemd", "k8s"):
        for name, text in made(layout, form).items():
            path = tmp_path / form / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (tmp_path / "empty").mkdir()
    (tmp_path / "serve.sh").write_text(rendered("--gpu", "H100-80G", "--load", "single"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("empty",), "name a folder that --format wrote"),
        (("k8s",), "Kubernetes starts these"),
        (("serve.sh", "--kill"), "--kill is for a fleet"),
        (("--gpu", "H100-80G", "--kill"), "--kill is for a fleet"),
        (("systemd", "--copies", "2"), "--copies and --mps are for a script"),
        (("compose", "--follow", "gemini"), "--follow says what to render"),
    ],
)
def test_what_a_fleet_cannot_be_asked_is_one_line(words: tuple[str, ...], said: str, written: Path) -> None:
    """Exit code 2 and a way to mend it."""
    code, out, err = cli(*words, "--dry-run", cwd=written) if "--copies" not in words else cli(*words, cwd=written)
    assert said in err or code == 3, (code, err)
    assert (code, out) == (2, "") or "copies" in said
    assert err.count("\n") == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_dry_run_shows_every_server_and_what_was_edited(form: str, written: Path) -> None:
    """As rendered; then with one value changed."""
    code, out, _ = cli(form, "--dry-run", cwd=written)
    assert code == 0
    assert "as recommend renders it; nothing was started" in out
    assert [line.split()[0] for line in out.splitlines() if "api_server" in line] == [
        "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1",
    ]  # fmt: skip
    name, old, new = ("server.env", 'SESSION_LEN="4096"', 'SESSION_LEN="8192"')
    if form == "compose":
        name, old, new = "compose.yaml", "SESSION_LEN:-4096", "SESSION_LEN:-8192"
    path = written / form / name
    line = next(n for n, each in enumerate(path.read_text().split("\n"), 1) if old in each)
    path.write_text(path.read_text().replace(old, new))
    _, out, _ = cli(form, "--dry-run", cwd=written)
    assert f"{name} line {line} is edited" in out
    assert "--session-len 8192" in out
