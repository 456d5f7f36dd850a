"""Launch one script's servers, check them, drive the loads."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

from recommender.choose.candidates import PORT
from recommender.render.artefact import settings
from recommender.smoke.client import checks, load, sizing
from recommender.smoke.client.images import pictures
from recommender.smoke.expected_load import conversations_of, draw_load, follows_schema, wanted_tokens
from recommender.smoke.failures import Failure
from recommender.smoke.process import diagnose, listeners, readback
from recommender.smoke.process.api_keys import read_api_keys
from recommender.smoke.process.gpu import MemoryWatch
from recommender.smoke.process.metrics import Metrics
from recommender.smoke.process.process_guard import Child, Guard
from recommender.smoke.result import Load, LoadResult, RunRequest, RunResult, Say, describe_load

POLL_S = 0.25

STREAM_EVERY = 4  # requests, where all are alike

ROUNDS = 3  # answers of each client; the first is not steady yet

ENDING_S = 3.0  # a server whose connections broke may take this long to end

# Failures of single requests: the run continues, counts them, and ends with their name.
SINGLE = frozenset({"too-long", "malformed-json", "error-in-200", "request-failed"})


class Session:
    """One run of a serve.sh."""

    def __init__(
        self, request: RunRequest, result: RunResult, watch: MemoryWatch, guard: Guard, folder: Path, say: Say
    ) -> None:
        self.request, self.result, self.watch = request, result, watch
        self.guard, self.folder, self.say = guard, folder, say
        self.resolved = request.recommendation.resolved
        self.settings = settings(self.resolved, request.artefact.words(self.resolved, request.variables))
        self.log = folder / "server-1.log"
        keys = () if request.artefact.kind == "python" else read_api_keys(request.variables)
        self.key = keys[0] if keys else ""
        self.children: list[Child] = []

    def run(self) -> None:
        """Launch the servers, check their answers and drive every load."""
        self.check_machine()
        self.start()
        self.read_back()
        servers = self.servers()
        model = servers[0].model()
        pending = self.check_answers(servers[0], model)
        for number, load_asked in enumerate(self.request.loads, 1):
            self.say(f"load {number} of {len(self.request.loads)}: {describe_load(load_asked)}")
            failure = self.run_load(load_asked, servers, model)
            pending = pending or failure
        if pending:
            raise pending
        self.after_loads(servers, model)

    def after_loads(self, servers: list[checks.Server], model: str) -> None:
        """Do what follows the loads; subclasses override it."""

    # --- launch ------------------------------------------------------------------------

    def check_machine(self) -> None:
        """Raise Failure if a proxy variable intercepts requests or a port is taken."""
        caught = checks.intercepting_proxy()
        if caught:
            raise Failure("environment-proxy", f"{caught} intercepts requests to 127.0.0.1")
        listeners.require_free(self.required_ports())

    def required_ports(self) -> list[tuple[int, str]]:
        """Return each port that must be free, and its owner if that helps."""
        front = self.front_url()
        needed = [(port, "") for port in self.ports()]
        if front:
            needed.append((int(front.rpartition(":")[2]), f"the proxy's: set PROXY_URL; it is {front}"))
        return needed

    def ports(self) -> list[int]:
        """Return the ports of the servers, without the proxy's."""
        first = int(self.settings.get("port") or PORT)
        return [
            first + number for number in range(max(self.request.recommendation.config.servers, self.request.copies))
        ]

    def front_url(self) -> str:
        """Return the base URL of the proxy that the artefact starts, or an empty text."""
        several = self.request.recommendation.config.servers > 1
        return (self.settings.get("proxy_url") or "").rstrip("/") if several else ""

    def servers(self) -> list[checks.Server]:
        """Return where requests go: the proxy, or every copy."""
        return [self.server(self.front_url())] if self.front_url() else self.backends()

    def backends(self) -> list[checks.Server]:
        """Return the servers themselves: the proxy has neither /health nor /metrics."""
        return [self.server(f"http://127.0.0.1:{port}") for port in self.ports()]

    def server(self, url: str) -> checks.Server:
        """Return one server; its requests time out after the user's --patience."""
        return checks.Server(url, self.key, self.request.patience_s)

    def start(self) -> None:
        """Start the copies one after another, waiting for each."""
        if self.uses_mps():
            self.start_mps()
        self.watch.reset()
        script = self.folder / ("serve.sh" if self.request.artefact.kind == "bash" else "pipeline.py")
        script.write_text(self.request.artefact.text, encoding="utf-8")
        script.chmod(0o755)
        for number in range(self.request.copies):
            variables = self.variables()
            if self.request.copies > 1:
                variables["SERVER_PORT"] = str(self.ports()[number])
            self.log = self.folder / f"server-{number + 1}.log"
            begun = time.monotonic()
            command = [*self.pin_command(), "bash", str(script)]
            self.children.append(self.guard.start(command, variables, self.log, Path.cwd()))
            self.wait_ready(begun, number)
        self.record_start(begun)

    def record_start(self, start_time: float) -> None:
        """Record the startup time of what is ready now, and its GPU memory."""
        self.result.startup_s = time.monotonic() - start_time
        time.sleep(2 * POLL_S)  # the driver's figure lags
        self.result.start_peak_mib, self.result.ready_mib = self.watch.peak(), self.watch.now()

    def pin_command(self) -> list[str]:
        """Return the taskset command that pins a server to its CPU cores, if any."""
        return ["taskset", "-c", self.request.pin] if self.request.pin else []

    def variables(self) -> dict[str, str]:
        """Return the launch's environment, including CUDA MPS's."""
        return {**self.request.variables, **self.mps_variables()}

    def uses_mps(self) -> bool:
        """Return whether the servers run under CUDA MPS."""
        return self.request.mps

    def mps_variables(self) -> dict[str, str]:
        """Return the variables that point to CUDA MPS, if it runs."""
        names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        return dict.fromkeys(names, str(self.folder)) if self.uses_mps() else {}

    def start_mps(self) -> None:
        """Start CUDA MPS, which lets several processes compute on one GPU at a time.

        It sees all GPUs: it would number those that CUDA_VISIBLE_DEVICES names from 0, and a server that asks for
        GPU 3 would find none (NVIDIA's MPS documentation, section CUDA_VISIBLE_DEVICES; seen on four H100s).
        """
        log, name = self.folder / "mps.log", "nvidia-cuda-mps-control"
        if not shutil.which(name):
            raise Failure("machine", f"--mps: no {name} on this machine; install CUDA MPS")
        child = self.guard.start(["env", "-u", "CUDA_VISIBLE_DEVICES", name, "-f"], self.variables(), log, self.folder)
        time.sleep(1.0)
        if child.poll() is not None:
            self.log = log
            raise Failure("start-failed", f"nvidia-cuda-mps-control ended with status {child.poll()}")

    def wait_ready(self, start_time: float, number: int) -> None:
        """Wait until the server (and the proxy) lists a model; raise Failure if it hangs."""
        waiting = self.servers()[number : number + 1] if self.request.copies > 1 else self.servers()
        if self.front_url():
            waiting += self.backends()
        self.wait_until_listed(self.children[-1], waiting, start_time, "the server")

    def wait_until_listed(self, child: Child, waiting: list[checks.Server], start_time: float, who: str) -> None:
        """Wait until all list a model; raise Failure if the child ends or its log stalls."""
        news = diagnose.LogWatch(self.log)
        while True:
            status = child.poll()
            if status is not None:
                raise diagnose.startup_failure(self.tail(400), status)
            waiting = [server for server in waiting if not server.model()]
            if not waiting:
                listeners.require_own(self.required_ports(), self.guard.processes)
                return
            now = time.monotonic()
            if (silent := news.silent_s(now)) > self.request.patience_s:
                raise diagnose.startup_hang(self.tail(400), now - start_time, silent)
            last = self.tail(1)
            self.say(f"waiting for {who}, {now - start_time:.0f} s: {last[0][-60:] if last else 'no output yet'}")
            time.sleep(POLL_S)

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return the last lines of the newest log."""
        return diagnose.tail(self.log, lines)

    def add_tail(self, failure: Failure) -> Failure:
        """Return the failure with log lines, preferably of a copy that ended."""
        self.use_log_of_ended()
        return failure if failure.tail else Failure(failure.kind.name, failure.message, self.tail(15))

    def use_log_of_ended(self) -> None:
        """Use the log of a copy that ended, if one did."""
        for number, child in enumerate(self.children, 1):
            if child.poll() is not None:
                self.log = self.folder / f"server-{number}.log"

    # --- proof -------------------------------------------------------------------------

    def read_back(self) -> None:
        """Compare the engine's reported settings with the artefact; raise Failure if they differ."""
        self.say("reading the effective settings")
        self.compare_settings(readback.parse_log(self.log.read_text("utf-8", "replace")))

    def compare_settings(self, engine: readback.EngineSettings) -> None:
        """Keep requested and reported settings; raise Failure if they differ."""
        self.result.effective = readback.compare_settings(self.resolved, self.settings, engine)
        for setting in self.result.effective:
            if setting.name == "backend" and setting.differs and setting.found == "pytorch":
                raise Failure("pytorch-fallback", f"the engine is {setting.found}, not {setting.asked} as requested")
        wrong = [setting for setting in self.result.effective if setting.differs]
        if wrong:
            differences = (f"{setting.name} is {setting.found}, not {setting.asked} as requested" for setting in wrong)
            raise Failure("settings-differ", "; ".join(differences))

    def check_answers(self, server: checks.Server, model: str) -> Failure | None:
        """Check the answers; return the failure of a single request for the end."""
        self.say("checking the answers")
        first = next((load_asked for load_asked in self.request.loads if load_asked.images), None)
        picture = pictures(first.width, first.height, 1, seed=1)[0] if first else ""
        tiles, schema = self.request.recommendation.config.max_tiles, follows_schema(self.request.recommendation)
        asked = (model, self.resolved, picture, tiles, schema, self.request.random_weights)
        try:
            for proof in checks.check_server(server, self.backends(), *asked):
                self.result.checks += (proof,)
        except Failure as failure:
            return self.classify_failure(failure)
        return None

    def classify_failure(self, failure: Failure) -> Failure:
        """Return a single request's failure; raise it if the server is gone or stuck."""
        end = time.monotonic() + (ENDING_S if failure.kind.name == "server-died" else 0)
        while not (over := [status for child in self.children if (status := child.poll()) is not None]):
            if time.monotonic() >= end:
                break
            time.sleep(POLL_S / 5)
        self.use_log_of_ended()
        log = self.tail(400)
        if over:
            raise diagnose.later_failure(log, over[0], failure.message)
        memory = diagnose.out_of_memory(log)
        if memory:
            raise Failure("out-of-memory-image", f"{failure.message}; the log says: {memory}")
        if failure.kind.name not in SINGLE:
            raise failure
        return failure

    # --- load --------------------------------------------------------------------------

    def run_load(self, load_asked: Load, servers: list[checks.Server], model: str) -> Failure | None:
        """Drive one load, keep its result and return the failure of its requests, if any."""
        target, shape = self.load_target(load_asked, servers, model)
        drawn = draw_load(self.request.recommendation, load_asked)
        refused: Failure | None = None
        try:
            shape = self.size_shape(target, shape, load_asked)
        except Failure as failure:
            refused = self.classify_failure(failure)
        plan = self.load_plan(load_asked, bool(drawn), failing=refused is not None)
        self.watch.reset()
        begun, cpu = time.monotonic(), sum(child.cpu_seconds() for child in self.children)
        with Metrics(self.backends()) as metrics:
            outcome = load.run(
                target, shape, plan, lambda done, failed: self.say(_describe_progress(load_asked, done, failed))
            )
        took = time.monotonic() - begun
        cores = (sum(child.cpu_seconds() for child in self.children) - cpu) / max(took, 1e-3)
        self.result.phases.append(
            LoadResult(
                load_asked,
                outcome,
                self.watch.peak(),
                self.watch.host_cpu_percent(),
                round(cores, 2),
                metrics.peaks,
                drawn if shape.drawn else None,
            )
        )
        return self.load_failure(outcome) or refused

    def load_plan(self, load_asked: Load, drawn: bool, failing: bool) -> load.LoadPlan:
        """Return a load's length; where requests fail, it only counts failures."""
        replay = load_asked.replay
        seconds = len(replay) / load_asked.rps if replay else self.request.seconds
        return load.LoadPlan(
            concurrency=load_asked.concurrency,
            rps=load_asked.rps,
            seconds=min(5.0, seconds) if failing else seconds,
            enough=8 if failing else 0 if replay else self.request.enough,
            arrivals_s=tuple(each.at / 1e3 for each in replay),
            rounds=0 if failing else ROUNDS,
            limit_s=self.request.seconds + 2 * self.request.patience_s,
            stream_every=1 if drawn or self.request.stream_all else STREAM_EVERY,
            burstiness=load_asked.burstiness,
        )

    def load_target(self, load_asked: Load, servers: list[checks.Server], model: str) -> tuple[load.Target, load.Shape]:
        """Return a load's target and request shape; the prompt is not sized yet."""
        resolved, tiles = self.resolved, self.request.recommendation.config.max_tiles
        return (
            load.Target(tuple(server.url for server in servers), model, self.key, self.request.patience_s),
            load.Shape(
                load_asked.images,
                load_asked.width,
                load_asked.height,
                resolved.prompt_tokens,
                resolved.output_tokens,
                tiles,
            ),
        )

    def size_shape(self, target: load.Target, shape: load.Shape, load_asked: Load) -> load.Shape:
        """Return the shape with texts of the tokens wanted; raise Failure for a failed request."""
        recommendation = self.request.recommendation
        drawn = draw_load(recommendation, load_asked)
        if drawn is None:
            wanted = wanted_tokens(recommendation, load_asked)
            return replace(shape, prompt_chars=sizing.size_prompt(target, shape, wanted))
        conversations = conversations_of(recommendation, load_asked, drawn)
        ruler = sizing.measure_ruler(target, shape, conversations.input_range())
        return replace(shape, drawn=replace(conversations, ruler=ruler))

    def load_failure(self, outcome: load.Outcome) -> Failure | None:
        """Return the failure that a load's failed requests amount to."""
        if not outcome.failures:
            return None
        cause, (count, first_message) = max(outcome.failures.items(), key=lambda item: item[1][0])
        message = f"{count} of {outcome.sent} requests under load: {first_message}"
        if cause == "requests-hang":
            well = all(backend.healthy() for backend in self.backends())
            message += "; /health answers 200 meanwhile" if well else "; /health does not answer either"
        return self.classify_failure(Failure(cause, message))


def _describe_progress(load_asked: Load, answered: int, failed: int) -> str:
    return f"{describe_load(load_asked)}: {answered} answered" + (f", {failed} failed" if failed else "")
