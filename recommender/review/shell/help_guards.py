"""Note the branches that a script takes by what LMDeploy's own help lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.common.pattern import pattern

if TYPE_CHECKING:
    from tree_sitter import Node

    from recommender.review.shell.walker import Shell

HELP = pattern(r"\s(?:--help|-h)(?![\w-])")
ASKED = pattern(rf"\b(?:lmdeploy|api_server)\b[^;|&<>\n]*?{HELP.pattern}")
NAME = pattern(r"[A-Za-z_]\w*")
MOST_NAMES = 20
DEEPEST = 2
"""A function that looks into a variable which holds the help."""


def note(shell: Shell, node: Node, condition: str) -> None:
    """Note a statement whose condition looks for something in LMDeploy's help."""
    if shell.asks_help and _asks(shell, condition, DEEPEST):
        shell.run.by_help.append(shell.span(node))


def asks(code: str) -> bool:
    """Return whether a text may ask LMDeploy for its help."""
    return HELP.search(code) is not None


def _asks(shell: Shell, text: str, depth: int) -> bool:
    """Return whether a text asks for the help, or a variable or function that it names does."""
    if ASKED.search(text.replace("\\\n", "  ")):
        return True
    run = shell.run
    for name in dict.fromkeys(NAME.findall(text)[:MOST_NAMES]) if depth else ():
        variable, function = run.state.variables.get(name), run.functions.get(name)
        if variable is not None and variable.word is not None and _asks(shell, variable.word.raw, 0):
            return True
        if function is not None and _asks(shell, function[0].words.raw(function[1]), depth - 1):
            return True
    return False
