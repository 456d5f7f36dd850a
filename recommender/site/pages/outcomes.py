"""Render the conclusions of the Compare page: who starts, answers and is fastest, and the advice with its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from recommender.lookup.comparison import Comparison, rejections, unknown_options
from recommender.site import markup
from recommender.site.pages.advisers import adviser_link
from recommender.site.pages.measured_table import DEFAULTS, TableLine, lines, picture
from recommender.site.site_data import SiteData

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation

SMALL, LARGE = "448x448", "1280x720"
BUSY = 16
PICK = "ours, concurrency 16"
METRICS = {"memory-constrained": "memory", "single-image-low-load": "latency"}
"""What decides a scenario; throughput for the others."""
CRITICAL = ("000", range(104, 146))
"""Where the comparison that the users were given explains its critical settings: seed, and lines."""


def outcomes(data: SiteData, comparison: Comparison) -> Iterator[str]:
    """Yield the conclusion, the table of outcomes and its charts."""
    known = {line.name: line for line in lines(data)}
    ours, defaults = known[PICK], known[DEFAULTS]
    yield data.t(
        "**Our configuration answers {gain} times as many requests a second as LMDeploy's defaults, with {ours} "
        "instead of {theirs} GiB.** Measured on one {card}, {images} images, {concurrency} concurrent requests, "
        "LMDeploy {release}."
    ).format(
        gain=f"{_middle(ours.figures(SMALL, BUSY)) / _middle(defaults.figures(SMALL, BUSY)):.1f}",
        ours=_gib(ours),
        theirs=_gib(defaults),
        card=markup.text(ours.runs[0].gpu_name),
        images=SMALL,
        concurrency=BUSY,
        release=ours.runs[0].lmdeploy,
    )
    against = {recommendation.adviser: _against(data, recommendation) for recommendation in comparison.advised}
    head = (
        "Configuration",
        "Starts as given",
        "Answers",
        "Requests/s",
        "One request, ms",
        "GiB",
        "Of the defaults' rate",
    )
    rows = [_row(data, line, against.get(line.name, ""), defaults) for line in _ranked(known.values())]
    yield from markup.table(data.labels(*head), rows)
    yield data.t(
        "Several runs: the middle one. As given: without changes, on LMDeploy {release}. Measured with two changes "
        "that every start needs: `--trust-remote-code`, and no chat template file."
    ).format(release=comparison.resolved.release.id)
    yield from picture(data)


def _ranked(table_lines: Iterable[TableLine]) -> list[TableLine]:
    """Return ours first, then by throughput."""
    return sorted(table_lines, key=lambda line: (not line.ours, line.name != PICK, -_middle(line.figures(SMALL, BUSY))))


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def _gib(line: TableLine) -> str:
    return f"{_middle(line.memory()):.1f}"


def _against(data: SiteData, configuration: Recommendation) -> str:
    """Return in a word why a configuration does not start as given; empty if it does."""
    if unknown := unknown_options(configuration):
        return data.t("no: {0} is not known").format(", ".join(unknown))
    return data.t("no") if rejections(configuration) else ""


def _row(data: SiteData, line: TableLine, against: str, defaults: TableLine) -> tuple[str, ...]:
    rate, latency = line.figures(SMALL, BUSY), line.figures(SMALL, 1)
    times = _middle(rate) / _middle(defaults.figures(SMALL, BUSY))
    return (
        line.heading,
        f"[{markup.text(against)}](#starts)" if against else data.t("yes"),
        _answers(data, line),
        markup.figure(_middle(rate)),
        markup.figure(_middle(latency), 0),
        _gib(line),
        f"{times:.2f}×" if rate else "–",
    )


def _answers(data: SiteData, line: TableLine) -> str:
    if line.refused(SMALL, 1):
        return data.t("no request")
    return data.t("{0} only").format(SMALL) if line.refused(LARGE, 1) else data.t("yes")


def scenarios(data: SiteData) -> Iterator[str]:
    """Yield the scenarios: who was picked for them, and what that measured beside ours."""
    known = {line.name: line for line in lines(data)}
    ours = {"latency": known["ours, one request"], "memory": known["ours, one request"], "rate": known[PICK]}
    rows = []
    for scenario in data.store.scenarios.values():
        metric = METRICS.get(scenario.id, "rate")
        title = markup.text(data.own(scenario.title, scenario.title_vi))
        link = f"[{title}](/advisers/index.md#scenario-{scenario.id})"
        picks = "; ".join(
            f"{adviser_link(data, pick)}: {_figure(data, known.get(pick), metric)}" for pick in scenario.picks
        )
        verdict = _verdict(data, scenario.picks, known, ours, metric)
        rows.append((link, picks, _figure(data, ours[metric], metric), verdict))
    yield data.t("Which adviser the users' comparison picks for each use, and what both measured (above).")
    yield from markup.table(data.labels("For", "Picked", "Ours", "Ours or the pick"), rows)


def _value(line: TableLine | None, metric: str) -> float:
    if line is None or line.refused(SMALL, 1):
        return 0.0
    if metric == "memory":
        return _middle(line.memory())
    return _middle(line.figures(SMALL, 1 if metric == "latency" else BUSY))


UNITS = {"memory": "{0:.1f} GiB", "latency": "{0:,.0f} ms", "rate": "{0:.1f} requests/s"}


def _figure(data: SiteData, line: TableLine | None, metric: str) -> str:
    value = _value(line, metric)
    return data.t(UNITS[metric]).format(value) if value else data.t("answers no request")


def _verdict(
    data: SiteData,
    picks: Sequence[str],
    table_lines: Mapping[str, TableLine],
    ours: Mapping[str, TableLine],
    metric: str,
) -> str:
    """Say how ours does beside the best pick; differences below a twentieth are none."""
    alone, better, same, worse = data.labels(
        "only ours answers", "ours is better", "no difference", "the pick is better"
    )
    values = [value for pick in picks if (value := _value(table_lines.get(pick), metric))]
    if not values:
        return f'<span class="verdict confirmed">✓ {alone}</span>'
    own = _value(ours[metric], metric)
    ratio = max(values) / own if metric == "rate" else own / min(values)
    if ratio < 0.95:
        return f'<span class="verdict confirmed">✓ {better}</span>'
    if ratio < 1.05:
        return f'<span class="verdict no-effect">= {same}</span>'
    return f'<span class="verdict refuted">✗ {worse}</span>'


def critical_settings(data: SiteData, comparison: Comparison) -> Iterator[str]:
    """Yield what the comparison says of its critical settings, with the verdicts and our values."""
    seed, places = CRITICAL
    said = [
        claim
        for claim in data.store.claims.values()
        if any(place.seed == seed and place.line in places for place in claim.places)
    ]
    ours = {setting.option: setting for setting in comparison.settings}
    rows = []
    for claim in sorted(said, key=lambda claim: claim.options):
        option = claim.options[0]
        setting = ours.get(option)
        value = markup.code(setting.ours.value) if setting and setting.ours.value else data.t("default")
        judged = markup.claim(claim.verdict, claim.statement, claim.id, data.say)
        rows.append((markup.named_option(data.store, option), judged, value))
    yield data.t("What the users' comparison says of the settings that it calls critical.")
    yield from markup.table(data.labels("Setting", "Verdict and claim", "Ours"), rows)
