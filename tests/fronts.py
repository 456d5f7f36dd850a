"""Two stand-ins of a model server, and load balancers in front of them that each run with variables of their own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from artefacts import BASH, WORKER, found, need, wait_for, write_files

from recommender.fleet import front
from recommender.fleet.layout import Layout

T = TypeVar("T")
CHAT = "/v1/chat/completions"
DEADLINE_S = 30.0
wait = partial(wait_for, seconds=DEADLINE_S)
BATCH = 16
STANDIN = '''
"""A model server's manners: port, requests at once, seconds for each. POST /mode changes them."""
import asyncio, sys
from aiohttp import web

async def main(port, most, seconds):
    mode = {"bad": False, "seconds": seconds}
    seen = {"now": 0, "most": 0, "got": 0, "left": 0, "answered": 0, "order": [], "peers": 0, "size": 0}
    peers = set()
    gate, go = asyncio.Semaphore(most), asyncio.Condition()
    released = {"hold": 0}

    async def chat(request):
        seen["got"] += 1
        seen["now"] += 1
        seen["most"] = max(seen["most"], seen["now"])
        peers.add(request.transport.get_extra_info("peername"))
        seen["peers"] = len(peers)
        try:
            text = await request.read()
            asked = await request.json()
            seen["size"] = max(seen["size"], len(text))
            seen["order"].append(asked.get("name"))
            if mode["bad"] or asked.get("poison"):
                return web.json_response({"error": "broken"}, status=500)
            async with gate:
                if asked.get("stream"):
                    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                    await answer.prepare(request)
                    await answer.write(b"data: first\\n\\n")
                if asked.get("hold"):
                    async with go:
                        await go.wait_for(lambda: released["hold"] > 0)
                        released["hold"] -= 1
                else:
                    await asyncio.sleep(mode["seconds"])
                if asked.get("stream"):
                    await answer.write(b"data: [DONE]\\n\\n")
                    return answer
            seen["answered"] += 1
            return web.json_response({"choices": [{"message": {"content": ""}}], "port": port})
        except asyncio.CancelledError:
            seen["left"] += 1
            raise
        finally:
            seen["now"] -= 1

    async def health(_):
        return web.json_response(seen)

    async def change(request):
        mode.update(await request.json())
        async with go:
            released["hold"] += mode.pop("release", 0)
            go.notify_all()
        if mode.pop("forget", False):
            seen.update(got=0, left=0, answered=0, most=seen["now"], order=[], peers=0, size=0)
            peers.clear()
            released["hold"] = 0
        return web.json_response(seen)

    app = web.Application(client_max_size=2**28)
    app.add_routes([web.post("/v1/chat/completions", chat), web.get("/health", health), web.post("/mode", change)])
    app.add_routes([web.get("/terminate", health), web.get("/v1/models", health)])
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
'''


def free_ports(count: int) -> int:
    """The first of so many free ports in a row, below those that the system hands out; each worker looks elsewhere."""
    slots = 12_000 // count
    begin = WORKER * slots // 4 + os.getpid() % 100
    for slot in range(begin, begin + slots):
        first = 20_000 + slot % slots * count
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def call(url: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of a request as urllib sends it: all of the body before it looks for an answer."""
    asked = urllib.request.Request(url, data, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, answer.read(), {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError as error:
        return error.code, error.read(), {name.lower(): value for name, value in error.headers.items()}


def asked(**said: object) -> bytes:
    return json.dumps({"model": "m", "messages": [], **said}).encode()


@dataclass
class Servers:
    """The stand-ins; ``front`` puts a load balancer before them."""

    folder: Path
    seconds: float = 0.1
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        need("haproxy")
        first = free_ports(4)
        self.ports, self.front_port = (first, first + 1), first + 2
        made = found(gpu="h100-sxm", gpu_count=2, load="", concurrency=32)
        config = replace(made.config, servers=2, share=1, tp=1, port=first, max_batch_size=BATCH)
        self.layout = Layout(replace(made, config=config))
        (self.folder / "standin.py").write_text(STANDIN)
        write_files(self.folder, front.files(self.layout))
        for port in self.ports:
            self.start(port)
        for port in self.ports:
            wait(lambda port=port: self.healthy(port))

    def words(self, port: int) -> list[str]:
        return [sys.executable, str(self.folder / "standin.py"), str(port), str(BATCH), str(self.seconds)]

    def start(self, port: int) -> None:
        self.running[port] = subprocess.Popen(self.words(port), env={"PATH": os.environ["PATH"]})

    def healthy(self, port: int) -> bool:
        try:
            return call(f"http://127.0.0.1:{port}/health")[0] == 200
        except OSError:
            return False

    def mode(self, port: int, **changed: object) -> dict[str, Any]:
        """Changes a server; what it has seen so far."""
        return dict(json.loads(call(f"http://127.0.0.1:{port}/mode", json.dumps(changed).encode())[1]))

    def seen(self, name: str) -> int:
        return sum(self.mode(port)[name] for port in self.ports)

    def filled(self, count: int, request: Callable[[], T]) -> list[T]:
        """So many requests that stay, each begun once a server has the one before.

        Two threads of HAProxy may else choose the same server at the same moment: one of the requests then waits for
        it, though another server is free.
        """
        begun = []
        for running in range(1, count + 1):
            begun.append(request())
            wait(lambda running=running: self.seen("now") == running)
        return begun

    def heal(self) -> None:
        for port in self.ports:
            self.mode(port, bad=False, seconds=self.seconds, release=10_000)
        wait(lambda: not self.seen("now"))
        for port in self.ports:
            self.mode(port, forget=True)

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    @contextmanager
    def front(self, *words: str, bare: bool = False, expect: int = 200, **variables: str) -> Iterator[Front]:
        """A load balancer whose /health has this status; 0: any. ``bare``: without front.sh."""
        first = self.front_port
        environment = {"PATH": os.environ["PATH"], "FRONT_PORT": str(first), "STATS_PORT": str(first + 1)}
        starter = [] if bare else [BASH, str(self.folder / front.STARTER)]
        command = [*starter, need("haproxy"), *words, "-f", str(self.folder / front.NAME)]
        log = self.folder / f"front-{first}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment | variables, cwd=self.folder, stdout=output, stderr=output
            )
        try:
            made = Front(first, process, log)
            wait(lambda: made.serves(expect), said=log.read_text)
            yield made
        finally:
            process.terminate()
            process.wait()


@dataclass
class Front:
    """A running load balancer."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{CHAT}"

    def serves(self, status: int) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:  # the page of statistics speaks HTTP, whatever clients must speak
            path = f"{self.port}/health" if status else f"{self.port + 1}/"
            return call(f"http://127.0.0.1:{path}")[0] in (status, status if status else 200)
        except OSError:
            return False

    def rows(self, backend: str = "servers") -> dict[str, dict[str, str]]:
        """The statistics of a backend's servers and of itself, by name."""
        text = call(f"http://127.0.0.1:{self.port + 1}/;csv")[1].decode().removeprefix("# ")
        head, *lines = [line.split(",") for line in text.splitlines()]
        rows = [dict(zip(head, line, strict=False)) for line in lines]
        return {row["svname"]: row for row in rows if row["pxname"] == backend}

    def up(self, backend: str = "servers") -> list[str]:
        return [
            name for name, row in self.rows(backend).items() if row["status"].startswith("UP") and name != "BACKEND"
        ]

    def connect(self, sent: bytes) -> socket.socket:
        """A client's connection on which this was sent."""
        made = socket.create_connection(("127.0.0.1", self.port))
        if sent:
            made.sendall(sent)
        return made


HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: front\r\nContent-Type: application/json\r\n"


@dataclass
class Load:
    """Requests that are always in flight, and how each ended: status, or 0 for a broken connection, and port."""

    url: str
    ended: list[tuple[int, int]] = field(default_factory=list)
    over: bool = False

    async def worker(self, client: aiohttp.ClientSession, data: bytes) -> None:
        while not self.over:
            status, port = 0, 0
            try:
                async with client.post(self.url, data=data) as answer:
                    said, status = await answer.json(content_type=None), answer.status
                    port = said.get("port", 0)
            except (aiohttp.ClientError, json.JSONDecodeError):
                await asyncio.sleep(0.01)
            self.ended.append((status, port))

    async def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, self.ended[-20:]
            await asyncio.sleep(0.02)

    async def more(self, count: int) -> list[tuple[int, int]]:
        """The next so many that end."""
        start = len(self.ended)
        await self.until(lambda: len(self.ended) >= start + count)
        return self.ended[start : start + count]
