"""``recommend compare``: the advisers' configurations and ours, setting by setting."""

from __future__ import annotations

from typing import Any

import click

from recommender import api
from recommender.commands.short_help import ShortCommand, exclude
from recommender.options import build_request, question_options

HELP = """\b
Examples:
  recommend compare --gpu A100-80G --load single --short
  recommend compare --gpu L4 --load 16 --image 1280x720 --lmdeploy 0.9.2
  recommend compare --gpu A100-80G --json

\b
Exit codes: 0 done; 1 nothing fits the request, only the advisers are shown;
2 the command line is wrong.
"""


@click.command("compare", cls=ShortCommand, epilog=HELP)
@question_options
@click.option("--short", is_flag=True, help="The most important, on about one screen.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(short: bool, as_json: bool, **options: Any) -> None:
    """Compare our configuration with those of five chatbots and three guides, setting by setting."""
    exclude(click.get_current_context(), "--short", "--json")
    from recommender.common import terminal
    from recommender.lookup import comparison_text, short_text

    comparison = api.compare(build_request(options))
    if as_json:
        terminal.show_json(comparison_text.json_form(comparison))
    else:
        terminal.show(short_text.compare(comparison) if short else comparison_text.lines(comparison))
    if comparison.nothing:
        raise comparison.nothing
