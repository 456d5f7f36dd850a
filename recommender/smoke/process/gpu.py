"""Read GPU memory through NVML and the host's CPU through /proc."""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recommender.common.units import MIB
from recommender.smoke.failures import Failure

PERIOD_S = 0.1
SLACK_MIB = 300
"""MiB above the idle figure that a driver may keep after a process ends."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine of a measurement."""

    gpu_name: str
    gpu_count: int
    driver: str
    memory_mib: int
    cpus: int
    cpu_name: str


class Gpus:
    """The GPUs of a launch; memory is the driver's figure for a whole GPU, in MiB."""

    def __init__(self, count: int, environment: Mapping[str, str]) -> None:
        """Use the first ``count`` GPUs of CUDA_VISIBLE_DEVICES; raise Failure if missing."""
        self._nvml = _nvml()
        try:
            self._nvml.nvmlInit()
            available = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise Failure("machine", f"no NVIDIA GPU on this machine: NVML says {error}") from None
        indices = _visible_indices(environment, available)[:count]
        if len(indices) < count:
            visible = environment.get("CUDA_VISIBLE_DEVICES")
            raise Failure(
                "machine",
                f"{count} GPU(s) needed, {len(indices)} visible"
                + ("" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"),
            )
        self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in indices]

    def used_mib(self) -> int:
        """Return the memory in use on the fullest GPU, in MiB."""
        return int(max(round(self._nvml.nvmlDeviceGetMemoryInfo(handle).used / MIB) for handle in self._handles))

    def host(self) -> Host:
        """Return the GPUs' name and size, the driver, and the host's cores."""
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
        raise Failure("machine", "not installed: nvidia-ml-py; run: pip install nvidia-ml-py") from None
    return pynvml


def _visible_indices(environment: Mapping[str, str], available: int) -> list[int]:
    """Return the indices of visible GPUs; a UUID counts by its position."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(range(available))
    indices = []
    for place, word in enumerate(visible.split(",")):
        index = int(word) if word.strip().isdigit() else place if word.strip().startswith(("GPU-", "MIG-")) else -1
        if not 0 <= index < available:
            break
        indices.append(index)
    return indices


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a device of the kernel
        return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")


class MemoryWatch:
    """Follow the fullest GPU's memory and the host's CPU time in a thread."""

    def __init__(self, cards: Gpus) -> None:
        self._cards = cards
        self._lock = threading.Lock()
        self._end = threading.Event()
        self.reset()
        self._thread = threading.Thread(target=self._run, name="memory watch", daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Restart the peak and the CPU time."""
        with self._lock:
            self._peak = self._cards.used_mib()
            self._cpu = cpu_times()

    def peak(self) -> int:
        """Return the highest memory use since the last reset, in MiB."""
        with self._lock:
            self._peak = max(self._peak, self._cards.used_mib())
            return self._peak

    def now(self) -> int:
        """Return the memory in use, in MiB."""
        return self._cards.used_mib()

    def host_cpu_percent(self) -> float:
        """Return the host's CPU use since the last reset, over all cores."""
        busy, total = cpu_times()
        return round(100 * (busy - self._cpu[0]) / max(1, total - self._cpu[1]), 1)

    def close(self) -> None:
        """Stop the thread."""
        self._end.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._end.wait(PERIOD_S):
            used = self._cards.used_mib()
            with self._lock:
                self._peak = max(self._peak, used)


def cpu_times() -> tuple[int, int]:
    """Return busy and total clock ticks of the host since boot (proc(5))."""
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123 - a device of the kernel
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def wait_for_memory(cards: Gpus, idle_mib: int, seconds: float = 20.0) -> bool:
    """Wait until GPU memory is back at its idle level; return whether it is."""
    end = time.monotonic() + seconds
    while cards.used_mib() > idle_mib + SLACK_MIB:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
