"""The front with its real program: one of two servers dies under load, and all else that it promises."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from artefacts import BASH, found, need

from recommender.common.errors import RequestError
from recommender.fleet import front
from recommender.fleet.layout import Layout

DEADLINE_S = 20.0
LARGE, SMALL = 200_000, 2_000
CHAT = "/v1/chat/completions"
STANDIN = '''
"""A model server's manners: port, requests at once, seconds for each."""
import asyncio, sys
from aiohttp import web

async def main(port, most, seconds):
    gate, go = asyncio.Semaphore(most), asyncio.Event()
    seen, peers = {"now": 0, "most": 0, "size": 0, "peers": 0}, set()

    async def chat(request):
        seen["now"] += 1
        peers.add(request.transport.get_extra_info("peername"))
        seen["peers"] = len(peers)
        seen["most"] = max(seen["most"], seen["now"])
        try:
            asked = await request.json()
            seen["size"] = max(seen["size"], request.content_length)
            async with gate:
                if asked.get("hold"):
                    await go.wait()
                if asked.get("stream"):
                    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                    await answer.prepare(request)
                    await answer.write(b"data: first\\n\\n")
                    await go.wait()
                    await answer.write(b"data: [DONE]\\n\\n")
                    return answer
                await asyncio.sleep(seconds)
        finally:
            seen["now"] -= 1
        return web.json_response({"choices": [{"message": {"content": ""}}], "port": port})

    async def fine(_):
        return web.json_response(seen)

    async def release(_):
        go.set()
        return web.Response()

    app = web.Application(client_max_size=2**26)
    app.add_routes([web.post("/v1/chat/completions", chat), web.get("/health", fine), web.post("/go", release)])
    app.add_routes([web.get("/terminate", fine), web.get("/v1/models", fine)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
'''


def free_ports(count: int) -> int:
    """The first of so many free ports in a row, below those that the system hands out; each process looks elsewhere."""
    slots = 12_000 // count
    for slot in range(os.getpid(), os.getpid() + slots):
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


@dataclass
class Fleet:
    """Two stand-ins behind the front that is rendered for them, and what runs of it."""

    folder: Path
    batch: int = 16
    seconds: float = 0.15
    bare: bool = False
    variables: dict[str, str] = field(default_factory=dict)
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Renders the configuration for ports that are free."""
        self.first = free_ports(4)
        self.ports, self.port, self.figures = (self.first, self.first + 1), self.first + 2, self.first + 3
        made = found(gpu="h100-sxm", gpu_count=2, load="", concurrency=32)
        config = replace(made.config, servers=2, share=1, tp=1, port=self.first, max_batch_size=self.batch)
        self.layout = Layout(replace(made, config=config))
        (self.folder / "standin.py").write_text(STANDIN)
        for name, text in front.files(self.layout).items():
            (self.folder / name).write_text(text)

    def start(self, port: int) -> None:
        environment = {"PATH": os.environ["PATH"], "FRONT_PORT": str(self.port), "STATS_PORT": str(self.figures)}
        words = [sys.executable, str(self.folder / "standin.py"), str(port), str(self.batch), str(self.seconds)]
        if port == self.port:
            starter = [] if self.bare else [BASH, str(self.folder / front.STARTER)]
            words = [*starter, need("haproxy"), "-db", "-f", str(self.folder / front.NAME)]
        log = (self.folder / f"{port}.log").open("ab")
        self.running[port] = subprocess.Popen(words, env=environment | self.variables, stdout=log, stderr=log)

    def kill(self, port: int) -> None:
        """Kills a server with -9; when this comes back, its port is closed."""
        self.running[port].kill()
        self.running[port].wait()

    def url(self, path: str = CHAT) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def wait(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Waits for something; fails after a while."""
        end = time.monotonic() + DEADLINE_S
        while not await condition():
            assert time.monotonic() < end, {
                path.name: path.read_text()[-2000:] for path in self.folder.glob("*.log") if path.stat().st_size
            }
            await asyncio.sleep(0.02)

    async def up(self, session: aiohttp.ClientSession, *servers: int) -> None:
        """Starts servers, then the front, which therefore takes them for up from its first moment."""
        for port in servers:
            self.start(port)
        for port in (*servers, self.port):
            if port == self.port:
                self.start(port)

            async def healthy(port: int = port) -> bool:
                try:
                    async with session.get(f"http://127.0.0.1:{port}/health") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await self.wait(healthy)


def served(**said: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[[Path], None]]:
    """Makes a test of a fleet and a client without limits of its own; the fleet's processes end with it."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[[Path], None]:
        async def course(made: Fleet) -> None:
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60)
            ) as client:
                await test(made, client)

        def run(tmp_path: Path) -> None:
            need("haproxy")
            made = Fleet(tmp_path, **said)
            try:
                asyncio.run(course(made))
            finally:
                for process in made.running.values():
                    process.kill()
                    process.wait()

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def body(size: int = SMALL, **said: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * size}], **said}).encode()


@dataclass
class Load:
    """Requests that are always in flight, and how each ended: (begun, ended, port or 0)."""

    fleet: Fleet
    client: aiohttp.ClientSession
    ended: list[tuple[float, float, int]] = field(default_factory=list)
    over: bool = False

    async def worker(self, size: int) -> None:
        """One after the other until it is over. An answer without choices is a loss, whatever its status says."""
        while not self.over:
            begun, port = time.monotonic(), 0
            try:
                async with self.client.post(self.fleet.url(), data=body(size)) as answer:
                    said = await answer.json(content_type=None)
                    port = said["port"] if answer.status == 200 and "choices" in said else 0
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)
            self.ended.append((begun, time.monotonic(), port))

    async def answers(self, count: int, *ports: int) -> None:
        """Waits until so many more answers came from each server."""
        start = len(self.ended)

        async def there() -> bool:
            new = [port for _, _, port in self.ended[start:]]
            return all(new.count(port) >= count for port in ports)

        await self.fleet.wait(there)

    def lost(self) -> list[tuple[float, float, int]]:
        return [each for each in self.ended if not each[2]]


# --- one of two servers dies


@served()
async def test_a_dead_server_costs_only_its_requests_in_flight(made: Fleet, client: aiohttp.ClientSession) -> None:
    """kill -9 under 32 in flight: what began later is never lost, and the server is used again when it is back."""
    one, two = made.ports
    await made.up(client, one, two)
    load = Load(made, client)
    workers = [asyncio.create_task(load.worker(LARGE if number % 4 == 0 else SMALL)) for number in range(32)]
    await load.answers(20, one, two)
    assert not load.lost()
    made.kill(one)
    dead = time.monotonic()
    await load.answers(60, two)
    lost = load.lost()
    assert len(lost) <= front.limits(made.layout).at_server
    assert all(begun <= dead for begun, _, _ in lost)
    made.start(one)
    await load.answers(20, one, two)
    assert load.lost() == lost, "the server's return lost requests"
    load.over = True
    await asyncio.gather(*workers)


@served(seconds=0.05)
async def test_a_server_that_does_not_listen_loses_nothing(made: Fleet, client: aiohttp.ClientSession) -> None:
    """A server whose port is closed, while it loads or since it ended in order, costs no request at all."""
    await made.up(client, made.ports[1])
    load = Load(made, client)
    workers = [asyncio.create_task(load.worker(SMALL)) for _ in range(8)]
    await load.answers(20, made.ports[1])
    load.over = True
    await asyncio.gather(*workers)
    assert not load.lost()


# --- what goes through, and what waits


@served(seconds=0.01)
async def test_no_request_meets_a_connection_that_the_server_may_close(
    made: Fleet, client: aiohttp.ClientSession
) -> None:
    """Requests that come over one connection of a client go over one each to the server."""
    await made.up(client, made.ports[0])
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as single:
        for _ in range(4):
            async with single.post(made.url(), data=body()) as answer:
                assert answer.status == 200
    async with client.get(f"http://127.0.0.1:{made.ports[0]}/health") as answer:
        assert (await answer.json())["peers"] == 4


@served(seconds=0.02, variables={"SERVER_LIMIT": "2", "QUEUE_TIMEOUT": "1s", "BODY_LIMIT": "300000"})
async def test_limits_hold_and_streams_are_not_held_back(made: Fleet, client: aiohttp.ClientSession) -> None:
    """A server never has more requests than its limit; what finds no place in time gets 503; events pass at once."""
    await made.up(client, *made.ports)

    async def post(data: Any, path: str = CHAT) -> tuple[int, str, str]:
        async with client.post(made.url(path), data=data) as answer:
            return answer.status, await answer.text(), answer.headers.get("Retry-After", "")

    assert {status for status, *_ in await asyncio.gather(*(post(body(LARGE)) for _ in range(12)))} == {200}
    for port in made.ports:
        async with client.get(f"http://127.0.0.1:{port}/health") as answer:
            seen = await answer.json()
        assert seen["most"] <= 2
        assert seen["size"] > LARGE
    status, text, _ = await post(body(400_000))
    assert (status, json.loads(text)["error"]["code"]) == (413, 413)

    async def pieces() -> AsyncIterator[bytes]:
        yield body()

    assert (await post(pieces()))[0] == 411
    assert (await post(b"", "/terminate"))[0] == 404

    async with client.post(made.url(), data=body(stream=True)) as stream:
        first = await asyncio.wait_for(stream.content.readuntil(b"\n\n"), DEADLINE_S)
        assert first == b"data: first\n\n", "nothing ends the stream before it was seen to begin"
        held = [asyncio.create_task(post(body(hold=True))) for _ in range(3)]
        await made.wait(lambda: full(made, client))
        status, text, retry = await post(body())
        assert (status, json.loads(text)["error"]["code"], retry) == (503, 503, "2")
        for port in made.ports:
            async with client.post(f"http://127.0.0.1:{port}/go"):
                pass
        assert await asyncio.wait_for(stream.content.readuntil(b"\n\n"), DEADLINE_S) == b"data: [DONE]\n\n"
    assert {status for status, *_ in await asyncio.gather(*held)} == {200}


async def full(made: Fleet, client: aiohttp.ClientSession) -> bool:
    """Whether both servers have as many requests as they may."""
    now = []
    for port in made.ports:
        async with client.get(f"http://127.0.0.1:{port}/health") as answer:
            now.append((await answer.json())["now"])
    return now == [2, 2]


@served()
async def test_nobody_waits_for_servers_that_are_all_down(made: Fleet, client: aiohttp.ClientSession) -> None:
    """With every server down a request gets 503 at once, long before the queue's time, and so does /health."""
    made.start(made.port)

    async def unhealthy() -> bool:
        try:
            async with client.get(made.url("/health")) as answer:
                return answer.status == 503
        except aiohttp.ClientError:
            return False

    await made.wait(unhealthy)
    begun = time.monotonic()
    async with client.post(made.url(), data=body()) as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "2"
        assert (await answer.json())["error"]["code"] == 503
    assert time.monotonic() - begun < front.limits(made.layout).queue_s / 2
    async with client.get(f"http://127.0.0.1:{made.figures}/metrics") as answer:
        assert "haproxy_server_status" in await answer.text()


@served(seconds=0.01)
async def test_keys_are_asked_for_by_the_front(made: Fleet, client: aiohttp.ClientSession) -> None:
    """With API_KEYS_FILE only a request with a key of it goes through, and comments in it are no keys."""
    keys = made.folder / "keys"
    keys.write_bytes(b"\xef\xbb\xbf  # one a line\r\nsecret-one \r\n two words\r\n")
    made.variables["API_KEYS_FILE"] = str(keys)
    await made.up(client, made.ports[0])
    wrong = ("", "Bearer wrong", "Bearer # one a line", "Bearer #", "Bearer two", "Basic secret-one", "secret-one")
    assert await asked(made, client, *wrong) == [401] * len(wrong)
    assert await asked(made, client, "Bearer secret-one", "Bearer two words") == [200, 200]


@served(seconds=0.01, bare=True)
async def test_a_comment_is_no_key_for_haproxy_alone(made: Fleet, client: aiohttp.ClientSession) -> None:
    """Also without front.sh a comment is no key, however far it is indented."""
    keys = made.folder / "keys"
    keys.write_text("# one a line\n  # indented\n\t#tab\nsecret\n")
    made.variables["API_KEYS_FILE"] = str(keys)
    await made.up(client, made.ports[0])
    wrong = ("", "Bearer # one a line", "Bearer # indented", "Bearer #tab", "Bearer ")
    assert await asked(made, client, *wrong) == [401] * len(wrong)
    assert await asked(made, client, "Bearer secret") == [200]


async def asked(made: Fleet, client: aiohttp.ClientSession, *keys: str) -> list[int]:
    """The statuses of requests with these headers."""
    statuses = []
    for key in keys:
        headers = {"Authorization": key} if key else {}
        async with client.post(made.url(), data=body(), headers=headers) as answer:
            statuses.append(answer.status)
    return statuses


@pytest.mark.parametrize(
    "variables", [{"API_KEYS": "k"}, {"API_KEYS": ""}, {"API_KEYS_FILE": ""}, {"API_KEYS_FILE": "/"}]
)
def test_haproxy_alone_starts_no_open_front_where_keys_were_asked_for(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """What only front.sh can read, and what nothing can read, is an error of the configuration."""
    path = tmp_path / front.NAME
    path.write_text(front.files(Layout(found()))[front.NAME])
    done = subprocess.run([need("haproxy"), "-c", "-f", str(path)], env=variables, capture_output=True, timeout=60)
    assert done.returncode != 0


# --- the text


@pytest.mark.parametrize(("hosts", "keys"), [(1, False), (1, True), (3, False), (32, True)])
def test_the_program_accepts_every_layout(tmp_path: Path, hosts: int, keys: bool) -> None:
    """HAProxy's own check passes for one host and for many, with keys and without."""
    made = found(gpu="h100-sxm", gpu_count=4, model="internvl3-38b", load="high", prompt_tokens=3000)
    path = tmp_path / front.NAME
    path.write_text(front.files(Layout(made, hosts))[front.NAME])
    (tmp_path / "keys").write_text("key\n")
    environment = {f"HOST_{host}": f"10.0.0.{host}" for host in range(1, hosts + 1)}
    environment |= {"API_KEYS_FILE": str(tmp_path / "keys")} if keys else {}
    done = subprocess.run(
        [need("haproxy"), "-c", "-f", str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_limits_follow_the_plan() -> None:
    """A server gets what it runs at once and a little more; times follow the prediction; images fit the body."""
    made = found(gpu="a100-sxm-80g", gpu_count=2, load="high", image_width=4000, image_height=3000, images=2)
    limits = front.limits(Layout(made))
    assert made.config.max_batch_size < limits.at_server <= 2 * made.config.max_batch_size + 4
    assert limits.answer_s * 1000 >= made.speed.p99_ms.high * 5
    assert 10 <= limits.queue_s < front.client_timeout_s(made)
    assert limits.body > 2 * 4000 * 3000 * 4
    assert limits.connections >= limits.queue + 2 * limits.at_server


def test_no_default_opens_the_front_or_its_figures() -> None:
    """Clients and figures are on this host alone until somebody says otherwise; each server has its own port."""
    text = front.files(Layout(found(gpu_count=2, load="high")))[front.NAME]
    assert "presetenv FRONT_ADDRESS 127.0.0.1\n" in text
    assert "presetenv STATS_ADDRESS 127.0.0.1\n" in text
    assert 'server server0 "127.0.0.1:23333"\n' in text
    assert 'server server1 "127.0.0.1:23334"\n' in text
    assert "latest" not in front.IMAGE
    assert ":" in front.IMAGE


def test_too_many_hosts_are_refused() -> None:
    """Hundreds of hosts are not kept by hand: one line says what to take instead."""
    with pytest.raises(RequestError, match=r"33 hosts are too many.*k8s"):
        front.files(Layout(found(), 33))
