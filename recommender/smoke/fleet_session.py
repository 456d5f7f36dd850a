"""Run a fleet folder on this host, and kill a server under load if asked to."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import resource
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.knowledge import records
from recommender.smoke import record
from recommender.smoke.client import checks, load
from recommender.smoke.failures import Failure
from recommender.smoke.fleet_folder import FRONT, KEY_VARIABLES, LUA, FleetArtefact, FleetServer
from recommender.smoke.process import diagnose, readback
from recommender.smoke.process.api_keys import read_api_keys
from recommender.smoke.session import POLL_S, Session

if TYPE_CHECKING:
    from recommender.smoke.process.process_guard import Child

FRONT_S = 10.0
"""Seconds until HAProxy must serve."""
RESTART_S = 5.0
"""Seconds until a killed server is restarted: RestartSec of the units."""
FILES_BESIDE = 500
"""Files that HAProxy opens besides two a connection, rounded up."""
SBIN = "/usr/sbin:/usr/local/sbin"
"""Where distributions install HAProxy; users' PATH often lacks it."""


class FleetSession(Session):
    """One run of a fleet's servers and HAProxy."""

    fleet_servers: tuple[FleetServer, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def fleet(self) -> FleetArtefact:
        """Return the artefact, which is a fleet folder."""
        assert isinstance(self.request.artefact, FleetArtefact)
        return self.request.artefact

    def check_machine(self) -> None:
        """Raise Failure if a program is missing or a port is taken."""
        self.fleet_servers = self.fleet.servers(self.request.recommendation, self.request.variables)
        self.settings = {**self.settings, "port": str(self.fleet_servers[0].port)}
        self.keys = read_api_keys(self.fleet.key_variables(self.request.environment))
        self.key = self.keys[0] if self.keys else ""
        self.find_lmdeploy()
        self.find_haproxy()
        super().check_machine()

    def required_ports(self) -> list[tuple[int, str]]:
        """Return the ports and their owners; raise RequestError if two share one."""
        variables = self.front_variables()
        needed = [(server.port, f"{server.name}'s") for server in self.fleet_servers]
        needed += [(int(variables[name]), f"HAProxy's: set {name}") for name in ("FRONT_PORT", "STATS_PORT")]
        for number, (port, whose) in enumerate(needed):
            if port in dict(needed[:number]):
                raise RequestError(f"{self.fleet.name}: port {port} is {dict(needed[:number])[port]} and {whose}")
        return needed

    # --- where everything is ------------------------------------------------------------

    def ports(self) -> list[int]:
        """Return the servers' ports."""
        return [server.port for server in self.fleet_servers]

    def front_url(self) -> str:
        """Return HAProxy's base URL on this host."""
        return f"http://127.0.0.1:{self.front_variables()['FRONT_PORT']}"

    def front_variables(self) -> dict[str, str]:
        """Return HAProxy's settings."""
        return dict(self.fleet.front(self.request.environment))

    def uses_mps(self) -> bool:
        """Return whether servers share a GPU, which they do through CUDA MPS."""
        return self.request.recommendation.config.share > 1

    def find_lmdeploy(self) -> str:
        """Return the lmdeploy command of the files, else of the PATH; or raise Failure."""
        configured = self.fleet_servers[0].environment.get("LMDEPLOY", "")
        path = (
            configured
            if os.access(configured, os.X_OK)
            else shutil.which("lmdeploy", path=self.request.variables.get("PATH"))
        )
        if not path:
            raise Failure("machine", "no lmdeploy command; install LMDeploy, or add its folder to PATH")
        return path

    def find_haproxy(self) -> str:
        """Return the haproxy command; raise Failure if there is none."""
        path = shutil.which("haproxy", path=f"{self.request.variables.get('PATH', '')}:{SBIN}")
        if not path:
            raise Failure("machine", "haproxy is missing: apt-get install haproxy")
        return path

    # --- launch -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the servers (one after another if they share a GPU), then HAProxy."""
        if self.uses_mps():
            self.start_mps()
        self.watch.reset()
        begun, cards = time.monotonic(), dict[str, int]()
        for number, server in enumerate(self.fleet_servers):
            if server.cards in cards:  # each takes its cache from what is free then
                self.wait_for_server(cards[server.cards], begun)
            self.children.append(self.start_server(number))
            cards[server.cards] = number
        for number in range(len(self.fleet_servers)):
            self.wait_for_server(number, begun)
        self.record_start(begun)
        self.start_front()

    def start_server(self, number: int) -> Child:
        """Start a server as its unit or service would."""
        server = self.fleet_servers[number]
        variables = {
            **server.environment,
            **self.request.set_by_smoke,
            **self.mps_variables(),
            "CUDA_VISIBLE_DEVICES": server.cards,
        }
        command = [*self.pin_command(), self.find_lmdeploy(), "serve", "api_server", *server.words]
        return self.guard.start(command, {**self.variables(), **variables}, self.server_log(number), Path.cwd())

    def server_log(self, number: int) -> Path:
        """Return the log file of a server."""
        return self.folder / f"server-{number + 1}.log"

    def wait_for_server(self, number: int, start_time: float) -> None:
        """Wait until a server lists its model; raise Failure if it ends or hangs."""
        self.log = self.server_log(number)
        self.wait_until_listed(
            self.children[number], [self.backends()[number]], start_time, self.fleet_servers[number].name
        )

    def start_front(self) -> None:
        """Start HAProxy with the rendered configuration; raise Failure if it does not serve."""
        config = self.folder / FRONT
        config.write_text(self.fleet.texts[FRONT], encoding="utf-8")
        (self.folder / LUA).write_text(self.fleet.texts.get(LUA, ""), encoding="utf-8")
        log = self.folder / "front.log"
        command = [self.find_haproxy(), "-db", *limit_connections(self.fleet.texts[FRONT]), "-f", str(config)]
        variables = {name: value for name, value in self.variables().items() if name not in KEY_VARIABLES}
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as keys:
            if self.keys:  # one on each line, as front.sh writes them; HAProxy reads them when it starts
                keys.write("\n".join(self.keys) + "\n")
                keys.flush()
                variables["API_KEYS_FILE"] = keys.name
            child = self.guard.start(command, {**variables, **self.front_variables()}, log, self.folder)
            until = time.monotonic() + FRONT_S
            while not self.servers()[0].model():
                if child.poll() is not None or time.monotonic() > until:
                    what = f"lists no model after {FRONT_S:g} s" if child.poll() is None else f"ended ({child.poll()})"
                    raise Failure("start-failed", f"HAProxy {what}", diagnose.tail(log, 15))
                time.sleep(POLL_S)

    def read_back(self) -> None:
        """Compare every engine's reported settings with the artefact."""
        self.say("reading the effective settings")
        for number in range(len(self.fleet_servers)):
            self.log = self.server_log(number)
            self.compare_settings(readback.parse_log(self.log.read_text("utf-8", "replace")))

    # --- a server's death -----------------------------------------------------------------

    def front_statistics(self) -> Mapping[str, tuple[int, int, bool]]:
        """Return by server what HAProxy reports: current requests, total requests, is up."""
        with contextlib.suppress(OSError):
            _, body = self.server(f"http://127.0.0.1:{self.front_variables()['STATS_PORT']}").get("/;csv")
            rows = csv.DictReader(io.StringIO(body.decode().removeprefix("# ")))
            servers = [row for row in rows if row["pxname"] == "servers" and row["svname"] != "BACKEND"]
            return {row["svname"]: (int(row["scur"]), int(row["stot"]), row["status"] == "UP") for row in servers}
        return {}

    def after_loads(self, servers: list[checks.Server], model: str) -> None:
        """With --kill, kill and restart a server under load; raise Failure for lost requests."""
        if not self.request.kill:
            return
        # Arrivals become the concurrency that the recommendation expects of them.
        closed = [
            replace(planned, concurrency=planned.concurrency or self.resolved.concurrency, replay=())
            for planned in self.request.loads
        ]
        load_asked = replace(max(closed, key=lambda planned: planned.concurrency), rps=0.0)
        death = ServerKill(self, len(self.fleet_servers) - 1)
        target, shape = self.load_target(load_asked, servers, model)
        shape = self.size_shape(target, shape, load_asked)
        seconds = death.before_s + RESTART_S + death.after_s + 1.5 * self.result.startup_s
        limit = seconds + 2 * self.request.patience_s
        plan = load.LoadPlan(load_asked.concurrency, 0.0, seconds, enough=0, limit_s=limit)
        outcome = load.run(target, shape, plan, death.tick)
        if not death.dead:
            early = Failure("request-failed", "the load ended before a server was killed")
            raise self.load_failure(outcome) or early
        killed = death.outcome(outcome, load_asked.concurrency)
        self.result.killed.append(killed)
        if killed.lost_later:
            what = f"{killed.lost} requests were lost, {killed.lost_later} of them sent after {killed.server} was gone"
            raise Failure("request-failed", f"{what}: {killed.said}")
        if not killed.back_s:
            raise Failure(
                "server-died", f"{killed.server} served no request again within {seconds - death.before_s:.0f} s"
            )


def limit_connections(config: str) -> list[str]:
    """Return HAProxy's -n option if this process may open fewer files than configured."""
    most = (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - FILES_BESIDE) // 2
    wanted = max(map(int, re.findall(r"^[^\S\n]*maxconn (\d+)", config, re.MULTILINE)), default=0)
    return ["-n", str(most)] if 0 < most < wanted else []


class ServerKill:
    """Kill a server during a load and follow its return; ``tick`` is called regularly."""

    def __init__(self, session: FleetSession, number: int) -> None:
        self.session, self.number = session, number
        # Long enough for a rate before and after; shorter if the loads are.
        self.before_s = min(max(session.request.seconds, 2.0), 6.0)
        self.after_s = min(max(2 * session.request.seconds, 5.0), 10.0)
        self.begun = time.perf_counter()
        self.dead = self.gone = self.restarted = self.back = 0.0
        self.in_flight = 0
        self.seen = 0

    @property
    def name(self) -> str:
        """Return the server's name in HAProxy."""
        return dict(self.session.fleet.front_servers())[self.session.fleet_servers[self.number].port]

    def tick(self, answered: int, failed: int) -> None:
        """Kill the server, restart it, and note when HAProxy sends it requests again."""
        now = time.perf_counter()
        what = "down" if self.dead and not self.back else "up"
        self.session.say(
            f"one of {len(self.session.fleet_servers)} servers is {what}: {answered} answered, {failed} failed"
        )
        in_flight, so_far, up = self.session.front_statistics().get(self.name, (0, 0, False))
        if not self.dead and now - self.begun >= self.before_s:
            self.in_flight = in_flight
            self.dead = time.perf_counter()
            Thread(target=self.watch, daemon=True).start()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.session.children[self.number].pid, signal.SIGKILL)
        elif self.dead and not self.restarted and now - self.dead >= RESTART_S:
            self.session.children[self.number] = self.session.start_server(self.number)
            self.restarted, self.seen = now, so_far
        elif self.restarted and not self.back and up and so_far > self.seen:
            self.back = now

    def watch(self) -> None:
        """Note when the kernel has closed the killed server's listening socket."""
        listens = True
        while listens:
            if self.restarted:
                return
            time.sleep(0.001)
            with socket.socket() as probe:
                listens = probe.connect_ex(("127.0.0.1", self.session.fleet_servers[self.number].port)) == 0
        self.gone = time.perf_counter()

    def outcome(self, outcome: load.Outcome, concurrency: int) -> records.Killed:
        """Return what the kill cost: lost requests, times and rates."""
        ends = [outcome.begun_at + end_ms / 1e3 for end_ms in outcome.ends_ms]
        over = outcome.begun_at + outcome.window_s
        back, gone = self.back or over, self.gone or over

        def rate(start: float, end: float) -> float:
            return round(sum(start < moment <= end for moment in ends) / (end - start), 1) if end > start else 0.0

        return records.Killed(
            server=self.session.fleet_servers[self.number].name,
            concurrency=concurrency,
            in_flight=self.in_flight,
            answered=len(ends),
            lost=len(outcome.lost_at),
            lost_later=sum(moment > gone for moment in outcome.lost_at),
            said=record.clean_message(next((message for _, message in outcome.failures.values()), "")),
            dying_s=round(gone - self.dead, 3),
            restarted_s=round(self.restarted - self.dead, 1) if self.restarted else 0.0,
            back_s=round(self.back - self.dead, 1) if self.back else 0.0,
            rps_before=rate(outcome.begun_at + 1, self.dead),
            rps_down=rate(self.dead + 1, back),
            rps_after=rate(back + 1, over),
        )
