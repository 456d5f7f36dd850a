"""Follow each turn of a shell's loop over listed words, for the functions that the loop calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from recommender.review.shell.state import MOST_STEPS

if TYPE_CHECKING:
    from recommender.review.script.model import Launch
    from recommender.review.script.variables import Variable, Variables
    from recommender.review.shell.state import Frame, Run

MOST_TURNS = 12
SHARE = 4
"""The part of the work that may be done before loops are no longer followed turn by turn."""


def each_turn(
    run: Run, first: int, before: Variables, body: Callable[[], None], name: str, values: Sequence[Variable]
) -> None:
    """Give the launches of functions that a loop's body calls what its variable makes of them in each turn.

    ``first``: the number of launches before the loop; ``before``: the variables at that point.
    """
    mine = run.launches[first:]
    if run.turning or not any(launch.called for launch, _ in mine) or run.steps > MOST_STEPS // SHARE:
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
        same = [each for each in launches if (each.place, each.called) == (launch.place, launch.called)]
        yield (launch._replace(turns=(*launch.turns, *same)) if launch.called else launch), frame
