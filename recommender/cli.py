"""The ``recommend`` command: arguments, exit codes and streams.

Exit codes: 0 done, 1 nothing fits, 2 the request is wrong, 3 this machine lacks
something (a GPU for ``--gpu auto``, a writable file or stdout), 4 the knowledge is
broken, 141 the reader of stdout left.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from typing import Any, NoReturn

import click

from recommender.commands.lazy import LazyGroup
from recommender.common import streams
from recommender.common.exit_codes import BAD_REQUEST, DEFECT, INTERRUPTED, MACHINE, fail
from recommender.common.text import as_typed, masked
from recommender.fleet import FORMS
from recommender.options import files, request_options

EXAMPLES = """\b
Examples:
  recommend --gpu A100-80G --load single > serve.sh
  recommend --gpu L4 --load 16 --image 1280x720 --goal throughput -o serve.sh
  recommend --gpu H100:2 --model internvl3-38b --p99 2000 --format json
  recommend --gpu A100-80G --vram 24 --kv int8 --lmdeploy 0.9.2
  recommend --gpu auto --follow gemini > gemini.sh
  recommend --gpu A100-80G --format client > client.py

\b
The generated file goes to stdout and a summary to stderr; --why gives the
reason and the source of each option, --format report everything. For Tab
completion:
  eval "$(_RECOMMEND_COMPLETE=bash_source recommend)"
"""


COMMANDS = {
    "estimate": "Predict memory and speed of a given configuration.",
    "compare": "Compare our settings with what chatbots and guides advise.",
    "plan": "Size a fleet: GPUs, hosts and servers for a request rate.",
    "explain": "Show everything known about one option.",
    "diff": "Show what changes for a launch script between two releases.",
    "list": "List GPUs, models, options, advisers, claims, releases.",
    "review": "Find problems in a launch script, and fix them.",
    "check": "Show your edits and newer advice since a file was made.",
    "smoke": "Launch a generated file, verify its answers and measure it.",
    "campaign": "Run many smoke runs from a plan, and rank them.",
    "bench-prompt": "Compare two scripts on images: agreement, accuracy, speed.",
    "schema": "Print the JSON schema of an output or a record.",
    "mcp": "Serve the recommender as tools to a chatbot (MCP).",
    "knowledge": "Check, extract and verify the knowledge base.",
}
"""Summary of each command; ``recommender.commands`` has a module of its name."""

INSTEAD = {
    "backend": "--backend",
    "cache_ratio": "--vram",
    "kv_bits": "--kv",
    "max_batch_size": "--load",
    "model_format": "--model",
    "revision": "--revision",
    "session_len": "--max-context",
    "tp": "--gpu NAME:COUNT",
}
"""By a setting: the option of ``recommend`` that steers it."""


@click.group(
    cls=LazyGroup,
    package="recommender.commands",
    summaries=COMMANDS,
    invoke_without_command=True,
    no_args_is_help=False,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@request_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["bash", "command", "python", "client", "env", "docker", "json", "report", *FORMS]),
    metavar="FORM",
    help="bash, python, client, docker, k8s and more. [bash] One of bash, command, python, client, env, docker, json, "
    "report, compose, systemd and k8s.",
)
@click.option(
    "--comments",
    type=click.Choice(["full", "short", "none"]),
    metavar="HOW",
    help="Comments of the bash script: short, full (reasons and sources) or none. [short]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=files,
    help="Write to a file instead of stdout (-). Atomically; for compose, systemd and k8s to a folder.",
)
@click.option("--force", is_flag=True, help="With -o: overwrite edits by hand, and files that have no seal.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-v", "--verbose", "--why", "verbose", is_flag=True, help="Reasons and sources, setting by setting.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr.")
@click.version_option(package_name="lmdeploy-recommender", prog_name="recommend", message="%(prog)s %(version)s")
@click.pass_context
def root(ctx: click.Context, /, **options: Any) -> None:
    """Choose the settings of an LMDeploy server and write a launch script."""
    if ctx.invoked_subcommand is None:
        from recommender.commands.recommend import run

        run(options)
        return
    early = [name for name in options if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    if early:
        option = next(parameter.opts[0] for parameter in ctx.command.params if parameter.name == early[0])
        raise click.UsageError(f"{option} belongs after {ctx.invoked_subcommand}")


def main() -> None:
    """Run the ``recommend`` command without showing a traceback."""
    gc.disable()  # a run of a quarter of a second ends before collecting pays: this saves a tenth of it
    with streams.tolerant():
        try:
            root.main(prog_name="recommend", standalone_mode=False)
        except click.exceptions.Exit as stop:
            sys.exit(stop.exit_code)
        except click.ClickException as error:
            fail(usage_text(error), BAD_REQUEST)
        except (click.Abort, KeyboardInterrupt):
            fail("stopped", INTERRUPTED)
        except Exception as error:
            _expected(error)


def _expected(error: Exception) -> NoReturn:
    """Print a known error as one line; anything else as one line that asks to report it."""
    from recommender.choose.recommend import NothingFits
    from recommender.common.errors import UserError

    if isinstance(error, NothingFits):
        from recommender.common import terminal
        from recommender.render.report import explain_no_fit

        terminal.write(_as_typed(explain_no_fit(error)), sys.stderr)
        sys.exit(error.exit_code)
    if isinstance(error, UserError):
        fail(_as_typed(str(error)), error.exit_code)
    if isinstance(error, OSError):
        fail(f"cannot read or write: {error.strerror or error}; fix this, then run it again", MACHINE)
    if os.environ.get("RECOMMEND_DEBUG"):
        raise error
    fail(f"internal error: {type(error).__name__}: {error}; please report it (RECOMMEND_DEBUG=1 shows where)", DEFECT)


def _as_typed(message: str) -> str:
    return as_typed(message, [each.opts for each in root.params], sys.argv[1:])


def usage_text(error: click.ClickException) -> str:
    """Return in one line what is wrong with a command line, and where its help is."""
    context = getattr(error, "ctx", None)
    more = f"; see {getattr(context, 'command_path', 'recommend')} --help"
    if isinstance(error, click.NoSuchOption):
        from difflib import get_close_matches

        near = get_close_matches(error.option_name, error.possibilities or (), 2, 0.75)
        if told := _explain_server_option(error.option_name, context.command if context else root):
            more = f"; {told}"
        elif typed := _single_dash(context):
            more = f"; did you mean -{typed}?"
        elif near:
            more = f"; did you mean {', '.join(near)}?"
        return f"no such option {masked(error.option_name)}{more}"
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and isinstance(error.ctx.command, click.Group):
        return f"name a command: {', '.join(error.ctx.command.list_commands(error.ctx))}{more}"
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Parameter):
        name = error.param.opts[0] if isinstance(error.param, click.Option) else error.param.human_readable_name
        choices = ", ".join(getattr(error.param.type, "choices", ()))
        if isinstance(error, click.MissingParameter):
            return f"{name} is missing{choices and f': one of {choices}'}{more}"
        value = re.match(r"'.*?'(?= is not one of)", error.message)
        if choices and value:
            return f"{name} {masked(value[0])}: use one of {choices}"
    text = masked(error.format_message()).rstrip(".")
    return text if text.endswith("?") else f"{text}{more}"


def _single_dash(context: click.Context | None) -> str:
    """Return the word of the command line that begins with one dash and is the name of a long option."""
    long = {name for each in (context.command if context else root).params for name in each.opts}
    return next((word for word in sys.argv[1:] if f"-{word.partition('=')[0]}" in long), "")


def _explain_server_option(name: str, command: click.Command) -> str:
    """Return what to do with an option of LMDeploy's server or of another server; empty if it is neither."""
    from recommender.knowledge.load import load
    from recommender.knowledge.other_servers import closest_option

    other = closest_option(name).partition(" ")[0]
    named = (other, name.replace("_", "-"))
    flag = next((flag for flag in load().flags.values() if flag.option in named), None)
    if flag is None:
        return ""
    if any(flag.option in parameter.opts for parameter in command.params):
        return f"did you mean {flag.option}?"
    theirs = f"LMDeploy's is {flag.option}" if other else "it is LMDeploy's own"
    asking = {parameter.name for parameter in command.params} >= {"gpu", "model"}
    if command.name == "estimate":
        return f"{theirs}: write it after --, as in recommend estimate --gpu L4 -- {flag.option} ..."
    if command.name == "review" or not (asking and flag.setting):
        return f"{theirs}: it belongs in the launch script; see recommend explain {flag.id}"
    steer = f"set here by {INSTEAD[flag.setting]}" if flag.setting in INSTEAD else "chosen here"
    return f"{theirs}, {steer}; for a value of yours: recommend estimate --gpu L4 -- {flag.option} ..."


if __name__ == "__main__":
    main()
