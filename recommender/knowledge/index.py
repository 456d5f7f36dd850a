"""Turn YAML files into validated records and into the one JSON index that a run reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from recommender.common.errors import KnowledgeError
from recommender.common.parse import parse_yaml
from recommender.common.text import one_line
from recommender.common.user_file import Unreadable, read_text
from recommender.knowledge import claim_measurements, records, run_figures
from recommender.knowledge.published_loads import summarise_benchmark
from recommender.knowledge.store import FOLDERS

RecordType = TypeVar("RecordType", bound=records.Record)

USUAL_BATCH, USUAL_PREFILL, USUAL_SESSION = 128, 8192, 16384
"""Values assumed for a run that leaves them to LMDeploy, when two runs are compared."""
TYPES: Mapping[str, type[records.Record]] = {
    "releases": records.Release,
    "flags": records.Flag,
    "environment": records.Parameter,
    "client": records.Parameter,
    "gpus": records.Gpu,
    "models": records.Model,
    "loads": records.NamedLoad,
    "workloads": records.Workload,
    "constraints": records.Constraint,
    "advisers": records.Adviser,
    "disagreements": records.Disagreement,
    "scenarios": records.Scenario,
    "claims": records.Claim,
    "threads": records.Thread,
    "coefficients": records.Coefficient,
    "residuals": records.Residuals,
    "evidence": records.SmokeRun,
    "probes": records.Measurement,
    "published": records.Benchmark,
}


def compile_index(knowledge: Path) -> str:
    """Return all records as one JSON text, each validated; of runs and published tables only what is read of them.

    Raises KnowledgeError.
    """
    by_kind = {
        kind: {path.stem: read_record(path, TYPES[kind]) for path in sorted((knowledge / folder).glob("*.yaml"))}
        for kind, folder in FOLDERS.items()
    }
    options = {**by_kind["flags"], **by_kind["environment"]}
    carriers = {option.setting: option for option in options.values() if isinstance(option, records.Option)}
    index = {kind: {name: _plain(record, carriers) for name, record in own.items()} for kind, own in by_kind.items()}
    index["measured"] = dict(_measured(by_kind))
    return json.dumps(index, ensure_ascii=False, separators=(",", ":"))


def _measured(by_kind: Mapping[str, Mapping[str, records.Record]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the runs of each claim show, by the claim's id."""
    runs = {name: run for name, run in by_kind["evidence"].items() if isinstance(run, records.SmokeRun)}
    earlier = {name: run for name, run in by_kind["probes"].items() if isinstance(run, records.Measurement)}
    gpus = {name: gpu.name for name, gpu in by_kind["gpus"].items() if isinstance(gpu, records.Gpu)}
    for name, claim in by_kind["claims"].items():
        if isinstance(claim, records.Claim) and (shown := claim_measurements.measure(claim, runs, earlier, gpus)):
            yield name, asdict(shown)


def _plain(record: records.Record, carriers: Mapping[str, records.Option]) -> dict[str, Any]:
    """Return a record as JSON values; of a run only what the recommender reads: raw figures would slow every start."""
    if isinstance(record, records.Measurement):
        slowest = max(start.startup_s for start in record.starts)
        return {"id": record.id, "lmdeploy": record.lmdeploy, "startup_s": slowest}
    if isinstance(record, records.Benchmark):
        return asdict(summarise_benchmark(record))
    return _summary(record, carriers) if isinstance(record, records.SmokeRun) else record.model_dump(mode="json")


def _summary(run: records.SmokeRun, carriers: Mapping[str, records.Option]) -> dict[str, Any]:
    """Return the fields of a ``RunSummary``; its loads are those of one server, or of one for each GPU."""
    given = dict(zip(run.command, run.command[1:], strict=False))
    given |= dict(variable.partition("=")[::2] for variable in run.environment)

    def value(setting: str, default: int) -> int:
        carrier = carriers.get(setting)
        return int(given.get(getattr(carrier, "option", "") or getattr(carrier, "name", ""), default))

    comparable = run.copies == 1 and run.kind != "python" and not run.pinned
    return {
        "id": run.id,
        "lmdeploy": run.lmdeploy,
        "startup_s": run.startup_s,
        "random_weights": run.random_weights,
        "gpu": run.gpu,
        "model": run.model,
        "engine": next((setting.found for setting in run.effective if setting.name == "backend"), "turbomind"),
        "mps": run.mps,
        "batch": value("max_batch_size", USUAL_BATCH),
        "prefill_tokens": value("prefill_tokens", USUAL_PREFILL),
        "session": value("session_len", USUAL_SESSION),
        "threads": value("omp_threads", run.cores),
        "loads": [
            _load(phase)
            for phase in run.phases
            if comparable
            and phase.concurrency
            and not (phase.failures or (phase.drawn and (phase.drawn.image_mix or not phase.drawn.workload)))
            and run_figures.figures(phase).trusted
        ],
    }


def _load(phase: records.Phase) -> dict[str, Any]:
    figures = run_figures.figures(phase)
    return {
        "concurrency": phase.concurrency,
        "workload": run_figures.name_workload(phase),
        "image": phase.image,
        "pixels": phase.images * math.prod(int(side) for side in phase.image.split("x")) if phase.image else 0,
        "input_tokens": phase.input_tokens,
        "output_tokens": phase.output_tokens,
        "rps": round(figures.rps, 1),
        "p50_ms": round(figures.p50_ms),
    }


def read_record(path: Path, kind: type[RecordType]) -> RecordType:
    """Read one YAML file as a record. Raises KnowledgeError with file, field and repair."""
    try:
        raw = parse_yaml(read_text(path))
    except OSError as error:
        raise KnowledgeError(f"{path}: {error.strerror}; it must be readable") from None
    except Unreadable as error:
        hint = "fix the YAML there; quote text that holds ': ' or ' #'"
        raise KnowledgeError(f"{path}: {str(error).replace('fix it there', hint)}") from None
    try:
        record = kind.model_validate_json(json.dumps(raw, default=str))
    except TypeError:
        raise KnowledgeError(f"{path}: a key is not text (a date or a list, say); put it in quotes") from None
    except ValidationError as error:
        raise KnowledgeError(f"{path}: {_explain(error)}") from None
    if getattr(record, "id", path.stem) != path.stem:
        raise KnowledgeError(f"{path}: id is {getattr(record, 'id', '')!r}; name the file after it, or fix the id")
    return record


REPAIRS = {
    "extra_forbidden": "remove it, or fix its spelling (see recommender/knowledge/records/)",
    "missing": "add it",
    "string_type": "put the value in quotes",
    "int_type": "write a whole number without quotes",
    "float_type": "write a number without quotes",
    "finite_number": "write a finite number",
    "bool_type": "write true or false",
    "literal_error": "use one of the allowed words",
    "string_pattern_mismatch": "write it in the form of the pattern",
    "no_day": "write a day of the calendar",
}


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "(whole file)"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{field}: {one_line(first['msg'])}: {REPAIRS.get(first['type'], 'fix the value')}{more}"
