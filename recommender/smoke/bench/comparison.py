"""Compare two scripts' runs: outcome, differing settings, and all of it as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recommender.render import artefact
from recommender.smoke.bench import statistics
from recommender.smoke.bench.ask import Folder, ImageAnswer, Round, ScriptRun
from recommender.smoke.failures import KINDS, Failure
from recommender.smoke.record import clean_message

FORMAT = 1
MADE_UP = "random weights: the procedure works, but these figures mean nothing"


@dataclass(frozen=True)
class ScriptComparison:
    """Both scripts' runs; ``b`` is None if A's failure left nothing to compare."""

    a: ScriptRun
    b: ScriptRun | None
    folder: Folder
    place: str
    labels: Mapping[str, Any] | None

    @cached_property
    def contrast(self) -> statistics.AnswerStatistics:
        """Return the statistics of the answers."""
        return statistics.compare_answers(
            one_pass(self.a, 0) or Round(), one_pass(self.a, 1), one_pass(self.b, 0), self.labels or {}
        )

    @property
    def sides(self) -> dict[str, ScriptRun]:
        """Return the launched sides by name."""
        return {"A": self.a} | ({"B": self.b} if self.b else {})

    @property
    def synthetic(self) -> bool:
        """Return whether a script ran on random weights."""
        return any(side.request.checkpoint.startswith("random") for side in self.sides.values())

    @cached_property
    def failure(self) -> Failure | None:
        """Return a launch's failure, else the commonest failure of single images."""
        for name, side in self.sides.items():
            if side.failure:
                failure = side.failure
                return Failure(failure.kind.name, f"{name}: {failure.message}", failure.tail)
        causes: Counter[str] = Counter()
        texts: dict[str, str] = {}
        for name, image_round in self.passes():
            for cause, (count, words) in statistics.count_failures(image_round).items():
                kind = cause if cause in KINDS else "request-failed"
                causes[kind] += count
                texts.setdefault(kind, f"{name}: {count} of {len(image_round.answers)} images: {clean_message(words)}")
        return Failure(causes.most_common(1)[0][0], texts[causes.most_common(1)[0][0]]) if causes else None

    def passes(self) -> Iterator[tuple[str, Round]]:
        """Yield every pass over the images with its name."""
        for name, side in self.sides.items():
            for number, image_round in enumerate(side.rounds):
                yield name + (" again" if number else ""), image_round


def one_pass(sitting: ScriptRun | None, number: int) -> Round | None:
    """Return a pass over the images, from 0, or None if it never began."""
    return sitting.rounds[number] if sitting and number < len(sitting.rounds) else None


# --- JSON --------------------------------------------------------------------------------------


def to_json(compared: ScriptComparison) -> str:
    """Return everything as JSON, each image with its answers."""
    question, failure, contrast = compared.a.question, compared.failure, compared.contrast
    document = {
        "format": FORMAT,
        "outcome": failure.kind.name if failure else "ok",
        "exit_code": failure.kind.code if failure else 0,
        "said": clean_message(failure.message) if failure else "",
        "synthetic": compared.synthetic,
        "warning": MADE_UP if compared.synthetic else "",
        "asked": {
            "images": compared.place,
            "found": len(compared.folder.names),
            "asked": len(compared.folder.pictures),
            "unreadable": dict(compared.folder.unreadable),
            "labels": sum(picture.name in (compared.labels or {}) for picture in compared.folder.pictures),
            "prompt": question.prompt,
            "schema": question.form.schema,
            "schema_held": question.form.held,
            "in_flight": question.concurrency,
            "max_tokens": question.max_tokens,
            "temperature": 0,
        },
        "a": _side(compared.a),
        "b": _side(compared.b) if compared.b else None,
        "settings": {name: list(values) for name, values in differing_settings(compared).items()},
        "agreement": {name: _as_dict(getattr(contrast, name)) for name in ("agreement", "itself", "beyond")},
        "accuracy": _as_dict(contrast.accuracy) | {"difference": contrast.accuracy.difference}
        if contrast.accuracy
        else None,
        "different": list(contrast.different),
        "pictures": [_picture(compared, picture.name, picture.sha256) for picture in compared.folder.pictures],
    }
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _as_dict(value: Any) -> Any:
    return asdict(value) if value is not None else None


def _side(sitting: ScriptRun) -> dict[str, Any]:
    request, result, recommendation = sitting.request, sitting.result, sitting.request.recommendation
    return {
        "script": request.artefact.name,
        "sha256": request.artefact.sha256,
        "model": model(sitting),
        "checkpoint": request.checkpoint,
        "lmdeploy": recommendation.resolved.release.id,
        "max_tiles": sitting.question.max_tiles,
        "gpu": f"{result.host.gpu_count} x {result.host.gpu_name}" if result else "",
        "driver": result.host.driver if result else "",
        "startup_s": round(result.startup_s, 1) if result else 0.0,
        "idle_mib": result.idle_mib if result else 0,
        "ready_mib": result.ready_mib if result else 0,
        "passes": [
            {
                **asdict(statistics.measure_speed(one_round)),
                "window_s": round(one_round.window_s, 3),
                "peak_mib": one_round.peak_mib,
                "failures": {cause: count for cause, (count, _) in statistics.count_failures(one_round).items()},
            }
            for one_round in sitting.rounds
        ],
        "outcome": sitting.failure.kind.name if sitting.failure else "ok",
    }


def _picture(compared: ScriptComparison, name: str, digest: str) -> dict[str, Any]:
    rounds = {"a": one_pass(compared.a, 0), "a_again": one_pass(compared.a, 1), "b": one_pass(compared.b, 0)}
    answers = {
        key: _answer(answered.answers[name]) if answered and name in answered.answers else None
        for key, answered in rounds.items()
    }
    return {"image": name, "sha256": digest, "label": (compared.labels or {}).get(name), **answers}


def _answer(answer: ImageAnswer) -> dict[str, Any]:
    fields = {"value": answer.value, "text": answer.text, "ms": round(answer.ms, 1)}
    return fields | ({"cause": answer.cause, "said": clean_message(answer.message)} if answer.cause else {})


# --- what differs ------------------------------------------------------------------------------


def model(sitting: ScriptRun) -> str:
    """Return the served model: a folder's name or a hub name."""
    variables = sitting.request.variables
    name = sitting.request.artefact.model(variables) or variables.get("MODEL", "")
    return Path(name).name if name.startswith(("/", ".", "~")) else name


def settings(sitting: ScriptRun) -> dict[str, str]:
    """Return the script's settings by name."""
    script, resolved, variables = (
        sitting.request.artefact,
        sitting.request.recommendation.resolved,
        sitting.request.variables,
    )
    options = artefact.settings(resolved, script.words(resolved, variables))
    exported = dict(assignment.split("=", 1) for assignment in script.exported(variables))
    tiles = {"tiles an image": f"{sitting.question.max_tiles} at most" if sitting.question.max_tiles else "the model's"}
    return {
        "model": model(sitting),
        **tiles,
        **exported,
        **{key.replace("_", "-"): value for key, value in options.items()},
    }


def differing_settings(compared: ScriptComparison) -> dict[str, tuple[str, str]]:
    """Return the settings in which A and B differ."""
    if not compared.b:
        return {}
    a, b = settings(compared.a), settings(compared.b)
    names = [name for name in {**a, **b} if a.get(name, "") != b.get(name, "")]
    return {name: (a.get(name, ""), b.get(name, "")) for name in names}
