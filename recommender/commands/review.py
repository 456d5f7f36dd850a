"""Run ``recommend review``: arguments, streams and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from recommender.commands.short_help import ShortCommand
from recommender.common.errors import UnknownRule
from recommender.common.exit_codes import BAD_REQUEST, CLEAN, DEFECT, NEGATIVE
from recommender.options import QUESTION as REQUEST_OPTIONS
from recommender.options import files

if TYPE_CHECKING:
    from recommender.review.engine import Defect, Review
    from recommender.review.inputs import Subject
    from recommender.review.rule import Rule
    from recommender.review.script.source import Source

FORMATS = ("text", "concise", "json", "sarif", "github", "junit")
TEXTS = ("text", "concise")
FAIL_ON = ("error", "warning", "info", "never")
FAILS: Mapping[str, frozenset[str]] = {
    "error": frozenset({"error"}),
    "warning": frozenset({"error", "warning"}),
    "info": frozenset({"error", "warning", "info"}),
    "never": frozenset(),
}
DEFAULT_FAIL_ON = "warning"
JUDGING_S = 1.7
"""Processor time for one file, its repairs included: with the start and the output, no call takes 2.5 s."""
Command = TypeVar("Command", bound=Callable[..., Any])

EXAMPLES = """\b
FILE is a script (bash, Python), a Dockerfile, a compose file, a Kubernetes
manifest, a systemd unit, a workflow or job in YAML, JSON or HCL, a Makefile,
Markdown, or a folder with such files; - is a script or a bare command line on
stdin. Nothing that is read is run. Environment files are read if they are
beside FILE. What cannot be followed is a warning (LMD002). A rule that needs
an unknown GPU, model or load is skipped; the last lines list such rules.

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
A comment on the line or above the command ignores a finding; above all
commands it applies to the whole file:
  # recommend: ignore LMD101 because our fork of LMDeploy has this option
--fix rewrites a file atomically; owner, mode and access control list stay, a
symbolic link keeps pointing, and a file with hard links is refused.
[tool.recommend] of pyproject.toml, or .recommend.toml, can set gpu, model,
load and the other request options, ignore = ["LMD101"] and fail-on.

\b
Exit codes: 0 no findings of --fail-on's severity or above; 1 such findings;
2 the command line is wrong, or a file cannot be read or judged; one line says
which, and the others are judged.
"""

NEEDED = {
    "gpu": "GPU and count, or auto for this machine's.",
    "model": "The checkpoint, if the script does not name it.",
    "load": "Concurrent requests, or single, low, medium or high.",
    "image": "Images of one request.",
    "goal": "latency, throughput, memory or balanced: for --optimize.",
    "cpus": "CPU cores of the host.",
    "kv": "KV cache precision for --optimize: auto, fp16, int8 or int4.",
    "lmdeploy": "LMDeploy release; overrides the script.",
}
"""Help of the options of a request that have no default here."""
UNREAD = ("calibrate", "trace", "prompt", "schema", "revision", "backend")
"""Options of ``recommend`` that no rule reads: the script names its engine and commit, the others are for runs."""
QUESTION = {
    name: option.but(help=NEEDED.get(name, option.settings["help"]))
    for name, option in REQUEST_OPTIONS.items()
    if name not in UNREAD
}
"""The options that describe a request: those of ``recommend`` that a review reads."""
OUTPUT = (
    click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="Output format. [text]"),
    click.option("--severity", type=click.Choice(FAIL_ON[:3]), help="Show findings from this severity on. [warning]"),
    click.option("--select", metavar="RULES", help="Run only these rules: LMD206,LMD3 or names."),
    click.option("--ignore", metavar="RULES", help="Do not run these rules."),
    click.option("--fail-on", type=click.Choice(FAIL_ON), help=f"Exit 1 from this severity on. [{DEFAULT_FAIL_ON}]"),
    click.option("--require-launch", is_flag=True, help="Exit 1 for a file, or folder, that starts nothing."),
    click.option("--diff", "as_diff", is_flag=True, help="Show safe repairs as a patch; change nothing."),
    click.option("--fix", "in_place", is_flag=True, help="Apply safe repairs to the files."),
    click.option("--unsafe", is_flag=True, help="With --fix or --diff: also let the server run the model's code."),
    click.option("--optimize", is_flag=True, help="Use recommended values; needs GPU, model and load."),
    click.option("--rules", "list_rules", is_flag=True, help="List the rules."),
    click.option("--explain", metavar="RULE", help="Print a rule's page."),
)


def _options(command: Command) -> Command:
    decorators: list[Callable[[Any], Any]] = [*QUESTION.values(), *OUTPUT]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.command("review", cls=ShortCommand, epilog=EXAMPLES)
@click.argument("paths", metavar="[FILE|FOLDER|-]...", nargs=-1, shell_complete=files)
@_options
def command(paths: tuple[str, ...], **options: Any) -> None:
    """Find problems in a launch script, cite the sources, and repair what is safe."""
    if options["list_rules"] or options["explain"]:
        _show_rules(options)
    if not paths:
        raise click.UsageError("no file given; name a script, a folder, or - for stdin")
    if options["as_diff"] and options["in_place"]:
        raise click.UsageError("--diff and --fix exclude each other; leave one out")
    if options["in_place"] and "-" in paths:
        raise click.UsageError("--fix cannot change stdin; name a file, or use --diff")
    if options["unsafe"] and not (options["in_place"] or options["as_diff"]):
        raise click.UsageError("--unsafe only works with --fix or --diff; add one of them")
    if (options["as_diff"] or (options["optimize"] and not options["in_place"])) and options["form"] not in TEXTS:
        raise click.UsageError(f"--diff and --optimize write a patch, not {options['form']}; leave --format out")
    sys.exit(_run(paths, options))


def _show_rules(options: Mapping[str, Any]) -> NoReturn:
    """Print the rules (--rules) or a rule's page (--explain) and exit."""
    from recommender.common import terminal
    from recommender.review import engine
    from recommender.review.output import rule_list

    if options["explain"]:
        try:
            terminal.show(rule_list.page(engine.rule(options["explain"])))
        except UnknownRule as error:
            _say(str(error))
            sys.exit(BAD_REQUEST)
    else:
        terminal.show(rule_list.table(engine.rules()))
    sys.exit(CLEAN)


def _run(paths: tuple[str, ...], options: Mapping[str, Any]) -> int:
    from recommender.review import context, inputs

    answers = inputs.answers(options)
    context.verify(answers)
    failed: list[str] = []

    def complain(text: str) -> None:
        failed.append(text)
        _say(text)

    subjects = list(inputs.subjects(paths, complain))
    if not subjects and not failed and options["form"] in TEXTS:
        _say("no script to review")
    code = _review_files(subjects, answers, options, complain)
    return BAD_REQUEST if failed else code


def _review_files(
    subjects: Iterable[Subject], answers: Mapping[str, Any], options: Mapping[str, Any], complain: Callable[[str], None]
) -> int:
    """Review every file, write the report or patches, return the exit code."""
    from recommender.common.cpu_budget import cpu_budget
    from recommender.common.errors import UserError

    reviews: list[Review] = []
    fails: list[frozenset[str]] = []
    defects: list[Defect] = []
    folders: list[str] = []
    choice = _choice(options)
    for subject in subjects:
        known = subject.settings
        look = _looking(subject, answers, choice)

        try:
            if options["as_diff"] or options["in_place"] or options["optimize"]:
                reviewed = _repair(subject.source, look, options, complain)
            else:
                with cpu_budget(JUDGING_S):
                    reviewed = _offering(subject.source, look)
        except UserError as error:  # the others are still judged
            complain(f"{subject.source.path}: {error}")
            continue
        reviews.append(reviewed)
        defects += reviewed.defects
        fails.append(FAILS[options["fail_on"] or known.fail_on or DEFAULT_FAIL_ON])
        folders.append("" if subject.explicit else subject.folder)
    _write(reviews, fails, options)
    for defect in defects:
        where = f"{defect.path}: internal error in {defect.rule}"
        _say(f"{where}: {defect.error}; please report it (RECOMMEND_DEBUG=1 shows where)")
    judged = zip(reviews, fails, strict=True)
    lacking = _without_launch(reviews, folders) if options["require_launch"] else []
    for name in lacking:
        _say(f"{name}: no launch of LMDeploy (--require-launch)")
    if lacking or any(finding.severity in failing for reviewed, failing in judged for finding in reviewed.findings):
        return NEGATIVE
    return DEFECT if defects else CLEAN


class RuleChoice(NamedTuple):
    """Which rules run, and which findings are shown."""

    among: tuple[Rule, ...] | None
    ignored: frozenset[str]
    severity: str
    always: frozenset[str]
    fail_on: str


def _choice(options: Mapping[str, Any]) -> RuleChoice:
    from recommender.review import engine

    selected = engine.rule_ids(options["select"]) if options["select"] else None
    among = None if selected is None else tuple(rule for rule in engine.rules() if rule.id in selected)
    ignored = engine.rule_ids(options["ignore"]) if options["ignore"] else frozenset()
    severity = options["severity"] or ("info" if options["fail_on"] == "info" else "")
    return RuleChoice(among, ignored, severity, selected or frozenset(), options["fail_on"] or "")


def _looking(subject: Subject, answers: Mapping[str, Any], choice: RuleChoice) -> Callable[[Source], Review]:
    """Return what reviews a file, or a repaired state of it."""
    from recommender.review import engine

    known = subject.settings
    severity = choice.severity or ("info" if not choice.fail_on and known.fail_on == "info" else "warning")
    among = engine.rules() if choice.among is None else choice.among
    running = tuple(rule for rule in among if engine.reaches(rule.severity, severity) or rule.id in choice.always)

    @lru_cache(maxsize=4)
    def look(source: Source) -> Review:
        ignored = known.ignore | choice.ignored
        windows = source.line_end != "\n"
        reviewed = engine.review(
            *(source.path, source.text, answers, known.options, ignored, running, subject.explicit, windows)
        )
        return reviewed.at_severity(severity, choice.always)

    return look


def _without_launch(reviews: Iterable[Review], folders: Iterable[str]) -> list[str]:
    """Return the named files without a launch, and the folders in which no file has one."""
    counts: dict[str, int] = {}
    for review, folder in zip(reviews, folders, strict=True):
        name = folder or review.path
        counts[name] = counts.get(name, 0) + len(review.script.launches)
    return [name for name, count in counts.items() if not count]


def _offering(source: Source, look: Callable[[Source], Review]) -> Review:
    """Return the review of a file, with the repairs that --fix would make."""
    review = look(source)
    if not any(finding.fix for finding in review.findings):
        return review
    from recommender.review import fix

    return fix.with_kept_repairs(source, review, look)


def _repair(
    source: Source, look: Callable[[Source], Review], options: Mapping[str, Any], complain: Callable[[str], None]
) -> Review:
    """Repair a file or print its patch; return the review of the file on disk."""
    from recommender.common.cpu_budget import cpu_budget
    from recommender.common.user_file import Unreadable
    from recommender.review import fix

    with cpu_budget(JUDGING_S):
        repaired = fix.repair(source, look, options["unsafe"])
        after, reasons = repaired.source, list[str]()
        if options["optimize"]:
            from recommender.review.optimize import optimize

            after, reasons = optimize(repaired.source, repaired.review, look)
        patch = "" if options["in_place"] else "".join(fix.patch(source, after))
        final = fix.without(look(after if options["in_place"] else source), repaired.withdrawn)
    for finding in repaired.applied:
        _say(
            f"{finding.path}:{finding.place.line}: {finding.rule.id}: {finding.fix.description if finding.fix else ''}"
        )
    for text in reasons:
        _say(f"{source.path}:{text}")
    for finding in repaired.withdrawn:
        _say(
            f"{finding.path}:{finding.place.line}: {finding.rule.id}: undone: its repair would not help, or cause more"
        )
    if not options["in_place"]:
        _stdout(patch)
        return final
    if after.whole != source.whole:
        try:
            fix.save(source, after)
        except (OSError, Unreadable) as error:
            complain(f"{source.path}: cannot be written: {getattr(error, 'strerror', None) or error}")
            return look(source)
    return final


def _write(reviews: list[Review], fails: list[frozenset[str]], options: Mapping[str, Any]) -> None:
    """Write the report to stdout; with a patch, only its summary to stderr."""
    from recommender.common.terminal import is_rich
    from recommender.review.output import text

    form = options["form"]
    if options["as_diff"] or (options["optimize"] and not options["in_place"]):
        for line in text.summary(reviews):
            click.echo(line, err=True)
    elif form in TEXTS:
        lines = text.text(reviews, is_rich(sys.stdout), form == "concise") if reviews else ()
        _stdout("".join(f"{line}\n" for line in lines))
    elif form == "sarif":
        from recommender.review.output.sarif import as_sarif

        _stdout(as_sarif(reviews))
    else:
        from recommender.review.output import json_output

        if form == "junit":
            _stdout(json_output.as_junit(reviews, fails))
        else:
            _stdout(json_output.as_json(reviews) if form == "json" else json_output.as_github(reviews))


def _stdout(text: str) -> None:
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    sys.stdout.write(text)


def _say(text: str) -> None:
    """Print one line to stderr."""
    from recommender.common.text import printable

    click.echo(f"recommend review: {printable(' '.join(text.split()))}", err=True)
