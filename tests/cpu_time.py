"""How fast this machine is: limits are multiples of a loop's time, so that a slow or busy one passes too."""

import resource
import subprocess
import sys
import time
from functools import cache

LOOP = "import hashlib\nd = b''\nfor n in range(400_000): d = hashlib.sha256(d + str(n).encode()).digest()"
USUAL = 0.5
"""CPU seconds of the loop on the machine that the tests' limits were set on."""


def children_seconds() -> float:
    """Return the CPU seconds of the processes that this one started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


IMPORTS = (
    "import argparse, asyncio, ctypes.util, decimal, doctest, email.message, fractions, http.server, json, sqlite3\n"
    "import ssl, logging.handlers, multiprocessing.pool, pydoc, statistics, tomllib, unittest.mock, urllib.request"
)
USUAL_START = 0.22
"""CPU seconds of a process that imports these, on the machine that the tests' limits were set on."""


def start_slowness() -> float:
    """Return how many times the usual CPU time a process with many imports takes now, at least 1."""
    before = children_seconds()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    return max(1.0, (children_seconds() - before) / USUAL_START)


def timed_loop() -> float:
    """Return the loop's CPU seconds here and now, in a process of its own, so that no coverage is measured."""
    before = children_seconds()
    subprocess.run([sys.executable, "-c", LOOP], check=True)
    return children_seconds() - before


loop_seconds = cache(timed_loop)
"""The loop's CPU seconds here, measured once."""


def allowed(seconds: float) -> float:
    """Return a limit of CPU time as this machine needs it; never less than is said."""
    return seconds * max(1.0, loop_seconds() / USUAL)


def is_within(spent: float, seconds: float) -> bool:
    """Return whether CPU time is below a limit; where it is not, the loop says how slow the machine is at this time."""
    return spent < seconds or spent < seconds * timed_loop() / USUAL


def slowness() -> float:
    """Return how many times the usual time the loop takes now by the clock, at least 1: also what other work costs."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", LOOP], check=True)
    return max(1.0, (time.perf_counter() - begun) / USUAL)
