"""The process that launches a smoke run's commands and ends whatever comes of them; guard.py starts it as a script.

There are two of it. The *keeper* launches; the *standby* is its parent and does nothing but wait. Both are child
subreapers: a process that loses its parent, however it detached itself, becomes a child of the keeper, and, should the
keeper be killed, of the standby. Whichever is left ends them all. Each one's end shows the other at once, as does the
end of the run itself, so none of the three can die and leave something behind.

Killing is done to own children and their process groups only, again and again until the kernel says that there is no
child left. Their ids cannot be taken by another process meanwhile, as nobody else can reap them, and "no child" means
no descendant, as the children of the dead arrive here. No list of processes has to be complete for that.

Only the standard library, and little of it: it has to start fast, and it runs without the package on its path.
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
import sys
import time
from collections import namedtuple
from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ALONE_GRACE_S = 1.0  # between SIGTERM and SIGKILL once nobody waits for the outcome
HANG_S = 2.0  # what the standby gives a keeper beyond that, and guard.py beyond its own grace
LOOK_S = 0.5  # how often the standby looks whether the run's process is still its parent

Note = Callable[[int, int], None]

# One line of /proc/PID/stat: parent, state, processor ticks (waited-for children included), start in ticks since boot.
Process = namedtuple("Process", "parent state ticks started")


def process(pid: int | str) -> Process | None:
    """What the kernel says of one process; None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib loads longer than all else together
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # The command's name before the last bracket may hold anything; the fields after it begin with the third.
    return Process(int(fields[1]), fields[0].decode(), sum(map(int, fields[11:15])), int(fields[19]))


def table() -> dict[int, Process]:
    """Every process there is, by id."""
    seen = ((int(name), process(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {pid: each for pid, each in seen if each is not None}


def children() -> list[int]:
    """This process's children, zombies included; one or another may be missing while they come and go."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:  # noqa: PTH123
            return [int(each) for each in file.read().split()]
    except FileNotFoundError:  # the kernel is built without that file
        return [pid for pid, each in table().items() if each.parent == me]


def reap(note: Note) -> bool:
    """Reap all dead children, telling each one's exit code; whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        note(pid, os.waitstatus_to_exitcode(status))


def aim(pid: int) -> int:
    """What to signal for a child: its whole group, which the kernel does at one stroke; alone where that is ours."""
    try:
        group = os.getpgid(pid)
    except ProcessLookupError:
        return pid
    return pid if group == os.getpgrp() else -group


def send(target: int, number: int) -> None:
    """Signal a process or a group; one that is gone, or belongs to another user, is left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(target, number)


def kill_all(note: Note) -> None:
    """SIGKILL until there is no child, and thus no descendant, left."""
    struck: set[int] = set()
    pause_s = 0.001
    while reap(note):
        now = set(children())
        for pid in now:
            send(aim(pid), signal.SIGKILL)
        # New ones arrive: be quick, they may be forking. None: those struck are on their way, a CUDA one takes seconds.
        if now <= struck:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)
        struck |= now


class Keeper:
    """Obeys the run's orders, one JSON object a line, until it is told to stop or left alone; then ends everything."""

    def __init__(self, channel: socket.socket, standby: socket.socket, libc: ctypes.CDLL) -> None:
        self.channel, self.standby, self.libc = channel, standby, libc
        self.me = os.getpid()
        self.deadline: float | None = None  # when SIGKILL is due; None while there is no reason to stop
        self.unread = b""
        self.commands: dict[int, int] = {}  # process id -> the order's number
        self.starting: dict[int, tuple[int, int]] = {}  # pipe that the exec closes -> number, process id
        self.poll = select.poll()
        self.wakeup = wakeup_pipe()
        for fd in (channel.fileno(), standby.fileno(), self.wakeup):
            self.poll.register(fd, select.POLLIN)

    def run(self) -> None:
        """Serve, then end everything and say how that went."""
        self.say(ready=self.me)
        while self.deadline is None:
            self.wait(None)
            reap(self.note)
        self.say(ended=self.end())

    def end(self) -> str:
        """SIGTERM to all there are and to each orphan as it arrives; SIGKILL to what is left at the deadline."""
        if not reap(self.note):
            return "nothing"
        told: set[int] = set()
        while reap(self.note):
            left_s = (self.deadline or 0) - time.monotonic()
            if left_s <= 0:
                kill_all(self.note)
                return "killed"
            for target in {aim(pid) for pid in children()} - told:
                send(target, signal.SIGTERM)
                send(target, signal.SIGCONT)  # a stopped process would not see the first
                told.add(target)
            self.wait(min(left_s, 0.05))
        return "terminated"

    def wait(self, seconds: float | None) -> None:
        """Wait for an order, an exec, the end of a child or of the others, and deal with it."""
        for fd, _ in self.poll.poll(None if seconds is None else max(1, seconds * 1000)):
            if fd == self.wakeup:
                os.read(fd, 4096)
            elif fd in self.starting:
                self.started(fd)
            elif fd == self.standby.fileno() or not self.orders():
                self.poll.unregister(fd)
                self.stop(ALONE_GRACE_S)

    def orders(self) -> bool:
        """Read and obey; False once nobody is left who could order."""
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
        """Stop, and no later than an earlier order said."""
        due = time.monotonic() + grace_s
        self.deadline = due if self.deadline is None else min(self.deadline, due)

    def start(self, number: int, order: dict[str, object]) -> None:
        """Launch one command; whether it could be executed shows later, so that nothing here can block."""
        if self.deadline is not None:
            return
        try:
            ear, mouth = os.pipe()
            pid = os.fork()
        except OSError as error:
            self.say(start=number, errno=error.errno, file=None)
            return
        if pid == 0:
            self.become(order, mouth)
        os.close(mouth)
        self.commands[pid] = number
        self.starting[ear] = number, pid
        self.poll.register(ear, select.POLLIN)

    def started(self, ear: int) -> None:
        """Tell the run that its command runs, or why it does not."""
        number, pid = self.starting.pop(ear)
        said = os.read(ear, 65536)
        self.poll.unregister(ear)
        os.close(ear)
        if said:
            self.commands.pop(pid, None)
            self.say(start=number, **json.loads(said))
        else:
            self.say(start=number, pid=pid)

    def become(self, order: dict[str, object], mouth: int) -> None:
        """In the forked child: become the command. Does not return."""
        doing = None
        try:
            os.setsid()
            self.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != self.me:  # the keeper died before that took effect
                os._exit(1)
            doing = str(order["log"])
            log = os.open(doing, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(log, 1)
            os.dup2(log, 2)
            doing = str(order["cwd"])
            os.chdir(doing)
            command: list[str] = order["command"]  # type: ignore[assignment]
            environment: dict[str, str] = order["environment"]  # type: ignore[assignment]
            doing = command[0]
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvpe(doing, command, environment)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in a string
            code = getattr(error, "errno", errno.EINVAL)
            os.write(mouth, json.dumps({"errno": code, "file": doing}).encode())
        finally:
            os._exit(127)

    def note(self, pid: int, status: int) -> None:
        """Pass a command's exit code on."""
        # An exec that failed is told first, and takes the command off the list.
        for ear, (_, starting) in list(self.starting.items()):
            if starting == pid:
                self.started(ear)
        if pid in self.commands:
            self.say(exit=self.commands.pop(pid), status=status)

    def say(self, **fields: object) -> None:
        """Write one line to the run; a run that is gone, or does not read, must not hold the keeper up."""
        with contextlib.suppress(OSError):
            self.channel.send(json.dumps(fields).encode() + b"\n", socket.MSG_DONTWAIT)


def stand_by(channel: socket.socket, link: socket.socket, keeper: int, parent: int) -> None:
    """Wait for the keeper's end, then end what it left. Tell it of the run's end, and do not trust it with that."""
    ended: list[int] = []
    deadline: float | None = None
    poll = select.poll()
    wakeup = wakeup_pipe()
    poll.register(wakeup, select.POLLIN)
    poll.register(channel.fileno(), select.POLLRDHUP)
    while True:
        if not reap(lambda pid, _: ended.append(pid)) or keeper in ended:
            break
        events = [fd for fd, _ in poll.poll(LOOK_S * 1000)]
        if wakeup in events:
            os.read(wakeup, 4096)
        # The parent is looked at too: another process of the run may hold its end of the channel open.
        if deadline is None and (channel.fileno() in events or os.getppid() != parent):
            poll.unregister(channel.fileno())
            link.close()
            deadline = time.monotonic() + ALONE_GRACE_S + HANG_S
        if deadline is not None and time.monotonic() > deadline:
            os.kill(keeper, signal.SIGKILL)
    kill_all(lambda pid, status: None)


def wakeup_pipe() -> int:
    """A pipe that becomes readable when a child ends."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read


def adopt(libc: ctypes.CDLL) -> None:
    """Become the one to whom descendants without a parent fall."""
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise RuntimeError("the kernel has no child subreapers")


def main(parent: int) -> None:
    """Split into standby and keeper, and be one of them until all is over."""
    # Blocked, not ignored: what is launched starts with none of it. SIGKILL is what the other one is there for.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGCHLD})
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)  # /dev/null, so that no command inherits the channel
    os.chdir("/")
    libc = ctypes.CDLL(None)
    link, other = socket.socketpair()
    adopt(libc)
    pid = os.fork()
    if pid == 0:
        adopt(libc)  # a fork does not inherit that
        os.setsid()  # a signal to the one's group spares the other
        link.close()
        Keeper(channel, other, libc).run()
    else:
        other.close()
        stand_by(channel, link, pid, parent)


if __name__ == "__main__":
    main(int(sys.argv[1]))
