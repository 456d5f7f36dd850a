"""``recommend estimate``: predict memory and speed of a given configuration."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from recommender.commands.short_help import ShortCommand
from recommender.common.errors import RequestError, UnknownName
from recommender.common.exit_codes import CLEAN, NEGATIVE
from recommender.options import CHOICES, QUESTION, build_request, question_options

if TYPE_CHECKING:
    from recommender.request.resolved_request import ResolvedRequest

VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)

HELP = """\b
After -- write options of lmdeploy serve api_server as on its command line and
variables such as OMP_NUM_THREADS=4; max_dynamic_patch=1 is what clients send.
All else has LMDeploy's default.

\b
Examples:
  recommend estimate --gpu A100-80G -- --trust-remote-code --quant-policy 8
  recommend estimate --gpu L4 --load 16 --image 1280x720 -- \\
      --trust-remote-code --max-batch-size 16 OMP_NUM_THREADS=4
  recommend estimate --gpu H100:2 --model qwen3-32b --json -- --tp 2

\b
Exit codes: 0 done; 1 the configuration does not run or does not meet the
request, for the reasons shown; 2 the command line is wrong.
"""


@click.command("estimate", cls=ShortCommand, epilog=HELP)
@partial(question_options, names=QUESTION.keys() - set(CHOICES))
@click.option("--json", "as_json", is_flag=True, help="Print the estimate as JSON.")
@click.argument("words", metavar="-- OPTION...", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Predict memory and speed of a given configuration, item by item."""
    from recommender.choose import recommend
    from recommender.knowledge.load import load
    from recommender.render import report
    from recommender.render.json_output import to_json
    from recommender.request.resolved_request import resolve_with_checkpoint

    request, store = build_request(options), load()
    resolved = resolve_with_checkpoint(request, store)
    estimate = recommend.recommend_adviser(request, "defaults", settings(resolved, words), store=store)
    click.echo(to_json(estimate) if as_json else report.estimate(estimate), nl=False)
    sys.exit(NEGATIVE if any(finding.severity == "reject" for finding in estimate.findings) else CLEAN)


def settings(resolved: ResolvedRequest, words: Sequence[str]) -> dict[str, str]:
    """Return values by option id, as on a server's command line. Raises RequestError or UnknownName."""
    from recommender.common.text import did_you_mean, shorten
    from recommender.knowledge.other_servers import closest_option

    store = resolved.store
    flags = {flag.option: flag.id for flag in store.flags.values() if flag.id in resolved.options}
    variables = {record.name: record.id for kind in (store.environment, store.client) for record in kind.values()}
    values: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            match = VARIABLE.fullmatch(word)
            if not match:
                raise RequestError(f"{shorten(word)}: write options as --name value and variables as NAME=VALUE")
            if match[1] not in variables:
                near = did_you_mean(match[1], variables, "see recommend list flags")
                raise UnknownName(f"unknown variable {shorten(match[1])}{near}")
            values[variables[match[1]]] = match[2]
            continue
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        if option not in flags and (other := closest_option(option)):
            raise UnknownName(f"LMDeploy {resolved.release.id} has no {shorten(option)}; use {other}")
        if option not in flags:
            near = did_you_mean(option, flags, "see recommend list flags")
            raise UnknownName(f"LMDeploy {resolved.release.id} has no {shorten(option)}{near}")
        if resolved.options[flags[option]].type == "bool":
            if equals:
                raise RequestError(f"{option} is a switch; write it without a value")
            value = "true"
        elif not equals:
            if not rest or rest[0].startswith("--"):
                raise RequestError(f"{option}: a value is needed after it")
            value = rest.pop(0)
        values[flags[option]] = value
    return values
