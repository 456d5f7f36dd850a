"""The front with its real program: servers that die or fail, clients that leave or dawdle, and all that it promises."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import pytest
from artefacts import BASH, found, need, write_files
from fronts import CHAT, HEAD, Front, Load, Servers, asked, call, wait

from recommender.common.errors import RequestError
from recommender.fleet import front, systemd
from recommender.fleet.layout import Layout

MIB = 2**20


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = Servers(tmp_path_factory.mktemp("servers"))
    yield made
    made.stop()


@pytest.fixture
def servers(stand_ins: Servers) -> Servers:
    stand_ins.heal()
    return stand_ins


def driven(front: Front, course: Callable[[Load, aiohttp.ClientSession], Awaitable[None]], workers: int = 24) -> Load:
    """Runs a course while requests are always in flight; what became of them."""

    async def run() -> Load:
        load = Load(front.url)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as client:
            tasks = [asyncio.create_task(load.worker(client, asked())) for _ in range(workers)]
            await course(load, client)
            load.over = True
            await asyncio.gather(*tasks)
        return load

    return asyncio.run(run())


# --- servers that die, and servers that fail


def test_a_dead_server_costs_only_its_requests_in_flight(servers: Servers) -> None:
    """kill -9 under load: no more is lost than ran there, and the server is used again when it is back."""
    one, two = servers.ports
    with servers.front(SERVER_LIMIT="16") as made:

        async def course(load: Load, client: aiohttp.ClientSession) -> None:
            assert {status for status, _ in await load.more(60)} == {200}
            servers.running[one].kill()
            servers.running[one].wait()
            dead = len(load.ended)
            await load.until(lambda: sum(port == two for _, port in load.ended[dead:]) >= 60)
            servers.start(one)
            await load.until(lambda: load.ended[-1][1] == one)

        load = driven(made, course)
        lost = [status for status, _ in load.ended if status != 200]
        assert len(lost) <= 16
        assert set(lost) <= {0, 502}  # 0: of a connection that had requests before, HAProxy ends it without a word


def test_a_server_that_does_not_listen_loses_nothing(servers: Servers) -> None:
    """A server whose port is closed, while it loads or since it ended in order, costs no request at all."""
    one, two = servers.ports
    servers.running[one].terminate()
    servers.running[one].wait()
    try:
        with servers.front() as made:

            async def course(load: Load, client: aiohttp.ClientSession) -> None:
                await load.more(60)

            assert set(driven(made, course, 8).ended) == {(200, two)}
    finally:
        servers.start(one)
        wait(lambda: servers.healthy(one))


def test_a_server_that_fails_at_once_draws_few_requests(servers: Servers) -> None:
    """500 to everything while /health passes: it is removed, tried now and then with few, and used again when sound."""
    one, two = servers.ports
    with servers.front() as made:
        shares = []

        async def course(load: Load, client: aiohttp.ClientSession) -> None:
            assert {port for _, port in await load.more(60)} == {one, two}
            servers.mode(one, bad=True)
            await load.until(lambda: "server0" not in made.up())
            for _ in range(2):  # each long enough for it to be tried again
                ended = await load.more(250)
                shares.append(sum(status == 500 for status, _ in ended) / 250)
            servers.mode(one, bad=False)
            start = len(load.ended)
            await load.until(lambda: sum(port == one for _, port in load.ended[start:]) > 100)

        load = driven(made, course)
        assert max(shares) < 0.15
        assert Counter(status for status, _ in load.ended).keys() == {200, 500}


def test_a_poisonous_request_takes_no_server_from_others(servers: Servers) -> None:
    """A client whose requests fail everywhere: the answers of all others go on, though each server fails in a row."""
    with servers.front() as made:

        async def course(load: Load, client: aiohttp.ClientSession) -> None:
            poison = Load(made.url)
            tasks = [asyncio.create_task(poison.worker(client, asked(poison=True))) for _ in range(4)]
            await load.until(lambda: not made.up())
            ended = await load.more(200)
            assert {status for status, _ in ended} == {200}
            assert {port for _, port in ended} == set(servers.ports)
            poison.over = True
            await asyncio.gather(*tasks)
            assert {status for status, _ in poison.ended} == {500}
            await load.until(lambda: len(made.up()) == 2)

        assert {status for status, _ in driven(made, course).ended} == {200}


def test_a_slow_server_gets_what_it_can_answer(servers: Servers) -> None:
    """Ten times as slow, with /health in time: no request is lost, and nearly all go to the other server."""
    one = servers.ports[0]
    with servers.front() as made:

        async def course(load: Load, client: aiohttp.ClientSession) -> None:
            servers.mode(one, seconds=10 * servers.seconds)
            await load.more(60)  # those before are answered
            ended = await load.more(250)
            assert Counter(port for _, port in ended)[one] < 0.25 * len(ended)
            assert len(made.up()) == 2

        assert {status for status, _ in driven(made, course).ended} == {200}


def test_a_server_that_accepts_and_never_answers(servers: Servers) -> None:
    """Stopped by a signal, its port still accepts: only those that it had wait for ANSWER_TIMEOUT, then it is left out;
    when it goes on, it is used again."""
    one, two = servers.ports
    process = servers.running[one]
    with servers.front(SERVER_LIMIT="16", ANSWER_TIMEOUT="2s") as made:

        async def course(load: Load, client: aiohttp.ClientSession) -> None:
            assert {port for _, port in await load.more(60)} == {one, two}
            process.send_signal(signal.SIGSTOP)
            await load.until(lambda: "server0" not in made.up())
            await load.until(lambda: 504 in {status for status, _ in load.ended})
            await load.until(lambda: {status for status, _ in load.ended[-150:]} == {200})
            process.send_signal(signal.SIGCONT)
            start = len(load.ended)
            await load.until(lambda: any(port == one for _, port in load.ended[start:]))

        try:
            load = driven(made, course)
        finally:
            process.send_signal(signal.SIGCONT)
    lost = [status for status, _ in load.ended if status != 200]
    assert set(lost) <= {0, 504}
    assert 0 < len(lost) <= 2 * 16


def test_nobody_waits_for_servers_that_are_all_down(servers: Servers, tmp_path: Path) -> None:
    """With every server down a request gets 503 at once, long before the queue's time, and so does /health."""
    for process in servers.running.values():
        process.terminate()
        process.wait()
    try:
        with servers.front(expect=503, QUEUE_TIMEOUT="60s", HEADER_TIMEOUT="60s") as made:
            wait(lambda: not made.up() and not made.up("all-servers"))
            status, body, headers = call(made.url, asked())
            assert (status, json.loads(body)["error"]["code"], headers["retry-after"]) == (503, 503, retry(servers))
            assert b"haproxy_server_status" in call(f"http://127.0.0.1:{made.port + 1}/metrics")[1]
    finally:
        for port in servers.ports:
            servers.start(port)
        for port in servers.ports:
            wait(lambda port=port: servers.healthy(port))


def retry(servers: Servers) -> str:
    return str(front.limits(servers.layout).retry_s)


# --- clients that leave, and clients that dawdle


def test_requests_of_clients_that_left_cost_nothing(servers: Servers) -> None:
    """A hundred leave while they wait: no server sees them. Four leave while theirs run: the servers are told."""
    with servers.front(SERVER_LIMIT="2", QUEUE_LIMIT="1000", QUEUE_TIMEOUT="60s") as made:
        text = asked(hold=True)
        request = f"{HEAD}Content-Length: {len(text)}\r\n\r\n".encode() + text
        running = servers.filled(4, lambda: made.connect(request))
        waiting = [made.connect(request) for _ in range(100)]
        wait(lambda: made.rows()["BACKEND"]["qcur"] == "100")
        for client in waiting:
            client.close()
        wait(lambda: made.rows()["BACKEND"]["qcur"] == "0")
        for client in running:
            client.close()
        wait(lambda: servers.seen("left") == 4)
        assert (servers.seen("got"), servers.seen("now")) == (4, 0)


def test_slow_clients_lock_nobody_out(servers: Servers) -> None:
    """160 that never end their bodies, 360 that never end their headers and 300 idle ones: all others are served."""
    with servers.front() as made:
        body = f"{HEAD}Content-Length: {MIB}\r\n\r\n".encode() + b"x" * 100_000
        slow = [made.connect(body) for _ in range(160)]
        slow += [made.connect(HEAD.encode()) for _ in range(360)]
        slow += [made.connect(b"GET /v1/models HTTP/1.1\r\nHost: front\r\n\r\n") for _ in range(300)]
        wait(lambda: int(made.rows("clients")["FRONTEND"]["scur"]) >= 820)

        async def course(load: Load, client: aiohttp.ClientSession) -> None:
            await load.more(300)

        ended = driven(made, course).ended
        assert {status for status, _ in ended} == {200}
        assert servers.seen("got") == len(ended)
        for client in slow:
            client.close()


def test_a_body_that_never_ends_is_given_up(servers: Servers) -> None:
    """408 with a reason, and no server has seen the request."""
    with servers.front(UPLOAD_TIMEOUT="200ms", HEADER_TIMEOUT="200ms") as made:
        for sent in (f"{HEAD}Content-Length: 1000\r\n\r\n".encode() + b"x" * 500, HEAD.encode()):
            with made.connect(sent) as client:
                answer = b"".join(iter(lambda: client.recv(4096), b""))
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert (b'"code":408' in answer) == (b"Content-Length" in sent)  # of headers HAProxy itself says it
        assert servers.seen("got") == 0


def test_one_address_cannot_take_every_connection(servers: Servers) -> None:
    """Beyond its share a client's connections are closed at once."""
    with servers.front(CLIENT_CONNECTIONS="20") as made:
        held = [made.connect(b"") for _ in range(60)]
        wait(lambda: int(made.rows("clients")["FRONTEND"]["dcon"]) >= 40)
        assert int(made.rows("clients")["FRONTEND"]["scur"]) <= 20
        for client in held:
            client.close()


# --- what goes through, and what waits


def test_no_request_meets_a_connection_that_the_server_may_close(servers: Servers) -> None:
    """Requests that come over one connection of a client go over one each to the server."""
    with servers.front() as made:
        text = asked()
        request = f"{HEAD}Content-Length: {len(text)}\r\n\r\n".encode() + text
        with made.connect(b"") as client:
            for _ in range(4):
                client.sendall(request)
                assert b" 200 " in client.recv(4096)
        assert servers.seen("peers") == 4


def test_limits_hold_and_who_finds_no_place_is_told(servers: Servers) -> None:
    """A server never has more requests than its limit; a full queue gives 503 at once, a long wait after its time."""
    with servers.front(SERVER_LIMIT="2", QUEUE_LIMIT="3", QUEUE_TIMEOUT="60s") as made, ThreadPoolExecutor(8) as pool:
        held = servers.filled(4, lambda: pool.submit(call, made.url, asked(hold=True)))
        held += [pool.submit(call, made.url, asked(hold=True)) for _ in range(3)]
        wait(lambda: made.rows()["BACKEND"]["qcur"] == "3")
        status, body, headers = call(made.url, asked())
        assert (status, json.loads(body)["error"]["code"], headers["retry-after"]) == (503, 503, retry(servers))
        for port in servers.ports:
            servers.mode(port, release=7)
        assert {each.result()[0] for each in held} == {200}
        assert max(servers.mode(port)["most"] for port in servers.ports) <= 2
    servers.heal()
    with servers.front(SERVER_LIMIT="1", QUEUE_TIMEOUT="100ms") as made, ThreadPoolExecutor(8) as pool:
        servers.filled(2, lambda: pool.submit(call, made.url, asked(hold=True)))
        assert call(made.url, asked())[0] == 503
        for port in servers.ports:
            servers.mode(port, release=2)


def test_streams_are_not_held_back(servers: Servers) -> None:
    """Events pass at once: nothing ends the stream before it was seen to begin."""
    with servers.front() as made:
        text = asked(stream=True, hold=True)
        with made.connect(f"{HEAD}Content-Length: {len(text)}\r\n\r\n".encode() + text) as client:
            client.settimeout(20)
            seen = b""
            while b"data: first\n\n" not in seen:
                seen += client.recv(4096)
            for port in servers.ports:
                servers.mode(port, release=1)
            while b"[DONE]" not in seen:
                seen += client.recv(4096)


def test_large_bodies_go_through_and_refusals_reach_the_client(servers: Servers) -> None:
    """10 MB of pictures and chunked uploads pass; what is refused is so with its reason, however much is sent first."""
    with servers.front() as made:
        picture = asked(picture="x" * 10 * MIB)
        status, body, _ = call(made.url, picture)
        assert (status, "choices" in json.loads(body)) == (200, True)
        assert servers.seen("size") >= len(picture)
        for url, size, code in (
            (made.url, 33 * MIB, 413),
            (made.url, 100 * MIB, 413),
            (made.url.replace("/v1/", "/v2/"), 12 * MIB, 404),
            (made.url.replace(CHAT, "/terminate"), 0, 404),
        ):
            status, body, _ = call(url, b"x" * size)
            assert (status, json.loads(body)["error"]["code"]) == (code, code)
        assert asyncio.run(chunked(made.url, 5)) == 200
        assert asyncio.run(chunked(made.url, 40)) == 413
        assert servers.seen("got") == 2


async def chunked(url: str, mib: int) -> int:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"picture": "'
        for _ in range(mib):
            yield b"x" * MIB
        yield b'"}'

    async with aiohttp.ClientSession() as client, client.post(url, data=pieces()) as answer:
        await answer.read()
        return answer.status


# --- keys, priorities, prefixes, TLS


WRONG = ("", "Bearer wrong", "Bearer # one a line", "Bearer #", "Bearer two", "Basic secret-one", "secret-one")


def test_keys_are_asked_for_by_the_front(servers: Servers, tmp_path: Path) -> None:
    """With API_KEYS_FILE only a request with a key of it goes through; the reason reaches who sends much first."""
    keys = tmp_path / "keys"
    keys.write_bytes(b"\xef\xbb\xbf  # one a line\r\nsecret-one \r\n two words\r\n")
    with servers.front(API_KEYS_FILE=str(keys)) as made:
        assert [call(made.url, asked(), **authorized(key))[0] for key in WRONG] == [401] * len(WRONG)
        status, body, _ = call(made.url, b"x" * 8 * MIB, Authorization="Bearer wrong")
        assert (status, json.loads(body)["error"]["code"]) == (401, 401)
        for key in ("Bearer secret-one", "Bearer two words"):
            assert call(made.url, asked(), Authorization=key)[0] == 200


def authorized(key: str) -> dict[str, str]:
    return {"Authorization": key} if key else {}


def test_a_comment_is_no_key_for_haproxy_alone(servers: Servers, tmp_path: Path) -> None:
    """Also without front.sh a comment is no key, however far it is indented."""
    keys = tmp_path / "keys"
    keys.write_text("# one a line\n  # indented\n\t#tab\nsecret\n")
    with servers.front(bare=True, API_KEYS_FILE=str(keys)) as made:
        wrong = ("", "Bearer # one a line", "Bearer # indented", "Bearer #tab", "Bearer ")
        assert [call(made.url, asked(), **authorized(key))[0] for key in wrong] == [401] * len(wrong)
        assert call(made.url, asked(), Authorization="Bearer secret")[0] == 200


def test_a_key_has_limits_of_its_own(servers: Servers) -> None:
    """Beyond KEY_CONCURRENT at once, or KEY_RATE in ten seconds, a key gets 429, and another one goes on."""
    with servers.front(KEY_CONCURRENT="2") as made, ThreadPoolExecutor(2) as pool:
        held = servers.filled(2, lambda: pool.submit(call, made.url, asked(hold=True), Authorization="Bearer one"))
        status, body, headers = call(made.url, asked(), Authorization="Bearer one")
        assert (status, json.loads(body)["error"]["code"], headers["retry-after"]) == (429, 429, "10")
        assert call(made.url, asked(), Authorization="Bearer two")[0] == 200
        for port in servers.ports:
            servers.mode(port, release=2)
        assert {each.result()[0] for each in held} == {200}
    with servers.front(KEY_RATE="5") as made:
        assert [call(made.url, asked())[0] for _ in range(7)] == [200] * 5 + [429] * 2
        assert call(made.url, asked(), Authorization="Bearer one")[0] == 200


def test_a_key_may_come_first(servers: Servers, tmp_path: Path) -> None:
    """In the queue low numbers of PRIORITY_FILE come before others, whenever they came."""
    (tmp_path / "priorities").write_text("first -10\nlast 10\n")
    with (
        servers.front(SERVER_LIMIT="1", QUEUE_TIMEOUT="60s", PRIORITY_FILE=str(tmp_path / "priorities")) as made,
        ThreadPoolExecutor(8) as pool,
    ):
        servers.filled(2, lambda: pool.submit(call, made.url, asked(hold=True)))
        for count, key in enumerate(("last", "none", "first"), 1):
            text = asked(hold=True, name=key)
            pool.submit(call, made.url, text, Authorization=f"Bearer {key}")
            wait(lambda count=count: made.rows()["BACKEND"]["qcur"] == str(count))
        one = servers.ports[0]
        for served in range(2, 5):
            servers.mode(one, release=1)
            wait(lambda served=served: len(servers.mode(one)["order"]) == served)
        assert servers.mode(one)["order"][1:] == ["first", "none", "last"]
        for port in servers.ports:
            servers.mode(port, release=5)


@pytest.mark.parametrize("by", ["HASH_BYTES", "HASH_HEADER"])
def test_requests_with_one_beginning_go_to_one_server(servers: Servers, by: str) -> None:
    """The same first bytes, or the same header: one server for each, and both servers have some."""
    with servers.front(**{by: "60" if by == "HASH_BYTES" else "x-session-id"}) as made:
        homes = {}
        for port in servers.ports:
            servers.mode(port, seconds=0.01)
        for talk in range(12):
            bodies = [b'{"system": "' + b"%02d" % talk * 40 + b'", "turn": %d}' % turn for turn in range(3)]
            headers = {"X-Session-Id": f"talk-{talk}"} if by == "HASH_HEADER" else {}
            homes[talk] = {json.loads(call(made.url, body, **headers)[1])["port"] for body in bodies}
        assert {len(ports) for ports in homes.values()} == {1}
        assert set.union(*homes.values()) == set(servers.ports)


def test_tls_is_the_fronts_own(servers: Servers, tmp_path: Path) -> None:
    """With TLS_FILE clients connect with its certificate, and not without TLS."""
    key, certificate, both = (tmp_path / name for name in ("key.pem", "cert.pem", "tls.pem"))
    made_by = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made_by += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([need("openssl"), *made_by], check=True, capture_output=True)
    both.write_text(certificate.read_text() + key.read_text())
    with servers.front(expect=0, TLS_FILE=str(both)) as made:
        trusted = ssl.create_default_context(cafile=str(certificate))

        async def ask() -> int:
            async with aiohttp.ClientSession() as client:
                url = made.url.replace("http:", "https:")
                async with client.post(url, data=asked(), ssl=trusted) as answer:
                    return answer.status

        assert asyncio.run(ask()) == 200
        with pytest.raises(OSError, match=r"."):
            call(made.url, asked())


def test_a_reload_loses_nothing(servers: Servers) -> None:
    """SIGUSR2 to the master under load, as systemctl reload sends it: new workers take over, old ones end in order."""
    with servers.front("-W") as made:

        async def course(load: Load, client: aiohttp.ClientSession) -> None:
            for _ in range(2):
                await load.more(60)
                made.process.send_signal(signal.SIGUSR2)
            await load.more(120)

        assert {status for status, _ in driven(made, course).ended} == {200}


# --- what does not start


@pytest.mark.parametrize(
    "variables", [{"API_KEYS": "k"}, {"API_KEYS": ""}, {"API_KEYS_FILE": ""}, {"API_KEYS_FILE": "/"}]
)
def test_haproxy_alone_starts_no_open_front_where_keys_were_asked_for(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """What only front.sh can read, and what nothing can read, is an error of the configuration."""
    assert checked(tmp_path, Layout(found()), **variables).returncode != 0


def checked(folder: Path, layout: Layout, **environment: str) -> subprocess.CompletedProcess[str]:
    """HAProxy's own check of a layout's configuration, in its folder."""
    write_files(folder, front.files(layout))
    words = [need("haproxy"), "-c", "-f", front.NAME]
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


# --- the text


@pytest.mark.parametrize(("hosts", "keys"), [(1, False), (1, True), (3, False), (32, True)])
def test_the_program_accepts_every_layout(tmp_path: Path, hosts: int, keys: bool) -> None:
    """HAProxy's own check passes for one host and for many, with every optional setting and without."""
    made = found(gpu="h100-sxm", gpu_count=4, model="internvl3-38b", load="high", prompt_tokens=3000)
    for name in ("keys", "priorities"):
        (tmp_path / name).write_text("key 1\n")
    environment = {f"HOST_{host}": f"10.0.0.{host}" for host in range(1, hosts + 1)}
    if keys:
        environment |= {"API_KEYS_FILE": str(tmp_path / "keys"), "PRIORITY_FILE": str(tmp_path / "priorities")}
        environment |= {"KEY_RATE": "10", "KEY_CONCURRENT": "3", "HASH_BYTES": "2000"}
    done = checked(tmp_path, Layout(made, hosts), **environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_limits_follow_the_plan() -> None:
    """A server gets what it runs at once and a little more; times follow the prediction; images fit the body."""
    made = found(gpu="a100-sxm-80g", gpu_count=2, load="high", image_width=4000, image_height=3000, images=2)
    limits = front.limits(Layout(made))
    assert made.config.max_batch_size < limits.at_server <= 2 * made.config.max_batch_size + 4
    assert limits.answer_s * 1000 >= made.speed.p99_ms.high * 5
    assert 10_000 <= limits.queue_ms < 1000 * front.client_timeout_s(made)
    assert limits.body > 2 * 4000 * 3000 * 4
    assert limits.connections >= limits.queue + 2 * limits.at_server + 1000


@pytest.mark.parametrize("wait_ms", [80.0, 350.0, 4000.0])
def test_the_queue_is_as_long_as_the_goal_allows(wait_ms: float) -> None:
    """It holds what the servers complete in that time, and a burst."""
    made = found(gpu_count=2, load="high")
    limits = front.limits(Layout(made, 3, wait_ms=wait_ms))
    assert limits.queue_ms == wait_ms
    assert limits.queue == pytest.approx(max(made.speed.rps.value * 3 * wait_ms / 1000, 12), abs=1)
    assert limits.retry_s == (4 if wait_ms == 4000 else 1)
    assert front.limits(Layout(made, 3, wait_ms=wait_ms, burst=500)).queue >= 1000


def test_no_default_opens_the_front_or_its_figures() -> None:
    """Clients and figures are on this host alone until somebody says otherwise; each server has its own port."""
    text = front.files(Layout(found(gpu_count=2, load="high")))[front.NAME]
    assert "presetenv FRONT_ADDRESS 127.0.0.1\n" in text
    assert "presetenv STATS_ADDRESS 127.0.0.1\n" in text
    assert text.count('server server0 "127.0.0.1:23333"\n') == 2
    assert text.count('server server1 "127.0.0.1:23334"\n') == 2
    assert "latest" not in front.IMAGE
    assert ":" in front.IMAGE


def test_too_many_hosts_are_refused() -> None:
    """Hundreds of hosts are not kept by hand: one line says what to take instead."""
    with pytest.raises(RequestError, match=r"33 hosts are too many.*k8s"):
        front.files(Layout(found(), 33))


# --- updates

SYSTEMCTL = """#!/bin/bash
# Restarts a stand-in as systemd does: {folder} has the words of each and their processes.
[[ $1 == restart ]] || exit 2
number=${{2#lmdeploy@}}
echo "$number" >>"{folder}/restarted"
kill "$(cat "{folder}/$number.pid")"
[[ ! -e "{folder}/broken" ]] || exit 0
sleep 4 # as a start takes: long enough for the health checks to see it
bash "{folder}/$number.sh" >/dev/null 2>&1 &
echo $! >"{folder}/$number.pid"
"""


def test_a_rollout_takes_one_server_at_a_time(servers: Servers, tmp_path: Path) -> None:
    """Each is restarted once the one before is used again, and nothing is lost; one that stays down ends it."""
    tool = tmp_path / "systemctl"
    tool.write_text(SYSTEMCTL.format(folder=tmp_path))
    tool.chmod(0o755)
    for number, port in enumerate(servers.ports):
        (tmp_path / f"{number}.pid").write_text(str(servers.running[port].pid))
        (tmp_path / f"{number}.sh").write_text(f"exec {shlex.join(servers.words(port))}\n")
    (tmp_path / "rollout.sh").write_text(systemd.files(servers.layout)["rollout.sh"])
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PATIENCE": "20"}
    with servers.front() as made:

        def rollout(*numbers: str) -> subprocess.CompletedProcess[str]:
            words = [BASH, str(tmp_path / "rollout.sh"), *numbers]
            variables = environment | {"STATS_PORT": str(made.port + 1)}
            return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=120, check=False)

        async def course(load: Load, client: aiohttp.ClientSession) -> None:
            running = asyncio.get_running_loop().run_in_executor(None, rollout)
            fewest = 2
            while not running.done():
                fewest = min(fewest, len(made.up("all-servers")))
                await asyncio.sleep(0.05)
            done = running.result()
            assert (done.returncode, fewest) == (0, 1), done.stderr

        driven(made, course, 8)
        assert (tmp_path / "restarted").read_text() == "0\n1\n"
        (tmp_path / "broken").touch()
        environment["PATIENCE"] = "6"
        done = rollout()
        assert (done.returncode, "server0 is not used again" in done.stderr) == (1, True)
        assert (tmp_path / "restarted").read_text() == "0\n1\n0\n"
        environment["PATIENCE"] = "1"
        done = rollout("1")
        assert (done.returncode, "server1 was not restarted" in done.stderr) == (1, True)
    for number, port in enumerate(servers.ports):
        kill(int((tmp_path / f"{number}.pid").read_text()))
        servers.start(port)
    for port in servers.ports:
        wait(lambda port=port: servers.healthy(port))


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
