"""``recommend bench-prompt``: the same pictures through two launch scripts, on the user's own weights."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recommender.request import RequestError
from recommender.smoke.console import fail, progress, signals
from recommender.smoke.failures import Failure
from recommender.tokens import reads_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recommender.pipeline import Recommendation
    from recommender.smoke.answers import Form
    from recommender.smoke.ask import Folder, Question
    from recommender.smoke.compared import Compared
    from recommender.smoke.launch import Artefact
    from recommender.smoke.taken import Asked

WHO = "recommend bench-prompt"
FILE = click.Path(path_type=Path)
MOST_IN_FLIGHT = 64  # unless more is asked for: past that it is the queue that is measured
MOST_TILES = 64
LETTERS = 128  # tokens that random weights need for an answer: theirs are single letters
HELP = """\b
The label file is CSV in UTF-8: a header line image,label (other columns are
passed over), or no header and these two columns. The image is its path inside
--images, or its file name where only one has it. The label is compared with
the answer: for yes-or-no answers write true, 1 or yes, and false, 0 or no.
Images without a label count for the agreement and not for the accuracy.

\b
Examples:
  recommend bench-prompt --images photos --labels labels.csv fp16.sh int8.sh
  recommend bench-prompt --images photos --tiles 0,1 serve.sh serve.sh
  recommend bench-prompt --images photos --json a.sh b.sh > compared.json
  recommend bench-prompt --images photos --limit 20 --weights random a.sh b.sh

\b
Exit codes: 0 all answered; 2 the command line is wrong; 3 and 10 to 26 as of
recommend smoke, of a launch or of the commonest failure of single images;
130 stopped by Ctrl-C (143 by SIGTERM, 129 by SIGHUP).
"""


@click.command(epilog=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.argument("first", metavar="A.sh", type=FILE)
@click.argument("second", metavar="B.sh", type=FILE)
@click.option("--images", metavar="DIR", required=True, type=FILE, help="The jpg and png files in it and below.")
@click.option("--labels", metavar="FILE", type=FILE, help="CSV of image,label; see below.")
@click.option("--prompt", metavar="TEXT", help="What to ask of each image. [the request's]")
@click.option("--schema", metavar="FILE", type=FILE, help="JSON schema of the answers; none: any text. [the request's]")
@click.option("--tiles", metavar="A,B", help="Most tiles of an image for A and for B; 0: the model's. [as recommended]")
@click.option("--max-tokens", metavar="N", type=click.IntRange(1, 65536), help="Of an answer. [as recommended]")
@click.option("--in-flight", metavar="N", type=click.IntRange(1, 256), help="Requests at a time. [as recommended]")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Ask only N images, spread evenly. [all]")
@click.option("--repeat/--no-repeat", default=True, help="Ask A twice, to see how often it agrees with itself. [on]")
@click.option("--gpu", metavar="NAME[:COUNT]", help="For a script of another hand: the card, or auto.")
@click.option("--model", metavar="ID|FOLDER", help="For a script of another hand. [internvl3-8b-awq]")
@click.option("--lmdeploy", metavar="VERSION", help="For a script of another hand. [0.18.0]")
@click.option("--weights", metavar="random", type=click.Choice(["random"]), help="Random weights: try the mechanics.")
@click.option("--weights-dir", metavar="DIR", type=FILE, help="Where to keep such checkpoints. [the user's cache]")
@click.option("--seed", metavar="N", default=0, type=click.IntRange(0, 2**31), help="Of the random weights. [0]")
@click.option("--patience", metavar="S", default=120.0, type=click.FloatRange(1, 3600), help="As of smoke. [120]")
@click.option(
    "--time-limit", metavar="S", default=7200.0, type=click.FloatRange(1, 86400), help="For all of it. [7200]"
)
@click.option("--json", "as_json", is_flag=True, help="All of it as JSON on stdout, with every answer.")
def bench_prompt(first: Path, second: Path, **options: Any) -> None:
    """Ask two launch scripts about the same images: agreement, accuracy, speed.

    A.sh and B.sh are started one after the other on the same card, scripts that
    recommend wrote or others, with the weights that they name (MODEL=... names
    them for both). Everything that was started is stopped again.
    """
    tiles = _tiles(options["tiles"])
    pair = [_resolved(path, options) for path in (first, second)]
    try:
        with signals(options["time_limit"], WHO), progress(WHO) as say:
            _compare(pair, tiles, options, say)
    except Failure as failure:
        fail(failure, WHO)


def _tiles(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,3})\s*,\s*(\d{1,3})\s*", text)
    if not match or max(int(each) for each in match.groups()) > MOST_TILES:
        raise RequestError(f"--tiles {text[:40]!r}: write two numbers up to {MOST_TILES}, for A and B, such as 12,1")
    return int(match[1]), int(match[2])


def _resolved(path: Path, options: Mapping[str, Any]) -> tuple[Artefact, Recommendation]:
    """A script and the recommendation behind it; for one of another hand, of the card and the model given."""
    from recommender import arguments, pipeline
    from recommender.smoke import launch

    script = launch.read(path)
    if script.kind != "bash":
        raise RequestError(f"{path}: a pipeline.py serves nobody; name a serve.sh")
    if script.head is not None:
        found = launch.remake(*launch.asked(script, {}))
    elif options["gpu"]:
        given = {name: options[name] for name in ("gpu", "model", "lmdeploy")}
        found = pipeline.recommend(arguments.asked({**given, "text_only": False, "calibrate": None}))
    else:
        raise RequestError(f"{path}: recommend did not write this (no line '# request: ...'); say --gpu for it")
    if not found.facts.vision:
        raise RequestError(f"{path}: {found.facts.model.hub} reads text only; bench-prompt asks about images")
    if not found.facts.images and not options["prompt"]:
        raise RequestError(f"{path}: its request has no image, so its prompt asks about none; say --prompt")
    if any(options["tiles"] or ()) and not reads_limit(found.facts.vision):
        raise RequestError(
            f"--tiles: LMDeploy reads no max_dynamic_patch for {found.facts.model.hub}, so both would see the same "
            "tiles; leave it out, and compare images of two sizes by two runs"
        )
    return script, found


def _compare(
    pair: list[tuple[Artefact, Recommendation]],
    tiles: tuple[int, int] | None,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> None:
    """Checks all that can be checked before a launch, asks A and then B, and tells; ends with the exit code."""
    from recommender.smoke import answers, ask, host

    host.packages()
    form = _form(pair, options["schema"])
    say("reading the images")
    folder = ask.pictures(options["images"], options["limit"] or 0)
    labels = answers.labels(options["labels"], options["images"], folder.names, form) if options["labels"] else None
    both = [_asked(script, found, options, say) for script, found in pair]
    questions = _questions(both, tiles, form, options)
    made = _sit(both, questions, folder, options, labels, say)
    say("")
    _tell(made, as_json=options["as_json"])
    if made.failure:
        raise made.failure


def _form(pair: list[tuple[Artefact, Recommendation]], given: Path | None) -> Form:
    """What answers look like; a schema is enforced where both engines can."""
    from recommender.smoke import answers
    from recommender.smoke.forecast import follows_schema

    wanted = pair[0][1].facts.response_schema
    schema = answers.schema(given, wanted)
    return answers.Form(schema, schema is not None and all(follows_schema(found) for _, found in pair))


def _asked(script: Artefact, found: Recommendation, options: Mapping[str, Any], say: Callable[[str], None]) -> Asked:
    """What to launch, on this machine. Raises Failure for what is missing."""
    from recommender.smoke import host, launch
    from recommender.smoke.taken import Asked, Load

    environment, facts = dict(os.environ), found.facts
    launch.settings(facts, script.words(facts, environment))  # refuses what is no number
    host.lmdeploy(facts.release.id, environment)
    folder, checkpoint = host.model(script, found, options, environment, say)
    return Asked(
        artefact=script,
        found=found,
        loads=(Load(1, 0.0, facts.images, facts.image_width, facts.image_height),),  # its picture is in the checks
        environment=environment,
        set_by_smoke=host.variables(folder, environment),
        checkpoint=checkpoint,
        patience_s=options["patience"],
    )


def _questions(
    both: list[Asked], tiles: tuple[int, int] | None, form: Form, options: Mapping[str, Any]
) -> list[Question]:
    """What A and B are asked: the same, but for the tiles; A is asked twice unless that is not wanted."""
    from recommender.smoke.ask import Question

    least = min(each.found.facts.concurrency for each in both)
    tokens = max(each.found.config.max_tokens for each in both)
    if form.schema is not None and any(each.checkpoint.startswith("random") for each in both):
        tokens = max(tokens, LETTERS)
    # What recommend advises for tiles belongs to its own scripts: a script of another hand has clients of its own.
    own = [each.found.config.max_tiles if each.artefact.head is not None else 0 for each in both]
    return [
        Question(
            prompt=options["prompt"] or both[0].found.facts.prompt,
            form=form,
            max_tiles=most,
            max_tokens=options["max_tokens"] or tokens,
            in_flight=options["in_flight"] or min(least, MOST_IN_FLIGHT),
            rounds=rounds,
        )
        for most, rounds in zip(tiles or own, (2 if options["repeat"] else 1, 1), strict=True)
    ]


def _sit(
    both: list[Asked],
    questions: list[Question],
    folder: Folder,
    options: Mapping[str, Any],
    labels: Mapping[str, Any] | None,
    say: Callable[[str], None],
) -> Compared:
    """A and then B; where A's launch failed, B is not started: there would be nothing to compare with."""
    from recommender.smoke.ask import sit
    from recommender.smoke.compared import Compared

    a = sit("A", both[0], questions[0], folder.pictures, say)
    b = None if a.failure else sit("B", both[1], questions[1], folder.pictures, say)
    return Compared(a, b, folder, str(options["images"]), labels)


def _tell(made: Compared, *, as_json: bool) -> None:
    from recommender.smoke import compared, verdict

    click.echo(compared.to_json(made) if as_json else verdict.text(made), nl=False)
    for name, each in made.sides.items():
        if each.taken and not each.taken.memory_back:
            click.echo(f"{WHO}: the card's memory did not come back after {name}: see nvidia-smi", err=True)
