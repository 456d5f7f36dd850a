"""Two artefacts and what they answered: how it ended, where their settings differ, and all of it as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recommender.smoke import contrast, launch
from recommender.smoke.ask import Answer, Folder, Round, Sitting
from recommender.smoke.failures import KINDS, Failure
from recommender.smoke.record import shown

FORMAT = 1
MADE_UP = "random weights: these figures prove the mechanics and mean nothing else"


@dataclass(frozen=True)
class Compared:
    """Both artefacts as asked; ``b`` None where A's end left nothing to compare with."""

    a: Sitting
    b: Sitting | None
    folder: Folder
    place: str
    labels: Mapping[str, Any] | None

    @cached_property
    def found(self) -> contrast.Contrast:
        """The statistics."""
        return contrast.contrast(
            one_pass(self.a, 0) or Round(), one_pass(self.a, 1), one_pass(self.b, 0), self.labels or {}
        )

    @property
    def sides(self) -> dict[str, Sitting]:
        """Those that were launched."""
        return {"A": self.a} | ({"B": self.b} if self.b else {})

    @property
    def synthetic(self) -> bool:
        """Whether an artefact ran on weights that were made up."""
        return any(each.asked.checkpoint.startswith("random") for each in self.sides.values())

    @cached_property
    def failure(self) -> Failure | None:
        """What the command ends with: a launch's failure, else the commonest one of single pictures."""
        for name, each in self.sides.items():
            if each.failure:
                known = each.failure
                return Failure(known.kind.name, f"{name}: {known.said}", known.tail)
        causes: Counter[str] = Counter()
        said: dict[str, str] = {}
        for name, made in self.passes():
            for cause, (count, words) in contrast.failures(made).items():
                kind = cause if cause in KINDS else "request-failed"
                causes[kind] += count
                said.setdefault(kind, f"{name}: {count} of {len(made.answers)} images: {shown(words)}")
        return Failure(causes.most_common(1)[0][0], said[causes.most_common(1)[0][0]]) if causes else None

    def passes(self) -> Iterator[tuple[str, Round]]:
        """Every pass over the pictures by its name."""
        for name, each in self.sides.items():
            for number, made in enumerate(each.rounds):
                yield name + (" again" if number else ""), made


def one_pass(sitting: Sitting | None, number: int) -> Round | None:
    """A pass over the pictures, from 0; None where it was not begun."""
    return sitting.rounds[number] if sitting and number < len(sitting.rounds) else None


# --- JSON --------------------------------------------------------------------------------------


def to_json(made: Compared) -> str:
    """All of it, every picture with both answers."""
    question, failure, found = made.a.question, made.failure, made.found
    document = {
        "format": FORMAT,
        "outcome": failure.kind.name if failure else "ok",
        "exit_code": failure.kind.code if failure else 0,
        "said": shown(failure.said) if failure else "",
        "synthetic": made.synthetic,
        "warning": MADE_UP if made.synthetic else "",
        "asked": {
            "images": made.place,
            "found": len(made.folder.names),
            "asked": len(made.folder.pictures),
            "unreadable": dict(made.folder.unreadable),
            "labels": sum(each.name in (made.labels or {}) for each in made.folder.pictures),
            "prompt": question.prompt,
            "schema": question.form.schema,
            "schema_held": question.form.held,
            "in_flight": question.in_flight,
            "max_tokens": question.max_tokens,
            "temperature": 0,
        },
        "a": _side(made.a),
        "b": _side(made.b) if made.b else None,
        "settings": {name: list(values) for name, values in differing(made).items()},
        "agreement": {name: _plain(getattr(found, name)) for name in ("agreement", "itself", "beyond")},
        "accuracy": _plain(found.accuracy) | {"difference": found.accuracy.difference} if found.accuracy else None,
        "different": list(found.different),
        "pictures": [_picture(made, each.name, each.sha256) for each in made.folder.pictures],
    }
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _plain(value: Any) -> Any:
    return asdict(value) if value is not None else None


def _side(sitting: Sitting) -> dict[str, Any]:
    asked, taken, found = sitting.asked, sitting.taken, sitting.asked.found
    return {
        "script": asked.artefact.name,
        "sha256": asked.artefact.sha256,
        "model": model(sitting),
        "checkpoint": asked.checkpoint,
        "lmdeploy": found.facts.release.id,
        "max_tiles": sitting.question.max_tiles,
        "gpu": f"{taken.host.gpu_count} x {taken.host.gpu_name}" if taken else "",
        "driver": taken.host.driver if taken else "",
        "startup_s": round(taken.startup_s, 1) if taken else 0.0,
        "idle_mib": taken.idle_mib if taken else 0,
        "ready_mib": taken.ready_mib if taken else 0,
        "passes": [
            {
                **asdict(contrast.speed(each)),
                "window_s": round(each.window_s, 3),
                "peak_mib": each.peak_mib,
                "failures": {cause: count for cause, (count, _) in contrast.failures(each).items()},
            }
            for each in sitting.rounds
        ],
        "outcome": sitting.failure.kind.name if sitting.failure else "ok",
    }


def _picture(made: Compared, name: str, digest: str) -> dict[str, Any]:
    rounds = {"a": one_pass(made.a, 0), "a_again": one_pass(made.a, 1), "b": one_pass(made.b, 0)}
    answers = {
        key: _answer(each.answers[name]) if each and name in each.answers else None for key, each in rounds.items()
    }
    return {"image": name, "sha256": digest, "label": (made.labels or {}).get(name), **answers}


def _answer(answer: Answer) -> dict[str, Any]:
    made = {"value": answer.value, "text": answer.text, "ms": round(answer.ms, 1)}
    return made | ({"cause": answer.cause, "said": shown(answer.said)} if answer.cause else {})


# --- what differs ------------------------------------------------------------------------------


def model(sitting: Sitting) -> str:
    """What it serves: a folder's name, or a name on the hub."""
    variables = sitting.asked.variables
    name = sitting.asked.artefact.model(variables) or variables.get("MODEL", "")
    return Path(name).name if name.startswith(("/", ".", "~")) else name


def settings(sitting: Sitting) -> dict[str, str]:
    """What the artefact decides, by name."""
    script, facts, variables = sitting.asked.artefact, sitting.asked.found.facts, sitting.asked.variables
    found = launch.settings(facts, script.words(facts, variables))
    exported = dict(each.split("=", 1) for each in script.exported(variables))
    tiles = {"tiles an image": f"{sitting.question.max_tiles} at most" if sitting.question.max_tiles else "the model's"}
    return {
        "model": model(sitting),
        **tiles,
        **exported,
        **{key.replace("_", "-"): each for key, each in found.items()},
    }


def differing(made: Compared) -> dict[str, tuple[str, str]]:
    """The settings in which A and B differ."""
    if not made.b:
        return {}
    a, b = settings(made.a), settings(made.b)
    names = [name for name in {**a, **b} if a.get(name, "") != b.get(name, "")]
    return {name: (a.get(name, ""), b.get(name, "")) for name in names}
