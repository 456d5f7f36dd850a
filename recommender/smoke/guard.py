"""Launches commands and leaves nothing of them behind, however the run ends: see keeper.py for how."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from recommender.smoke import keeper

# Every command finds this variable in its environment: it tells a guard's processes apart from all others, for the
# processor time of those that detached themselves, and to find them where both keepers were killed.
MARK = "SMOKE_GUARD"
READY_S = 30.0  # a loaded machine may take long to start an interpreter
LAST_S = 30.0  # how long the dead may take to leave, a CUDA context is slow
INTERRUPTIONS = 1000  # how many one stop bears


class Child:
    """A command that a guard launched, the first process of a session of its own."""

    def __init__(self, guard: Guard, number: int, pid: int) -> None:
        self._guard, self._number = guard, number
        self._cpu_s = 0.0
        self.pid = pid

    def poll(self) -> int | None:
        """None while it runs, else its exit code, negative for a signal."""
        return self._guard._exit_code(self._number)

    def cpu_seconds(self) -> float:
        """Processor time, user and system, of the command and all that came of it; never less than it said before."""
        # What a detached process used is lost from sight with its end.
        self._cpu_s = max(self._cpu_s, self._guard._ticks(self._number) / os.sysconf("SC_CLK_TCK"))
        return self._cpu_s


class Guard:
    """Ends all that it launched when its block is left, and when this process ends in any way."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._standby: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._unread = b""
        self._keeper: tuple[int, keeper.Process | None] = (0, None)
        self._answers: dict[int, dict[str, Any]] = {}
        self._exits: dict[int, int] = {}
        self._pids: dict[int, int] = {}  # number -> process id of each command
        self._asked = False  # a command was to be launched
        self._alone = False  # both keepers are gone
        self._ended: str | None = None
        self._outcome: str | None = None

    def __enter__(self) -> Guard:
        """Start the keepers."""
        if sys.platform != "linux":
            raise RuntimeError("a smoke run needs Linux: elsewhere nothing ends the processes that detach themselves")
        here, there = socket.socketpair()
        self._channel = here
        try:
            # The plain interpreter, and a relative path: a kill by name that is meant for the run spares the keepers.
            with there:
                self._standby = subprocess.Popen(
                    [os.path.realpath(sys.executable), "-I", "-S", "keeper.py", str(os.getpid())],
                    cwd=Path(keeper.__file__).parent,
                    stdin=there.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            here.settimeout(READY_S)
            self._until(lambda: self._keeper[0] != 0, READY_S)
            if not self._keeper[0]:
                raise RuntimeError("the process that guards the launched ones did not start")
        except BaseException:
            self.stop(0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything."""
        self.stop()

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path, cwd: Path) -> Child:
        """Launch a command; its output goes to the log's end. OSError where it cannot be executed."""
        number = next(self._numbers)
        if self._channel is None or self._outcome is not None:
            raise RuntimeError("a guard launches only inside its block")
        if not command:
            raise ValueError("no command to launch")
        self._asked = True
        marked = {**environment, MARK: f"{self._mark}.{number}"}
        paths = {"log": str(Path(log).absolute()), "cwd": str(Path(cwd).absolute())}
        self._order(start=number, command=list(command), environment=marked, **paths)
        self._until(lambda: number in self._answers, READY_S)
        answer = self._answers.pop(number, {})
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["file"])
        if "pid" not in answer:
            raise RuntimeError("the process that guards the launched ones was killed or hangs")
        self._pids[number] = answer["pid"]
        return Child(self, number, answer["pid"])

    def processes(self) -> list[int]:
        """All live processes that came of the commands."""
        if self._outcome is not None:
            return []
        table, roots = self._table()
        return sorted(pid for pid in _below(table, roots) if table[pid].state not in "ZX")

    def stop(self, grace_s: float = 10.0) -> str:
        """End everything: SIGTERM, and SIGKILL after the grace. "nothing", "terminated", or "killed" if that it took.

        An interruption meanwhile ends the grace and is raised when all is over.
        """
        interruption: BaseException | None = None
        for _ in range(INTERRUPTIONS):
            try:
                if self._outcome is None:
                    self._outcome = self._finish(grace_s)
                self._release()
                break
            except BaseException as error:
                if isinstance(error, StillThere):
                    raise
                interruption, grace_s = error, 0.0
        if interruption is not None:
            raise interruption
        assert self._outcome is not None
        return self._outcome

    # --- how

    def _finish(self, grace_s: float) -> str:
        """Have the keeper end everything; where it is gone or hangs, see that the standby does, or do it here."""
        self._order(stop=grace_s)
        self._until(lambda: self._ended is not None, grace_s + keeper.HANG_S)
        if self._ended is None and not self._alone and self._channel and self._standby:
            # Silence tells the standby to take over. It may have been stopped.
            with contextlib.suppress(OSError):  # it has just gone
                self._channel.shutdown(socket.SHUT_WR)
            self._standby.send_signal(signal.SIGCONT)
            self._until(lambda: self._ended is not None, LAST_S)
        if self._ended is not None:
            return self._ended
        if not self._alone and self._asked:
            raise StillThere(f"processes that cannot be killed: {self.processes()}")
        return "killed" if self._sweep() or self._pids else "nothing"

    def _release(self) -> None:
        """Close the channel and reap the standby, which has nothing left to do."""
        if self._channel is not None:
            self._channel.close()
        deadline = time.monotonic() + keeper.HANG_S
        # Not Popen.wait: interrupted at a bad moment, it keeps its lock and the next one waits for ever.
        while self._standby is not None and self._standby.returncode is None:
            try:
                pid, status = os.waitpid(self._standby.pid, os.WNOHANG)
            except ChildProcessError:  # an interruption came after the last look
                pid, status = self._standby.pid, 0
            if pid:
                self._standby.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.kill(self._standby.pid, signal.SIGKILL)
            time.sleep(0 if pid else 0.002)

    def _sweep(self) -> bool:
        """SIGKILL to whatever carries the mark; whether there was anything. Needed only if both keepers were killed."""
        any_at_all, empty = False, 0
        deadline = time.monotonic() + LAST_S
        # One look does not do: a process has no environment for a moment while it executes another program.
        while self._asked and empty < 3 and time.monotonic() < deadline:
            marked = [pid for pid in keeper.table() if self._number_of(pid) is not None]
            for pid in marked:
                self._kill(pid)
            any_at_all, empty = any_at_all or bool(marked), 0 if marked else empty + 1
            time.sleep(0.005)
        return any_at_all

    def _order(self, **fields: object) -> None:
        """Send the keeper one line."""
        if self._channel is not None:
            with contextlib.suppress(OSError):  # the keepers are gone or hang, which reading shows
                # The first newline ends what an interruption may have left half written.
                self._channel.sendall(b"\n" + json.dumps(fields).encode() + b"\n")

    def _until(self, met: Callable[[], bool], seconds: float) -> None:
        """Read what the keeper says until a condition is met, both keepers are gone or the time is up."""
        deadline = time.monotonic() + seconds
        while not met() and not self._alone and (left_s := deadline - time.monotonic()) > 0:
            self._read(min(left_s, 0.2))

    def _read(self, wait_s: float) -> None:
        """Take in what the keeper said; waits only if there is nothing yet."""
        if self._channel is None or self._channel.fileno() < 0 or self._alone:
            return
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        if not poll.poll(wait_s * 1000):
            return
        with self._lock:  # several threads may ask
            try:
                data = self._channel.recv(65536, socket.MSG_DONTWAIT)
            except (BlockingIOError, TimeoutError):
                return
            except OSError:
                data = b""
            self._alone = not data
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                try:
                    self._hear(json.loads(line))
                except ValueError:  # an interruption lost a part of it
                    continue

    def _hear(self, said: dict[str, Any]) -> None:
        """Note one line of the keeper's."""
        if "ready" in said:
            self._keeper = said["ready"], keeper.process(said["ready"])
        elif "start" in said:
            if "pid" in said:
                self._pids[said["start"]] = said["pid"]
            self._answers[said["start"]] = said
        elif "exit" in said:
            self._exits[said["exit"]] = said["status"]
        elif "ended" in said:
            self._ended = said["ended"]

    def _exit_code(self, number: int) -> int | None:
        """A command's exit code; None while it runs. Where both keepers were killed it was killed with them."""
        self._read(0)
        gone = self._alone or self._outcome is not None
        return self._exits.get(number, -signal.SIGKILL if gone else None)

    def _table(self) -> tuple[dict[int, keeper.Process], set[int]]:
        """All processes, and those of them that are keepers."""
        for _ in range(5):
            table = keeper.table()
            # A parent that ended while the list was read leaves its children without one in the list.
            if all(each.parent in table for each in table.values() if each.parent):
                break
        roots = {self._standby.pid} if self._standby and self._standby.returncode is None else set()
        pid, seen = self._keeper
        if pid in table and seen is not None and table[pid].started == seen.started:
            roots.add(pid)
        return table, roots

    def _ticks(self, number: int) -> int:
        """Processor ticks of a command's live processes and of the dead ones that these waited for."""
        if self._outcome is not None:
            return 0
        table, roots = self._table()
        first = {pid for pid, each in table.items() if each.parent in roots and pid not in roots}
        # The command itself, and whatever detached itself and still carries the mark.
        own = {pid for pid in first if pid == self._pids.get(number) or self._number_of(pid) == number}
        return sum(table[pid].ticks for pid in own | _below(table, own))

    def _number_of(self, pid: int) -> int | None:
        """Which of this guard's commands a process comes from, by its environment; None for all other processes."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return None
        _, found, rest = (b"\0" + environment).partition(f"\0{MARK}={self._mark}.".encode())
        return int(rest.partition(b"\0")[0]) if found else None

    def _kill(self, pid: int) -> None:
        """SIGKILL to a process that is not our child, if it still carries the mark once its id is pinned down."""
        with contextlib.suppress(OSError):
            pinned = os.pidfd_open(pid)
            try:
                if self._number_of(pid) is not None:
                    signal.pidfd_send_signal(pinned, signal.SIGKILL)
            finally:
                os.close(pinned)


class StillThere(RuntimeError):
    """Something outlived SIGKILL: it belongs to another user, or hangs in a driver."""


def _below(table: Mapping[int, keeper.Process], roots: set[int]) -> set[int]:
    """All descendants of some processes, these themselves left out."""
    offspring: dict[int, list[int]] = {}
    for pid, each in table.items():
        offspring.setdefault(each.parent, []).append(pid)
    found: set[int] = set()
    ahead = list(roots)
    while ahead:
        fresh = set(offspring.get(ahead.pop(), ())) - found - roots
        found |= fresh
        ahead += fresh
    return found
