"""``recommend smoke FOLDER``: a fleet's servers and front on a stand-in machine, and a server that dies under load."""

import errno
import json
import os
import re
import resource
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from artefacts import found, run_program, write_files
from test_smoke import BUSY_S, RECOMMEND, ports, prepared, rendered

from recommender.choose.recommend import recommend_adviser
from recommender.common.errors import RequestError
from recommender.fleet.layout import Layout
from recommender.fleet.write import render_files
from recommender.knowledge import records
from recommender.knowledge.load import load
from recommender.render import artefact
from recommender.render.formats import render
from recommender.render.template import request_json
from recommender.smoke import dryrun, fleet_folder, fleet_service
from recommender.smoke.failures import KINDS
from recommender.smoke.fleet_session import FleetSession, limit_connections
from recommender.smoke.result import RunRequest

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
    files = render_files(Layout(found(load="", **request)), form)
    for number in range(2):
        files = {name: text.replace(str(PORT + number), str(first + number)) for name, text in files.items()}
    change(files)
    write_files(place / "work" / "fleet", files)
    command = [*RECOMMEND, "smoke", "fleet", "--seconds", "0.6", "--patience", "20", "--json", *words]
    done = run_program(command, env=environment, cwd=place / "work", timeout=BUSY_S)
    return Ran(done.returncode, done.stdout, done.stderr, machine.processes(), first)


# --- a host's servers and front --------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_is_started_proved_and_stopped(form: str, tmp_path: Path) -> None:
    """Two servers, each on its card, with the settings that their engines read back; the front asks for a key."""

    def keys(files: dict[str, str]) -> None:
        files["api-keys"] = "# One a line.\n\nsecret\n"

    ran = smoke(tmp_path, form, "--phase", "8", change=keys, API_KEYS_FILE="fleet/api-keys", API_KEYS="of a script")
    assert ran.code == 0, ran.err
    assert not ran.left
    run = ran.told["run"]
    assert (run["kind"], run["servers"], run["gpu_count"]) == (form, 2, 2)
    assert all(each["asked"] == each["found"] for each in run["effective"])
    assert len(run["checks"]) == 5
    assert run["phases"][0]["window_requests"] > 8
    assert run["environment"] == ["OMP_NUM_THREADS=4"]
    assert not run["killed"]


@pytest.mark.parametrize(("form", "load", "flight"), [("systemd", "8", 8), ("compose", "8rps", 32)])
def test_a_killed_server_costs_what_was_in_flight_there(form: str, load: str, flight: int, tmp_path: Path) -> None:
    """The front goes on with the other one and uses the first again; the report says so.

    Where arrivals alone are asked for, as many are in flight meanwhile as the folder was rendered for.
    """
    ran = smoke(tmp_path, form, "--phase", load, "--kill")
    assert ran.code == 0, ran.err
    assert not ran.left
    (killed,) = ran.told["run"]["killed"]
    assert killed["lost_later"] == 0
    assert (killed["concurrency"], killed["lost"] <= flight) == (flight, True)
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
    assert "served no request again" in ran.err
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
    assert "HAProxy ended" in ran.err
    assert "balance" in ran.err
    assert not ran.left


@pytest.mark.parametrize("whose", ["lmdeploy@1's", "HAProxy's: set FRONT_PORT"])
def test_a_taken_port_is_told_by_who_wants_it(whose: str, tmp_path: Path) -> None:
    """Before anything is started; LMDeploy's proxy, which no fleet has, is not named."""
    with socket.socket() as other:

        def listen(files: dict[str, str]) -> None:
            port = int(files["server-1.env"].rpartition("=")[2])
            other.bind(("127.0.0.1", port + whose.startswith("HAProxy")))
            other.listen()

        ran = smoke(tmp_path, "systemd", "--phase", "4", change=listen)
    assert ran.code == KINDS["port-taken"].code, ran.err
    assert f"({whose})" in ran.err
    assert "PROXY_URL" not in ran.err


def test_servers_of_a_card_share_it_by_mps(tmp_path: Path) -> None:
    """One MPS, which all servers know by the folder that it listens in and not by the unit's."""
    seen: list[Mapping[str, str]] = []
    session = object.__new__(FleetSession)
    answer = found(load="", concurrency=32, gpu="H100-80G", gpu_count=2)
    answer = replace(answer, config=replace(answer.config, servers=4, share=2))
    texts = render_files(Layout(answer), "systemd")
    session.request = RunRequest(
        fleet_folder.from_texts(texts, "systemd", "fleet"), answer, (), {"PATH": "/bin"}, {"REVISION": "main"}, ""
    )
    session.folder = tmp_path
    session.fleet_servers = session.fleet.servers(answer, session.request.variables)
    session.guard = SimpleNamespace(start=lambda *given: seen.append(given[1]))  # type: ignore[assignment]
    for name in ("pin_command", "find_lmdeploy"):
        setattr(session, name, lambda: "")
    for number in range(4):
        session.start_server(number)
    assert [each["CUDA_VISIBLE_DEVICES"] for each in seen] == ["0", "1", "0", "1"]
    assert {each["CUDA_MPS_PIPE_DIRECTORY"] for each in (*seen, session.variables())} == {str(tmp_path)}
    assert "CUDA_MPS_PIPE_DIRECTORY=/run/lmdeploy-mps" in texts["server.env"]


# --- reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "request_", [{"gpu": "L4", "gpu_count": 4}, {"gpu": "H100-80G", "gpu_count": 4, "tp": 2, "model": "internvl3-38b"}]
)
def test_a_folder_says_what_the_script_says(form: str, request_: dict[str, Any]) -> None:
    """Options and environment are those of serve.sh for the same request, its proxy and port aside."""
    answer = found(load="", concurrency=32, **request_)
    fleet = fleet_folder.from_texts(render_files(Layout(answer), form), form, "fleet")
    script = artefact.parse(render(answer, "bash"), "serve.sh")
    theirs = dict(_pairs(script.words(answer.resolved, {})))
    for name in ("--proxy-url", "--server-port", "--server-name"):
        theirs.pop(name, None)
    assert dict(_pairs(fleet.words(answer.resolved, {}))) == theirs
    assert set(fleet.exported({})) == set(script.exported({}))
    parts = fleet.read_servers({"REVISION": "main"})
    tp = request_.get("tp", 1)
    assert [part.cards for part in parts] == [",".join(map(str, range(first, first + tp))) for first in range(0, 4, tp)]
    assert [part.port for part in parts] == [PORT + number for number in range(4 // tp)]


def _pairs(words: tuple[str, ...]) -> list[tuple[str, str]]:
    after = (*words[1:], "--")
    return [(word, "" if after[n].startswith("--") else after[n]) for n, word in enumerate(words) if word[:2] == "--"]


def test_of_several_hosts_the_first_is_started() -> None:
    """The others are addresses that refuse at once."""
    fleet = fleet_folder.from_texts(
        render_files(Layout(found(load="", concurrency=32, gpu="H100-80G", gpu_count=2), 3), "systemd"),
        "systemd",
        "fleet",
    )
    assert fleet.hosts == 3
    front = fleet.front({"HOST_2": "10.0.0.2", "FRONT_ADDRESS": "0.0.0.0"})
    assert front["FRONT_ADDRESS"] == "127.0.0.1"
    assert {name: value for name, value in front.items() if name.startswith("HOST_")} == {
        "HOST_1": "127.0.0.1", "HOST_2": fleet_folder.NOWHERE, "HOST_3": fleet_folder.NOWHERE,
    }  # fmt: skip
    assert len(fleet.read_servers({"REVISION": "main"})) == 2


TWO: dict[str, Any] = {"load": "", "concurrency": 32, "gpu": "H100-80G", "gpu_count": 2}


def of(
    form: str, change: Callable[[dict[str, str]], object] = lambda _: None, hosts: int = 1
) -> fleet_folder.FleetArtefact:
    texts = render_files(Layout(found(**TWO), hosts), form)
    change(texts)
    return fleet_folder.from_texts(texts, form, "fleet")


@pytest.mark.parametrize(("file", "text", "said"), [
    ("server-1.env", "", "listen on 23333, but haproxy.cfg names 23333, 23334"),
    ("server-2.env", "CUDA_VISIBLE_DEVICES=0\nSERVER_PORT=23335\n", "listen on 23333, 23334, 23335, but"),
    ("server-1.env", "CUDA_VISIBLE_DEVICES=1\nSERVER_PORT=23333\n", "listen on 23333, 23333, but"),
    ("server-1.env", "CUDA_VISIBLE_DEVICES=1\nSERVER_PORT=99999\n", "--server-port is '99999'"),
    ("server-1.env", "CUDA_VISIBLE_DEVICES=1\nSERVER_PORT=\n", "SERVER_PORT is not set"),
])  # fmt: skip
def test_servers_and_front_have_the_same_ports(file: str, text: str, said: str) -> None:
    """Else a server would run without requests, or be counted that does not run."""
    with pytest.raises(RequestError, match=said):
        of("systemd", lambda texts: texts.update({file: text}) if text else texts.pop(file)).read_servers(
            {"REVISION": "main"}
        )


def test_fewer_servers_than_its_request_is_for() -> None:
    """A server that was taken out of every file is told all the same: predictions and records would be of two."""

    def one(texts: dict[str, str]) -> None:
        del texts["server-1.env"]
        texts["haproxy.cfg"] = re.sub(".*:23334.*", "", texts["haproxy.cfg"])

    fleet = of("systemd", one)
    assert len(fleet.read_servers({"REVISION": "main"})) == 1
    with pytest.raises(RequestError, match="starts 1 server, but its request gets 2"):
        fleet.servers(found(**TWO), {"REVISION": "main"})


def test_files_of_variables_count_as_on_the_host() -> None:
    """compose reads .env beside its file, below the environment; a unit reads its files, blanks and all."""
    compose = of("compose", lambda texts: texts.update({".env": "SESSION_LEN=2048\nSERVER_LIMIT=3\n"}))
    answer = found(**TWO)
    assert dict(_pairs(compose.words(answer.resolved, {})))["--session-len"] == "2048"
    assert dict(_pairs(compose.words(answer.resolved, {"SESSION_LEN": "1024"})))["--session-len"] == "1024"
    assert compose.overridden({}) == []
    assert compose.overridden({"SESSION_LEN": "1024", "QUEUE_LIMIT": "7"}) == ["QUEUE_LIMIT", "SESSION_LEN"]
    assert compose.front({})["SERVER_LIMIT"] == "3"

    def edited(texts: dict[str, str]) -> None:
        texts["server.env"] = re.sub("(?m)^MODEL=.*", "MODEL=/srv/my models/été", texts["server.env"])
        texts["front.env"] += "SERVER_LIMIT=5\nFRONT_PORT=9000\nFRONT_ADDRESS=10.0.0.7\n"

    units = of("systemd", edited)
    assert units.model({}) == "/srv/my models/été"
    front = units.front({"FRONT_PORT": "9001"})
    assert [front[name] for name in ("SERVER_LIMIT", "FRONT_PORT", "FRONT_ADDRESS")] == ["5", "9001", "127.0.0.1"]


@pytest.mark.parametrize("form", FORMS)
def test_no_token_gets_into_a_record(form: str) -> None:
    """Whoever adds one to the files, or anything else that is no setting, finds it in no output."""

    def added(texts: dict[str, str]) -> None:
        texts["server.env"] = f"{texts.get('server.env', '')}\nHF_TOKEN=secret\nOTHER=1\n"
        told = texts.get("compose.yaml", "")
        texts["compose.yaml"] = told.replace("    PYTHONUNBUFFERED:", "    HF_TOKEN: secret\n    PYTHONUNBUFFERED:", 1)

    fleet = of(form, added)
    assert fleet.read_servers({"REVISION": "main"})[0].environment["HF_TOKEN"] == "secret"
    assert fleet.exported({}) == of(form).exported({}) == ("OMP_NUM_THREADS=4",)


@pytest.mark.parametrize("port", ["many", "0", "70000", "٣"])
def test_a_front_port_that_is_none_is_one_line(port: str) -> None:
    """Of the environment or of a file."""
    with pytest.raises(RequestError, match="FRONT_PORT is"):
        of("systemd").front({"FRONT_PORT": port})
    with pytest.raises(RequestError, match="FRONT_PORT is ''"):
        of("compose", lambda texts: texts.update({"haproxy.cfg": "server a 127.0.0.1:1"})).front({})


def test_a_service_as_others_write_it() -> None:
    """The environment as a list, a name alone, an address of the host that is not asked for."""

    def rewritten(texts: dict[str, str]) -> None:
        listed = '  environment: ["OMP_NUM_THREADS=4", HF_TOKEN, ABSENT]\n  shm_size'
        texts["compose.yaml"] = re.sub(r"(?s)  environment:\n.*?\n  shm_size", listed, texts["compose.yaml"], count=1)

    fleet = of("compose", rewritten, hosts=2)
    first, _ = fleet.read_servers({"REVISION": "main", "HF_TOKEN": "t"})
    assert dict(first.environment) == {"OMP_NUM_THREADS": "4", "HF_TOKEN": "t"}
    assert dict(zip(first.words, first.words[1:], strict=False))["--server-name"] == "127.0.0.1"


@pytest.mark.parametrize("name", ["model", "my models $x/été"])
@pytest.mark.parametrize("form", FORMS)
def test_a_local_model_is_loaded_from_where_it_is(form: str, name: str) -> None:
    """Also where a container has it elsewhere."""
    answer = found(**TWO)
    local = replace(answer, resolved=replace(answer.resolved, model_source=f"/srv/{name}", weight_bytes=1))
    fleet = fleet_folder.from_texts(render_files(Layout(local), form), form, "fleet")
    assert fleet.model({}) == f"/srv/{name}"
    assert fleet.model({"MODEL": "/elsewhere"}) == "/elsewhere"


@pytest.mark.parametrize(("limit", "option"), [(20000, ["-n", "9750"]), (100_000, []), (-1, []), (100, [])])
def test_the_front_opens_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch, limit: int, option: list[str]) -> None:
    """HAProxy ends at once where its configuration wants more files than the hard limit of this process."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, limit))
    assert limit_connections("global\n    maxconn 12837\ndefaults\n") == option


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "asked",
    [
        TWO,
        {"gpu": "H100-80G", "gpu_count": 4, "tp": 2, "model": "internvl3-38b", "load": "", "concurrency": 32},
        {"gpu": "H200", "gpu_count": 2, "model": "internvl3-2b", "load": "", "concurrency": 256, "goal": "throughput"},
        {"gpu": "H200", "gpu_count": 2, "model": "qwen3-vl-4b-instruct", "load": "", "concurrency": 64, "cpus": 32},
    ],
    ids=["cards", "tp", "shares", "fours"],
)
def test_what_a_record_ran_with_renders_again(form: str, asked: dict[str, Any]) -> None:
    """From its command and environment to the launch that its digest names; nothing is edited as rendered."""
    answer = found(**asked)
    assert answer.config.share == {"internvl3-2b": 2, "qwen3-vl-4b-instruct": 4}.get(asked.get("model", ""), 1)
    fleet = fleet_folder.from_texts(render_files(Layout(answer), form), form, "fleet")
    kept = SimpleNamespace(
        id="fleet", kind=form, request=request_json(answer),
        command=fleet.words(answer.resolved, {}), environment=fleet.exported({}),
    )  # fmt: skip
    request, given = artefact.read_run(cast("records.SmokeRun", kept), load())
    again = recommend_adviser(request, "defaults", given)
    rendered_again = fleet_folder.from_texts(render_files(Layout(again), form), form, "fleet")
    assert rendered_again.launch_sha256(answer.resolved) == fleet.launch_sha256(answer.resolved)
    assert dryrun.find_edits(fleet, answer) == []


def test_what_an_edit_took_away_or_added_is_told() -> None:
    """A line that is gone from a unit changes what it does as much as one that is new."""

    def edited(texts: dict[str, str]) -> None:
        texts["lmdeploy@.service"] = texts["lmdeploy@.service"].replace("  --trust-remote-code \\\n", "")
        texts["server-1.env"] = f"# mine\n{texts['server-1.env']}"

    answer = found(**TWO)
    assert dryrun.find_edits(of("systemd", edited), answer) == [
        "lmdeploy@.service (without '--trust-remote-code \\\\')"
    ]
    assert dryrun.find_edits(of("compose", lambda texts: texts.update({".env": ""})), answer) == [".env (added)"]


@pytest.mark.parametrize(
    ("form", "name", "old", "new", "said"),
    [
        ("systemd", "lmdeploy@.service", "# request:", "# wish:", "recommend did not write lmdeploy@.service"),
        ("systemd", "haproxy.cfg", "", "", "it has no haproxy.cfg"),
        ("systemd", "server.env", 'MAX_BATCH_SIZE="', 'OTHER="', "MAX_BATCH_SIZE is not set"),
        ("systemd", "lmdeploy@.service", "api_server", "gradio", "starts no api_server"),
        ("systemd", "lmdeploy@.service", "${SERVER_PORT}\n", '"${SERVER_PORT}\n', "ExecStart cannot be read"),
        ("compose", "compose.yaml", "services:", "services: [", "cannot be read"),
        ("compose", "compose.yaml", "- api_server", "- gradio", "it starts no server"),
        ("compose", "compose.yaml", "device_ids", "ids", "reserves no GPU"),
        ("compose", "compose.yaml", "# request: {", "# request: {,", "the request in its head cannot be read"),
    ],
)
def test_a_folder_that_cannot_be_read_is_one_line(form: str, name: str, old: str, new: str, said: str) -> None:
    """What, where, and how to mend."""
    texts = render_files(Layout(found(load="", concurrency=32, gpu="H100-80G", gpu_count=2)), form)
    texts[name] = texts[name].replace(old, new) if old else ""
    if not old:
        del texts[name]
    with pytest.raises(RequestError, match=said):
        fleet_folder.from_texts(texts, form, "fleet").read_servers({"REVISION": "main"})


def test_compose_variables() -> None:
    """As the compose specification has them: interpolation, section "Interpolation syntax"."""
    given = {"SET": "v", "EMPTY": ""}
    for text, value in (
        ("${SET}", "v"), ("${SET:-d}", "v"), ("${EMPTY:-d}", "d"), ("${NONE-d}", "d"), ("${NONE:-}", ""),
        ("${SET:?no}", "v"), ("${SET:+r}", "r"), ("${NONE:+r}", ""), ("$${SET}", "${SET}"), ("a${SET}b", "avb"),
    ):  # fmt: skip
        assert fleet_service.expand(text, given, "here") == value, text
    with pytest.raises(RequestError, match="here: NONE is not set: why"):
        fleet_service.expand("${NONE:?why}", given, "here")


# --- the command line ---------------------------------------------------------------------------------


def cli(*words: str, cwd: Path) -> tuple[int, str, str]:
    done = run_program([*RECOMMEND, "smoke", *words], cwd=cwd, timeout=BUSY_S)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with three fleets, a script and an empty folder."""
    layout = Layout(found(load="", concurrency=32, gpu="H100-80G", gpu_count=2))
    for form in ("compose", "systemd", "k8s"):
        write_files(tmp_path / form, render_files(layout, form))
    (tmp_path / "empty").mkdir()
    (tmp_path / "both").mkdir()
    for name in ("compose.yaml", "lmdeploy@.service"):
        (tmp_path / "both" / name).write_text("")
    (tmp_path / "serve.sh").write_text(rendered("--gpu", "H100-80G", "--load", "single"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("empty",), "name a folder that --format wrote"),
        (("both",), "it has compose.yaml and lmdeploy@.service"),
        (("k8s",), "Kubernetes starts these"),
        (("serve.sh", "--kill"), "--kill needs a fleet"),
        (("--gpu", "H100-80G", "--kill"), "--kill needs a fleet"),
        (("systemd", "--copies", "2"), "--copies and --mps need a script"),
        (("compose", "--follow", "gemini"), "--follow changes what is rendered"),
    ],
)
def test_what_a_fleet_cannot_be_asked_is_one_line(words: tuple[str, ...], said: str, written: Path) -> None:
    """Exit code 2 and a way to mend it."""
    code, out, err = cli(*words, "--dry-run", cwd=written) if "--copies" not in words else cli(*words, cwd=written)
    assert said in err or code == 3, (code, err)
    assert (code, out) == (2, "") or "copies" in said
    assert err.count("\n") == 1


def test_what_is_no_part_of_a_fleet_is_not_read(written: Path) -> None:
    """An editor's files, keys, a stray archive; line ends of another system are the same text."""
    kept = fleet_folder.read(written / "systemd")
    for name in (".server.env.swp", "notes.tar", "core"):
        (written / "systemd" / name).write_bytes(b"\xff\x00")
    (written / "systemd" / "api-keys").write_text("secret")
    path = written / "systemd" / "server.env"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert fleet_folder.read(written / "systemd").sha256 == kept.sha256
    drop_in = written / "systemd" / "lmdeploy@1.service.d" / "order.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Unit]\n")
    assert "lmdeploy@1.service.d/order.conf" in fleet_folder.read(written / "systemd").texts


def test_a_folder_that_nobody_may_list_is_one_line(monkeypatch: pytest.MonkeyPatch, written: Path) -> None:
    """Its files may be there all the same."""

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(RequestError, match="systemd: Permission denied; it must be readable"):
        fleet_folder.read(written / "systemd")


@pytest.mark.parametrize("form", FORMS)
def test_a_dry_run_shows_every_server_and_what_was_edited(form: str, written: Path) -> None:
    """As rendered; then with one value changed."""
    code, out, _ = cli(form, "--dry-run", cwd=written)
    assert code == 0
    assert "unchanged; nothing was started" in out
    assert [line.split()[0] for line in out.splitlines() if "api_server" in line] == [
        "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1",
    ]  # fmt: skip
    name, old, new = ("server.env", 'SESSION_LEN="4096"', 'SESSION_LEN="8192"')
    if form == "compose":
        name, old, new = "compose.yaml", "SESSION_LEN:-4096", "SESSION_LEN:-8192"
    path = written / form / name
    line = next(n for n, word in enumerate(path.read_text().split("\n"), 1) if old in word)
    path.write_text(path.read_text().replace(old, new))
    _, out, _ = cli(form, "--dry-run", cwd=written)
    assert f"{name} line {line} is edited" in out
    assert "--session-len 8192" in out
