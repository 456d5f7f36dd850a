"""``recommend list``: list and search records, one line each."""

from __future__ import annotations

import sys

import click

from recommender.commands.short_help import ShortCommand
from recommender.common.exit_codes import NEGATIVE

KINDS = ("gpus", "models", "flags", "advisers", "claims", "threads", "releases")
HELP = """\b
Examples:
  recommend list gpus h100
  recommend list models awq internvl
  recommend list claims refuted session
  recommend list threads memory --json

\b
Exit codes: 0 found; 1 nothing found, near matches are shown; 2 the command
line is wrong.
"""


@click.command("list", cls=ShortCommand, epilog=HELP)
@click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
@click.argument("words", metavar="[WORD]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the whole records as JSON.")
def command(kind: str, words: tuple[str, ...], as_json: bool) -> None:
    """List records, one line each. KIND is gpus, models, flags, advisers, claims, threads or releases.

    With WORDs, list only records whose names or texts contain all of them, in any case.
    """
    from recommender.common import terminal
    from recommender.knowledge.load import load
    from recommender.lookup import listing

    known = listing.searchable(load(), kind)
    records = listing.search(known, words)
    if as_json:
        terminal.show_json(listing.json_form(kind, words, records))
    elif records:
        width = terminal.columns(sys.stdout) if sys.stdout.isatty() else sys.maxsize
        terminal.show(listing.lines(kind, records, len(known) if words else 0, width))
    if not records:
        click.echo(f"recommend: {listing.explain_nothing(kind, words, known)}", err=True)
        sys.exit(NEGATIVE)
