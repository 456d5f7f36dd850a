"""``recommend estimate``: memory and speed of a configuration that the user gives."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from recommender.arguments import question_options
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.facts import Facts

SETS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
DEFECTS = 1

HELP = """\b
Behind -- stand options of lmdeploy serve api_server as on its command line, and
variables such as OMP_NUM_THREADS=4; max_dynamic_patch=1 is what clients ask for.
What is not given has LMDeploy's default.

\b
Examples:
  recommend estimate --gpu A100-80G -- --session-len 4096 --quant-policy 8
  recommend estimate --gpu L4 --load 16 --image 1280x720 -- \\
      --max-batch-size 16 --cache-max-entry-count 0.3 OMP_NUM_THREADS=4
  recommend estimate --gpu H100:2 --model internvl3-38b --json -- --tp 2

\b
Exit codes: 0 done; 1 it does not run as it is, and what speaks against it is
told; 2 the command line is wrong.
"""


@click.command(epilog=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@question_options
@click.option("--json", "as_json", is_flag=True, help="The estimate as JSON on stdout.")
@click.argument("words", metavar="-- OPTION...", nargs=-1, type=click.UNPROCESSED)
def estimate(words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Predict memory and speed of the configuration that you give, item by item."""
    from recommender import arguments, pipeline, report
    from recommender.publish import to_json
    from recommender.store import load

    request, store = arguments.asked(options), load()
    facts = pipeline.understand(request, store)
    found = pipeline.recommend_adviser(request, "defaults", settings(facts, words), store=store)
    click.echo(to_json(found) if as_json else report.estimate(found), nl=False)
    sys.exit(DEFECTS if any(each.severity == "reject" for each in found.findings) else 0)


def settings(facts: Facts, words: Sequence[str]) -> dict[str, str]:
    """Values by option, as on a server's command line. Raises RequestError or UnknownName with near matches."""
    from recommender.store import UnknownName, did_you_mean, shorten

    flags = {flag.option: flag.id for flag in facts.store.flags.values() if flag.id in facts.options}
    others = {each.name: each.id for kind in (facts.store.environment, facts.store.client) for each in kind.values()}
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            option = option.replace("_", "-")
            if option not in flags:
                raise UnknownName(f"LMDeploy {facts.release.id} has no {shorten(option)}{did_you_mean(option, flags)}")
            if facts.options[flags[option]].type == "bool":
                value = "true"
            elif not equals:
                if not rest or rest[0].startswith("--"):
                    raise RequestError(f"{option}: a value is needed behind it")
                value = rest.pop(0)
            found[flags[option]] = value
            continue
        match = SETS.fullmatch(word)
        if not match:
            raise RequestError(f"{shorten(word)}: write options as --name value and variables as NAME=VALUE")
        if match[1] not in others:
            raise UnknownName(f"unknown variable {shorten(match[1])}{did_you_mean(match[1], others)}")
        found[others[match[1]]] = match[2]
    return found
