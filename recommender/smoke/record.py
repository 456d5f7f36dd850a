"""A run as an evidence record."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recommender import files
from recommender import records as r
from recommender.render import request_json
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.smoke.taken import Asked, Measured, Taken


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
        pinned=asked.pin,
        servers=found.config.servers,
        share=found.config.share,
        max_tiles=found.config.max_tiles,
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
        killed=tuple(taken.killed),
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
        late_ms=round(outcome.late_ms),
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
