"""Poll the servers' own gauges during a load."""

from __future__ import annotations

import contextlib
import threading
from typing import ClassVar

from recommender.smoke.client.checks import Server


class Metrics:
    """Poll every server's /metrics once a second and keep the peaks."""

    NAMES: ClassVar = {
        "lmdeploy:num_requests_running": "running",
        "lmdeploy:num_requests_waiting": "waiting",
        "lmdeploy:gpu_cache_usage_perc": "cache",
    }

    def __init__(self, servers: list[Server]) -> None:
        self._servers, self._end = servers, threading.Event()
        self.peaks: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def __enter__(self) -> Metrics:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=6)

    def _run(self) -> None:
        while not self._end.wait(1.0):
            for server in self._servers:
                with contextlib.suppress(OSError):
                    status, body = server.get("/metrics")
                    self.update(body.decode(errors="replace") if status == 200 else "")

    def update(self, text: str) -> None:
        """Keep the peaks of one reply; skip lines that are not known gauges."""
        for line in text.splitlines():
            name = self.NAMES.get(line.partition("{")[0].partition(" ")[0])
            with contextlib.suppress(ValueError):
                if name:
                    self.peaks[name] = max(self.peaks.get(name, 0.0), float(line.rpartition(" ")[2]))
