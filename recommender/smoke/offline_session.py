"""Run a pipeline.py: no server, one batch of images in, one answer each out."""

import base64
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from recommender.smoke.client import checks, load
from recommender.smoke.client.images import pictures
from recommender.smoke.expected_load import follows_schema
from recommender.smoke.failures import Failure
from recommender.smoke.process import diagnose, host, readback
from recommender.smoke.result import Load, LoadResult, describe_load
from recommender.smoke.session import POLL_S, Session

DRIVE = Path(__file__).parent / "process" / "offline_driver.py"
BATCH, QUICK_BATCH = 64, 16
QUICK_BELOW_S = 10.0


class OfflineSession(Session):
    """One process that builds the engine, answers one batch and ends."""

    def run(self) -> None:
        """Run the script, measure its batch and check its answers."""
        load_asked = self.request.loads[-1]
        count = QUICK_BATCH if self.request.seconds < QUICK_BELOW_S else BATCH
        batch = Load(max(count, load_asked.concurrency), 0.0, load_asked.images, load_asked.width, load_asked.height)
        self.watch.reset()
        begun = time.monotonic()
        self.say(f"building the engine, then {describe_load(batch)}")
        script = self.folder / "pipeline.py"
        script.write_text(self.request.artefact.text, encoding="utf-8")
        command = [
            *self.pin_command(),
            *host.find_python(self.request.variables),
            str(DRIVE),
            str(script),
            str(self.folder / "events"),
            *self.make_inputs(batch),
        ]
        self.children.append(self.guard.start(command, self.variables(), self.log, Path.cwd()))
        built = self.wait_for_event("built", begun)
        self.record_start(begun)
        self.read_back_from(built)
        cpu = self.children[0].cpu_seconds()
        self.watch.reset()
        answered = self.wait_for_event("answered", begun)
        self.add_result(batch, answered, cpu)
        self.check_outputs(answered, batch)

    def make_inputs(self, batch: Load) -> list[str]:
        """Write the images as files, or return the prompts of a text batch."""
        if not batch.images:
            return [f"{number}: {self.resolved.prompt}" for number in range(batch.concurrency)]
        paths = []
        for number, picture in enumerate(pictures(batch.width, batch.height, batch.concurrency, seed=1)):
            path = self.folder / f"picture-{number}.jpg"
            path.write_bytes(base64.b64decode(picture))
            paths.append(str(path))
        # A large size has few distinct images: repeat them.
        return [paths[number % len(paths)] for number in range(batch.concurrency)]

    def wait_for_event(self, name: str, start_time: float) -> dict[str, Any]:
        """Wait for an event of the driver; raise Failure if the script ends or hangs."""
        path = self.folder / "events"
        news = diagnose.LogWatch(self.log)
        while True:
            status = self.children[0].poll()  # polled before reading, so that its last events count
            for line in path.read_text("utf-8").splitlines() if path.exists() else ():
                event: dict[str, Any] = json.loads(line)
                if event["event"] == name:
                    return event
            if status is not None:
                if name == "built":
                    raise diagnose.startup_failure(self.tail(400), status)
                raise diagnose.later_failure(self.tail(400), status, "before it had answered")
            now = time.monotonic()
            if (silent := news.silent_s(now)) > self.request.patience_s:
                if name == "built":
                    raise diagnose.startup_hang(self.tail(400), now - start_time, silent)
                raise Failure("requests-hang", f"the engine is built, but no answer came for {silent:.0f} s")
            time.sleep(POLL_S)

    def read_back_from(self, event: dict[str, Any]) -> None:
        """Compare the engine's configuration object and log with the artefact."""
        engine, settings = readback.parse_log(self.log.read_text("utf-8", "replace")), event["settings"]
        engine = replace(
            engine,
            backend="turbomind" if event["config"].startswith("Turbomind") else "pytorch",
            session_len=int(settings["session_len"] or 0),
            max_batch_size=int(settings["max_batch_size"] or 0),
        )
        self.compare_settings(engine)

    def add_result(self, batch: Load, answered: dict[str, Any], cpu: float) -> None:
        """Add the batch as one load; its answers arrive together, so it has no latencies."""
        took = max(answered["at"] - answered["begun"], 1e-3)
        outcome = load.Outcome(
            window_s=took,
            window_requests=len(answered["texts"]),
            input_tokens=round(statistics.median(answered["input_tokens"])),
            output_tokens=round(statistics.median(answered["output_tokens"])),
            sent=batch.concurrency,
        )
        cores = round((self.children[0].cpu_seconds() - cpu) / took, 2)
        busy = self.watch.host_cpu_percent()
        self.result.phases.append(LoadResult(batch, outcome, self.watch.peak(), busy, max(cores, 0.0), {}))

    def check_outputs(self, answered: dict[str, Any], batch: Load) -> None:
        """Raise Failure unless each input has an answer that follows the schema."""
        texts: list[str] = answered["texts"]
        if len(texts) != batch.concurrency:
            raise Failure("request-failed", f"{batch.concurrency} inputs, {len(texts)} answers")
        self.result.checks = (f"each of the {len(texts)} inputs has an answer",)
        if self.request.recommendation.config.structured_output and follows_schema(self.request.recommendation):
            schema = json.loads(self.resolved.response_schema or checks.SCHEMA)
            wrong = [text for text in texts if checks.schema_error(text, schema)]
            if wrong:
                raise Failure("malformed-json", f"{len(wrong)} of {len(texts)} answers: {wrong[0][:200]!r}")
            self.result.checks += (f"all {len(texts)} answers parse by the JSON schema",)
        end = time.monotonic() + 60
        while self.children[0].poll() is None and time.monotonic() < end:
            time.sleep(POLL_S)
        status = self.children[0].poll()
        if status is None:
            raise Failure("requests-hang", "the script answered but does not end")
        if status:
            raise diagnose.later_failure(self.tail(400), status, "after it had answered")
        self.result.checks += ("the script ended with status 0",)
