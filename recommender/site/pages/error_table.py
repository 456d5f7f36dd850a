"""Tables of prediction errors on held-out runs."""

from collections.abc import Iterator, Mapping

from recommender.site import markup
from recommender.site.site_data import SiteData

TEXT_LOAD: Mapping[str, str] = {
    "ttft-text": "TTFT",
    "token-text": "TPOT",
    "latency-text": "latency",
    "p99-text": "p99 of latency",
    "rps-text": "requests/s",
}
"""Records of the errors of simulated loads, and what they are about."""


def error_table(data: SiteData, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors of these records of residuals, named as given."""
    rows = []
    for name, label in names.items():
        residual = data.store.residuals[name]
        rows.append(
            (
                data.t(label),
                f"{residual.by_model:.1%}",
                f"{residual.by_configuration:.1%}",
                "–" if residual.by_workload is None else f"{residual.by_workload:.1%}",
                f"{residual.worst:.0%}",
                f"{residual.covered:.0%}",
                f"{residual.predictions:,}",
            )
        )
    medians = ("Median, models held out", "Median, configurations held out", "Median, workloads held out")
    yield from markup.table(data.labels("Figure", *medians, "Worst", "In range", "Predictions"), rows)


def text_load_errors(data: SiteData) -> Iterator[str]:
    """Yield the errors of simulated loads, and of which models and GPUs they are."""
    yield from error_table(data, TEXT_LOAD)
    records = [data.store.residuals[name] for name in TEXT_LOAD]
    models = sorted({model for record in records for model in record.models})
    gpus = sorted({gpu for record in records for gpu in record.gpus})
    yield (
        data.t("{starts} server starts; models: {models}; GPUs: {gpus}.").format(
            starts=max(record.starts for record in records),
            models=", ".join(markup.model_link(data.store.models[model]) for model in models),
            gpus=", ".join(f"[{markup.text(data.store.gpus[gpu].name)}](/gpus/{gpu}.md)" for gpu in gpus),
        )
        + "\n"
    )
