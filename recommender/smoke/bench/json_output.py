"""A comparison of two scripts as JSON, each image with its answers, and its JSON Schema."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from recommender.common.terminal import plain
from recommender.smoke.bench import statistics
from recommender.smoke.bench.ask import ImageAnswer, ScriptRun
from recommender.smoke.bench.comparison import MADE_UP, ScriptComparison, differing_settings, model, one_pass
from recommender.smoke.record import clean_message

FORMAT = 1


@dataclass(frozen=True)
class Asked:
    """The question, and the images: how many the folder has, were asked and have a label."""

    images: str
    found: int
    asked: int
    unreadable: dict[str, str]
    labels: int
    prompt: str
    schema: Any
    schema_held: bool
    in_flight: int
    max_tokens: int
    temperature: int


@dataclass(frozen=True)
class Pass(statistics.MeasuredSpeed):
    """One pass over the images: seconds, MiB, and the number of failures by cause."""

    window_s: float
    peak_mib: int
    failures: dict[str, int]


@dataclass(frozen=True)
class Side:
    """One script and its passes over the images."""

    script: str
    sha256: str
    model: str
    checkpoint: str
    lmdeploy: str
    max_tiles: int
    gpu: str
    driver: str
    startup_s: float
    idle_mib: int
    ready_mib: int
    passes: tuple[Pass, ...]
    outcome: str


@dataclass(frozen=True)
class Agreement:
    """Images that A and B, A twice, or only one of them answers alike."""

    agreement: statistics.Share | None
    itself: statistics.Share | None
    beyond: statistics.Pairs | None


@dataclass(frozen=True)
class Accuracy(statistics.Accuracy):
    """``difference``: B's accuracy minus A's."""

    difference: float = 0.0


@dataclass(frozen=True)
class Answer:
    """An answer: what was read from it, its text, and the ms that it took."""

    value: Any
    text: str
    ms: float


@dataclass(frozen=True)
class Failed(Answer):
    """An answer that failed, and why."""

    cause: str
    said: str


@dataclass(frozen=True)
class Picture:
    """An image with its label and its answers; null where it was not asked."""

    image: str
    sha256: str
    label: Any
    a: Answer | Failed | None
    a_again: Answer | Failed | None
    b: Answer | Failed | None


@dataclass(frozen=True)
class Published:
    """The JSON form of a comparison of scripts. ``format`` rises when a field changes its meaning.

    ``settings``: A's and B's value of each option in which they differ.
    """

    format: int
    outcome: str
    exit_code: int
    said: str
    synthetic: bool
    warning: str
    asked: Asked
    a: Side
    b: Side | None
    settings: dict[str, tuple[str, str]]
    agreement: Agreement
    accuracy: Accuracy | None
    different: tuple[str, ...]
    pictures: tuple[Picture, ...]


def published(compared: ScriptComparison) -> Published:
    """Return everything, ready to be written."""
    failure, contrast, accuracy = compared.failure, compared.contrast, compared.contrast.accuracy
    return Published(
        format=FORMAT,
        outcome=failure.kind.name if failure else "ok",
        exit_code=failure.kind.code if failure else 0,
        said=clean_message(failure.message) if failure else "",
        synthetic=compared.synthetic,
        warning=MADE_UP if compared.synthetic else "",
        asked=_asked(compared),
        a=_side(compared.a),
        b=_side(compared.b) if compared.b else None,
        settings=differing_settings(compared),
        agreement=Agreement(contrast.agreement, contrast.itself, contrast.beyond),
        accuracy=Accuracy(
            accuracy.a, accuracy.again, accuracy.b, accuracy.pairs, accuracy.low, accuracy.high, accuracy.difference
        )
        if accuracy
        else None,
        different=contrast.different,
        pictures=tuple(_picture(compared, picture.name, picture.sha256) for picture in compared.folder.pictures),
    )


def to_json(compared: ScriptComparison) -> str:
    """Return everything as JSON text in ASCII."""
    return json.dumps(plain(published(compared)), indent=2, ensure_ascii=True) + "\n"


def _asked(compared: ScriptComparison) -> Asked:
    question, folder = compared.a.question, compared.folder
    return Asked(
        images=compared.place,
        found=len(folder.names),
        asked=len(folder.pictures),
        unreadable=dict(folder.unreadable),
        labels=sum(picture.name in (compared.labels or {}) for picture in folder.pictures),
        prompt=question.prompt,
        schema=question.form.schema,
        schema_held=question.form.held,
        in_flight=question.concurrency,
        max_tokens=question.max_tokens,
        temperature=0,
    )


def _side(sitting: ScriptRun) -> Side:
    request, result, recommendation = sitting.request, sitting.result, sitting.request.recommendation
    return Side(
        script=request.artefact.name,
        sha256=request.artefact.sha256,
        model=model(sitting),
        checkpoint=request.checkpoint,
        lmdeploy=recommendation.resolved.release.id,
        max_tiles=sitting.question.max_tiles,
        gpu=f"{result.host.gpu_count} x {result.host.gpu_name}" if result else "",
        driver=result.host.driver if result else "",
        startup_s=round(result.startup_s, 1) if result else 0.0,
        idle_mib=result.idle_mib if result else 0,
        ready_mib=result.ready_mib if result else 0,
        passes=tuple(
            Pass(
                **asdict(statistics.measure_speed(one_round)),
                window_s=round(one_round.window_s, 3),
                peak_mib=one_round.peak_mib,
                failures={cause: count for cause, (count, _) in statistics.count_failures(one_round).items()},
            )
            for one_round in sitting.rounds
        ),
        outcome=sitting.failure.kind.name if sitting.failure else "ok",
    )


def _picture(compared: ScriptComparison, name: str, digest: str) -> Picture:
    rounds = (one_pass(compared.a, 0), one_pass(compared.a, 1), one_pass(compared.b, 0))
    answers = (
        _answer(answered.answers[name]) if answered and name in answered.answers else None for answered in rounds
    )
    return Picture(name, digest, (compared.labels or {}).get(name), *answers)


def _answer(answer: ImageAnswer) -> Answer:
    value, text, ms = answer.value, answer.text, round(answer.ms, 1)
    if answer.cause:
        return Failed(value, text, ms, answer.cause, clean_message(answer.message))
    return Answer(value, text, ms)
