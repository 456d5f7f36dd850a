"""Compare two scripts' runs: outcome and differing settings."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recommender.render import artefact
from recommender.smoke.bench import statistics
from recommender.smoke.bench.ask import Folder, Round, ScriptRun
from recommender.smoke.failures import KINDS, Failure
from recommender.smoke.record import clean_message

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
        return any(side.request.random_weights for side in self.sides.values())

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
