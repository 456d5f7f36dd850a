"""``recommend knowledge fit``: fit the coefficients and judge them by runs left out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recommender.commands.knowledge_files import knowledge_of, knowledge_option, write_whole
from recommender.commands.short_help import ShortCommand
from recommender.common.errors import MaintenanceError
from recommender.common.exit_codes import CLEAN, NEGATIVE
from recommender.common.progress import QUIET_S

if TYPE_CHECKING:
    from recommender.calibration.held_out import Fits
    from recommender.calibration.observations import Observation
    from recommender.knowledge import records
    from recommender.knowledge.store import Store

TOLERANCE = 0.005
"""Relative difference of a number that --check accepts: machines round a fit's last digits differently."""


@click.command(cls=ShortCommand)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if a file differs.")
@click.option("--worst", metavar="N", default=0, type=click.IntRange(0, 1000), help="Show the N largest errors. [0]")
@knowledge_option
def fit(only_check: bool, worst: int, folder: Path | None) -> None:
    """Fit the coefficients to knowledge/evidence, and judge them by runs left out.

    Each model, and each fifth of the configurations, is left out once. The errors of the fits without
    it give the residuals, and these the ranges that recommend prints. Each workload of text is left out
    once too. --check does not fit again: it asks whether every kept fit is at its best for what it saw,
    and whether the residuals are its errors on the rest. Needs scipy.

    \b
    Example:
      recommend knowledge fit --worst 20
      recommend knowledge fit --check
    """
    from recommender.calibration.fit import list_fitted, read_values, solve
    from recommender.calibration.held_out import as_json, held_out_errors, read_fits, solve_folds
    from recommender.calibration.residual_records import residuals
    from recommender.knowledge.load import load
    from recommender.maintenance.knowledge_folder import FITS

    place = knowledge_of(folder)
    if not find_spec("scipy"):
        raise MaintenanceError("knowledge fit needs scipy; run: pip install scipy")
    store, say = load(place), _progress()
    observations, kept = evidence(place, store), place / FITS
    say(f"{'checking the fits' if only_check else 'fitting'} to {len(observations)} observations")
    if only_check:
        values, fits = read_values(store), read_fits(kept)
        _require_best(observations, store, fits)
    else:
        fits = solve_folds(observations, store, values := solve(observations, store), say)
    errors = held_out_errors(observations, store, fits)
    figures = residuals(errors)
    click.echo(table(figures))
    for error in sorted(errors, key=lambda error: -abs(error.log))[:worst]:
        click.echo(f"{error.figure:<14} {error.error:>+7.0%}  {error.observation.what} (without {error.part})")
    fitted = {name: values[name] for name in list_fitted(store)}
    wanted = files(place, fitted, figures) | {kept: as_json(fits)}
    differing, state = _bring_up_to_date(place, wanted, only_check), "stale" if only_check else "changed"
    click.echo(f"{len(fitted)} coefficients, {len(figures)} residuals, {differing} {state}")
    sys.exit(NEGATIVE if differing and only_check else CLEAN)


def _bring_up_to_date(place: Path, texts: Mapping[Path, str], only_check: bool) -> int:
    """Write every file that differs from the fit and return their number; with ``only_check`` write nothing.

    A check accepts small differences. A fit is written whole, because its values are at their best only together.
    """
    same = _same if only_check else _is_equal
    differing = [path for path, text in texts.items() if not same(path, text)]
    for path in differing:
        if not only_check:
            write_whole(path, texts[path])
        click.echo(f"{path.relative_to(place.parent)}: {'differs from the fit' if only_check else 'written'}")
    return len(differing)


def _require_best(observations: list[Observation], store: Store, fits: Fits) -> None:
    """Raise MaintenanceError if the committed fit, or a kept one, is not at its best for what it saw."""
    from recommender.calibration.fit import list_improvable, read_values
    from recommender.calibration.held_out import list_stale

    stale = [f"{name} is not at its best" for name in list_improvable(observations, store, read_values(store))]
    if stale := [*stale, *list_stale(observations, store, fits)]:
        raise MaintenanceError(f"{len(stale)} fits are stale; run recommend knowledge fit: {'; '.join(stale[:5])}")


def evidence(place: Path, store: Store) -> list[Observation]:
    """Return all that a knowledge folder's evidence measured. Raises MaintenanceError where that is nothing."""
    from recommender.calibration.first_probe import probe_observations
    from recommender.calibration.observations import observations

    found = [*observations(place / "evidence", store), *probe_observations(place / "evidence" / "earlier", store)]
    if not found:
        raise MaintenanceError(
            f"{place / 'evidence'}: nothing to fit to; recommend smoke --save-evidence writes records"
        )
    return found


def files(place: Path, fitted: Mapping[str, float], figures: list[records.Residuals]) -> dict[Path, str]:
    """Return the text that each file of a coefficient and of residuals should have."""
    from recommender.calibration.residual_records import as_yaml, changed_value

    wanted = {}
    for name, value in fitted.items():
        path = place / "coefficients" / f"{name}.yaml"
        wanted[path] = changed_value(path.read_text("utf-8"), value)
    return wanted | {place / "residuals" / f"{each.id}.yaml": as_yaml(each) for each in figures}


def _is_equal(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8") == text


def _same(path: Path, text: str) -> bool:
    """Return whether a file says the same, its numbers within the tolerance."""
    try:
        kept = path.read_text("utf-8").split()
    except FileNotFoundError:
        return False
    wanted = text.split()
    return len(kept) == len(wanted) and all(map(_same_word, kept, wanted))


def _same_word(old_word: str, new_word: str) -> bool:
    try:
        return old_word == new_word or abs(float(old_word) / float(new_word) - 1) <= TOLERANCE
    except (ValueError, ZeroDivisionError):
        return False


def table(figures: list[records.Residuals]) -> str:
    """Return the held-out errors as a table of 80 columns."""
    head = f"{'by model':>10}{'by config':>10}{'by load':>9}{'worst':>8}  {'80 % range':<14}{'covers':>7}"
    lines = [f"{'figure':<14}{'n':>5}{head}"]
    for each in figures:
        ends = f"{each.low:.2f} to {each.high:.2f}"
        by_load = "" if each.by_workload is None else f"{each.by_workload:.1%}"
        errors = f"{each.by_model:>10.1%}{each.by_configuration:>10.1%}{by_load:>9}{each.worst:>8.0%}"
        lines.append(f"{each.id:<14}{each.predictions:>5}{errors}  {ends:<14}{each.covered:>7.0%}")
    return "\n".join(lines)


def _progress() -> Callable[[str], None]:
    """Return a function that reports a step on stderr once the work takes longer than ``QUIET_S``."""
    begun = time.monotonic()

    def say(text: str) -> None:
        if time.monotonic() - begun > QUIET_S:
            click.echo(f"{text} ({time.monotonic() - begun:.0f} s)", err=True)

    return say
