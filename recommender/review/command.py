"""``recommend review``: arguments, streams and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from recommender.review.engine import Defect, Review
    from recommender.review.gather import Subject
    from recommender.review.source import Source

CLEAN, FOUND, USAGE, DEFECT = 0, 1, 2, 70
FORMATS = ("text", "json", "sarif", "github", "junit")
FAIL_ON = ("error", "warning", "info", "never")
FAILS: Mapping[str, frozenset[str]] = {
    "error": frozenset({"error"}),
    "warning": frozenset({"error", "warning"}),
    "info": frozenset({"error", "warning", "info"}),
    "never": frozenset(),
}
DEFAULT_FAIL_ON = "warning"
Command = TypeVar("Command", bound=Callable[..., Any])

EXAMPLES = """\b
FILE is a bash script, a Python file, a Dockerfile, a compose file, a
Kubernetes manifest, a systemd unit, or a folder with such files; - is a script
or a bare command line on stdin. Nothing of what is read is run. A unit's
EnvironmentFile= is read where it stands in the unit's own folder. A rule that
needs to know what nobody told stays silent, and the last lines say so.

\b
Examples:
  recommend review deploy.sh --gpu A100-80G
  recommend review deploy.sh --gpu A100-80G --load 16 --image 1280x720
  recommend review . --format github --fail-on error
  echo lmdeploy serve api_server internlm/internlm3-8b-instruct --tp 3 |
      recommend review - --gpu A100-80G:2
  recommend review deploy.sh --diff      what --fix would change
  recommend review deploy.sh --gpu A100-80G --load single --optimize --diff
  recommend review --explain LMD001

\b
A comment on the line, or above the command, keeps a finding quiet; above all
commands of the file it is for the whole file:
  # recommend: ignore LMD101 because our fork of LMDeploy has this option
[tool.recommend] of pyproject.toml, or .recommend.toml, may hold gpu, model,
load and the other answers, ignore = ["LMD101"] and fail-on.

\b
Exit codes: 0 clean; 1 findings as grave as --fail-on says, or graver; 2 the
command line is wrong or a file cannot be read.
"""

QUESTION = (
    click.option("--gpu", metavar="NAME[:COUNT]", help="The card and how many of it, or auto for this machine's."),
    click.option("--model", metavar="ID|FOLDER", help="The checkpoint, where the script does not tell."),
    click.option("--load", metavar="NAME|N", help="single, low, medium, high, or requests in flight."),
    click.option("--rps", metavar="R", help="Requests a second that must be reached."),
    click.option("--image", metavar="WxH[xN]", help="Images of one request."),
    click.option("--text-only", is_flag=True, help="Requests carry no image."),
    click.option("--prompt-tokens", metavar="N", help="Tokens of the request's text."),
    click.option("--output-tokens", metavar="N", help="Tokens of the answer."),
    click.option("--goal", metavar="GOAL", help="latency, throughput, memory or balanced: for --optimize."),
    click.option("--p99", metavar="MS", help="99 % of the answers within so many ms."),
    click.option("--ttft", metavar="MS", help="The first token within so many ms."),
    click.option("--vram", metavar="GIB", help="What is free for this server on a shared card."),
    click.option("--cpus", metavar="N", help="CPU cores of the host."),
    click.option("--kv", metavar="TYPE", help="KV cache precision for --optimize: auto, fp16, int8 or int4."),
    click.option("--lmdeploy", metavar="VERSION", help="The LMDeploy release, whatever the script names."),
)
OUTPUT = (
    click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="What to write. [text]"),
    click.option("--fail-on", type=click.Choice(FAIL_ON), help=f"From which findings to exit 1. [{DEFAULT_FAIL_ON}]"),
    click.option("--diff", "as_diff", is_flag=True, help="Show the safe repairs as a patch; change nothing."),
    click.option("--fix", "in_place", is_flag=True, help="Make the safe repairs in the files."),
    click.option("--optimize", is_flag=True, help="The values that recommend would choose; needs GPU, model and load."),
    click.option("--rules", "list_rules", is_flag=True, help="List the rules."),
    click.option("--explain", metavar="RULE", help="Print a rule's page."),
)


def _options(command: Command) -> Command:
    for option in reversed((*QUESTION, *OUTPUT)):
        command = option(command)
    return command


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.argument("paths", metavar="[FILE|FOLDER|-]...", nargs=-1)
@_options
def review(paths: tuple[str, ...], **options: Any) -> None:
    """Tell what is wrong with a launch script, with sources, and mend what can be mended."""
    if options["list_rules"] or options["explain"]:
        _about(options)
    if not paths:
        raise click.UsageError("name a script, a folder, or - for stdin")
    if options["as_diff"] and options["in_place"]:
        raise click.UsageError("--diff and --fix exclude each other; leave one out")
    if options["in_place"] and "-" in paths:
        raise click.UsageError("--fix needs a file; - can be shown with --diff")
    if (options["as_diff"] or (options["optimize"] and not options["in_place"])) and options["form"] != "text":
        raise click.UsageError(f"--diff and --optimize write a patch, not {options['form']}; leave --format out")
    sys.exit(_run(paths, options))


def _about(options: Mapping[str, Any]) -> NoReturn:
    """--rules and --explain."""
    from recommender import terminal
    from recommender.review import engine, listing

    if options["explain"]:
        try:
            terminal.show(listing.page(engine.rule(options["explain"])))
        except engine.UnknownRule as error:
            _say(str(error))
            sys.exit(USAGE)
    else:
        terminal.show(listing.table(engine.rules()))
    sys.exit(CLEAN)


def _run(paths: tuple[str, ...], options: Mapping[str, Any]) -> int:
    from recommender.review import context, gather, settings

    told = gather.answers(options)
    context.verify(told)
    failed: list[str] = []

    def complain(text: str) -> None:
        failed.append(text)
        _say(text)

    try:
        code = _reviewed(gather.subjects(paths, complain), told, options, complain)
    except settings.SettingsError as error:
        _say(str(error))
        return USAGE
    return USAGE if failed else code


def _reviewed(
    subjects: Iterable[Subject], told: Mapping[str, Any], options: Mapping[str, Any], complain: Callable[[str], None]
) -> int:
    """Reviews every file and writes what was asked for; the exit code."""
    from recommender.review import engine

    reviews: list[Review] = []
    fails: list[frozenset[str]] = []
    defects: list[Defect] = []
    for subject in subjects:
        known = subject.settings

        def look(source: Source, known: Any = known) -> Review:
            return engine.review(source.path, source.text, told, known.options, known.ignore)

        if options["as_diff"] or options["in_place"] or options["optimize"]:
            found = _mended(subject.source, look, options, complain)
        else:
            found = look(subject.source)
        reviews.append(found)
        defects += found.defects
        fails.append(FAILS[options["fail_on"] or known.fail_on or DEFAULT_FAIL_ON])
    _write(reviews, fails, options)
    for each in defects:
        _say(f"{each.path}: a defect in {each.rule}: {each.error}; please report it (RECOMMEND_DEBUG=1 shows where)")
    if any(each.severity in bad for found, bad in zip(reviews, fails, strict=True) for each in found.findings):
        return FOUND
    return DEFECT if defects else CLEAN


def _mended(
    source: Source, look: Callable[[Source], Review], options: Mapping[str, Any], complain: Callable[[str], None]
) -> Review:
    """Repairs a file, or shows how; the review that counts: of the file as it then stands."""
    from recommender.review import fix
    from recommender.review.source import Unreadable

    made = fix.mend(source, look)
    after, reasons = made.source, list[str]()
    if options["optimize"]:
        from recommender.review.optimize import optimize

        after, reasons = optimize(made.source, made.review, look)
    for each in made.applied:
        _say(f"{each.path}:{each.said.place.line}: {each.rule.id}: {each.said.fix.what if each.said.fix else ''}")
    for text in reasons:
        _say(f"{source.path}:{text}")
    for each in made.withdrawn:
        _say(f"{each.path}:{each.said.place.line}: {each.rule.id}: its repair did not mend it and was taken back")
    if not options["in_place"]:
        _stdout("".join(fix.unified(source, after)))
        return look(source)
    if after.whole != source.whole:
        try:
            fix.save(source, after)
        except (OSError, Unreadable) as error:
            complain(f"{source.path}: cannot be written: {getattr(error, 'strerror', None) or error}")
            return look(source)
    return look(after)


def _write(reviews: list[Review], fails: list[frozenset[str]], options: Mapping[str, Any]) -> None:
    """The report on stdout; beside a patch only its summary, on stderr."""
    from recommender.review import output

    form = options["form"]
    if options["as_diff"] or (options["optimize"] and not options["in_place"]):
        for line in output.summary(reviews):
            click.echo(line, err=True)
    elif form == "text" and not reviews:
        click.echo("recommend review: no script to review", err=True)
    elif form == "text":
        _stdout("".join(f"{line}\n" for line in output.text(reviews, _colour())))
    elif form == "sarif":
        from recommender.review.sarif import as_sarif

        _stdout(as_sarif(reviews))
    else:
        from recommender.review import machine

        if form == "junit":
            _stdout(machine.as_junit(reviews, fails))
        else:
            _stdout(machine.as_json(reviews) if form == "json" else machine.as_github(reviews))


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _stdout(text: str) -> None:
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    sys.stdout.write(text)


def _say(text: str) -> None:
    """One line on stderr."""
    from recommender.render import printable

    click.echo(f"recommend review: {printable(' '.join(text.split()))}", err=True)
