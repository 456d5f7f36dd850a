"""The run of a pipeline.py: no server, one batch of pictures in, one answer each out."""

from __future__ import annotations

import base64
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from recommender.smoke import checks, diagnose, host, load, readback
from recommender.smoke.failures import Failure
from recommender.smoke.forecast import follows_schema
from recommender.smoke.pictures import pictures
from recommender.smoke.run import POLL_S, Session
from recommender.smoke.taken import Load, Measured, described

DRIVE = Path(__file__).with_name("drive.py")
BATCH, QUICK_BATCH = 64, 16
QUICK_BELOW_S = 10.0


class Offline(Session):
    """One process that builds the engine, answers one batch and ends."""

    def go(self) -> None:
        """The whole run."""
        asked = self.asked.loads[-1]
        count = QUICK_BATCH if self.asked.seconds < QUICK_BELOW_S else BATCH
        batch = Load(max(count, asked.concurrency), 0.0, asked.images, asked.width, asked.height)
        self.watch.reset()
        begun = time.monotonic()
        self.say(f"building the engine, then {described(batch)}")
        script = self.folder / "pipeline.py"
        script.write_text(self.asked.artefact.text, encoding="utf-8")
        command = [
            *self.pinned(),
            *host.python(self.asked.variables),
            str(DRIVE),
            str(script),
            str(self.folder / "events"),
            *self.inputs(batch),
        ]
        self.children.append(self.guard.start(command, self.variables(), self.log, Path.cwd()))
        built = self.event("built", begun)
        self.taken.startup_s = time.monotonic() - begun
        time.sleep(2 * POLL_S)
        self.taken.start_peak_mib, self.taken.ready_mib = self.watch.peak(), self.watch.now()
        self.read_back_from(built)
        cpu = self.children[0].cpu_seconds()
        self.watch.reset()
        answered = self.event("answered", begun)
        self.measured(batch, answered, cpu)
        self.judge(answered, batch)

    def inputs(self, batch: Load) -> list[str]:
        """The pictures as files, or as many prompts."""
        if not batch.images:
            return [f"{number}: {self.facts.prompt}" for number in range(batch.concurrency)]
        made = []
        for number, picture in enumerate(pictures(batch.width, batch.height, batch.concurrency, seed=1)):
            path = self.folder / f"picture-{number}.jpg"
            path.write_bytes(base64.b64decode(picture))
            made.append(str(path))
        # A size with few distinct pictures repeats them.
        return [made[number % len(made)] for number in range(batch.concurrency)]

    def event(self, name: str, begun: float) -> dict[str, Any]:
        """Waits for an event of the driven script. Raises Failure where it ends or stands still before."""
        path = self.folder / "events"
        news, heard = diagnose.News(self.log), time.monotonic()
        while True:
            ended = self.children[0].poll()  # asked before the events are read: what it wrote last counts
            for line in path.read_text("utf-8").splitlines() if path.exists() else ():
                event: dict[str, Any] = json.loads(line)
                if event["event"] == name:
                    return event
            if ended is not None:
                if name == "built":
                    raise diagnose.ended_at_start(self.tail(400), ended)
                raise diagnose.ended_later(self.tail(400), ended, "before it had answered")
            now = time.monotonic()
            heard = now if news.any() else heard
            if now - heard > self.asked.patience_s:
                if name == "built":
                    raise diagnose.hung_at_start(self.tail(400), now - begun, now - heard)
                raise Failure("requests-hang", f"the engine is built, but no answer came for {now - heard:.0f} s")
            time.sleep(POLL_S)

    def read_back_from(self, built: dict[str, Any]) -> None:
        """Holds the engine's own configuration object, and its log, against the artefact."""
        found, given = readback.effective(self.log.read_text("utf-8", "replace")), built["settings"]
        found = replace(
            found,
            backend="turbomind" if built["config"].startswith("Turbomind") else "pytorch",
            session_len=int(given["session_len"] or 0),
            max_batch_size=int(given["max_batch_size"] or 0),
        )
        self.judge_settings(found)

    def measured(self, batch: Load, answered: dict[str, Any], cpu: float) -> None:
        """One phase: the batch as a whole; single answers come together, so there are no latencies."""
        took = max(answered["at"] - answered["begun"], 1e-3)
        outcome = load.Outcome(
            latencies_ms=[],
            window_s=took,
            window_requests=len(answered["texts"]),
            ttft_ms=[],
            streamed_ms=[],
            streamed_tokens=[],
            input_tokens=round(statistics.median(answered["input_tokens"])),
            output_tokens=round(statistics.median(answered["output_tokens"])),
            failures={},
            sent=batch.concurrency,
            hung=False,
        )
        cores = round((self.children[0].cpu_seconds() - cpu) / took, 2)
        busy = self.watch.host_cpu_percent()
        self.taken.phases.append(Measured(batch, outcome, self.watch.peak(), busy, max(cores, 0.0), {}))

    def judge(self, answered: dict[str, Any], batch: Load) -> None:
        """Every picture has an answer, and each answer is the JSON that was asked for. Raises Failure."""
        texts: list[str] = answered["texts"]
        if len(texts) != batch.concurrency:
            raise Failure("request-failed", f"{batch.concurrency} inputs, {len(texts)} answers")
        self.taken.checks = (f"{len(texts)} inputs have an answer each",)
        if self.asked.found.config.structured_output and follows_schema(self.asked.found):
            schema = json.loads(self.facts.response_schema or checks.SCHEMA)
            wrong = [text for text in texts if checks.nonconformity(text, schema)]
            if wrong:
                raise Failure("malformed-json", f"{len(wrong)} of {len(texts)} answers: {wrong[0][:200]!r}")
            self.taken.checks += (f"all {len(texts)} answers parse by the JSON schema",)
        end = time.monotonic() + 60
        while self.children[0].poll() is None and time.monotonic() < end:
            time.sleep(POLL_S)
        status = self.children[0].poll()
        if status is None:
            raise Failure("requests-hang", "the script answered but does not end")
        if status:
            raise diagnose.ended_later(self.tail(400), status, "after it had answered")
        self.taken.checks += ("the script ended with status 0",)
