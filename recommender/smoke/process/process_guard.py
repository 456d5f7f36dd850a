"""Launch commands and leave no process behind, however the run ends.

process_keeper.py explains how. No library or tool we know replaces the pair; test_guard.py kills each part at random
moments:

- psutil lists descendants, and thus misses those that fork or detach themselves while it lists them.
- One subreaper (tini, or a single keeper) leaves everything behind if it is killed itself.
- PR_SET_PDEATHSIG reaches children only, not their daemons.
- PID namespaces and cgroups would do, but containers and unprivileged users usually may not create them.
"""

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

from recommender.smoke.process import process_keeper

# Each command gets this variable. It identifies the guard's processes: for the CPU time of detached ones, and to find
# them if both keepers were killed.
MARK = "SMOKE_GUARD"
READY_S = 30.0  # a loaded machine may take long to start an interpreter
LAST_S = 30.0  # killed processes may take this long to exit: a CUDA context is slow
INTERRUPTIONS = 1000  # that one stop survives


class Child:
    """A launched command, the first process of a session of its own."""

    def __init__(self, guard: Guard, number: int, pid: int) -> None:
        self._guard, self._number = guard, number
        self._cpu_s = 0.0
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._guard._exit_code(self._number)

    def cpu_seconds(self) -> float:
        """Return CPU seconds of the command and its descendants; never decreases."""
        # A detached process's time disappears when it ends.
        self._cpu_s = max(self._cpu_s, self._guard._ticks(self._number) / os.sysconf("SC_CLK_TCK"))
        return self._cpu_s


class Guard:
    """End everything launched when the block is left or this process ends."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._standby: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._unread = b""
        self._keeper: tuple[int, process_keeper.Process | None] = (0, None)
        self._answers: dict[int, dict[str, Any]] = {}
        self._exits: dict[int, int] = {}
        self._pids: dict[int, int] = {}  # number -> process id of each command
        self._asked = False  # a command was to be launched
        self._alone = False  # both keepers are gone
        self._ended: str | None = None
        self._outcome: str | None = None

    def __enter__(self) -> Guard:
        if sys.platform != "linux":
            raise RuntimeError("a smoke run needs Linux: elsewhere nothing ends the processes that detach themselves")
        here, there = socket.socketpair()
        self._channel = here
        try:
            # Plain interpreter and relative path, so that pkill for the run spares the keepers.
            script = Path(process_keeper.__file__)
            with there:
                self._standby = subprocess.Popen(
                    [os.path.realpath(sys.executable), "-I", "-S", script.name, str(os.getpid())],
                    cwd=script.parent,
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
        self.stop()

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path, cwd: Path) -> Child:
        """Launch a command and append its output to the log; raise OSError if it cannot run."""
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
        """Return all live descendants of the commands."""
        if self._outcome is not None:
            return []
        table, roots = self._table()
        return sorted(pid for pid in _descendants(table, roots) if table[pid].state not in "ZX")

    def stop(self, grace_s: float = 10.0) -> str:
        """End everything with SIGTERM, then SIGKILL; return how it went.

        The result is "nothing", "terminated", or "killed" if SIGKILL was needed. An interruption cuts the grace short
        and is raised once everything has ended.
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
        """Let the keeper end everything; if it is gone or hangs, the standby or this process."""
        self._order(stop=grace_s)
        self._until(lambda: self._ended is not None, grace_s + process_keeper.HANG_S)
        if self._ended is None and not self._alone and self._channel and self._standby:
            # A closed channel tells the standby to take over; it may have been SIGSTOPped.
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
        if self._channel is not None:
            self._channel.close()
        deadline = time.monotonic() + process_keeper.HANG_S
        # Popen.wait, interrupted at a bad moment, would keep its lock and block the next call.
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
        """Send SIGKILL to all marked processes; return whether any existed.

        Only needed if both keepers were killed.
        """
        any_at_all, empty = False, 0
        deadline = time.monotonic() + LAST_S
        # Look several times: a process has no environment for a moment during exec.
        while self._asked and empty < 3 and time.monotonic() < deadline:
            marked = [pid for pid in process_keeper.table() if self._number_of(pid) is not None]
            for pid in marked:
                self._kill(pid)
            any_at_all, empty = any_at_all or bool(marked), 0 if marked else empty + 1
            time.sleep(0.005)
        return any_at_all

    def _order(self, **fields: object) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError):  # the keepers are gone or hang, which reading shows
                # The first newline ends a line that an interruption left unfinished.
                self._channel.sendall(b"\n" + json.dumps(fields).encode() + b"\n")

    def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Read the keeper's lines until a condition holds, time is up or both keepers are gone."""
        deadline = time.monotonic() + seconds
        while not condition() and not self._alone and (left_s := deadline - time.monotonic()) > 0:
            self._read(min(left_s, 0.2))

    def _read(self, wait_s: float) -> None:
        """Read pending lines of the keeper, waiting at most ``wait_s`` for the first."""
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

    def _hear(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._keeper = message["ready"], process_keeper.process(message["ready"])
        elif "start" in message:
            if "pid" in message:
                self._pids[message["start"]] = message["pid"]
            self._answers[message["start"]] = message
        elif "exit" in message:
            self._exits[message["exit"]] = message["status"]
        elif "ended" in message:
            self._ended = message["ended"]

    def _exit_code(self, number: int) -> int | None:
        """Return a command's exit code, SIGKILL's if both keepers are gone, or None."""
        self._read(0)
        gone = self._alone or self._outcome is not None
        return self._exits.get(number, -signal.SIGKILL if gone else None)

    def _table(self) -> tuple[dict[int, process_keeper.Process], set[int]]:
        """Return all processes, and the ids of the keepers."""
        for _ in range(5):
            table = process_keeper.table()
            # If a parent ended while the list was read, its children lack one: read again.
            if all(entry.parent in table for entry in table.values() if entry.parent):
                break
        roots = {self._standby.pid} if self._standby and self._standby.returncode is None else set()
        pid, recorded = self._keeper
        if pid in table and recorded is not None and table[pid].started == recorded.started:
            roots.add(pid)
        return table, roots

    def _ticks(self, number: int) -> int:
        """Return CPU ticks of a command's live processes and of those they reaped."""
        if self._outcome is not None:
            return 0
        table, roots = self._table()
        first = {pid for pid, entry in table.items() if entry.parent in roots and pid not in roots}
        # The command, and detached processes that carry its mark.
        own = {pid for pid in first if pid == self._pids.get(number) or self._number_of(pid) == number}
        return sum(table[pid].ticks for pid in own | _descendants(table, own))

    def _number_of(self, pid: int) -> int | None:
        """Return the command that a process stems from, by its environment, or None."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return None
        _, separator, rest = (b"\0" + environment).partition(f"\0{MARK}={self._mark}.".encode())
        return int(rest.partition(b"\0")[0]) if separator else None

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            pinned = os.pidfd_open(pid)
            try:
                if self._number_of(pid) is not None:
                    signal.pidfd_send_signal(pinned, signal.SIGKILL)
            finally:
                os.close(pinned)


class StillThere(RuntimeError):
    """A process outlived SIGKILL: it belongs to another user or hangs in a driver."""


def _descendants(table: Mapping[int, process_keeper.Process], roots: set[int]) -> set[int]:
    offspring: dict[int, list[int]] = {}
    for pid, entry in table.items():
        offspring.setdefault(entry.parent, []).append(pid)
    descendants: set[int] = set()
    queue = list(roots)
    while queue:
        fresh = set(offspring.get(queue.pop(), ())) - descendants - roots
        descendants |= fresh
        queue += fresh
    return descendants
