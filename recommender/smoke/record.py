"""A run as an evidence record, and the figures that are computed from one: the only place that does either."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recommender import files
from recommender import records as r
from recommender.render import request_json
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.smoke.taken import Asked, Measured, Taken

P99_SAMPLES = 300


@dataclass(frozen=True, slots=True)
class Figures:
    """What one phase of a record amounts to. Times in ms; 0: not measured (a p99 needs 300 samples).

    ``requests`` were answered; the times are those of ``samples`` of them (see ``records.Phase``).
    """

    requests: int
    samples: int
    failed: int
    rps: float
    output_tokens_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    ttft_ms: float
    token_ms: float


def numbers(text: str) -> list[int]:
    """The whole numbers of a record's text."""
    return [int(each) for each in text.split()]


def share(values: Sequence[float], part: float) -> float:
    """The value that so large a part of the values does not exceed (nearest rank); 0 without any."""
    ordered = sorted(values)
    return float(ordered[max(0, math.ceil(part * len(ordered) - 1e-9) - 1)]) if ordered else 0.0


def figures(phase: r.Phase) -> Figures:
    """Medians, shares and rates of a phase, from its raw runs."""
    answered = numbers(phase.latencies_ms)
    streamed = list(zip(numbers(phase.ttft_ms), numbers(phase.streamed_ms), strict=True))
    rps = phase.window_requests / phase.window_s if phase.window_s else 0.0
    every = answered
    if steady(phase):
        ends = list(accumulate(numbers(phase.gaps_ms)))
        rps = _rate(ends[: phase.window_requests], phase.concurrency) or rps
        opening = _opening(ends, answered, phase.concurrency)
        every = [ms for place, ms in enumerate(answered) if place not in opening]
        streamed = _without(opening, streamed, answered)
    first = [start for start, _ in streamed]
    steps = max(1, phase.output_tokens - 1)
    token = [(end - start) / steps for start, end in streamed]
    return Figures(
        requests=len(answered),
        samples=len(every),
        failed=sum(each.count for each in phase.failures),
        rps=rps,
        output_tokens_s=rps * phase.output_tokens,
        p50_ms=float(statistics.median(every)) if every else 0.0,
        p95_ms=share(every, 0.95),
        p99_ms=share(every, 0.99) if len(every) >= P99_SAMPLES else 0.0,
        ttft_ms=float(statistics.median(first)) if first else 0.0,
        token_ms=statistics.median(token) if token else 0.0,
    )


def steady(phase: r.Phase) -> bool:
    """Whether the figures of a phase can do without its first round: see ``records.Phase``."""
    clients, count = phase.concurrency, len(numbers(phase.gaps_ms))
    rounds = min(phase.window_requests, count) // clients if clients else 0
    return rounds >= 2 and count == len(numbers(phase.latencies_ms)) and not phase.failures


def _rate(ends: Sequence[int], clients: int) -> float:
    """Answers a second: a round's over its mean time, wherever one fits behind the first; 0 where all end at once.

    The rounds overlap. A few that do not would do where the answers come one by one or all together, but where
    they come in waves of another size than the round, or of ragged ends, it matters where a round begins.
    """
    took = statistics.fmean(ends[last] - ends[last - clients] for last in range(2 * clients - 1, len(ends)))
    return clients / took * 1000 if took else 0.0


def _opening(ends: Sequence[int], answered: Sequence[int], clients: int) -> set[int]:
    """The places of the answers to the first requests sent: not the first to end, which are the shortest ones."""
    sent = [end - took for end, took in zip(ends, answered, strict=True)]
    return set(sorted(range(len(sent)), key=sent.__getitem__)[:clients])


def _without(opening: set[int], streamed: Sequence[tuple[int, int]], answered: Sequence[int]) -> list[tuple[int, int]]:
    """The streamed answers but those of the opening. They stand in the order of all, so each is found by its time."""
    places = enumerate(answered)
    found = [(next((place for place, ms in places if ms == each[1]), -1), each) for each in streamed]
    return [each for place, each in found if place not in opening]


def record(name: str, asked: Asked, taken: Taken, today: str) -> r.SmokeRun:
    """The evidence of a run. ``name`` becomes its id."""
    found, artefact = asked.found, asked.artefact
    facts = found.facts
    failure = taken.failure
    return r.SmokeRun(
        id=name,
        taken=today,
        made_by=found.made_by,
        lmdeploy=facts.release.id,
        gpu=facts.gpu.id,
        gpu_name=taken.host.gpu_name,
        gpu_count=taken.host.gpu_count,
        driver=taken.host.driver,
        memory_mib=taken.host.memory_mib,
        cpus=taken.host.cpus,
        cpu_name=taken.host.cpu_name,
        model=facts.model.id,
        checkpoint=asked.checkpoint,
        request=request_json(found),
        kind=artefact.kind,
        artefact_sha256=artefact.sha256,
        launch_sha256=artefact.launch_sha256(facts),
        environment=artefact.exported({}),
        command=tuple(each or "''" for each in artefact.words(facts, {})),
        set_by_smoke=tuple(f"{name}={_portable(value)}" for name, value in sorted(asked.set_by_smoke.items())),
        copies=asked.copies,
        mps=asked.mps,
        startup_s=round(taken.startup_s, 1),
        idle_mib=taken.idle_mib,
        start_peak_mib=taken.start_peak_mib,
        ready_mib=taken.ready_mib,
        effective=tuple(
            r.Readback(name=_id(each.name), asked=each.asked, found=each.found) for each in taken.effective
        ),
        checks=taken.checks,
        outcome=failure.kind.name if failure else "ok",
        said=shown(failure.said) if failure else "",
        notes=asked.notes,
        log_sha256=taken.log_sha256,
        phases=tuple(_phase(each) for each in taken.phases),
    )


def _portable(value: str) -> str:
    """A value without the folder it was in on this machine."""
    return Path(value).name if value.startswith("/") else value


def _id(name: str) -> str:
    return name.replace("_", "-")


def shown(text: str) -> str:
    """A server's words for one line of a record."""
    plain = "".join(c if c.isprintable() else "?" for c in text)
    return re.sub(r"(?<![^\s'\"(=:,])/(?!/)[^ '\"]*/", "", plain)[:400]


def _phase(measured: Measured) -> r.Phase:
    asked, outcome = measured.load, measured.outcome
    return r.Phase(
        concurrency=asked.concurrency,
        arrivals_rps=asked.rps,
        images=asked.images,
        image=f"{asked.width}x{asked.height}" if asked.images else "",
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
        window_s=round(outcome.window_s, 3),
        window_requests=outcome.window_requests,
        latencies_ms=_text(outcome.latencies_ms),
        gaps_ms=_text([after - before for before, after in pairwise([0, *map(round, outcome.ends_ms)])]),
        ttft_ms=_text(outcome.ttft_ms),
        streamed_ms=_text(outcome.streamed_ms),
        failures=tuple(
            r.FailedRequests(cause=cause, count=count, said=shown(said))
            for cause, (count, said) in sorted(outcome.failures.items())
        ),
        peak_mib=measured.peak_mib,
        host_cpu_percent=measured.host_cpu_percent,
        server_cores=measured.server_cores,
        running_most=int(measured.metrics.get("running", -1)),
        waiting_most=int(measured.metrics.get("waiting", -1)),
        cache_use_most=round(measured.metrics.get("cache", -1.0), 4),
    )


def _text(values: Sequence[float]) -> str:
    return " ".join(str(round(each)) for each in values)


def place(name: str) -> tuple[Path, str]:
    """Where --save-evidence writes, and the record's id. Raises RequestError, also where a file is there already."""
    path = Path(name)
    stem = path.name.removesuffix(".yaml")
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", stem):
        raise RequestError(
            f"--save-evidence {name}: name it with small letters, digits and dashes, such as h100-single.yaml"
        )
    path = path.with_name(f"{stem}.yaml")
    if path.exists():
        raise RequestError(f"--save-evidence: {path} exists, and evidence is never replaced; choose another name")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise RequestError(f"--save-evidence: {path.parent} is no folder that can be written to")
    return path, stem


def save(path: Path, run: r.SmokeRun) -> None:
    """Writes a record, whole or not at all."""
    import yaml

    text = yaml.safe_dump(
        json.loads(run.model_dump_json()), sort_keys=False, width=110, allow_unicode=True, default_flow_style=False
    )
    files.write(path, "# Written by recommend smoke; the figures of a page are computed from it.\n" + text)


def plain(run: r.SmokeRun) -> dict[str, Any]:
    """A record as JSON values."""
    made: dict[str, Any] = json.loads(run.model_dump_json())
    return made
