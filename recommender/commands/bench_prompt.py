"""Define ``recommend bench-prompt``: the same images through two launch scripts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recommender.commands.short_help import ShortCommand
from recommender.common.errors import RequestError
from recommender.options import PATH, PATIENCE, QUESTION, SEED, TIME_LIMIT, WEIGHTS, WEIGHTS_DIR
from recommender.request.image_tokens import reads_limit
from recommender.smoke.console import fail, handle_signals, progress
from recommender.smoke.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recommender.choose.recommend import Recommendation
    from recommender.render.artefact import Artefact
    from recommender.smoke.bench.answers import Form
    from recommender.smoke.bench.ask import Question
    from recommender.smoke.bench.comparison import ScriptComparison
    from recommender.smoke.result import RunRequest

WHO = "recommend bench-prompt"
MOST_IN_FLIGHT = 64  # default cap: above it, the queue is measured
MOST_TILES = 64
LETTERS = 128  # tokens for an answer of random weights: theirs are single letters
HELP = """\b
The label file is CSV in UTF-8: a header line image,label (other columns are
ignored), or no header and these two columns. Name an image by its path inside
--images, or by its file name if that is unique. The label is compared with
the answer: for yes-or-no answers write true, 1 or yes, and false, 0 or no.
Images without a label count for agreement but not for accuracy.

\b
Examples:
  recommend bench-prompt --images photos --labels labels.csv fp16.sh int8.sh
  recommend bench-prompt --images photos --tiles 0,1 serve.sh serve.sh
  recommend bench-prompt --images photos --json a.sh b.sh > compared.json
  recommend bench-prompt --images photos --limit 20 --weights random a.sh b.sh

\b
Exit codes: 0 all answered; 2 the command line is wrong; 3, 10 to 26 and 28 as
in recommend smoke, for a launch or the commonest failure of single images;
130 stopped by Ctrl-C (143 by SIGTERM, 129 by SIGHUP).
"""


@click.command("bench-prompt", cls=ShortCommand, epilog=HELP)
@click.argument("first", metavar="A.sh", type=PATH)
@click.argument("second", metavar="B.sh", type=PATH)
@click.option(
    "--images", metavar="DIR", required=True, type=PATH, help="Folder of jpg and png files, searched recursively."
)
@click.option("--labels", metavar="FILE", type=PATH, help="CSV with the columns image and label.")
@click.option("--prompt", metavar="TEXT", help="Question about each image. [the request's]")
@click.option("--schema", metavar="FILE", type=PATH, help="JSON schema of the answers; none: any text. [the request's]")
@click.option("--tiles", metavar="A,B", help="Maximum tiles per image for A and B; 0: the model's. [as recommended]")
@click.option(
    "--max-tokens", metavar="N", type=click.IntRange(1, 65536), help="Maximum tokens of an answer. [as recommended]"
)
@click.option("--in-flight", metavar="N", type=click.IntRange(1, 256), help="Concurrency. [as recommended]")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Use only N images, spread evenly. [all]")
@click.option("--repeat/--no-repeat", default=True, help="Ask A twice to see how often it agrees with itself. [on]")
@QUESTION["gpu"].but(help="GPU for a script that recommend did not write, or auto.")
@QUESTION["model"].but(help="Model for such a script. [internvl3-8b-awq]")
@QUESTION["lmdeploy"].but(help="LMDeploy release for such a script. [0.18.0]")
@WEIGHTS.but(help="Use random weights, to try the procedure.")
@WEIGHTS_DIR
@SEED
@PATIENCE.but(help="As in recommend smoke. [120]")
@TIME_LIMIT.but(default=7200.0, help="Seconds the whole run may take. [7200]")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, with every answer.")
def command(first: Path, second: Path, **options: Any) -> None:
    """Ask two launch scripts about the same images: agreement, accuracy, speed.

    A.sh and B.sh, written by recommend or not, run one after the other on the
    same GPU, with the weights that they name (MODEL=... sets them for both).
    Everything that was started is stopped again.
    """
    tiles = _tiles(options["tiles"])
    pair = [_resolve(path, options) for path in (first, second)]
    try:
        with handle_signals(options["time_limit"], WHO), progress(WHO) as say:
            _compare(pair, tiles, options, say)
    except Failure as failure:
        fail(failure, WHO)


def _tiles(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,3})\s*,\s*(\d{1,3})\s*", text)
    if not match or max(int(group) for group in match.groups()) > MOST_TILES:
        raise RequestError(f"--tiles {text[:40]!r}: write two numbers up to {MOST_TILES}, for A and B, such as 12,1")
    return int(match[1]), int(match[2])


def _resolve(path: Path, options: Mapping[str, Any]) -> tuple[Artefact, Recommendation]:
    """Return a script and its recommendation; --gpu and --model describe foreign ones."""
    from recommender import options as arguments
    from recommender.choose import recommend
    from recommender.render import artefact

    script = artefact.read(path)
    if script.kind != "bash":
        raise RequestError(f"{path}: a pipeline.py starts no server; name a serve.sh")
    if script.head is not None:
        recommendation = artefact.remake(*artefact.parse_request(script, {}))
    elif options["gpu"]:
        request_options = {name: options[name] for name in ("gpu", "model", "lmdeploy")}
        recommendation = recommend.recommend(
            arguments.build_request({**request_options, "text_only": False, "calibrate": None})
        )
    else:
        raise RequestError(f"{path}: recommend did not write this (no line '# request: ...'); pass --gpu")
    if not recommendation.resolved.vision:
        raise RequestError(
            f"{path}: {recommendation.resolved.model.hub} reads text only; bench-prompt asks about images"
        )
    if not recommendation.resolved.images and not options["prompt"]:
        raise RequestError(f"{path}: its request has no image, so its prompt asks about none; pass --prompt")
    if any(options["tiles"] or ()) and not reads_limit(recommendation.resolved.vision):
        raise RequestError(
            f"--tiles: LMDeploy reads no max_dynamic_patch for {recommendation.resolved.model.hub}, so both would see "
            "the same tiles; leave it out, and compare images of two sizes by two runs"
        )
    return script, recommendation


def _compare(
    pair: list[tuple[Artefact, Recommendation]],
    tiles: tuple[int, int] | None,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> None:
    """Check everything checkable, run A, and B unless A's launch failed; print the comparison and exit."""
    from recommender.smoke.bench import answers, ask
    from recommender.smoke.bench.comparison import ScriptComparison
    from recommender.smoke.process import host

    host.check_packages()
    form = _answer_form(pair, options["schema"])
    say("reading the images")
    folder = ask.find_pictures(options["images"], options["limit"] or 0)
    labels = (
        answers.read_labels(options["labels"], options["images"], folder.names, form) if options["labels"] else None
    )
    requests = [_run_request(script, recommendation, options, say) for script, recommendation in pair]
    questions = _questions(requests, tiles, form, options)
    a = ask.run_script("A", requests[0], questions[0], folder.pictures, say)
    b = None if a.failure else ask.run_script("B", requests[1], questions[1], folder.pictures, say)
    compared = ScriptComparison(a, b, folder, str(options["images"]), labels)
    say("")
    _print_report(compared, as_json=options["as_json"])
    if compared.failure:
        raise compared.failure


def _answer_form(pair: list[tuple[Artefact, Recommendation]], schema_file: Path | None) -> Form:
    """Return the form of answers; enforce a schema only if both engines can."""
    from recommender.smoke.bench import answers
    from recommender.smoke.expected_load import follows_schema

    requested = pair[0][1].resolved.response_schema
    schema = answers.read_schema(schema_file, requested)
    return answers.Form(
        schema, schema is not None and all(follows_schema(recommendation) for _, recommendation in pair)
    )


def _run_request(
    script: Artefact, recommendation: Recommendation, options: Mapping[str, Any], say: Callable[[str], None]
) -> RunRequest:
    """Return what to launch on this machine; raise Failure if something is missing."""
    from recommender.render import artefact
    from recommender.smoke.process import host
    from recommender.smoke.result import Load, RunRequest

    environment, resolved = dict(os.environ), recommendation.resolved
    artefact.settings(resolved, script.words(resolved, environment))  # refuses values that are no numbers
    host.check_lmdeploy(resolved.release.id, environment)
    folder, checkpoint = host.find_model(script, recommendation, options, environment, say)
    load = Load(1, 0.0, resolved.images, resolved.image_width, resolved.image_height)  # its picture is in the checks
    return RunRequest(
        artefact=script,
        recommendation=recommendation,
        loads=(load,),
        environment=environment,
        set_by_smoke=host.launch_variables(folder, environment),
        checkpoint=checkpoint,
        patience_s=options["patience"],
    )


def _questions(
    requests: list[RunRequest], tiles: tuple[int, int] | None, form: Form, options: Mapping[str, Any]
) -> list[Question]:
    """Return the questions for A and B; they differ only in tiles, and A is asked twice."""
    from recommender.smoke.bench.ask import Question

    least = min(request.recommendation.resolved.concurrency for request in requests)
    tokens = max(request.recommendation.config.max_tokens for request in requests)
    if form.schema is not None and any(request.random_weights for request in requests):
        tokens = max(tokens, LETTERS)
    # The advised tile limit applies to our own scripts; foreign ones have their own clients.
    own_tiles = [
        request.recommendation.config.max_tiles if request.artefact.head is not None else 0 for request in requests
    ]
    return [
        Question(
            prompt=options["prompt"] or requests[0].recommendation.resolved.prompt,
            form=form,
            max_tiles=most,
            max_tokens=options["max_tokens"] or tokens,
            concurrency=options["in_flight"] or min(least, MOST_IN_FLIGHT),
            rounds=rounds,
        )
        for most, rounds in zip(tiles or own_tiles, (2 if options["repeat"] else 1, 1), strict=True)
    ]


def _print_report(compared: ScriptComparison, *, as_json: bool) -> None:
    from recommender.smoke.bench import json_output, report

    click.echo(json_output.to_json(compared) if as_json else report.text(compared), nl=False)
    for name, side in compared.sides.items():
        if side.result and not side.result.memory_back:
            click.echo(f"{WHO}: GPU memory was not freed after {name}; see nvidia-smi", err=True)
