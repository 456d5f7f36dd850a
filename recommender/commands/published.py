"""``recommend knowledge published``: compare predictions with published benchmarks."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recommender.commands.knowledge_files import knowledge_of, knowledge_option, write_whole
from recommender.commands.short_help import ShortCommand
from recommender.common.exit_codes import CLEAN, NEGATIVE

if TYPE_CHECKING:
    from recommender.calibration.benchmark_comparison import PublishedComparison


@click.command(cls=ShortCommand)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if a coefficient differs.")
@click.option("--rows", is_flag=True, help="Show every published figure with its prediction.")
@knowledge_option
def published(only_check: bool, rows: bool, folder: Path | None) -> None:
    """Compare predictions with knowledge/published, by GPU.

    Writes the factors that widen ranges on GPUs without runs; no other coefficient depends on published figures.

    \b
    Example:
      recommend knowledge published --rows
      recommend knowledge published --check
    """
    from recommender.calibration.benchmark_comparison import as_yaml, compare_published, derive_spreads
    from recommender.knowledge.load import load

    place = knowledge_of(folder)
    store = load(place)
    comparisons = list(compare_published(store))
    spreads = derive_spreads(comparisons)
    click.echo(table(comparisons, {spread.id: spread.value for spread in spreads}, rows))
    stale = False
    for spread in spreads:
        path, text = place / "coefficients" / f"{spread.id}.yaml", as_yaml(spread, store)
        line = f"{spread.id}: {spread.value:g}, covers {spread.covered:.0%} of the figures of a GPU left out"
        if path.read_text("utf-8") == text:
            click.echo(line)
            continue
        stale = True
        if not only_check:
            write_whole(path, text)
        click.echo(f"{line}; {path.name} {'differs' if only_check else 'written'}")
    sys.exit(NEGATIVE if stale and only_check else CLEAN)


def table(comparisons: Sequence[PublishedComparison], widening: Mapping[str, float], rows: bool) -> str:
    """Return published over predicted by group of GPUs and precision of the weights; ``rows``: of each figure too.

    ``widening`` is the factor on the ends of a range, by coefficient.
    """
    lines = [f"{'GPU and weights':<32}{'figures':>8}{'median':>8}{'least':>8}{'most':>8}{'in range':>10}"]
    for name in dict.fromkeys(comparison.name for comparison in comparisons):
        group = [comparison for comparison in comparisons if comparison.name == name]
        ratios = sorted(row.ratio for row in group)
        inside = sum(row.widening <= widening[row.spread] for row in group) / len(group)
        middle = statistics.median(ratios)
        lines.append(f"{name:<32}{len(group):>8}{middle:>8.2f}{ratios[0]:>8.2f}{ratios[-1]:>8.2f}{inside:>10.0%}")
        for row in group if rows else ():
            load = row.load
            what = f"{load.concurrency} x {load.input_tokens}+{load.output_tokens}"
            figures = f"{row.published:>9,.1f}{row.predicted:>9,.1f}{row.ratio:>6.2f}"
            lines.append(
                f"  {row.table.id:<36}{what:<17}{figures}{'' if row.widening <= widening[row.spread] else '  outside'}"
            )
    return "\n".join(lines)
