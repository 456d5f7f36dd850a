"""Launch a run's commands and end all their descendants; process_guard.py starts this file as a script.

It runs as two processes. The *keeper* launches the commands. Its parent, the *standby*, only waits. Both are child
subreapers: an orphan, however it detached itself, becomes a child of the keeper, or of the standby if the keeper is
gone. Whichever is left ends them all. Each sees the other's end at once, and the run's end too, so that none of the
three processes can die and leave something behind.

Only own children and their process groups are killed, repeatedly, until the kernel reports no child. Their ids cannot
be reused meanwhile because nobody else reaps them. "No child" means no descendant, because orphans arrive here. No
process list has to be complete.

Only the standard library: it must start fast, and the package is not on its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ALONE_GRACE_S = 1.0  # between SIGTERM and SIGKILL once the run is gone
HANG_S = 2.0  # grace of the standby for a keeper beyond that, and of process_guard.py beyond its own
LOOK_S = 0.5  # how often the standby checks that the run is still its parent

Note = Callable[[int, int], None]

# One line of /proc/PID/stat: parent, state, processor ticks (waited-for children included), start in ticks since boot.
Process = namedtuple("Process", "parent state ticks started")


def process(pid: int | str) -> Process | None:
    """Return what the kernel reports of a process, or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib loads longer than all else together
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # The name before the last bracket may hold anything; field 3 follows it.
    return Process(int(fields[1]), fields[0].decode(), sum(map(int, fields[11:15])), int(fields[19]))


def table() -> dict[int, Process]:
    """Return every process by id."""
    processes = ((int(name), process(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {pid: entry for pid, entry in processes if entry is not None}


def children() -> list[int]:
    """Return this process's children with zombies; some may be missing while they change."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # the kernel is built without that file
        return [pid for pid, entry in table().items() if entry.parent == me]


def reap(note: Note) -> bool:
    """Reap all dead children, passing on their exit codes; return whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        note(pid, os.waitstatus_to_exitcode(status))


def signal_target(pid: int) -> int:
    """Return the child's process group to signal; the child alone if the group is ours."""
    try:
        group = os.getpgid(pid)
    except ProcessLookupError:
        return pid
    return pid if group == os.getpgrp() else -group


def send(target: int, number: int) -> None:
    """Signal a process or group; ignore one that is gone or belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(target, number)


def kill_all(note: Note) -> None:
    """Send SIGKILL until no child, and so no descendant, is left."""
    struck: set[int] = set()
    pause_s = 0.001
    while reap(note):
        now = set(children())
        for pid in now:
            send(signal_target(pid), signal.SIGKILL)
        # New children may be forking: be quick. Otherwise wait: a killed CUDA process takes seconds to exit.
        if now <= struck:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)
        struck |= now


class Keeper:
    """Obey the run's orders, one JSON object a line, then end everything."""

    def __init__(self, channel: socket.socket, standby: socket.socket, libc: ctypes.CDLL) -> None:
        self.channel, self.standby, self.libc = channel, standby, libc
        self.me = os.getpid()
        self.deadline: float | None = None  # when SIGKILL is due; None while there is no reason to stop
        self.unread = b""
        self.commands: dict[int, int] = {}  # process id -> the order's number
        self.launched: list[subprocess.Popen[bytes]] = []  # kept: dropping a Popen would reap its child
        self.poll = select.poll()
        self.wakeup = wakeup_pipe()
        for fd in (channel.fileno(), standby.fileno(), self.wakeup):
            self.poll.register(fd, select.POLLIN)

    def run(self) -> None:
        """Obey orders until one stops or the run ends; then end everything and report how."""
        self.say(ready=self.me)
        while self.deadline is None:
            self.wait(None)
            reap(self.note)
        self.say(ended=self.end())

    def end(self) -> str:
        """Send SIGTERM to children and arriving orphans; SIGKILL at the deadline."""
        if not reap(self.note):
            return "nothing"
        signalled: set[int] = set()
        while reap(self.note):
            left_s = (self.deadline or 0) - time.monotonic()
            if left_s <= 0:
                kill_all(self.note)
                return "killed"
            for target in {signal_target(pid) for pid in children()} - signalled:
                send(target, signal.SIGTERM)
                send(target, signal.SIGCONT)  # a stopped process would not see the first
                signalled.add(target)
            self.wait(min(left_s, 0.05))
        return "terminated"

    def wait(self, seconds: float | None) -> None:
        """Wait for an order, the end of a child or of the others, and handle it."""
        for fd, _ in self.poll.poll(None if seconds is None else max(1, seconds * 1000)):
            if fd == self.wakeup:
                os.read(fd, 4096)
            elif fd == self.standby.fileno() or not self.orders():
                self.poll.unregister(fd)
                self.stop(ALONE_GRACE_S)

    def orders(self) -> bool:
        """Read and obey orders; return False once the run has closed the channel."""
        try:
            data = self.channel.recv(65536)
        except ConnectionError:
            data = b""
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            try:
                order = json.loads(line or "{}")
            except ValueError:  # the run was interrupted while it wrote this one
                continue
            if "stop" in order:
                self.stop(order["stop"])
            elif "start" in order:
                self.start(order["start"], order)
        return bool(data)

    def stop(self, grace_s: float) -> None:
        """Stop after the grace, but no later than an earlier order said."""
        due = time.monotonic() + grace_s
        self.deadline = due if self.deadline is None else min(self.deadline, due)

    def start(self, number: int, order: dict[str, Any]) -> None:
        """Launch one command; report its process id or why it cannot run."""
        if self.deadline is not None:
            return
        try:
            with open(order["log"], "ab") as log:  # noqa: PTH123
                process = subprocess.Popen(
                    order["command"],
                    env=order["environment"],
                    cwd=order["cwd"],
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=self.prepare_child,
                )
        except (OSError, ValueError) as error:  # ValueError: a zero byte in a string
            code = getattr(error, "errno", errno.EINVAL)
            self.say(start=number, errno=code, file=getattr(error, "filename", None))
            return
        self.commands[process.pid] = number
        self.launched.append(process)
        self.say(start=number, pid=process.pid)

    def prepare_child(self) -> None:
        """Prepare the forked child: die with the keeper, default signals."""
        self.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self.me:  # the keeper died before that took effect
            os._exit(1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def note(self, pid: int, status: int) -> None:
        """Report a command's exit code."""
        if pid in self.commands:
            self.say(exit=self.commands.pop(pid), status=status)

    def say(self, **fields: object) -> None:
        """Write one line to the run without ever blocking."""
        with contextlib.suppress(OSError):
            self.channel.send(json.dumps(fields).encode() + b"\n", socket.MSG_DONTWAIT)


def stand_by(channel: socket.socket, link: socket.socket, keeper: int, parent: int) -> None:
    """Wait for the keeper's end, then end what is left; kill a keeper that hangs."""
    reaped: list[int] = []
    deadline: float | None = None
    poll = select.poll()
    wakeup = wakeup_pipe()
    poll.register(wakeup, select.POLLIN)
    poll.register(channel.fileno(), select.POLLRDHUP)
    while True:
        if not reap(lambda pid, _: reaped.append(pid)) or keeper in reaped:
            break
        events = [fd for fd, _ in poll.poll(LOOK_S * 1000)]
        if wakeup in events:
            os.read(wakeup, 4096)
        # Check the parent too: a forked process of the run may hold the channel open.
        if deadline is None and (channel.fileno() in events or os.getppid() != parent):
            poll.unregister(channel.fileno())
            link.close()
            deadline = time.monotonic() + ALONE_GRACE_S + HANG_S
        if deadline is not None and time.monotonic() > deadline:
            os.kill(keeper, signal.SIGKILL)
    kill_all(lambda pid, status: None)


def wakeup_pipe() -> int:
    """Return a pipe that becomes readable when a child ends."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read


def become_subreaper(libc: ctypes.CDLL) -> None:
    """Adopt orphaned descendants from now on (PR_SET_CHILD_SUBREAPER)."""
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise RuntimeError("the kernel has no child subreapers")


def main(parent: int) -> None:
    """Split into standby and keeper, and run until everything has ended."""
    # Blocked, not ignored: an ignored signal would be inherited. The other process handles SIGKILL.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGCHLD})
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)  # /dev/null, so that no command inherits the channel
    os.chdir("/")
    libc = ctypes.CDLL(None)
    link, other = socket.socketpair()
    become_subreaper(libc)
    pid = os.fork()
    if pid == 0:
        become_subreaper(libc)  # a fork does not inherit that
        os.setsid()  # a signal to the one's group spares the other
        link.close()
        Keeper(channel, other, libc).run()
    else:
        other.close()
        stand_by(channel, link, pid, parent)


if __name__ == "__main__":
    main(int(sys.argv[1]))
