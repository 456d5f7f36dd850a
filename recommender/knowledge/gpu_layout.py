"""Check the options that distribute a server over GPUs and hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from recommender.common.units import read_number
from recommender.knowledge.conditions import version

if TYPE_CHECKING:
    from recommender.knowledge import records

DERIVED_SINCE = Version("0.15.0")
"""The first release whose TurboMind derives a layout with experts (turbomind/parallel_config.py)."""
SPLIT_SINCE = Version("0.11.0")
"""The first release whose PyTorch engine splits attention and experts otherwise (pytorch/config.py)."""
EXPERTS_OVER_HOSTS = Version("0.17.0")
"""The first release whose TurboMind spreads experts over several hosts."""
SPREAD = ("dp", "ep", "cp")
"""Options that change how many GPUs share the attention heads, or how many replicas there are."""
MOST = 1024
"""Larger numbers are not judged: the search tries each divisor."""
EXECUTOR = "distributed-executor-backend"


class LayoutProblem(NamedTuple):
    """The option to report, why LMDeploy stops before it loads the weights, and the flag that has the sources."""

    option: str
    message: str
    source: str


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """The options of a launch that decide which GPU holds what.

    ``values``: by option, as the user wrote them; None if unknown. ``gpus``: what the server sees on this host; None
    if unknown. ``spell`` names an option as the user does. ``is_server``: a command line, not Python.
    """

    release: str
    options: Mapping[str, records.Era]
    engine: str
    values: Mapping[str, str | None]
    gpus: int | None
    spell: Callable[[str], str]
    is_server: bool = True

    @property
    def is_spread(self) -> bool:
        """Return whether attention may be split over another number of GPUs than tp."""
        sizes = self._sizes(*SPREAD)
        return sizes is None or max(sizes.values()) > 1

    def problems(self) -> Iterator[LayoutProblem]:
        """Yield why the engine refuses the numbers, the executor or the hosts."""
        sizes = self._sizes("tp", *SPREAD)
        if self.engine == "turbomind":
            yield from () if sizes is None else self._on_turbomind(sizes)
            yield from self._over_hosts()
        elif self.engine == "pytorch" and sizes is not None:
            yield from self._on_pytorch(sizes)

    def _reads(self, option: str, *readers: str) -> bool:
        """Return whether one of the readers reads the option in this release."""
        era = self.options.get(option)
        return era is not None and not {*readers}.isdisjoint(era.read_by)

    def _sizes(self, *options: str) -> dict[str, int] | None:
        """Return how many parts each option makes; 1 where the engine does not read it, None if one is unknown."""
        sizes = {}
        for option in options:
            is_read = option in self.values and self._reads(option, self.engine, "server")
            size = read_number(self.values[option] or "") if is_read else 1.0
            if size is None or not 1 <= size <= MOST or size != int(size):
                return None
            sizes[option] = int(size)
        return sizes

    def _on_turbomind(self, sizes: Mapping[str, int]) -> Iterator[LayoutProblem]:
        """Yield numbers that have no layout, or none that fits the GPUs that the server sees."""
        hosts, at, listed = self._sizes("nnodes"), _first(sizes, "cp", "ep", "dp"), _list_sizes(sizes)
        if version(self.release) < DERIVED_SINCE:
            if sizes["tp"] % sizes["cp"]:
                yield LayoutProblem(at, f"TurboMind has no layout for {listed}: cp must divide tp.", at)
            return
        layouts, seen = _layouts(**sizes), self.gpus * hosts["nnodes"] if self.gpus and hosts else 0
        if not layouts:
            yield LayoutProblem(at, f"TurboMind has no layout for {listed}.", at)
        elif sizes["tp"] <= seen < min(layouts):
            yield LayoutProblem(at, f"{listed} needs at least {min(layouts)} GPUs, but the server sees {seen}.", at)

    def _over_hosts(self) -> Iterator[LayoutProblem]:
        """Yield several hosts without an address, or with experts in a release that cannot spread them."""
        hosts = self._sizes("nnodes", "ep") if self._reads("nnodes", "turbomind") else None
        if hosts is None or hosts["nnodes"] == 1:
            return
        if "dist-init-addr" not in self.values:
            several, count, address = self.spell("nnodes"), self.values["nnodes"], self.spell("dist-init-addr")
            message = f"{several} {count} needs {address}: host and port of the first host."
            yield LayoutProblem("nnodes", message, "dist-init-addr")
        elif hosts["ep"] > 1 and version(self.release) < EXPERTS_OVER_HOSTS:
            message = f"TurboMind of LMDeploy {self.release} spreads experts over the GPUs of one host only."
            yield LayoutProblem("nnodes", message, "nnodes")

    def _on_pytorch(self, sizes: Mapping[str, int]) -> Iterator[LayoutProblem]:
        """Yield numbers that the engine refuses, or the launcher of its replicas."""
        tp, dp, ep = sizes["tp"], sizes["dp"], sizes["ep"]
        at, listed = _first(sizes, "dp", "ep"), _list_sizes(sizes)
        if dp > 1 and tp == ep == 1:
            if self.is_server and self._reads("dp", "server"):
                yield LayoutProblem(
                    at, f"The PyTorch engine starts replicas only with tp or ep above 1, not for {listed}.", at
                )
            return
        if version(self.release) < SPLIT_SINCE:
            return
        processes = ep if ep > 1 else tp
        attention = processes // dp
        if processes % dp:
            message = f"The PyTorch engine has no layout for {listed}: dp must divide its {processes} processes."
            yield LayoutProblem(at, message, at)
        elif processes % tp or (tp > 1 and tp % attention):
            message = (
                f"The PyTorch engine has no layout for {listed}:"
                f" tp must divide {processes} and be a multiple of {attention}."
            )
            yield LayoutProblem(at, message, at)
        else:
            yield from self._executor(processes, dp)

    def _executor(self, processes: int, dp: int) -> Iterator[LayoutProblem]:
        """Yield an executor that cannot run this many processes."""
        executor = self.values.get(EXECUTOR) if self._reads(EXECUTOR, "pytorch") else None
        if executor == "uni" and processes > 1:
            message = f"The executor uni is one process, but this layout needs {processes}."
            yield LayoutProblem(EXECUTOR, message, EXECUTOR)
        elif executor == "mp" and dp > 1:
            yield LayoutProblem(EXECUTOR, f"The executor mp has no replicas, but dp is {dp}; use ray.", EXECUTOR)


def _first(sizes: Mapping[str, int], *names: str) -> str:
    """Return the first of these options that is above 1."""
    return next((name for name in names if sizes[name] > 1), "tp")


def _list_sizes(sizes: Mapping[str, int]) -> str:
    """List the numbers, such as ``tp 1, ep 8``."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1 or name == "tp")


def _layouts(tp: int, dp: int, ep: int, cp: int) -> list[int]:
    """Return the GPU counts that have a layout (0.18.0 turbomind/parallel_config.py:45-79)."""
    most = dp * tp * gcd(cp, ep)
    counts = (dp * cp * attention for attention in range(1, tp + 1) if tp % attention == 0)
    return [count for count in counts if most % count == 0 and _holds_experts(count, tp, dp, ep, cp)]


def _holds_experts(count: int, tp: int, dp: int, ep: int, cp: int) -> bool:
    """Return whether this many GPUs hold whole replicas of the experts, in ep parts each."""
    for replicas in (number for number in range(1, dp + 1) if dp % number == 0):
        split, rest = divmod(count, replicas * ep)
        if not rest and split and tp % split == 0 and tp in (split, count // (dp * cp)):
            return True
    return False
