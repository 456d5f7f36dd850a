"""Arguments, exit codes and streams; nothing else.

Exit codes: 0 done, 1 nothing fits, 2 the request is wrong, 3 this machine lacks
something (a GPU for ``--gpu auto``, a writable file), 4 the knowledge is broken.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

import click

from recommender.arguments import request_options
from recommender.fleet import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from recommender.fleet.layout import Layout

NOTHING_FITS, BAD_REQUEST, MACHINE, KNOWLEDGE = 1, 2, 3, 4

EXAMPLES = """\b
Examples:
  recommend --gpu A100-80G --load single > serve.sh
  recommend --gpu L4 --load 16 --image 1280x720 --goal throughput -o serve.sh
  recommend --gpu H100:2 --model internvl3-38b --p99 2000 --format json
  recommend --gpu A100-80G --vram 24 --kv int8 --lmdeploy 0.9.2
  recommend --gpu auto --follow gemini > gemini.sh
  recommend --gpu A100-80G --format client > client.py

\b
The artefact goes to stdout and the report, with a reason and a source beside
every option, to stderr. For completion by the Tab key:
  eval "$(_RECOMMEND_COMPLETE=bash_source recommend)"
"""


def _estimate() -> click.Command:
    from recommender.estimate import estimate

    return estimate


def _compare() -> click.Command:
    from recommender.compare import compare

    return compare


def _plan() -> click.Command:
    from recommender.fleet.command import plan

    return plan


def _explain() -> click.Command:
    from recommender.explaining import explain

    return explain


def _diff() -> click.Command:
    from recommender.diff import diff

    return diff


def _list() -> click.Command:
    from recommender.listing import listing

    return listing


def _check() -> click.Command:
    from recommender.checking import check

    return check


def _smoke() -> click.Command:
    from recommender.smoke.command import smoke

    return smoke


def _review() -> click.Command:
    from recommender.review.command import review

    return review


def _campaign() -> click.Command:
    from recommender.smoke.campaign import campaign

    return campaign


def _bench_prompt() -> click.Command:
    from recommender.smoke.bench_prompt import bench_prompt

    return bench_prompt


def _knowledge() -> click.Command:
    from recommender.maintain import knowledge
    from recommender.smoke.refit import fit

    knowledge.add_command(fit)
    return knowledge


COMMANDS: dict[str, tuple[str, Callable[[], click.Command]]] = {
    "estimate": ("Predict memory and speed of a configuration that you give.", _estimate),
    "compare": ("Show the advisers' configurations beside ours, setting by setting.", _compare),
    "plan": ("Size a fleet: cards, hosts and servers that hold a rate of requests.", _plan),
    "explain": ("Tell everything known of one option.", _explain),
    "diff": ("Tell what changed for a launch script between two releases.", _diff),
    "list": ("List GPUs, models, options, advisers, claims, threads or releases.", _list),
    "review": ("Tell what is wrong with a launch script, and mend it.", _review),
    "check": ("Tell whether artefacts drifted: hand edits apart from newer advice.", _check),
    "smoke": ("Launch an artefact, prove its answers and measure it.", _smoke),
    "campaign": ("Run many smoke runs from a plan, and rank them.", _campaign),
    "bench-prompt": ("Ask two scripts about the same images: agreement, accuracy, speed.", _bench_prompt),
    "knowledge": ("Check, extract and verify the knowledge base.", _knowledge),
}


class Root(click.Group):
    """The main job, with the other commands loaded only when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names shown in the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name; imports it."""
        return COMMANDS[name][1]() if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (summary, _) in COMMANDS.items()])


@click.group(
    cls=Root,
    invoke_without_command=True,
    no_args_is_help=False,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@request_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["bash", "python", "client", "env", "docker", "json", "report", *FORMS]),
    default="bash",
    help="What to write. [bash]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to a file, all or nothing, instead of stdout; compose, systemd and k8s: to a folder.",
)
@click.option("-q", "--quiet", is_flag=True, help="No report on stderr.")
@click.version_option(package_name="lmdeploy-recommender", prog_name="recommend", message="%(prog)s %(version)s")
@click.pass_context
def root(ctx: click.Context, /, **options: Any) -> None:
    """Recommend an LMDeploy (TurboMind) configuration and write it as a launch script."""
    if ctx.invoked_subcommand is None:
        run(options)
        return
    early = [name for name in options if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    if early:
        option = next(each.opts[0] for each in ctx.command.params if each.name == early[0])
        raise click.UsageError(f"{option} belongs behind {ctx.invoked_subcommand}")


def run(options: dict[str, Any]) -> None:
    """The main job: request in, artefact and report out."""
    from recommender import render
    from recommender.arguments import answer

    found = answer(options)
    if options["form"] in FORMS:
        from recommender.fleet.layout import Layout

        folder(Layout(found), options["form"], options["output"] or "")
        return
    text = render.render(found, options["form"])
    if options["output"]:
        write(options["output"], text, executable=options["form"] in ("bash", "python", "client", "docker"))
    else:
        _stream(sys.stdout).write(text)
    if not options["quiet"] and options["form"] != "report":
        from recommender.report import report

        _show(report(found, full=False))


def folder(layout: Layout, form: str, name: str) -> None:
    """Writes a fleet's files into the folder of ``-o``, and names them."""
    from recommender.fleet import written

    try:
        paths = written.write(layout, form, name)
    except OSError as error:
        fail(f"-o: cannot write {error.filename or name}: {error.strerror or error}; name a writable folder", MACHINE)
    for path in paths:
        click.echo(path)


def write(name: str, text: str, *, executable: bool) -> None:
    """Writes the file of ``-o``, whole or not at all."""
    from pathlib import Path

    from recommender import files

    try:
        files.write(Path(name), text, executable=executable)
    except OSError as error:
        fail(
            f"-o: cannot write {_printable(name)}: {error.strerror or error}; name a file in a writable folder", MACHINE
        )


def _stream(stream: Any) -> IO[str]:
    """A standard stream in UTF-8, whatever the locale says."""
    stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return cast("IO[str]", stream)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _show(text: str) -> None:
    """The report: in colour on a terminal that wants it, else plain."""
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        from recommender.colour import show

        show(text)
    else:
        _stream(sys.stderr).write(text)


def fail(message: str, code: int) -> NoReturn:
    """One line on stderr and the exit code."""
    click.echo(f"recommend: {' '.join(message.split())}", err=True)
    sys.exit(code)


def main() -> None:
    """The ``recommend`` command. No traceback reaches the user."""
    gc.disable()  # a run of a quarter of a second ends before collecting pays: this saves a tenth of it
    try:
        root.main(prog_name="recommend", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        fail(_usage(error), BAD_REQUEST)
    except (click.Abort, KeyboardInterrupt):
        fail("stopped", 130)
    except BrokenPipeError:
        # The reader of a pipe left (head, say): nothing is wrong, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        _expected(error)


def _expected(error: Exception) -> NoReturn:
    """Known errors as one line each; anything else as one line that asks to report it."""
    from recommender.checkpoint import CheckpointError
    from recommender.detect import NoGpu
    from recommender.extracted import MaintenanceError
    from recommender.pipeline import NothingFits
    from recommender.request import RequestError
    from recommender.store import KnowledgeError, UnknownName

    if isinstance(error, (RequestError, UnknownName, CheckpointError)):
        fail(str(error), BAD_REQUEST)
    if isinstance(error, NothingFits):
        from recommender.report import nothing

        _show(nothing(error))
        sys.exit(NOTHING_FITS)
    if isinstance(error, (NoGpu, MaintenanceError)):
        fail(str(error), MACHINE)
    if isinstance(error, KnowledgeError):
        fail(str(error), KNOWLEDGE)
    if isinstance(error, OSError):
        fail(f"cannot read or write: {error.strerror or error}; see to that, then run it again", MACHINE)
    if os.environ.get("RECOMMEND_DEBUG"):
        raise error
    fail(f"a defect: {type(error).__name__}: {error}; please report it (RECOMMEND_DEBUG=1 shows where)", 70)


def _usage(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        near = f"; did you mean {', '.join(error.possibilities)}?" if error.possibilities else "; see recommend --help"
        return f"no such option {_printable(error.option_name)}{near}"
    command = getattr(getattr(error, "ctx", None), "command_path", "recommend")
    return f"{_printable(error.format_message()).rstrip('.')}; see {command} --help"


if __name__ == "__main__":
    main()
