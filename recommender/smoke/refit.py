"""``recommend knowledge fit``: finds the fitted coefficients anew and says how well they foretell unseen runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recommender.extracted import MaintenanceError
from recommender.maintain import FILE, knowledge_of, write_whole

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.smoke.observations import Observation
    from recommender.store import Store

TOLERANCE = 0.005
"""Of a number that --check holds against its file: machines round the last digits of a fit differently."""
QUIET_S = 2.0


@click.command()
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 where a file says otherwise.")
@click.option("--worst", metavar="N", default=0, type=click.IntRange(0, 1000), help="Show the N largest errors. [0]")
@click.option("--knowledge", "folder", metavar="DIR", type=FILE, help="The knowledge folder. [that of this checkout]")
def fit(only_check: bool, worst: int, folder: Path | None) -> None:
    """Fit the coefficients to knowledge/evidence, and judge them by runs left out.

    Each model, and each fifth of the configurations, is left out once; what a fit without it says of
    it gives the residuals, and they the ranges that recommend prints. Needs scipy.

    \b
    Example:
      recommend knowledge fit --worst 20
      recommend knowledge fit --check
    """
    from recommender.smoke.fit import misses, residuals, solve
    from recommender.store import load

    place = knowledge_of(folder)
    if not find_spec("scipy"):
        raise MaintenanceError("knowledge fit needs scipy; run: pip install 'lmdeploy-recommender[fit]'")
    store, say = load(place), _progress()
    every = evidence(place, store)
    say(f"fitting to {len(every)} observations")
    values = solve(every, store)
    found = misses(every, store, say)
    made = residuals(found)
    click.echo(table(made))
    for each in sorted(found, key=lambda miss: -abs(miss.log))[:worst]:
        click.echo(f"{each.figure:<14} {each.error:>+7.0%}  {each.of.what} (without {each.part})")
    fitted = {name: values[name] for name, each in store.coefficients.items() if each.basis == "fitted"}
    wanted = files(place, fitted, made)
    stale = [path for path, text in wanted.items() if not _same(path, text)]
    for path in stale:
        if not only_check:
            write_whole(path, wanted[path])
        click.echo(f"{path.relative_to(place.parent)}: {'differs from the fit' if only_check else 'written'}")
    click.echo(
        f"{len(fitted)} coefficients, {len(made)} residuals, {len(stale)} {'stale' if only_check else 'changed'}"
    )
    sys.exit(1 if stale and only_check else 0)


def evidence(place: Path, store: Store) -> list[Observation]:
    """All that a knowledge folder's evidence measured. Raises MaintenanceError where that is nothing."""
    from recommender.smoke.earlier import probed
    from recommender.smoke.observations import observations

    found = [*observations(place / "evidence", store), *probed(place / "evidence" / "earlier", store)]
    if not found:
        raise MaintenanceError(
            f"{place / 'evidence'}: nothing to fit to; recommend smoke --save-evidence writes records"
        )
    return found


def files(place: Path, fitted: Mapping[str, float], made: list[r.Residuals]) -> dict[Path, str]:
    """The text that each file of a coefficient and of residuals should have."""
    from recommender.smoke.fit import as_yaml, changed_value

    wanted = {}
    for name, value in fitted.items():
        path = place / "coefficients" / f"{name}.yaml"
        wanted[path] = changed_value(path.read_text("utf-8"), value)
    return wanted | {place / "residuals" / f"{each.id}.yaml": as_yaml(each) for each in made}


def _same(path: Path, text: str) -> bool:
    """Whether a file says the same, its numbers within the tolerance."""
    try:
        kept = path.read_text("utf-8").split()
    except FileNotFoundError:
        return False
    made = text.split()
    return len(kept) == len(made) and all(map(_alike, kept, made))


def _alike(kept: str, made: str) -> bool:
    try:
        return kept == made or abs(float(kept) / float(made) - 1) <= TOLERANCE
    except (ValueError, ZeroDivisionError):
        return False


def table(made: list[r.Residuals]) -> str:
    """The held-out errors as a table of 80 columns."""
    lines = [f"{'figure':<14}{'n':>5}{'by model':>10}{'by config':>10}{'worst':>8}  {'80 % range':<14}{'covers':>7}"]
    for each in made:
        ends = f"{each.low:.2f} to {each.high:.2f}"
        errors = f"{each.by_model:>10.1%}{each.by_configuration:>10.1%}{each.worst:>8.0%}"
        lines.append(f"{each.id:<14}{each.predictions:>5}{errors}  {ends:<14}{each.covered:>7.0%}")
    return "\n".join(lines)


def _progress() -> Callable[[str], None]:
    """Says what goes on, on stderr, where it takes long."""
    begun = time.monotonic()

    def say(text: str) -> None:
        if time.monotonic() - begun > QUIET_S:
            click.echo(f"{text} ({time.monotonic() - begun:.0f} s)", err=True)

    return say
