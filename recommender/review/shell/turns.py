"""Follow each turn of a shell's loop over words that it lists, or numbers that it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.script.source_map import Piece
from recommender.review.script.variables import Variable
from recommender.review.shell.arithmetic import total_of
from recommender.review.shell.state import MOST_STEPS

if TYPE_CHECKING:
    from tree_sitter import Node

    from recommender.review.script.model import Launch
    from recommender.review.script.source_map import Field
    from recommender.review.script.variables import Variables
    from recommender.review.shell.state import Frame, Run
    from recommender.review.shell.walker import Shell

MOST_TURNS = 12
LONGEST_HEAD = 200
SHARE = 4
"""Divisor of the work allowed, beyond which loops are no longer followed turn by turn."""
_END = r"\d{1,9}|\"?\$\{?\w+\}?\"?|\$\(\([^()\n]*\)\)"
COUNTED = pattern(
    rf"\{{(?P<low>\d{{1,9}})\.\.(?P<high>\d{{1,9}})\}}|(?:\$\(|`)\s*seq\s+(?P<first>{_END})(?:\s+(?P<last>{_END}))?\s*[)`]"
)
"""Numbers in a loop's head: ``{0..3}``, ``$(seq 0 3)``."""
COUNTER = pattern(
    r"for\s*\(\(\s*(?P<name>\w+)\s*=\s*(?P<first>\d{1,9})\s*;\s*(?P=name)\s*(?P<sign><=?)\s*(?P<last>\d{1,9}|\$?\{?\w+\}?)\s*;"
    r"\s*(?:(?P=name)\s*(?:\+\+|\+=\s*1)|\+\+\s*(?P=name))\s*\)\)"
)
"""The head of a loop that counts upwards."""


def listed(shell: Shell, node: Node, values: Sequence[Field]) -> tuple[str, list[Variable]]:
    """Return the variable of ``for name in …``, and what it is in each turn; nothing if that is unknown."""
    named, state = node.child_by_field_name("variable"), shell.run.state
    name = shell.words.raw(named) if named is not None else ""
    code = " ".join(shell.words.raw(child) for child in node.children_by_field_name("value"))
    head = COUNTED.fullmatch(code[:LONGEST_HEAD].strip())
    if head is not None and head["low"]:
        return name, _numbers(int(head["low"]), int(head["high"]))
    if head is not None:
        ends = [_number(head[end], state) for end in ("first", "last") if head[end]]
        return name, _numbers(*(ends if len(ends) > 1 else (1, *ends)))
    known = 0 < len(values) <= MOST_TURNS and all(value.value is not None for value in values)
    return name, [Variable(value.pieces) for value in values] if known else []


def counted(code: str, state: Variables) -> tuple[str, list[Variable]]:
    """Return the variable of ``for ((i = 0; i < 4; i++))``, and what it is in each turn."""
    head = COUNTER.match(code)
    last = _number(head["last"], state) if head else None
    if head is None or last is None:
        return "", []
    return head["name"], _numbers(int(head["first"]), last - (head["sign"] == "<"))


def _number(text: str, state: Variables) -> int | None:
    """Return a number, a variable's, or a sum; None if the script does not determine it."""
    text = text.strip('"')
    if text.startswith("$(("):
        text = total_of(text, state)
    elif not text.isdecimal():
        given = state.get(text.strip("${}"))
        text = (given.text if given is not None else None) or ""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _numbers(first: int | None, last: int | None) -> list[Variable]:
    if first is None or last is None or not 0 <= last - first < MOST_TURNS:
        return []
    return [Variable((Piece(str(at)),)) for at in range(first, last + 1)]


def each_turn(
    run: Run, first: int, before: Variables, body: Callable[[], None], name: str, values: Sequence[Variable]
) -> None:
    """Replace the launches of a loop's body by those of each turn, with the variable's value in it.

    ``first``: the number of launches before the loop; ``before``: the variables at that point.
    """
    mine = run.launches[first:]
    if run.turning or not (mine and len(values) > 1) or run.steps > MOST_STEPS // SHARE:
        return
    run.spend(len(run.assignments) // 20 + len(run.calls) // 20)
    kept = run.state, dict(run.assignments), dict(run.calls), list(run.tools), list(run.unread), dict(run.called)
    launches: list[Launch] = []
    run.turning, run.state = True, before
    for value in values:
        run.state.variables[name] = value
        body()
        launches += [launch for launch, _ in run.launches[first + len(mine) :]]
        del run.launches[first + len(mine) :]
    run.turning = False
    run.state, run.assignments, run.calls, run.tools, run.unread, run.called = kept
    run.launches[first:] = list(_with_turns(mine, launches))


def _with_turns(
    mine: Iterable[tuple[Launch, Frame | None]], launches: Sequence[Launch]
) -> Iterable[tuple[Launch, Frame | None]]:
    for launch, frame in mine:
        same = [
            each._replace(place=launch.place)
            for each in launches
            if (each.place.start, each.called) == (launch.place.start, launch.called)
        ]
        yield launch._replace(turns=(*launch.turns, *same)), frame
