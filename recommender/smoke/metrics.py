"""The servers' own gauges, asked while a load runs."""

from __future__ import annotations

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
                try:
                    status, body = server.get("/metrics")
                except OSError:
                    continue
                for line in body.decode(errors="replace").splitlines() if status == 200 else ():
                    name = self.NAMES.get(line.partition("{")[0].partition(" ")[0])
                    if name:
                        value = float(line.rpartition(" ")[2])
                        self.most[name] = max(self.most.get(name, 0.0), value)
