"""Launches a fleet's folder on this host: every server on its cards, the front before them; and kills a server."""

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
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from recommender import records as r
from recommender.request import RequestError
from recommender.smoke import checks, diagnose, load, readback, record
from recommender.smoke.failures import Failure
from recommender.smoke.folder import FRONT, Fleet, Part
from recommender.smoke.forecast import wanted_tokens
from recommender.smoke.run import POLL_S, Session

if TYPE_CHECKING:
    from recommender.smoke.guard import Child
    from recommender.smoke.taken import Load

FRONT_S = 10.0
"""What the front may take until it deals out requests."""
RESTART_S = 5.0
"""A killed server is started again after what the units have as RestartSec."""
FILES_BESIDE = 500
"""Files that HAProxy opens beside two for each connection, with room to spare; without a limit there is -1 for it."""
SBIN = "/usr/sbin:/usr/local/sbin"
"""Where distributions put HAProxy; the path of users often lacks it."""


class FleetSession(Session):
    """One launch of a fleet's servers and front while it lives."""

    parts: tuple[Part, ...] = ()

    @property
    def fleet(self) -> Fleet:
        """The artefact, which is a folder."""
        assert isinstance(self.asked.artefact, Fleet)
        return self.asked.artefact

    def before(self) -> None:
        """What must be there, and the ports that must be free. Raises Failure."""
        self.parts = self.fleet.servers(self.asked.found, self.asked.variables)
        self.settings = {**self.settings, "port": str(self.parts[0].port)}
        self.key = first_key(self.front_variables().get("API_KEYS_FILE", ""))
        self.program()
        self.haproxy()
        super().before()

    def listeners(self) -> list[tuple[int, str]]:
        """The servers' ports and the front's. Raises RequestError for one that two would have."""
        variables = self.front_variables()
        wanted = [(each.port, f"{each.name}'s") for each in self.parts]
        wanted += [(int(variables[name]), f"the front's: set {name}") for name in ("FRONT_PORT", "STATS_PORT")]
        for number, (port, whose) in enumerate(wanted):
            if port in dict(wanted[:number]):
                raise RequestError(f"{self.fleet.name}: port {port} is {dict(wanted[:number])[port]} and {whose}")
        return wanted

    # --- where everything is ------------------------------------------------------------

    def ports(self) -> list[int]:
        """Of the servers."""
        return [each.port for each in self.parts]

    def front(self) -> str:
        """The base URL of the front, on this host."""
        return f"http://127.0.0.1:{self.front_variables()['FRONT_PORT']}"

    def figures(self) -> checks.Server:
        """Where the front tells of its servers."""
        return self.server(f"http://127.0.0.1:{self.front_variables()['STATS_PORT']}")

    def servers(self) -> list[checks.Server]:
        """The front, which deals out to all."""
        return [self.server(self.front())]

    def backends(self) -> list[checks.Server]:
        """Every server itself."""
        return [self.server(f"http://127.0.0.1:{port}") for port in self.ports()]

    def front_variables(self) -> dict[str, str]:
        """The front's settings."""
        return dict(self.fleet.front(self.asked.environment))

    def shares(self) -> bool:
        """Whether servers share a card, which they do under CUDA MPS."""
        return self.asked.found.config.share > 1

    def program(self) -> str:
        """LMDeploy's command: the one that the files name if it is here, else that of the path. Raises Failure."""
        named = self.parts[0].environment.get("LMDEPLOY", "")
        found = named if os.access(named, os.X_OK) else shutil.which("lmdeploy", path=self.asked.variables.get("PATH"))
        if not found:
            raise Failure("machine", "no lmdeploy command; install LMDeploy, or put its folder on the PATH")
        return found

    def haproxy(self) -> str:
        """The front's program. Raises Failure."""
        found = shutil.which("haproxy", path=f"{self.asked.variables.get('PATH', '')}:{SBIN}")
        if not found:
            raise Failure("machine", "no haproxy, which is the front: apt-get install haproxy")
        return found

    # --- launch -------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the servers, those of one card one after the other; once all listen, the front."""
        if self.shares():
            self.start_mps()
        self.watch.reset()
        begun, cards = time.monotonic(), dict[str, int]()
        for number, part in enumerate(self.parts):
            if part.cards in cards:  # each takes its cache from what is free then
                self.wait_for(cards[part.cards], begun)
            self.children.append(self.start_one(number))
            cards[part.cards] = number
        for number in range(len(self.parts)):
            self.wait_for(number, begun)
        self.taken.startup_s = time.monotonic() - begun
        time.sleep(2 * POLL_S)  # the driver's figure lags a little behind
        self.taken.start_peak_mib, self.taken.ready_mib = self.watch.peak(), self.watch.now()
        self.start_front()

    def start_one(self, number: int) -> Child:
        """Starts a server as its unit or service would."""
        part = self.parts[number]
        own = {**part.environment, **self.asked.set_by_smoke, **self.pipes(), "CUDA_VISIBLE_DEVICES": part.cards}
        command = [*self.pinned(), self.program(), "serve", "api_server", *part.words]
        return self.guard.start(command, {**self.variables(), **own}, self.log_of(number), Path.cwd())

    def log_of(self, number: int) -> Path:
        """Where a server's output goes."""
        return self.folder / f"server-{number + 1}.log"

    def wait_for(self, number: int, begun: float) -> None:
        """Until a server lists its model. Raises Failure; a log that stands still is a hang."""
        self.log = self.log_of(number)
        self.until_listed(self.children[number], [self.backends()[number]], begun, self.parts[number].name)

    def start_front(self) -> None:
        """Starts HAProxy on the rendered configuration. Raises Failure where it does not come up."""
        config = self.folder / FRONT
        config.write_text(self.fleet.texts[FRONT], encoding="utf-8")
        log = self.folder / "front.log"
        command = [self.haproxy(), "-db", *fewer(self.fleet.texts[FRONT]), "-f", str(config)]
        child = self.guard.start(command, {**self.variables(), **self.front_variables()}, log, self.folder)
        until = time.monotonic() + FRONT_S
        while not self.servers()[0].model():
            if child.poll() is not None or time.monotonic() > until:
                what = f"lists no model in {FRONT_S:g} s" if child.poll() is None else f"ended ({child.poll()})"
                raise Failure("start-failed", f"the front {what}", diagnose.tail(log, 15))
            time.sleep(POLL_S)

    def read_back(self) -> None:
        """Holds every engine's own words against the artefact."""
        self.say("reading the effective settings")
        for number in range(len(self.parts)):
            self.log = self.log_of(number)
            self.judge_settings(readback.effective(self.log.read_text("utf-8", "replace")))

    # --- a server's death -----------------------------------------------------------------

    def dealt(self) -> Mapping[str, tuple[int, int, bool]]:
        """By server, as the front sees it: requests there now, requests so far, and whether it is up."""
        with contextlib.suppress(OSError):
            _, body = self.figures().get("/;csv")
            rows = csv.DictReader(io.StringIO(body.decode().removeprefix("# ")))
            mine = [each for each in rows if each["pxname"] == "servers" and each["svname"] != "BACKEND"]
            return {each["svname"]: (int(each["scur"]), int(each["stot"]), each["status"] == "UP") for each in mine}
        return {}

    def kill(self, number: int) -> None:
        """SIGKILL to a server and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.children[number].pid, signal.SIGKILL)

    def in_flight(self, asked: Load) -> int:
        """Requests at a time of a load; of arrivals those that the recommendation foresees."""
        return asked.concurrency or self.facts.concurrency

    def after(self, servers: list[checks.Server], model: str) -> None:
        """Where it is asked for: a load under which a server dies and comes back. Raises Failure for what it cost."""
        if not self.asked.kill:
            return
        asked = max(self.asked.loads, key=self.in_flight)
        asked = replace(asked, concurrency=self.in_flight(asked), rps=0.0)
        death = Death(self, len(self.parts) - 1)
        target, shape = self.aimed(asked, servers, model)
        shape = replace(shape, prompt_chars=load.size_prompt(target, shape, wanted_tokens(self.asked.found, asked)))
        seconds = death.before_s + RESTART_S + death.after_s + 1.5 * self.taken.startup_s
        plan = load.Plan(asked.concurrency, 0.0, seconds, enough=0, limit_s=seconds + 2 * self.asked.patience_s)
        outcome = load.run(target, shape, plan, death.tick)
        if not death.dead:
            early = Failure("request-failed", "the load ended before a server was killed")
            raise self.failed(outcome) or early
        found = death.told(outcome, asked.concurrency)
        self.taken.killed.append(found)
        if found.lost_later:
            what = f"{found.lost} requests were lost, {found.lost_later} of them sent after {found.server} was gone"
            raise Failure("request-failed", f"{what}: {found.said}")
        if not found.back_s:
            raise Failure("server-died", f"{found.server} got no request again within {seconds - death.before_s:.0f} s")


def fewer(config: str) -> list[str]:
    """HAProxy's option for fewer connections than its configuration has, where this process may not open so many."""
    most = (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - FILES_BESIDE) // 2
    wanted = max(map(int, re.findall(r"^\s*maxconn (\d+)", config, re.MULTILINE)), default=0)
    return ["-n", str(most)] if 0 < most < wanted else []


def first_key(name: str) -> str:
    """The first API key of a file as HAProxy reads it: one a line, without comments. Raises Failure."""
    try:
        lines = Path(name).read_text("utf-8").splitlines() if name else []
    except (OSError, UnicodeDecodeError) as error:
        raise Failure("start-failed", f"API_KEYS_FILE {name}: {getattr(error, 'strerror', 'not a text')}") from None
    return next((each.strip() for each in lines if each.strip() and not each.startswith("#")), "")


class Death:
    """A server's death and return while a load runs; ``tick`` looks at the clock a few times a second."""

    def __init__(self, session: FleetSession, number: int) -> None:
        self.session, self.number = session, number
        # Long enough to tell a rate before and after; shorter where the loads are.
        self.before_s = min(max(session.asked.seconds, 2.0), 6.0)
        self.after_s = min(max(2 * session.asked.seconds, 5.0), 10.0)
        self.begun = time.perf_counter()
        self.dead = self.gone = self.restarted = self.back = 0.0
        self.in_flight = 0
        self.seen = 0

    @property
    def name(self) -> str:
        """The server as the front calls it."""
        return dict(self.session.fleet.called())[self.session.parts[self.number].port]

    def tick(self, done: int, failed: int) -> None:
        """Kills it, starts it again, and sees when the front gives it requests."""
        now = time.perf_counter()
        what = "down" if self.dead and not self.back else "up"
        self.session.say(f"one of {len(self.session.parts)} servers {what}: {done} answered, {failed} failed")
        there, so_far, up = self.session.dealt().get(self.name, (0, 0, False))
        if not self.dead and now - self.begun >= self.before_s:
            self.in_flight = there
            self.dead = time.perf_counter()
            Thread(target=self.watch, daemon=True).start()
            self.session.kill(self.number)
        elif self.dead and not self.restarted and now - self.dead >= RESTART_S:
            self.session.children[self.number] = self.session.start_one(self.number)
            self.restarted, self.seen = now, so_far
        elif self.restarted and not self.back and up and so_far > self.seen:
            self.back = now

    def watch(self) -> None:
        """Notes when the kernel has closed what the server listened on, if it does before another one listens."""
        listens = True
        while listens:
            if self.restarted:
                return
            time.sleep(0.001)
            with socket.socket() as probe:
                listens = probe.connect_ex(("127.0.0.1", self.session.parts[self.number].port)) == 0
        self.gone = time.perf_counter()

    def told(self, outcome: load.Outcome, concurrency: int) -> r.Killed:
        """What it cost."""
        ends = [outcome.begun_at + each / 1e3 for each in outcome.ends_ms]
        over = outcome.begun_at + outcome.window_s
        back, gone = self.back or over, self.gone or over

        def rate(start: float, end: float) -> float:
            return round(sum(start < each <= end for each in ends) / (end - start), 1) if end > start else 0.0

        return r.Killed(
            server=self.session.parts[self.number].name,
            concurrency=concurrency,
            in_flight=self.in_flight,
            answered=len(ends),
            lost=len(outcome.lost_at),
            lost_later=sum(each > gone for each in outcome.lost_at),
            said=record.shown(next((said for _, said in outcome.failures.values()), "")),
            dying_s=round(gone - self.dead, 3),
            restarted_s=round(self.restarted - self.dead, 1) if self.restarted else 0.0,
            back_s=round(self.back - self.dead, 1) if self.back else 0.0,
            rps_before=rate(outcome.begun_at + 1, self.dead),
            rps_down=rate(self.dead + 1, back),
            rps_after=rate(back + 1, over),
        )
