"""The tables of the page on loads: the workloads with their sources, and the options that describe a load."""

from collections.abc import Iterator

import click

from recommender.choose.reasons import has_source
from recommender.cli import root
from recommender.site import markup
from recommender.site.site_data import SiteData

NAMES = (
    *("workload", "trace", "load", "rps", "burstiness", "prompt_tokens", "output_tokens", "prefix_tokens", "turns"),
    *("max_context", "image", "text_only", "ttft", "tpot", "latency", "p99", "headroom"),
)
"""Parameters of the command line that describe a load, in the order of the page."""


def workload_table(data: SiteData) -> Iterator[str]:
    """Yield the lengths, turns, bursts and images of each workload; lengths are p50 / p90 / p99."""
    rows = (
        (
            markup.code(workload.id),
            _lengths(workload.prompt_tokens, workload.prompt_p90, workload.prompt_p99),
            _lengths(workload.output_tokens, workload.output_p90, workload.output_p99),
            markup.figure(workload.prefix_tokens, 0),
            f"{workload.turns}",
            f"{workload.burstiness:g}",
            f"{workload.images} x {workload.image_width}x{workload.image_height}" if workload.images else "–",
        )
        for workload in data.store.workloads.values()
    )
    head = ("Workload", "Input tokens", "Output tokens", "Shared prefix", "Turns", "Burstiness", "Images")
    yield from markup.table(data.labels(*head), rows)


def workload_sources(data: SiteData) -> Iterator[str]:
    """Yield what each workload is, where its figures are from and what they do not say."""
    for each in data.store.workloads.values():
        yield f"- **{markup.code(each.id)}:** {markup.text(data.own(each.summary, each.summary_vi))}\n"
        yield f"    - {markup.text(data.t(each.doubt))}" if each.doubt else ""
        if has_source(each.sources):
            yield from (f"    {line}" for line in markup.sources(data.store, each.sources, data.say))
        yield ""


def load_options(data: SiteData) -> Iterator[str]:
    """Yield the names, the value and the help of each option that describes a load."""
    known, context = {parameter.name: parameter for parameter in root.params}, click.Context(root)
    options = [known[name].to_info_dict() for name in NAMES]
    rows = (
        (
            ", ".join(markup.whole(name) for name in option["opts"]),
            markup.code(known[option["name"]].make_metavar(context)) if not option["is_flag"] else "–",
            markup.text(data.t(option["help"])),
        )
        for option in options
    )
    yield from markup.table(data.labels("Option", "Value", "Meaning, [default]"), rows)


def _lengths(p50: int, p90: int, p99: int) -> str:
    """Return a fixed length, or the quantiles that a source gives."""
    return " / ".join(markup.figure(each, 0) for each in (p50, p90, p99)) if p90 or p99 else f"{p50:,}"
