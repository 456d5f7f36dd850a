"""Compare what advisers claim of memory and speed with what their configurations measured on one GPU."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.common.units import GIB, MIB
from recommender.knowledge.provenance import weights
from recommender.site import markup
from recommender.site.pages.measured_table import TableLine, lines
from recommender.site.site_data import SiteData

if TYPE_CHECKING:
    from recommender.knowledge import records

GB = 1e9
IMAGE = "448x448"
KINDS = {
    "vram": "memory",
    "throughput": "throughput",
    "concurrency": "concurrency",
    "latency": "latency, one request",
    "kv-cache": "KV cache",
    "weights": "weights",
    "instances": "servers on one GPU",
}
"""Kinds of figures; the first two are shown for every adviser."""
ALWAYS = tuple(KINDS)[:2]
JUDGED = (
    "comparison-vram-4-to-6-gb",
    "comparison-throughput-ranks",
    "server-takes-5-3-gb",
    "five-percent-is-200-mb",
    "weights-are-4-9-gb",
    "sixteen-instances-fit-80-gb",
    "p99-is-210-ms",
    "chatgpt-takes-least-memory",
    "kimi-chatgpt-best-single-latency",
)
"""Claims about these figures."""


@dataclass(frozen=True)
class FigureRow:
    """A claimed figure and the measured range of that kind; either may be missing.

    ``low`` and ``high``: range over the runs in the claim's unit, 0 if not measured. ``refused``: no request succeeded.
    """

    adviser: str
    kind: str
    figure: records.Figure | None
    low: float
    high: float
    refused: bool
    runs: tuple[records.SmokeRun, ...]

    @property
    def times(self) -> tuple[float, float] | None:
        """Return measured / claimed, lowest and highest; None if the units differ."""
        if not self.figure or self.figure.unit not in ("GB", "MB") or not self.low:
            return None
        return self.low / self.figure.high, self.high / self.figure.low


def rows(data: SiteData) -> Iterator[FigureRow]:
    """Yield a row per claimed figure, and per adviser a row for each kind in ALWAYS."""
    known = {line.name: line for line in lines(data)}
    for adviser in data.store.advisers.values():
        line = known.get(adviser.id)
        for kind in KINDS:
            claimed = [_row(adviser.id, kind, figure, line) for figure in adviser.figures if figure.kind == kind]
            if kind in ALWAYS and not any(row.runs for row in claimed):
                claimed.append(_row(adviser.id, kind, None, line))
            yield from claimed


def _row(adviser: str, kind: str, figure: records.Figure | None, line: TableLine | None) -> FigureRow:
    # A relative claim ("half of…") cannot be compared with one configuration.
    comparable = line and not (figure and figure.unit == "words" and kind in ("vram", "kv-cache"))
    values = _measured(kind, line) if line and comparable else []
    low, high = min(values, default=0.0), max(values, default=0.0)
    refused = bool(line and kind == "throughput" and line.refused(IMAGE, 16))
    return FigureRow(adviser, kind, figure, low, high, refused, line.runs if line and (values or refused) else ())


def _measured(kind: str, line: TableLine) -> list[float]:
    """Return one value per run: GB of memory, requests/s, batch size, median in ms, or MB of KV cache."""
    match kind:
        case "vram":
            return [memory * GIB / GB for memory in line.memory()]
        case "throughput":
            return line.figures(IMAGE, 16)
        case "latency":
            return line.figures(IMAGE, 1)
        case "concurrency":
            return [*_logged(line, "max-batch-size")]
        case "kv-cache":
            return [size * MIB / 1e6 for size in _logged(line, "cache-budget")]
    return []


def _logged(line: TableLine, name: str) -> Iterator[float]:
    """Yield a setting's number in each run's engine log."""
    for run in line.runs:
        for setting in run.effective:
            number = re.match(r"\d+", setting.found)
            if setting.name == name and number:
                yield float(number[0])


UNITS = {
    "vram": "{0} GB when ready",
    "throughput": "{0} requests/s at concurrency 16",
    "latency": "{0} ms median",
    "concurrency": "batch size {0}",
    "kv-cache": "{0} MB allocated",
}
DIGITS = {"latency": 0, "concurrency": 0, "kv-cache": 0}


def table(data: SiteData) -> Iterator[str]:
    """Return the table, its conditions, and the verdicts on these claims."""
    first = lines(data)[0].runs[0]
    yield data.t(
        "Each adviser's configuration as given, on one {card} with LMDeploy {release}, {weights} and {image} images. "
        "The claims name other GPUs or none: compare orders of magnitude, not digits. "
        "Memory is in GB, as in the claims: 1 GiB is 1.07 GB."
    ).format(
        card=markup.text(first.gpu_name),
        release=first.lmdeploy,
        weights=weights(first.random_weights, data.say),
        image=IMAGE,
    )
    head = data.labels("Adviser", "What", "Claimed", "Measured", "Measured / claimed", "Runs")
    cells = "".join(f'<th scope="col" role="columnheader">{html.escape(label)}</th>' for label in head)
    body = "".join(_table_row(data, row, head) for row in rows(data))
    label = data.html("Claimed and measured")
    yield (
        f'\n<div class="compare" role="region" aria-label="{label}"><table class="claimed" role="table">\n'
        f'<thead role="rowgroup"><tr role="row">{cells}</tr></thead>\n<tbody role="rowgroup">{body}</tbody>\n'
        "</table></div>\n"
    )
    yield f"\n{data.t('Verdicts on these claims:')}\n"
    for claim in (data.store.claims[name] for name in JUDGED):
        yield f"- {markup.claim(claim.verdict, claim.statement, claim.id, data.say)}"


def _table_row(data: SiteData, row: FigureRow, head: Sequence[str]) -> str:
    adviser = data.store.advisers[row.adviser]
    link = f'<a href="md:advisers/{adviser.id}.md">{data.html(adviser.name)}</a>'
    about = f"<small>{data.html(row.figure.about)}</small>" if row.figure else ""
    runs = " ".join(
        f'<a href="md:runs.md#{run.id}" aria-label="{html.escape(run.id)}">{number}</a>'
        for number, run in enumerate(row.runs, 1)
    )
    values = (
        data.html(KINDS[row.kind]),
        f"<span>{html.escape(_claim(data, row))} {about}</span>",
        f"<span>{html.escape(_result(data, row))}</span>",
        _times(row),
        runs or "–",
    )
    named = zip(head[1:], values, strict=True)
    cells = "".join(f'<td role="cell" data-who="{html.escape(name)}">{value}</td>' for name, value in named)
    return (
        f'<tr role="row" data-adviser="{row.adviser}" data-kind="{row.kind}">'
        f'<th scope="row" role="rowheader">{link}</th>{cells}</tr>\n'
    )


def _claim(data: SiteData, row: FigureRow) -> str:
    if row.figure is None:
        return data.t("nothing")
    if row.figure.unit == "words":
        return data.t(row.figure.words)
    unit = "" if row.figure.unit == "count" else f" {row.figure.unit}"
    return data.span((row.figure.low, row.figure.high), ",g") + unit


def _result(data: SiteData, row: FigureRow) -> str:
    if row.refused:
        return data.t("all requests rejected")
    if not row.low:
        return data.t("not measured")
    return data.t(UNITS[row.kind]).format(data.span((row.low, row.high), DIGITS.get(row.kind, 1)))


def _times(row: FigureRow) -> str:
    ends = [f"{ratio:.1f}" for ratio in row.times or ()]
    return "–" if not ends else f"{ends[0]}×" if ends[0] == ends[1] else f"{ends[0]}× – {ends[1]}×"
