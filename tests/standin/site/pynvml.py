"""Stand-in for nvidia-ml-py: cards as STANDIN_CARDS counts them, their memory as live processes wrote it down."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

MIB = 2**20
NVML_ERROR_UNINITIALIZED, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_DRIVER_NOT_LOADED = 1, 2, 9
SAID = {1: "Uninitialized", 2: "Invalid Argument", 9: "Driver Not Loaded"}
_started = False


class NVMLError(Exception):
    """What every call may raise."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return SAID[self.value]


class NVMLError_DriverNotLoaded(NVMLError):
    """No card, or no driver."""


def nvmlInit() -> None:
    """Begins."""
    global _started
    if not int(os.environ.get("STANDIN_CARDS", "1")):
        raise NVMLError_DriverNotLoaded(NVML_ERROR_DRIVER_NOT_LOADED)
    _started = True


def nvmlShutdown() -> None:
    """Ends."""
    global _started
    _started = False


def _uses() -> list[tuple[int, dict[str, int]]]:
    """Bytes by card of every live process; a dead one or a zombie does not count."""
    if not _started:
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    found = []
    for path in Path(os.environ["STANDIN_STATE"]).iterdir():
        try:
            live = Path("/proc", path.name, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            if path.name.isdigit() and live:
                found.append((int(path.name), json.loads(path.read_text())))
        except OSError:
            continue
    return found


def nvmlDeviceGetCount() -> int:
    """Number of cards."""
    if not _started:
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    return int(os.environ.get("STANDIN_CARDS", "1"))


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    """A card's handle: its number."""
    if not 0 <= index < nvmlDeviceGetCount():
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
    return index


def nvmlDeviceGetName(handle: int) -> str:
    """What the card is called."""
    return os.environ.get("STANDIN_GPU", "NVIDIA H100 80GB HBM3")


def nvmlDeviceGetUUID(handle: int) -> str:
    """A made-up identity."""
    return f"GPU-00000000-0000-0000-0000-{handle:012d}"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    """Bytes in all, used and free."""
    total = 81559 * MIB
    used = min(480 * MIB + sum(use.get(str(handle), 0) for _, use in _uses()), total)
    return SimpleNamespace(total=total, used=used, free=total - used)


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    """Busy if anything runs there."""
    busy = any(str(handle) in use for _, use in _uses())
    return SimpleNamespace(gpu=90 if busy else 0, memory=40 if busy else 0)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
    """Who runs there."""
    return [SimpleNamespace(pid=pid, usedGpuMemory=use[str(handle)]) for pid, use in _uses() if str(handle) in use]


def nvmlSystemGetDriverVersion() -> str:
    """The driver."""
    return "580.159.04"


def nvmlSystemGetCudaDriverVersion_v2() -> int:
    """CUDA 13.0."""
    return 13000


nvmlSystemGetCudaDriverVersion = nvmlSystemGetCudaDriverVersion_v2
