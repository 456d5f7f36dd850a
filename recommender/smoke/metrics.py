"""The servers' own gauges, asked while a load runs."""

from __future__ import annotations

import contextlib
import threading
from typing import ClassVar

from recommender.smoke.checks import Server


class Metrics:
    """Asks every server's /metrics once a second and keeps the highest figures."""

    NAMES: ClassVar = {
        "lmdeploy:num_requests_running": "running",
        "lmdeploy:num_requests_waiting": "waiting",
        "lmdeploy:gpu_cache_usage_perc": "cache",
    }

    def __init__(self, servers: list[Server]) -> None:
        self._servers, self._end = servers, threading.Event()
        self.most: dict[str, float] = {}
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
                    self.take(body.decode(errors="replace") if status == 200 else "")

    def take(self, text: str) -> None:
        """Keeps the highest of what one answer tells; a line that is no gauge of ours tells nothing."""
        for line in text.splitlines():
            name = self.NAMES.get(line.partition("{")[0].partition(" ")[0])
            with contextlib.suppress(ValueError):
                if name:
                    self.most[name] = max(self.most.get(name, 0.0), float(line.rpartition(" ")[2]))
