"""Follow the commands that aliases stand for, with the words behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.review.script.source_map import Field, Mapped
from recommender.review.shell.inner_scripts import script_text, walk
from recommender.review.shell.state import MOST_DEPTH, Run, Where

if TYPE_CHECKING:
    from tree_sitter import Node

    from recommender.review.shell.walker import Shell

NAME = "lmdeploy"


def define(run: Run, fields: list[Field], where: Where) -> None:
    """Keep what an alias stands for; if nothing uses it, it is followed as a function that nothing calls."""
    for field in fields:
        name, equals, _ = field.known_prefix.partition("=")
        if equals and name:
            run.aliases[name] = field.after(len(name) + 1, run.page.text), run.state.copy()


def expand(shell: Shell, node: Node, name: str, where: Where) -> bool:
    """Follow a command that begins with an alias of LMDeploy; return whether it does."""
    run, word = shell.run, node.child_by_field_name("name")
    if name not in run.aliases or name in run.expanding or word is None or shell.words.raw(word) != name:
        return False
    text, rest = script_text(run.page, run.aliases[name][0]), shell.mapped.part(word.end_byte, node.end_byte)
    if text is None or NAME not in text.code + rest.code or where.depth > MOST_DEPTH // 2:
        return False
    run.spend(3)
    run.expanded.add(name)
    run.expanding.append(name)
    run.elsewhere = True
    run.unread += walk(run, Mapped(text.code + rest.code, [*text.at, *rest.at]), where.deeper())
    run.expanding.pop()
    return True
