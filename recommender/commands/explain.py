"""``recommend explain``: everything known about one option."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recommender import api
from recommender.commands.short_help import ShortCommand, exclude
from recommender.options import QUESTION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HELP = """\b
FLAG is an option in any spelling, an environment variable, a request field or
a field of TurbomindEngineConfig.

\b
Examples:
  recommend explain --session-len --short
  recommend explain quant_policy --lmdeploy 0.9.2
  recommend explain OMP_NUM_THREADS --json
"""


def _complete(_context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Return the names that begin with a prefix; options have dashes where it has."""
    from recommender.knowledge.load import load

    store = load()
    flags = (flag.option if prefix.startswith("-") else flag.id for flag in store.flags.values())
    names = (*flags, *(field.name for kind in (store.environment, store.client) for field in kind.values()))
    return [name for name in names if name.startswith(prefix)]


class ExplainCommand(ShortCommand):
    """A command whose argument may begin with dashes."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete its own options, then LMDeploy's."""
        from click.shell_completion import CompletionItem

        theirs = [CompletionItem(name) for name in _complete(ctx, self.params[0], incomplete)]
        return [*super().shell_complete(ctx, incomplete), *theirs]


@click.command(
    "explain",
    cls=ExplainCommand,
    epilog=HELP,
    context_settings={"ignore_unknown_options": True},  # FLAG may begin with dashes
)
@click.argument("flag", type=click.UNPROCESSED, shell_complete=_complete)
@QUESTION["lmdeploy"].but(help="LMDeploy release. [the newest]")
@click.option("--short", is_flag=True, help="The most important, on about one screen.")
@click.option("--vi", is_flag=True, help="Show Vietnamese texts where there are any.")
@click.option("--json", "as_json", is_flag=True, help="Print the complete result as JSON.")
def command(flag: str, lmdeploy: str | None, short: bool, vi: bool, as_json: bool) -> None:
    """Show what an option does, its history over the releases, advice, verdicts and known issues."""
    exclude(click.get_current_context(), "--short", "--json")
    exclude(click.get_current_context(), "--vi", "--json")
    from recommender.common import terminal
    from recommender.lookup import option_text, short_text

    info = api.explain(flag, lmdeploy or "")
    if as_json:
        terminal.show_json({"format": option_text.FORMAT, **terminal.plain(info)})
    else:
        terminal.show(short_text.explain(info, vi) if short else option_text.lines(info, vi))
