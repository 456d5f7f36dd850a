"""An option that another LMDeploy command does not accept

## What it does
Reports words that `lmdeploy serve proxy`, `chat`, `lite`, `convert` and `check_env` reject in the target release:
unknown options, values that are not among the choices, values of switches, missing or extra words, and commands that
the release does not have.

## Why
Each command has a parser of its own, and it changes between releases. `convert` and `serve gradio` were removed in
0.10.0; `serve proxy --strategy` became `--routing-strategy` in 0.9.0; `--calib-dataset ptb` was removed in 0.12.0. The
parser stops before anything is loaded.

## Bad

    lmdeploy lite auto_awq --model internlm/internlm2_5-7b-chat --work-dir ./awq

## Good
Use the words of the release; `lmdeploy COMMAND --help` prints them:

    lmdeploy lite auto_awq internlm/internlm2_5-7b-chat --work-dir ./awq
"""

from collections.abc import Mapping

from recommender.common.pattern import pattern
from recommender.common.text import did_you_mean, shorten
from recommender.review import accepted_options, checks
from recommender.review.accepted_options import AcceptedOption
from recommender.review.rule import Case, Diagnostic, Diagnostics, declare
from recommender.review.script.model import GivenOption, Word

STOPS = "The parser stops at it, before anything is loaded."
PLACEHOLDER = pattern(r"\{.*\}|<.*>|\[.*\]")
CLI = "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli"
DEFINED = frozenset({"lite", "serve"})
"""Groups of commands with a file of their own in ``lmdeploy/cli/``."""
GRADIO = "claims/gradio-built-in"
HELP = frozenset({"-h", "--help", "-v", "--version"})


def _check(case: Case) -> Diagnostics:
    """Check options and words; cite the file that defines the command."""
    for diagnostic in _unfit(case):
        gradio = case.launch.starts == "api_server"
        group = case.launch.command.partition(" ")[0] or "serve"
        file = f"{CLI}/{group if group in DEFINED else 'cli'}.py"
        yield diagnostic._replace(sources=(GRADIO,) if gradio else (file,))


def _unfit(case: Case) -> Diagnostics:
    launch, release = case.launch, case.resolved.release.id
    if any(option.name in HELP for option in launch.options):
        return
    other = f"serve {launch.instead.value}" if launch.instead is not None and launch.starts == "api_server" else ""
    if other in accepted_options.commands(release):
        for option in launch.options:  # gradio's, while it existed
            yield from _option(case, other, option, accepted_options.parser(release, other))
        return
    if launch.starts not in ("proxy", "tool") or launch.command.startswith("import "):
        return
    command = launch.command or f"serve {launch.starts}"
    if command not in accepted_options.commands(release):
        if launch.instead is not None and launch.instead.value and not launch.instead.value.startswith("-"):
            known = did_you_mean(command, sorted(accepted_options.commands(release)))
            message = f"{checks.release(case)} has no command lmdeploy {shorten(command)}{known}"
            yield Diagnostic(launch.instead.place, _ended(message), "The command ends with an error.")
        return
    options = accepted_options.parser(release, command)
    for option in launch.options:
        yield from _option(case, command, option, options)
    count, given = accepted_options.positionals(release, command), launch.extra
    for word in given[count:]:
        if word.value is not None:
            yield Diagnostic(word.place, f"lmdeploy {command} takes no word {shorten(word.value)} here.", STOPS)
    if len(given) < count and not launch.unsure:
        yield Diagnostic(launch.place, f"lmdeploy {command} needs a model before its options.", STOPS)


def _option(case: Case, command: str, option: GivenOption, options: Mapping[str, AcceptedOption]) -> Diagnostics:
    release = case.resolved.release.id
    if not accepted_options.accepts(release, option.name, command):
        near = did_you_mean(option.name.replace("_", "-"), sorted(name for name in options if name))
        message = f"lmdeploy {command} of {checks.release(case)} has no option {shorten(option.name)}{near}"
        yield Diagnostic(option.place, _ended(message), STOPS)
        return
    spelled = option.name.replace("_", "-").partition(".")[0]
    accepted = options.get(spelled) or next(
        (values for name, values in options.items() if name.startswith(spelled)), None
    )
    if accepted is None:  # the help
        return
    if accepted.type == "bool":
        for word in option.values[:1]:
            yield from _stray(option, word)
        return
    if not option.values and accepted.nargs in ("", "+"):
        yield Diagnostic(option.place, f"{option.name} needs a value.", STOPS)
    for word in option.values if accepted.nargs else option.values[:1]:
        if word.value is not None and not _is_accepted(word.value, accepted):
            wanted = ", ".join(accepted.choices) or {"int": "a whole number", "float": "a number"}[accepted.type]
            yield Diagnostic(
                word.literal or word.place,
                f"{option.name} of lmdeploy {command} accepts {wanted} in {checks.release(case)}, not"
                f" {shorten(word.value)}.",
                STOPS,
            )


def _ended(message: str) -> str:
    return message if message.endswith("?") else f"{message}."


def _stray(option: GivenOption, word: Word) -> Diagnostics:
    yield Diagnostic(
        word.place, f"{option.name} is a switch and takes no value: {shorten(word.raw)} is left over.", STOPS
    )


def _is_accepted(text: str, accepted: AcceptedOption) -> bool:
    if PLACEHOLDER.fullmatch(text):
        return True
    if accepted.choices:
        return text.lower() in accepted.choices if accepted.type == "int" else text in accepted.choices
    try:
        {"int": int, "float": float}.get(accepted.type, str)(text)
    except ValueError:
        return False
    return True


rule = declare(
    __name__,
    "error",
    check=_check,
    tools=True,
    sources=(f"{CLI}/lite.py", GRADIO),
)
