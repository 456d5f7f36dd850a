"""Launches an artefact, proves it, loads it, measures it, stops it."""

from __future__ import annotations

import hashlib
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from recommender.candidates import PORT
from recommender.smoke import checks, diagnose, host, load, readback
from recommender.smoke.failures import Failure
from recommender.smoke.forecast import follows_schema, wanted_tokens
from recommender.smoke.gpu import Cards, Watch, wait_for_memory
from recommender.smoke.guard import Child, Guard
from recommender.smoke.launch import settings
from recommender.smoke.metrics import Metrics
from recommender.smoke.pictures import pictures
from recommender.smoke.taken import Asked, Load, Measured, Say, Taken, described

POLL_S = 0.25
GRACE_S = 10.0
ROUNDS = 3  # of answers of all clients, the first of which tells nothing of a steady load
ENDING_S = 3.0  # a server whose connections broke may take so long to end
# Failures of single requests: the run goes on, measures how many there are, and ends with their name.
SINGLE = frozenset({"too-long", "malformed-json", "error-in-200", "request-failed"})


def run(asked: Asked, say: Say, made: Callable[..., Session] | None = None) -> Taken:
    """One run from launch to stop; a failure is in the result. Whatever happens, nothing stays behind.

    ``made`` makes another session than the one that proves the artefact and drives its loads.
    """
    cards = Cards(asked.found.config.cards, asked.variables)
    taken = Taken(cards.host(), cards.used())
    host.stand_aside(asked.pin)
    watch = Watch(cards)
    with tempfile.TemporaryDirectory(prefix="recommend-smoke-") as folder:
        logs = Path(folder)
        try:
            with Guard() as guard:
                session = (made or _session(asked))(asked, taken, watch, guard, logs, say)
                try:
                    session.go()
                except Failure as failure:
                    taken.failure = session.with_tail(failure)
                finally:
                    say("stopping")
                    guard.stop(GRACE_S)
            taken.memory_back = wait_for_memory(cards, taken.idle_mib)
        finally:
            watch.close()
        taken.log_sha256 = _digest(logs)
    return taken


def _session(asked: Asked) -> type[Session]:
    if asked.artefact.kind == "bash":
        return Session
    if asked.artefact.kind != "python":
        from recommender.smoke.fleet import FleetSession

        return FleetSession
    from recommender.smoke.offline import Offline

    return Offline


def _digest(folder: Path) -> str:
    state = hashlib.sha256()
    for path in sorted(folder.glob("*.log")):
        state.update(path.read_bytes())
    return state.hexdigest()


class Session:
    """One launch while it lives."""

    def __init__(self, asked: Asked, taken: Taken, watch: Watch, guard: Guard, folder: Path, say: Say) -> None:
        self.asked, self.taken, self.watch, self.guard, self.folder, self.say = asked, taken, watch, guard, folder, say
        self.facts = asked.found.facts
        self.settings = settings(self.facts, asked.artefact.words(self.facts, asked.variables))
        self.log = folder / "server-1.log"
        self.key = host.api_key(asked.variables)
        self.children: list[Child] = []

    def go(self) -> None:
        """The whole run."""
        self.before()
        self.start()
        self.read_back()
        servers = self.servers()
        model = servers[0].model()
        pending = self.prove(servers[0], model)
        for number, each in enumerate(self.asked.loads, 1):
            self.say(f"load {number} of {len(self.asked.loads)}: {described(each)}")
            found = self.phase(each, servers, model)
            pending = pending or found
        if pending:
            raise pending
        self.after(servers, model)

    def after(self, servers: list[checks.Server], model: str) -> None:
        """What comes after the loads: nothing."""

    # --- launch ------------------------------------------------------------------------

    def before(self) -> None:
        """What must hold before anything is started. Raises Failure."""
        caught = checks.environment_proxy()
        if caught:
            raise Failure("environment-proxy", f"{caught} catches requests to 127.0.0.1")
        for port, whose in self.listeners():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    what = f" ({whose})" if whose else ""
                    raise Failure("port-taken", f"something listens on port {port} already{what}") from None

    def listeners(self) -> list[tuple[int, str]]:
        """Every port that must be free, and whose it is where that helps."""
        *servers, last = self.ports()
        return [(port, "") for port in servers] + [
            (last, f"the proxy's: set PROXY_URL; it is {self.front()}" if self.front() else "")
        ]

    def ports(self) -> list[int]:
        """The ports of all servers, and of the proxy in front of them."""
        first = int(self.settings.get("port") or PORT)
        servers = self.asked.found.config.servers
        front = [int(self.front().rpartition(":")[2])] if self.front() else []
        return [first + number for number in range(max(servers, self.asked.copies))] + front

    def front(self) -> str:
        """The base URL of the proxy that the artefact starts; empty where it starts none."""
        return (self.settings.get("proxy_url") or "").rstrip("/") if self.asked.found.config.servers > 1 else ""

    def servers(self) -> list[checks.Server]:
        """Where requests go: the proxy, or every copy."""
        if self.front():
            return [self.server(self.front())]
        return [self.server(f"http://127.0.0.1:{port}") for port in self.ports()]

    def backends(self) -> list[checks.Server]:
        """Every server itself: LMDeploy's proxy has neither /health nor /metrics."""
        ports = self.ports()[:-1] if self.front() else self.ports()
        return [self.server(f"http://127.0.0.1:{port}") for port in ports]

    def server(self, url: str) -> checks.Server:
        """One server; a request may take as long as the user's patience lasts."""
        return checks.Server(url, self.key, self.asked.patience_s)

    def start(self) -> None:
        """Starts every copy, one after the other, and waits until each is ready."""
        if self.shares():
            self.start_mps()
        self.watch.reset()
        script = self.folder / ("serve.sh" if self.asked.artefact.kind == "bash" else "pipeline.py")
        script.write_text(self.asked.artefact.text, encoding="utf-8")
        script.chmod(0o755)
        for number in range(self.asked.copies):
            variables = self.variables()
            if self.asked.copies > 1:
                variables["SERVER_PORT"] = str(self.ports()[number])
            self.log = self.folder / f"server-{number + 1}.log"
            begun = time.monotonic()
            command = [*self.pinned(), "bash", str(script)]
            self.children.append(self.guard.start(command, variables, self.log, Path.cwd()))
            self.wait(begun, number)
            self.taken.startup_s = time.monotonic() - begun
        time.sleep(2 * POLL_S)  # the driver's figure lags a little behind
        self.taken.start_peak_mib, self.taken.ready_mib = self.watch.peak(), self.watch.now()

    def pinned(self) -> list[str]:
        """What a server's command begins with where it is held to some CPU cores."""
        return ["taskset", "-c", self.asked.pin] if self.asked.pin else []

    def variables(self) -> dict[str, str]:
        """The launch's environment, and where MPS listens."""
        return {**self.asked.variables, **self.pipes()}

    def shares(self) -> bool:
        """Whether CUDA MPS stands between servers and card."""
        return self.asked.mps

    def pipes(self) -> dict[str, str]:
        """Where CUDA MPS listens, if it runs."""
        names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        return dict.fromkeys(names, str(self.folder)) if self.shares() else {}

    def start_mps(self) -> None:
        """CUDA MPS lets several processes compute on one card at a time."""
        log = self.folder / "mps.log"
        try:
            child = self.guard.start(["nvidia-cuda-mps-control", "-f"], self.variables(), log, self.folder)
        except OSError:
            raise Failure("machine", "no nvidia-cuda-mps-control on this machine; --mps needs it") from None
        time.sleep(1.0)
        if child.poll() is not None:
            self.log = log
            raise Failure("start-failed", f"nvidia-cuda-mps-control ended with status {child.poll()}")

    def wait(self, begun: float, number: int) -> None:
        """Until the server (and the proxy) lists a model. Raises Failure; a log that stands still is a hang."""
        waiting = self.servers()[number : number + 1] if self.asked.copies > 1 else self.servers()
        if self.front():
            waiting += self.backends()
        self.until_listed(self.children[-1], waiting, begun, "the server")

    def until_listed(self, child: Child, waiting: list[checks.Server], begun: float, who: str) -> None:
        """Until all of these list a model. Raises Failure where the child ends, or its log stands still."""
        news, heard = diagnose.News(self.log), time.monotonic()
        while True:
            ended = child.poll()
            if ended is not None:
                raise diagnose.ended_at_start(self.tail(400), ended)
            waiting = [each for each in waiting if not each.model()]
            if not waiting:
                return
            now = time.monotonic()
            heard = now if news.any() else heard
            if now - heard > self.asked.patience_s:
                raise diagnose.hung_at_start(self.tail(400), now - begun, now - heard)
            last = self.tail(1)
            self.say(f"waiting for {who}, {now - begun:.0f} s: {last[0][-60:] if last else 'no output yet'}")
            time.sleep(POLL_S)

    def tail(self, lines: int) -> tuple[str, ...]:
        """The last lines of the newest log."""
        return diagnose.tail(self.log, lines)

    def with_tail(self, failure: Failure) -> Failure:
        """A failure with the last log lines, unless it has some; of the copy that ended, if one did."""
        self.look_at_the_dead()
        return failure if failure.tail else Failure(failure.kind.name, failure.said, self.tail(15))

    def look_at_the_dead(self) -> None:
        """From now on the log is that of a copy that ended, if one did."""
        for number, child in enumerate(self.children, 1):
            if child.poll() is not None:
                self.log = self.folder / f"server-{number}.log"

    # --- proof -------------------------------------------------------------------------

    def read_back(self) -> None:
        """Holds the engine's own words against the artefact. Raises Failure where a setting differs."""
        self.say("reading the effective settings")
        self.judge_settings(readback.effective(self.log.read_text("utf-8", "replace")))

    def judge_settings(self, found: readback.Effective) -> None:
        """Keeps asked beside found. Raises Failure where a setting differs."""
        self.taken.effective = readback.compare(self.facts, self.settings, found)
        for each in self.taken.effective:
            if each.name == "backend" and each.differs:
                raise Failure("pytorch-fallback", f"the engine is {each.found}; the artefact asks for {each.asked}")
        wrong = [each for each in self.taken.effective if each.differs]
        if wrong:
            told = (f"{each.name} is {each.found}, asked was {each.asked}" for each in wrong)
            raise Failure("settings-differ", "; ".join(told))

    def prove(self, server: checks.Server, model: str) -> Failure | None:
        """Runs the checks; a failure of a single request is kept for the end."""
        self.say("checking the answers")
        first = next((each for each in self.asked.loads if each.images), None)
        picture = pictures(first.width, first.height, 1, seed=1)[0] if first else ""
        tiles, schema = self.asked.found.config.max_tiles, follows_schema(self.asked.found)
        try:
            for each in checks.proofs(server, self.backends(), model, self.facts, picture, tiles, schema):
                self.taken.checks += (each,)
        except Failure as failure:
            return self.judged(failure)
        return None

    def judged(self, failure: Failure) -> Failure:
        """A failed request's failure: kept if single, raised if the server is gone or stuck."""
        end = time.monotonic() + (ENDING_S if failure.kind.name == "server-died" else 0)
        while not (over := [status for each in self.children if (status := each.poll()) is not None]):
            if time.monotonic() >= end:
                break
            time.sleep(POLL_S / 5)
        self.look_at_the_dead()
        log = self.tail(400)
        if over:
            raise diagnose.ended_later(log, over[0], failure.said)
        memory = diagnose.out_of_memory(log)
        if memory:
            raise Failure("out-of-memory-image", f"{failure.said}; the log says: {memory}")
        if failure.kind.name not in SINGLE:
            raise failure
        return failure

    # --- load --------------------------------------------------------------------------

    def phase(self, asked: Load, servers: list[checks.Server], model: str) -> Failure | None:
        """Drives one load and keeps what it measured; gives the failure of its requests, if any."""
        target, shape = self.aimed(asked, servers, model)
        wanted = wanted_tokens(self.asked.found, asked)
        refused: Failure | None = None
        try:
            shape = replace(shape, prompt_chars=load.size_prompt(target, shape, wanted))
        except Failure as failure:
            refused = self.judged(failure)
        few = refused is not None  # requests fail: count how they do, and measure no speed
        plan = load.Plan(
            concurrency=asked.concurrency,
            rps=asked.rps,
            seconds=min(5.0, self.asked.seconds) if few else self.asked.seconds,
            enough=8 if few else self.asked.enough,
            rounds=0 if few else ROUNDS,
            limit_s=self.asked.seconds + 2 * self.asked.patience_s,
        )
        self.watch.reset()
        begun, cpu = time.monotonic(), sum(each.cpu_seconds() for each in self.children)
        with Metrics(self.backends()) as metrics:
            outcome = load.run(target, shape, plan, lambda done, failed: self.say(_progress(asked, done, failed)))
        took = time.monotonic() - begun
        cores = (sum(each.cpu_seconds() for each in self.children) - cpu) / max(took, 1e-3)
        self.taken.phases.append(
            Measured(asked, outcome, self.watch.peak(), self.watch.host_cpu_percent(), round(cores, 2), metrics.most)
        )
        return self.failed(outcome) or refused

    def aimed(self, asked: Load, servers: list[checks.Server], model: str) -> tuple[load.Target, load.Shape]:
        """Where a load's requests go and what they are; their prompt is not sized yet."""
        facts, tiles = self.facts, self.asked.found.config.max_tiles
        return (
            load.Target(tuple(each.url for each in servers), model, self.key, self.asked.patience_s),
            load.Shape(asked.images, asked.width, asked.height, facts.prompt_tokens, facts.output_tokens, tiles),
        )

    def failed(self, outcome: load.Outcome) -> Failure | None:
        """The failure that a phase's failed requests amount to."""
        if not outcome.failures:
            return None
        cause, (count, said) = max(outcome.failures.items(), key=lambda item: item[1][0])
        told = f"{count} of {outcome.sent} requests under load: {said}"
        if cause == "requests-hang":
            well = all(each.healthy() for each in self.backends())
            told += "; /health says 200 meanwhile" if well else "; /health does not answer either"
        return self.judged(Failure(cause, told))


def _progress(asked: Load, done: int, failed: int) -> str:
    return f"{described(asked)}: {done} answered" + (f", {failed} failed" if failed else "")
