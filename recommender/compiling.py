"""YAML files to validated records and to the one JSON index that a run reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from recommender import measured
from recommender import records as r
from recommender.store import FOLDERS, KnowledgeError

R = TypeVar("R", bound=r.Record)

USUAL_BATCH, USUAL_BUDGET, USUAL_SESSION = 128, 8192, 16384
"""Of a run that leaves them to LMDeploy, for telling how alike two runs are."""
TYPES: Mapping[str, type[r.Record]] = {
    "releases": r.Release,
    "flags": r.Flag,
    "environment": r.Parameter,
    "client": r.Parameter,
    "gpus": r.Gpu,
    "models": r.Model,
    "loads": r.Workload,
    "requests": r.RequestShape,
    "constraints": r.Constraint,
    "advisers": r.Adviser,
    "disagreements": r.Disagreement,
    "scenarios": r.Scenario,
    "claims": r.Claim,
    "threads": r.Thread,
    "coefficients": r.Coefficient,
    "residuals": r.Residuals,
    "evidence": r.SmokeRun,
    "probes": r.Measurement,
}


def compile_index(knowledge: Path) -> str:
    """All records as one JSON text, each validated; of runs only what store.Ran says. Raises KnowledgeError."""
    records = _validated(knowledge)
    options = {**records["flags"], **records["environment"]}
    carriers = {option.setting: option for option in options.values() if isinstance(option, r.Option)}
    plain = {kind: {name: _plain(each, carriers) for name, each in found.items()} for kind, found in records.items()}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(record: r.Record, carriers: Mapping[str, r.Option]) -> dict[str, Any]:
    """A record as JSON values. The raw figures of runs would make every start slower: only what is read of them."""
    if isinstance(record, r.Measurement):
        return {"id": record.id}
    return _ran(record, carriers) if isinstance(record, r.SmokeRun) else record.model_dump(mode="json")


def _ran(run: r.SmokeRun, carriers: Mapping[str, r.Option]) -> dict[str, Any]:
    """What the recommender reads of a run; the loads of one server, or of one for each card."""
    given = dict(zip(run.command, run.command[1:], strict=False))
    given |= dict(each.partition("=")[::2] for each in run.environment)

    def value(setting: str, otherwise: int) -> int:
        carrier = carriers.get(setting)
        name = (
            carrier.option if isinstance(carrier, r.Flag) else carrier.name if isinstance(carrier, r.Parameter) else ""
        )
        return int(given.get(name, otherwise))

    plain = run.copies == 1 and run.kind != "python" and not run.pinned
    closed = [each for each in run.phases if each.concurrency and plain]
    return {
        "id": run.id,
        "gpu": run.gpu,
        "model": run.model,
        "mps": run.mps,
        "batch": value("max_batch_size", USUAL_BATCH),
        "budget": value("prefill_tokens", USUAL_BUDGET),
        "session": value("session_len", USUAL_SESSION),
        "threads": value("omp_threads", run.cores),
        "loads": [_load(each) for each in closed if not each.failures],
    }


def _load(phase: r.Phase) -> dict[str, Any]:
    got = measured.figures(phase)
    return {
        "concurrency": phase.concurrency,
        "image": phase.image,
        "pixels": phase.images * math.prod(int(side) for side in phase.image.split("x")) if phase.image else 0,
        "input_tokens": phase.input_tokens,
        "output_tokens": phase.output_tokens,
        "rps": round(got.rps, 1),
        "p50_ms": round(got.p50_ms),
    }


def _validated(knowledge: Path) -> dict[str, dict[str, r.Record]]:
    return {
        kind: {path.stem: read_record(path, TYPES[kind]) for path in sorted((knowledge / folder).glob("*.yaml"))}
        for kind, folder in FOLDERS.items()
    }


def read_record(path: Path, kind: type[R]) -> R:
    """One YAML file as a record. Raises KnowledgeError with file, field and repair."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{path}: not readable as YAML: {_one_line(error)}") from None
    try:
        record = kind.model_validate_json(json.dumps(raw, default=str))
    except TypeError:
        raise KnowledgeError(f"{path}: a key is not text (a date or a list, say); put it in quotes") from None
    except ValidationError as error:
        raise KnowledgeError(f"{path}: {_explain(error)}") from None
    if getattr(record, "id", path.stem) != path.stem:
        raise KnowledgeError(f"{path}: id is {getattr(record, 'id', '')!r}; name the file after it, or mend the id")
    return record


def doubled(text: str) -> Iterator[tuple[int, str]]:
    """Each key of a YAML text that stands twice in one mapping, and its line. Raises YAMLError."""
    import yaml

    todo = [yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    looked: set[int] = set()  # an anchor may stand within itself
    while todo:
        node = todo.pop()
        if id(node) in looked:
            continue
        looked.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if str(key.value) in seen:
                    yield key.start_mark.line + 1, str(key.value)
                seen.add(str(key.value))
                todo.append(value)
        elif isinstance(node, yaml.SequenceNode):
            todo += node.value


REPAIRS = {
    "extra_forbidden": "remove it, or mend its spelling (see recommender/records.py)",
    "missing": "add it",
    "string_type": "put the value in quotes",
    "int_type": "write a whole number without quotes",
    "float_type": "write a number without quotes",
    "finite_number": "write a finite number",
    "bool_type": "write true or false",
    "literal_error": "use one of the allowed words",
    "string_pattern_mismatch": "write it in the form of the pattern",
}


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "(whole file)"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{field}: {_one_line(first['msg'])}: {REPAIRS.get(first['type'], 'mend the value')}{more}"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
