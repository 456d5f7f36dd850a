"""A comparison of two scripts as JSON, each image with its answers, and its JSON Schema."""

from dataclasses import asdict, dataclass
from typing import Any

from recommender.common.terminal import json_text
from recommender.smoke.bench import statistics
from recommender.smoke.bench.ask import ImageAnswer, ScriptRun
from recommender.smoke.bench.comparison import MADE_UP, ScriptComparison, differing_settings, model, one_pass
from recommender.smoke.record import clean_message

FORMAT = 1


@dataclass(frozen=True)
class QuestionSet:
    """The question, and the images: how many the folder has, were asked and have a label."""

    images: str
    """The folder, as given."""
    found: int
    """Images in it."""
    asked: int
    """Images that were asked about."""
    unreadable: dict[str, str]
    """By image: why it could not be read."""
    labels: int
    """Asked images that have a label."""
    prompt: str
    """The question."""
    schema: Any
    """JSON schema of the answer; null: free text."""
    schema_held: bool
    """Answers were held to the schema."""
    in_flight: int
    """Concurrent requests."""
    max_tokens: int
    """Most output tokens."""
    temperature: int
    """Sampling temperature."""


@dataclass(frozen=True)
class Pass(statistics.MeasuredSpeed):
    """One pass over the images: seconds, MiB, and the number of failures by cause."""

    window_s: float
    """Seconds of the pass."""
    peak_mib: int
    """Most memory of the card in MiB."""
    failures: dict[str, int]
    """Failed requests by cause."""


@dataclass(frozen=True)
class Side:
    """One script and its passes over the images."""

    script: str
    """The script, as given."""
    sha256: str
    """Digest of the script."""
    model: str
    """Model that it serves."""
    checkpoint: str
    """What the weights were."""
    lmdeploy: str
    """LMDeploy release."""
    max_tiles: int
    """Most tiles of an image; 0: no limit."""
    gpu: str
    """Number and name of the GPUs."""
    driver: str
    """Version of the driver."""
    startup_s: float
    """Seconds until it answered."""
    idle_mib: int
    """Memory of the idle card in MiB."""
    ready_mib: int
    """Memory when ready in MiB."""
    passes: tuple[Pass, ...]
    """Passes over the images."""
    outcome: str
    """ok, or the failure's name."""


@dataclass(frozen=True)
class Agreement:
    """Images that A and B, A twice, or only one of them answers alike."""

    agreement: statistics.Share | None
    """Images that A and B answer alike."""
    itself: statistics.Share | None
    """Images that A answers alike twice."""
    beyond: statistics.Pairs | None
    """Images that only one of the two pairs answers alike."""


@dataclass(frozen=True)
class Accuracy(statistics.AccuracyComparison):
    """``difference``: B's accuracy minus A's."""

    difference: float = 0.0
    """B's accuracy minus A's."""


@dataclass(frozen=True)
class Answer:
    """An answer: what was read from it, its text, and the ms that it took."""

    value: Any
    """What was read from the answer."""
    text: str
    """The answer."""
    ms: float
    """Milliseconds that it took."""


@dataclass(frozen=True)
class Failed(Answer):
    """An answer that failed, and why."""

    cause: str
    """The failure's name."""
    said: str
    """The server's message."""


@dataclass(frozen=True)
class Picture:
    """An image with its label and its answers; null where it was not asked."""

    image: str
    """Name of the file."""
    sha256: str
    """Digest of the file."""
    label: Any
    """The right answer; null: none."""
    a: Answer | Failed | None
    """A's answer; null: not asked."""
    a_again: Answer | Failed | None
    """A's second answer; null: not asked."""
    b: Answer | Failed | None
    """B's answer; null: not asked."""


@dataclass(frozen=True)
class ScriptComparisonJson:
    """The JSON form of a comparison of scripts."""

    format: int
    outcome: str
    """ok, or the failure's name."""
    exit_code: int
    """Exit code of the command."""
    said: str
    """What failed; empty: nothing."""
    synthetic: bool
    """The weights were random."""
    warning: str
    """What that means; empty: nothing."""
    asked: QuestionSet
    """The question."""
    a: Side
    """The first script."""
    b: Side | None
    """The second script; null: it did not run."""
    settings: dict[str, tuple[str, str]]
    """A's and B's value of each option in which they differ."""
    agreement: Agreement
    """Whether both answer alike."""
    accuracy: Accuracy | None
    """Whether both are right; null: no labels."""
    different: tuple[str, ...]
    """Images that they answer differently."""
    pictures: tuple[Picture, ...]
    """Each image with its answers."""


def json_form(compared: ScriptComparison) -> ScriptComparisonJson:
    """Return everything, ready to be written."""
    failure, contrast, accuracy = compared.failure, compared.contrast, compared.contrast.accuracy
    return ScriptComparisonJson(
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
    return json_text(json_form(compared))


def _asked(compared: ScriptComparison) -> QuestionSet:
    question, folder = compared.a.question, compared.folder
    return QuestionSet(
        images=compared.place,
        found=len(folder.names),
        asked=len(folder.pictures),
        unreadable=dict(folder.unreadable),
        labels=sum(picture.name in (compared.labels or {}) for picture in folder.pictures),
        prompt=question.prompt,
        schema=question.form.schema,
        schema_held=question.form.enforced,
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
