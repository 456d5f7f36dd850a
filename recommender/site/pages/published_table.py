"""The table of published benchmarks, each with its prediction."""

from collections.abc import Iterator
from functools import cache

from recommender.calibration.benchmark_comparison import PublishedComparison, compare_published
from recommender.knowledge.store import Store
from recommender.site import markup
from recommender.site.site_data import SiteData


# Pages in all languages show the same figures.
@cache
def _comparisons(store: Store) -> tuple[PublishedComparison, ...]:
    return tuple(compare_published(store))


def _version(data: SiteData, version: str) -> str:
    """Return a release, or in the pages' language what a page says instead of one."""
    return version if version[0].isdigit() else data.t(version)


def published_table(data: SiteData) -> Iterator[str]:
    """Yield the section; figures are output tokens/s, and a load without published lengths has no prediction."""
    yield data.t(
        "Output tokens/s of TurboMind on GPUs without runs here. No prediction is fitted to these figures; they decide "
        "how much wider ranges are on such GPUs. Most are of releases before 0.5. Ratio: published over predicted."
    )
    predicted = {(comparison.table.id, comparison.load): comparison for comparison in _comparisons(data.store)}
    rows = []
    for table in data.store.published.values():
        cards = f"{table.tp} x " if table.tp > 1 else ""
        for load in table.rows:
            prediction = predicted.get((table.id, load))
            rows.append(
                (
                    f"{cards}[{table.gpu}](/gpus/{table.gpu}.md)",
                    f"[{table.model}](/models/{table.model}.md), {table.weights}",
                    str(load.concurrency),
                    f"{load.input_tokens:,} + {load.output_tokens:,}" if load.output_tokens else data.t("not given"),
                    f"[{markup.text(_version(data, table.version))}]({table.url})",
                    markup.figure(prediction.published if prediction else load.output_tps),
                    markup.figure(prediction.predicted) if prediction else "",
                    f"{prediction.ratio:.2f}" if prediction else "",
                )
            )
    head = data.labels("GPU", "Model", "Concurrency", "Tokens", "LMDeploy", "Published", "Predicted", "Ratio")
    yield from markup.table(head, rows)
