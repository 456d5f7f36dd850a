"""``recommend diff``: what changes for a launch script between two LMDeploy releases."""

from __future__ import annotations

import click

from recommender.commands.short_help import ShortCommand, exclude
from recommender.options import names

HELP = """\b
Examples:
  recommend diff 0.9.2 0.18.0 --short
  recommend diff 0.18.0 0.12.3        going back to an older release
  recommend diff 0.9.2 0.18.0 --json
"""


@click.command("diff", cls=ShortCommand, epilog=HELP)
@click.argument("old", shell_complete=names("releases"))
@click.argument("new", shell_complete=names("releases"))
@click.option("--short", is_flag=True, help="The most important, on about one screen.")
@click.option("--json", "as_json", is_flag=True, help="Print the complete result as JSON.")
def command(old: str, new: str, short: bool, as_json: bool) -> None:
    """Show what changes for a launch script between two LMDeploy releases.

    OLD is the release that the script was written for, NEW the target release.
    """
    exclude(click.get_current_context(), "--short", "--json")
    from recommender.common import terminal
    from recommender.knowledge.load import load
    from recommender.knowledge.names import resolve_release
    from recommender.lookup import release_diff, release_diff_text, short_text

    store = load()
    diff = release_diff.diff(store, resolve_release(store, old), resolve_release(store, new))
    if as_json:
        terminal.show_json({"format": release_diff_text.FORMAT, **terminal.plain(diff)})
    else:
        terminal.show(short_text.diff(diff) if short else release_diff_text.lines(diff))
