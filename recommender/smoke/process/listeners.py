"""Tell who listens on a port: nobody before a launch, only one's own processes after it (proc_net(5))."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from recommender.smoke.failures import Failure

LISTENING = "0A"  # TCP_LISTEN, include/net/tcp_states.h
Ports = Iterable[tuple[int, str]]
"""Ports, each with whose it is and how to change it, if that helps."""


def require_free(ports: Ports) -> None:
    """Raise Failure if something listens on a port."""
    for port, whose in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise _taken(port, whose) from None


def require_own(ports: Ports, processes: Callable[[], Iterable[int]]) -> None:
    """Raise Failure if others than one's own ``processes`` (ids) listen: they came while these loaded, and answer.

    A kernel that shows no sockets (a sandbox) is believed.
    """
    listening = [(port, whose, _listening(port)) for port, whose in ports]
    own = _sockets(processes())  # after them: a server may begin to listen at any time
    for port, whose, inodes in listening:
        if not inodes <= own:
            raise _taken(port, whose)


def _taken(port: int, whose: str) -> Failure:
    return Failure("port-taken", f"another process listens on port {port}" + (f" ({whose})" if whose else ""))


def _listening(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on a port."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/net", name).read_text("ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    inodes.add(words[9])
    return inodes


def _sockets(own: Iterable[int]) -> set[str]:
    """Return the inodes of the sockets that processes hold open."""
    inodes = set()
    for pid in own:
        with contextlib.suppress(OSError):  # it may end meanwhile
            for descriptor in Path("/proc", str(pid), "fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(descriptor.readlink().name.removeprefix("socket:[").removesuffix("]"))
    return inodes
