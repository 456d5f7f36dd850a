"""The machine as smoke sees it: cards and their memory through NVML, the host's cores through /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recommender.smoke.failures import Failure

MIB = 2**20
PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Host:
    """What a measurement was taken on."""

    gpu_name: str
    gpu_count: int
    driver: str
    memory_mib: int
    cpus: int
    cpu_name: str


class Cards:
    """The cards that a launch uses. Memory is the driver's figure for a whole card, in MiB."""

    def __init__(self, count: int, environment: Mapping[str, str]) -> None:
        """``count`` cards are used, the first of CUDA_VISIBLE_DEVICES. Raises Failure where they are not there."""
        self._nvml = _nvml()
        try:
            self._nvml.nvmlInit()
            there = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise Failure("machine", f"no NVIDIA GPU on this machine: NVML says {error}") from None
        used = _visible(environment, there)[:count]
        if len(used) < count:
            shown = environment.get("CUDA_VISIBLE_DEVICES")
            raise Failure(
                "machine",
                f"{count} GPU(s) are needed, {len(used)} can be seen here"
                + ("" if shown is None else f" (CUDA_VISIBLE_DEVICES={shown})"),
            )
        self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in used]

    def used(self) -> int:
        """Memory in use on the fullest card."""
        return int(max(round(self._nvml.nvmlDeviceGetMemoryInfo(each).used / MIB) for each in self._handles))

    def host(self) -> Host:
        """The cards' name and size, the driver, and the cores of this host."""
        first = self._handles[0]
        return Host(
            gpu_name=_text(self._nvml.nvmlDeviceGetName(first)),
            gpu_count=len(self._handles),
            driver=_text(self._nvml.nvmlSystemGetDriverVersion()),
            memory_mib=round(self._nvml.nvmlDeviceGetMemoryInfo(first).total / MIB),
            cpus=len(os.sched_getaffinity(0)),
            cpu_name=_cpu_name(),
        )


def _nvml() -> Any:
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        raise Failure(
            "machine", "the package nvidia-ml-py is not installed: pip install 'lmdeploy-recommender[smoke]'"
        ) from None
    return pynvml


def _visible(environment: Mapping[str, str], there: int) -> list[int]:
    """Indices of the cards a launch can see; a name such as GPU-8f… or MIG-… counts by its place."""
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return list(range(there))
    found = []
    for place, each in enumerate(shown.split(",")):
        index = int(each) if each.strip().isdigit() else place if each.strip().startswith(("GPU-", "MIG-")) else -1
        if not 0 <= index < there:
            break
        found.append(index)
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a device of the kernel
        return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")


class Watch:
    """Follows the fullest card's memory and the host's CPU time in a thread of its own."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards
        self._lock = threading.Lock()
        self._end = threading.Event()
        self.reset()
        self._thread = threading.Thread(target=self._run, name="memory watch", daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Forgets the peak, and counts CPU time from now."""
        with self._lock:
            self._peak = self._cards.used()
            self._cpu = cpu_times()

    def peak(self) -> int:
        """The most memory in use since the last reset, in MiB."""
        with self._lock:
            self._peak = max(self._peak, self._cards.used())
            return self._peak

    def now(self) -> int:
        """Memory in use, in MiB."""
        return self._cards.used()

    def host_cpu_percent(self) -> float:
        """How busy all cores of the host were since the last reset."""
        busy, total = cpu_times()
        return round(100 * (busy - self._cpu[0]) / max(1, total - self._cpu[1]), 1)

    def close(self) -> None:
        """Ends the thread."""
        self._end.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._end.wait(PERIOD_S):
            used = self._cards.used()
            with self._lock:
                self._peak = max(self._peak, used)


def cpu_times() -> tuple[int, int]:
    """Busy and all clock ticks of the host since it booted (proc(5))."""
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123 - a device of the kernel
        ticks = [int(each) for each in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def wait_for_memory(cards: Cards, idle_mib: int, seconds: float = 20.0, slack_mib: int = 300) -> bool:
    """Waits until the card is as empty as it was; False where it did not come back."""
    end = time.monotonic() + seconds
    while cards.used() > idle_mib + slack_mib:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
