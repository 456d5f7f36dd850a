"""What signals do to a rendered script: the servers end, the status tells the signal, and no child stays."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from artefacts import BASH, RECORD, SIGNALS, Machine, alive, running, text, wait_for
from layouts import layout

from recommender.fleet import kubernetes

EVERY = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
"""Makes what it starts the first process of a PID namespace, as in a container."""
# Ends on TERM after it has said so, as LMDeploy finishes its requests. It heeds TERM before it says that it runs.
SERVER = f"""#!/bin/bash
trap 'echo TERM >"$RECORD/told"; kill "$!"; exit 0' TERM
sleep 60 &
{RECORD}wait
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose server runs until it is told to end."""
    made = Machine(tmp_path)
    made.tool("lmdeploy", SERVER)
    return made


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def members(session: int) -> list[int]:
    every = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return [pid for pid in every if alive(pid) and in_session(pid, session)]


def in_session(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session
    except ProcessLookupError:
        return False


def told(machine: Machine) -> bool:
    """Whether the server was asked to end."""
    return (machine.folder / "record" / "told").exists()


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skip where this machine allows no PID namespace."""
    try:
        done = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if done.returncode:
        pytest.skip(f"no PID namespace here: {done.stderr.decode().strip()}")


@EVERY
def test_a_restarting_script_ends_its_server(machine: Machine, number: signal.Signals) -> None:
    """128 plus the signal's number; the server was asked with TERM, and nothing is started again."""
    with running(machine.launch([BASH, str(machine.script(text()))], RESTART="3")) as process:
        wait_for(machine.calls)
        (server,) = children(process.pid)
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
        assert told(machine)
        wait_for(lambda: not alive(server))
        assert len(machine.calls()) == 1


@EVERY
def test_without_restarts_the_server_gets_the_signal_itself(machine: Machine, number: signal.Signals) -> None:
    """It has the script's own process, so no other is left."""
    machine.tool("lmdeploy", RECORD + "exec sleep 60\n")
    with running(machine.launch([BASH, str(machine.script(text()))])) as process:
        wait_for(machine.calls)
        wait_for(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
        process.send_signal(number)
        assert process.wait(timeout=60) == -number


@pytest.mark.usefixtures("namespaces")
@EVERY
@pytest.mark.parametrize("restarts", ["0", "3"])
def test_the_first_process_of_a_container_heeds_signals(
    machine: Machine, number: signal.Signals, restarts: str
) -> None:
    """The kernel ignores there what a program does not handle; the script handles all four."""
    with running(machine.launch([*NAMESPACE, BASH, str(machine.script(text()))], RESTART=restarts)) as process:
        wait_for(machine.calls)
        (first,) = children(process.pid)
        os.kill(first, number)
        assert process.wait(timeout=60) == 128 + number
        assert told(machine)
        assert len(machine.calls()) == 1


@pytest.mark.usefixtures("namespaces")
def test_the_first_process_of_a_container_ends_with_its_server(machine: Machine) -> None:
    """Its status is the server's."""
    machine.tool("lmdeploy", RECORD + "exit 9\n")
    with running(machine.launch([*NAMESPACE, BASH, str(machine.script(text()))])) as process:
        assert process.wait(timeout=60) == 9
        assert len(machine.calls()) == 1


@pytest.mark.usefixtures("namespaces")
@EVERY
def test_a_pod_heeds_signals(machine: Machine, number: signal.Signals) -> None:
    """So does the servers' container of Kubernetes."""
    manifest = yaml.safe_load(kubernetes.files(layout("two-servers"))["deployment.yaml"])
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    own = {
        each["name"]: each["value"].replace("$$", "$") for each in container["env"] if each["name"] != "API_KEYS_FILE"
    }
    words = [each.replace("$$", "$") for each in (*container["command"], *container["args"])]
    with running(machine.launch([*NAMESPACE, *words], **own | {"REVISION": "abc"})) as process:
        wait_for(machine.calls)
        (first,) = children(process.pid)
        os.kill(first, number)
        assert process.wait(timeout=60) == 128 + number
        assert told(machine)


@EVERY
def test_a_signal_during_the_pause_ends_it(machine: Machine, number: signal.Signals) -> None:
    """Between two starts there is no server; neither the pause nor a start follows."""
    machine.tool("lmdeploy", RECORD + "exit 1\n")
    with running(machine.launch([BASH, str(machine.script(text()))], RESTART="3")) as process:
        wait_for(lambda: any(b"sleep" in Path(f"/proc/{each}/cmdline").read_bytes() for each in children(process.pid)))
        (pause,) = children(process.pid)
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
        wait_for(lambda: not alive(pause))
        assert len(machine.calls()) == 1


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    (mask,) = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_signals_at_any_moment_leave_no_server(machine: Machine) -> None:
    """Whether it comes before, while or after the server starts, it is gone when the script is."""
    machine.tool("lmdeploy", RECORD + "exec sleep 60\n")
    script = str(machine.script(text()))
    for turn in range(24):
        machine.forget()
        with running(machine.launch([BASH, script], RESTART="3")) as process:
            time.sleep(turn / 200)
            if SIGNALS[turn % 4] in (signal.SIGQUIT, signal.SIGINT):  # bash ignores one and may exit 2 on the other
                wait_for(lambda pid=process.pid: catches(pid, signal.SIGQUIT))
            process.send_signal(SIGNALS[turn % 4])
            code = process.wait(timeout=60)
            # Before its first lines the shell itself ends by the signal.
            assert code in (128 + SIGNALS[turn % 4], -SIGNALS[turn % 4])
            wait_for(lambda session=process.pid: not members(session))
