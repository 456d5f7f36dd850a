"""Nothing of what the guard launched stays behind, whoever is killed and whenever.

Launched processes carry a token in their environment. The tests look for it in /proc and never ask the guard.
"""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from artefacts import wait_for

from recommender.smoke.process import process_guard as guard_module
from recommender.smoke.process.process_guard import Guard
from recommender.smoke.process.process_keeper import Keeper

ROOT = Path(__file__).parent.parent
TRIALS = int(os.environ.get("GUARD_TRIALS", "60"))
SEED = int(os.environ.get("GUARD_SEED", "1"))
TOKEN = "GUARD_TEST_TOKEN"

# What an artefact may do: servers in the background, one that detaches itself, one in a session of its own.
DAEMON = "import os, time\nos.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\ntime.sleep(300)"
SESSIONS = "sleep 300 & (setsid sleep 300 &) ; setsid bash -c 'sleep 300 & wait' & "
FAMILY = f"{SESSIONS} {sys.executable} -ISc '{DAEMON}'; wait"
STUBBORN = "trap '' TERM INT HUP; " + FAMILY  # an ignored signal stays ignored in all of it
# Lineages that move on to a new process all the time, each generation with a session of its own, and a broad storm.
HYDRA = """
import os, time
for head in range(6):
    if os.fork() == 0:
        while True:
            if head % 2:
                os.setsid() if os.getpgrp() != os.getpid() else None
                if os.fork():
                    os._exit(0)
            elif os.fork() == 0:
                time.sleep(0.02)
                os._exit(0)
            else:
                time.sleep(0.001)
                while head == 2 and os.waitpid(-1, os.WNOHANG)[0]:
                    pass
time.sleep(300)
"""

# A program that uses the guard: argv is a token, a script for bash and what to do.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from recommender.smoke.process.process_guard import Guard

token, script, doing, grace_s = sys.argv[1:5]
environment = {"PATH": os.environ["PATH"], "GUARD_TEST_TOKEN": token}

def end(number, frame):
    raise SystemExit(128 + number)

def launch(guard):
    return guard.start(["bash", "-c", script], environment, Path(os.devnull), Path("/"))

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with it ignored
if "handled" in doing:
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
print("begin", flush=True)
while True:
    with Guard() as guard:
        print("entered", flush=True)
        launch(guard)
        launch(guard)
        if "forked" in doing and os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            time.sleep(20)
            os._exit(0)
        if "stay" in doing:
            print("ready", flush=True)
            while True:  # a signal that comes just before a long sleep would be handled after it
                time.sleep(0.05)
        time.sleep(0.05)
        guard.stop(float(grace_s))
"""


def carriers(token: str) -> list[int]:
    """The live processes whose environment has a token that begins so."""
    sought = f"\0{TOKEN}={token}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile; a zombie's environment is empty
                if sought in b"\0" + (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return found


def left(token: str, seconds: float = 30.0) -> list[str]:
    """What still carries the token when the time is up; two looks in a row must find nothing."""
    deadline, empty = time.monotonic() + seconds, 0
    while empty < 2:
        found = carriers(token)
        empty = 0 if found else empty + 1
        if found and time.monotonic() > deadline:
            return [described(pid) for pid in found]
        time.sleep(0.02)
    return []


def described(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text() + Path(f"/proc/{pid}/cmdline").read_text()
    return f"{pid}, gone"


def offspring(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def keepers(pid: int) -> list[int]:
    return [each for each in offspring(pid) if "keeper.py" in described(each)]


def pair(pid: int) -> tuple[int, int]:
    """A program's standby and keeper at this moment; 0 for one that is not there."""
    standby = next(iter(keepers(pid)), 0)
    return standby, next(iter(keepers(standby)), 0)


def strike(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process that may be gone, or not found (0)."""
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, number)


@pytest.fixture
def token() -> Iterator[str]:
    """A token of this test's own; whatever still carries it afterwards is killed."""
    mine = uuid.uuid4().hex
    yield mine
    while found := carriers(mine):
        for pid in found:
            strike(pid)


def environment(token: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], TOKEN: token}


def program(token: str, script: str, doing: str, grace_s: float = 10.0) -> subprocess.Popen[str]:
    """A program that uses the guard: where it begins or, if it shall stay, where all is launched."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, token, script, doing, str(grace_s)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    told(process, "ready" if "stay" in doing else "begin")
    return process


def told(process: subprocess.Popen[str], word: str) -> None:
    """Read on until the program has said a word."""
    assert any(line == f"{word}\n" for line in iter(process.stdout.readline, ""))


def settled(token: str, count: int) -> None:
    wait_for(lambda: len(carriers(token)) >= count, 60)


# --- the guard used as it should be


def test_a_command_ends_by_itself(token: str, tmp_path: Path) -> None:
    """The exit code arrives, output and errors are appended to the log, and nothing had to be ended."""
    log = tmp_path / "log"
    log.write_text("before\n")
    with Guard() as guard:
        child = guard.start(["bash", "-c", "pwd; echo oops >&2; exit 3"], environment(token), log, tmp_path)
        wait_for(lambda: child.poll() is not None, 60)
        assert child.poll() == 3
        assert guard.stop() == "nothing"
        assert guard.stop() == "nothing"
    assert log.read_text() == f"before\n{tmp_path}\noops\n"


@pytest.mark.parametrize(("script", "grace_s", "outcome"), [(FAMILY, 60, "terminated"), (STUBBORN, 0.2, "killed")])
def test_all_of_a_command_is_seen_and_ended(
    token: str, tmp_path: Path, script: str, grace_s: float, outcome: str
) -> None:
    """Servers in the background and daemons are listed, and ended by SIGTERM, or by SIGKILL where they ignore that."""
    with Guard() as guard:
        child = guard.start(["bash", "-c", script], environment(token), tmp_path / "log", tmp_path)
        # Six once those are gone that only detach another.
        wait_for(lambda: len(carriers(token)) == 6 and guard.processes() == sorted(carriers(token)), 60)
        assert os.getsid(child.pid) == child.pid
        assert child.poll() is None
        assert guard.stop(grace_s) == outcome
        assert not carriers(token)
        assert guard.processes() == []
        assert child.poll() == (-signal.SIGTERM if outcome == "terminated" else -signal.SIGKILL)


def test_a_command_may_clean_up(token: str, tmp_path: Path) -> None:
    """A script that handles SIGTERM gets to run what it wants to, and its exit code is told."""
    script = "trap 'sleep 0.3; echo bye; exit 7' TERM; sleep 300 & wait"
    with Guard() as guard:
        child = guard.start(["bash", "-c", script], environment(token), tmp_path / "log", tmp_path)
        settled(token, 2)
        assert guard.stop() == "terminated"
    assert (tmp_path / "log").read_text() == "bye\n"
    assert child.poll() == 7


def test_a_fork_storm_is_ended(token: str, tmp_path: Path) -> None:
    """Processes that fork all the time, some into new sessions, are ended while they do."""
    with Guard() as guard:
        guard.start([sys.executable, "-ISc", HYDRA], environment(token), tmp_path / "log", tmp_path)
        settled(token, 4)  # three heads move on so fast that one look at the processes may miss them
        time.sleep(0.2)
        begin = time.monotonic()
        assert guard.stop(0.1) in ("killed", "terminated")
        assert time.monotonic() - begin < 30
    assert not left(token, 0)


@pytest.mark.parametrize(
    ("command", "log", "cwd", "error"),
    [
        ("no-such-command", "log", ".", FileNotFoundError),
        ("/etc/passwd", "log", ".", PermissionError),
        ("true", "no-such-folder/log", ".", FileNotFoundError),
        ("true", "log", "no-such-folder", FileNotFoundError),
    ],
)
def test_a_command_that_cannot_be_executed_is_told(
    token: str, tmp_path: Path, command: str, log: str, cwd: str, error: type[OSError]
) -> None:
    """The error is the one that executing it gives, names what is missing, and the guard goes on."""
    with Guard() as guard:
        with pytest.raises(error) as told:
            guard.start([command], environment(token), tmp_path / log, tmp_path / cwd)
        assert command in str(told.value) or "no-such" in str(told.value)
        wait_for(lambda: guard.processes() == [])  # what told of it is about to end
        guard.start(["sleep", "300"], environment(token), tmp_path / "log", tmp_path)
    assert not carriers(token)
    with pytest.raises(RuntimeError):
        guard.start(["true"], environment(token), tmp_path / "log", tmp_path)


def test_nothing_is_inherited(token: str, tmp_path: Path) -> None:
    """A command has its three standard files and the signals' defaults, and the guard leaves none of its files open."""
    before = sorted(Path("/proc/self/fd").iterdir())
    show = "import os\nprint(*sorted(os.listdir('/proc/self/fd'))[:-1], os.readlink('/proc/self/fd/0'))\n"
    show += "print([line for line in open('/proc/self/status') if line[:7] in ('SigBlk:', 'SigIgn:')])"
    with Path(os.devnull).open() as extra:
        os.set_inheritable(extra.fileno(), True)
        for _ in range(3):
            with Guard() as guard:
                child = guard.start([sys.executable, "-ISc", show], environment(token), tmp_path / "log", tmp_path)
                wait_for(lambda child=child: child.poll() is not None, 60)
    first, second = (tmp_path / "log").read_text().splitlines()[:2]
    assert first == "0 1 2 /dev/null"
    # Python itself ignores SIGPIPE and SIGXFSZ.
    assert second == "['SigBlk:\\t0000000000000000\\n', 'SigIgn:\\t0000000001001000\\n']"
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_processor_time_counts_daemons(token: str, tmp_path: Path) -> None:
    """Time used by a process that detached itself is its command's, not another's, and is not lost with its end."""
    burn = "import os, time\nos.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\n"
    burn += "while time.process_time() < 0.4: pass\ntime.sleep(300)"
    with Guard() as guard:
        busy = guard.start([sys.executable, "-ISc", burn], environment(token), tmp_path / "log", tmp_path)
        idle = guard.start(["sleep", "300"], environment(token), tmp_path / "log", tmp_path)
        wait_for(lambda: busy.cpu_seconds() >= 0.38, 60)
        assert idle.cpu_seconds() < 0.1
    assert busy.cpu_seconds() >= 0.38


def test_only_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the guard refuses to start."""
    monkeypatch.setattr(guard_module.sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="Linux"), Guard():
        pass


# --- interruptions


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_handled_signal_ends_all_first(token: str, number: int) -> None:
    """Where a signal becomes an exception, as Ctrl-C does, everything has ended when the program ends."""
    process = program(token, FAMILY, "stay handled")
    os.killpg(process.pid, number)
    process.wait(60)
    assert not carriers(token)
    assert process.returncode == (-number if number == signal.SIGINT else 128 + number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_program_ends_all(token: str, number: int) -> None:
    """A program that dies at once leaves it to the keepers."""
    process = program(token, STUBBORN if number == signal.SIGTERM else FAMILY, "stay")
    os.killpg(process.pid, number)
    assert process.wait(60) == -number
    assert not left(token)


def test_a_second_interruption_cuts_the_grace(token: str) -> None:
    """Ctrl-C twice ends stubborn processes at once, before the program ends."""
    process = program(token, STUBBORN, "stay")
    settled(token, 12)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    process.wait(60)
    assert time.monotonic() - begin < 8  # the grace is 10 s
    assert not carriers(token)


def test_an_exception_ends_all(token: str, tmp_path: Path) -> None:
    """The block's own exception passes, and nothing is left."""
    with pytest.raises(ZeroDivisionError), Guard() as guard:  # noqa: PT012
        guard.start(["bash", "-c", FAMILY], environment(token), tmp_path / "log", tmp_path)
        settled(token, 6)
        raise ZeroDivisionError
    assert not carriers(token)


# --- SIGKILL


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C until it ends: Python ignores one that arrives while it frees an object."""
    for _ in range(10):
        strike(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
            return


def trial(number: int, prefix: str, victims: str) -> tuple[bool, subprocess.Popen[str]]:
    """Kill at a random moment of a program that launches and stops over and over; whether anything ran by then."""
    chance = random.Random(f"{SEED} {victims} {number}")
    token = f"{prefix}-{number}-"
    stubborn = chance.random() < 0.3
    process = program(token, STUBBORN if stubborn else FAMILY, "run", chance.choice([0.0, 0.02, 10.0]))
    if chance.random() < 0.7:
        told(process, "entered")
    if chance.random() < 0.5:
        with contextlib.suppress(AssertionError):  # by chance they all have ended again at each look
            wait_for(lambda: carriers(token))
    time.sleep(chance.uniform(0, chance.choice([0.02, 0.3])))
    ran = bool(carriers(token))
    standby, keeper = pair(process.pid)
    if victims == "interrupt":
        for _ in range(chance.randint(1, 4)):
            strike(process.pid, signal.SIGINT)
            time.sleep(chance.choice([0, 0.001, 0.01, 0.05]))
        interrupt(process)
    pids = {"program": [process.pid], "keeper": [keeper], "standby": [standby], "two": [process.pid, keeper, standby]}
    chosen = pids.get(victims, [])
    chance.shuffle(chosen)
    for pid in chosen[:2]:
        strike(pid)
    if victims == "two" and process.pid not in chosen[:2]:
        interrupt(process)
    if victims in ("keeper", "standby"):
        # The program shall have no part in what follows. It may have gone on to another pair meanwhile.
        process.send_signal(signal.SIGSTOP)
        while not re.search(r"\) [TZ] |gone", described(process.pid)):
            time.sleep(0.001)
        strike(pair(process.pid)[victims == "keeper"])
    return ran, process


@pytest.mark.parametrize(
    ("victims", "share"), [("program", 1.0), ("keeper", 0.3), ("standby", 0.3), ("two", 0.3), ("interrupt", 0.3)]
)
def test_nothing_is_left_after_a_kill_at_any_moment(victims: str, share: float) -> None:
    """The program, either keeper, two of the three, or several Ctrl-C: when starting, running or stopping."""
    prefix = uuid.uuid4().hex
    count = max(1, round(TRIALS * share))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda number: trial(number, prefix, victims), range(count)))
    try:
        assert left(prefix) == []
        if victims == "interrupt":
            assert all(process.returncode is not None for _, process in results)
    finally:
        for _, process in results:
            process.kill()
            process.communicate()
    assert left(prefix) == []
    assert sum(ran for ran, _ in results) >= count / 6, "the moments are badly chosen"


def test_a_kill_by_name_spares_the_keepers(token: str) -> None:
    """Neither keeper's command line has a word of the program's, and neither is in its session or the other's."""
    process = program(token, FAMILY, "stay")
    (standby,) = keepers(process.pid)
    (keeper,) = keepers(standby)
    for pid in (standby, keeper):
        assert b"recommend" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[1]
    assert len({os.getsid(process.pid), os.getsid(standby), os.getsid(keeper)}) == 3
    process.kill()
    process.communicate()
    assert not left(token)


def test_both_keepers_killed(token: str, tmp_path: Path) -> None:
    """The program itself finds what is left by its environment; the commands are told as killed."""
    with Guard() as guard:
        child = guard.start(["bash", "-c", STUBBORN], environment(token), tmp_path / "log", tmp_path)
        settled(token, 6)
        (standby,) = keepers(os.getpid())
        (keeper,) = keepers(standby)
        strike(standby, signal.SIGSTOP)
        strike(keeper)
        strike(standby)
        assert guard.stop() == "killed"
        assert not carriers(token)
        assert child.poll() == -signal.SIGKILL


def test_a_held_channel_hides_no_end(token: str) -> None:
    """The program's end is seen although a process that it forked holds all its files open."""
    process = program(token, FAMILY, "stay forked")
    workers = set(offspring(process.pid)) - set(keepers(process.pid))
    process.kill()
    try:
        assert not left(token)
    finally:
        for pid in workers:
            strike(pid)
        process.communicate()


def test_a_stopped_keeper_is_replaced(token: str) -> None:
    """A keeper that does not react is killed by the standby, which ends everything in its place."""
    process = program(token, FAMILY, "stay")
    (standby,) = keepers(process.pid)
    (keeper,) = keepers(standby)
    strike(keeper, signal.SIGSTOP)
    process.kill()
    process.communicate()
    assert not left(token, 60)


def test_half_an_order_is_passed_over() -> None:
    """A run that is interrupted while it writes one leaves the rest of the line out; the orders around it count."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"stop": 5}\n{"sto\n{"stop": 7}\n{"st')
        graces: list[float] = []
        keeper: Any = SimpleNamespace(channel=ours, unread=b"", stop=graces.append)
        assert Keeper.orders(keeper)
        assert (graces, keeper.unread) == ([5, 7], b'{"st')
        theirs.close()
        assert not Keeper.orders(keeper)
