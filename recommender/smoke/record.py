"""Write a run as an evidence record."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recommender.common import atomic_write
from recommender.common.errors import RequestError
from recommender.common.text import masked
from recommender.knowledge import records
from recommender.knowledge.run_figures import write_numbers
from recommender.render.template import request_json

if TYPE_CHECKING:
    from recommender.smoke.result import LoadResult, RunRequest, RunResult


def build_record(name: str, request: RunRequest, result: RunResult, today: str) -> records.SmokeRun:
    """Return the evidence record of a run; ``name`` is its id."""
    recommendation, artefact = request.recommendation, request.artefact
    resolved = recommendation.resolved
    failure = result.failure
    return records.SmokeRun(
        id=name,
        taken=today,
        made_by=recommendation.made_by,
        lmdeploy=resolved.release.id,
        gpu=resolved.gpu.id,
        gpu_name=result.host.gpu_name,
        gpu_count=result.host.gpu_count,
        driver=result.host.driver,
        memory_mib=result.host.memory_mib,
        cpus=result.host.cpus,
        cpu_name=result.host.cpu_name,
        model=resolved.model.id,
        checkpoint=request.checkpoint,
        request=request_json(recommendation),
        kind=artefact.kind,
        artefact_sha256=artefact.sha256,
        launch_sha256=artefact.launch_sha256(resolved),
        environment=artefact.exported({}),
        command=tuple(word or "''" for word in artefact.words(resolved, {})),
        set_by_smoke=tuple(  # keep only a path's last part: no record names local folders
            f"{name}={Path(value).name if value.startswith('/') else value}"
            for name, value in sorted(request.set_by_smoke.items())
        ),
        copies=request.copies,
        mps=request.mps,
        pinned=request.pin,
        servers=recommendation.config.servers,
        share=recommendation.config.share,
        max_tiles=recommendation.config.max_tiles,
        startup_s=round(result.startup_s, 1),
        idle_mib=result.idle_mib,
        start_peak_mib=result.start_peak_mib,
        ready_mib=result.ready_mib,
        effective=tuple(
            records.Readback(name=setting.name.replace("_", "-"), asked=setting.asked, found=setting.found)
            for setting in result.effective
        ),
        checks=result.checks,
        outcome=failure.kind.name if failure else "ok",
        said=clean_message(failure.message) if failure else "",
        notes=request.notes,
        log_sha256=result.log_sha256,
        phases=tuple(_phase(phase) for phase in result.phases),
        killed=tuple(result.killed),
    )


def clean_message(text: str) -> str:
    """Return a server's message on one line, without paths, at most 400 characters."""
    return re.sub(r"(?<![^\s'\"(=:,])/(?!/)[^ '\"]*/", "", masked(text))[:400]


def _phase(measured: LoadResult) -> records.Phase:
    load, outcome, drawn = measured.load, measured.outcome, measured.drawn
    if drawn:
        counted = {"input_tokens": write_numbers([taken for taken, _ in outcome.tokens])}
        counted["output_tokens"] = write_numbers([given for _, given in outcome.tokens])
        drawn = drawn.model_copy(update=counted)
    all_streamed = len(outcome.ttft_ms) == len(outcome.latencies_ms)
    return records.Phase(
        concurrency=load.concurrency,
        arrivals_rps=load.rps,
        images=load.images,
        image=f"{load.width}x{load.height}" if load.images else "",
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
        window_s=round(outcome.window_s, 3),
        window_requests=outcome.window_requests,
        latencies_ms=write_numbers(outcome.latencies_ms),
        gaps_ms=write_numbers(_steps([round(end) for end in outcome.ends_ms])),
        ttft_ms=write_numbers(outcome.ttft_ms),
        streamed="" if all_streamed else write_numbers(_steps([place + 1 for place in outcome.streamed])),
        drawn=drawn,
        late_ms=round(outcome.late_ms),
        failures=tuple(
            records.FailedRequests(cause=cause, count=count, said=clean_message(message))
            for cause, (count, message) in sorted(outcome.failures.items())
        ),
        peak_mib=measured.peak_mib,
        host_cpu_percent=measured.host_cpu_percent,
        server_cores=measured.server_cores,
        running_most=int(measured.metrics.get("running", -1)),
        waiting_most=int(measured.metrics.get("waiting", -1)),
        cache_use_most=round(measured.metrics.get("cache", -1.0), 4),
    )


def _steps(values: Sequence[int]) -> list[int]:
    """Return how far each value is from the one before, the first from 0."""
    return [after - before for before, after in pairwise([0, *values])]


def evidence_path(name: str) -> tuple[Path, str]:
    """Return the file of --save-evidence and its record's id.

    Raise RequestError for a bad name, an existing file or a folder that is not writable.
    """
    path = Path(name)
    stem = path.name.removesuffix(".yaml")
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", stem):
        raise RequestError(
            f"--save-evidence {name}: use lower-case letters, digits and dashes, such as h100-single.yaml"
        )
    path = path.with_name(f"{stem}.yaml")
    if path.exists():
        raise RequestError(f"--save-evidence: {path} exists and is never replaced; choose another name")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise RequestError(f"--save-evidence: {path.parent} is not a writable folder")
    return path, stem


WIDTH = 2000
"""Characters a line. Wrapping the lists of times would make a record 5 % larger."""


def pack_lists(values: dict[str, Any]) -> dict[str, Any]:
    """Pack the long lists of a record's JSON values in place, and return them."""
    pack = cache(records.pack)
    for part in [part for phase in values.get("phases", ()) for part in (phase, phase.get("drawn"))]:
        for name, value in (part or {}).items():
            if isinstance(value, str) and value.replace(" ", "").isdecimal():
                part[name] = pack(value)
    return values


def save(path: Path, run: records.SmokeRun) -> None:
    """Write a record, whole or not at all."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Write a packed list once: phases often draw from the same lengths."""

        def ignore_aliases(self, data: Any) -> bool:
            return not (isinstance(data, str) and data.startswith(records.PACKED))

    values = pack_lists(json.loads(run.model_dump_json(exclude_defaults=True)))
    text = yaml.dump(values, Dumper=Dumper, sort_keys=False, width=WIDTH, allow_unicode=True, default_flow_style=False)
    atomic_write.write(path, "# Written by recommend smoke; the figures of a page are computed from it.\n" + text)
