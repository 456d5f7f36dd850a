"""Tabulate and chart what the advisers' configurations and ours measured on the same GPU."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from recommender.common.units import GIB, MIB
from recommender.knowledge import run_figures
from recommender.render import artefact
from recommender.render.formats import render
from recommender.request.request import Request
from recommender.site import markup
from recommender.site.charts import svg
from recommender.site.site_data import SiteData, site_data

if TYPE_CHECKING:
    from recommender.knowledge import records

GPU = "H100-80G"
LOADS = (("448x448", 1), ("448x448", 16), ("1280x720", 1), ("1280x720", 16))
OURS: Mapping[str, Mapping[str, object]] = {
    "ours, one request": {"gpu": GPU, "load": "single"},
    "ours, concurrency 16": {"gpu": GPU, "concurrency": 16},
    "ours, concurrency 16, 1280x720": {
        "gpu": GPU,
        "concurrency": 16,
        "images": 1,
        "image_width": 1280,
        "image_height": 720,
    },
}
"""Requests whose recommendations are compared with the advisers'."""
DEFAULTS = "defaults"
CACHE_SHARE = "--cache-max-entry-count"
SAME_SHARE = 0.02
"""Relative difference of the cache's share that does not matter: its third digit follows a few MiB of free memory."""
UNCHANGED = {"trust-remote-code"}
"""Options that may be added to an adviser's configuration: without them none starts."""


@dataclass(frozen=True)
class TableLine:
    """One configuration and its runs."""

    name: str
    title: str
    link: str
    ours: bool
    runs: tuple[records.SmokeRun, ...]

    @property
    def heading(self) -> str:
        """Return its linked title; ours is bold."""
        title = f"[{markup.text(self.title)}]({self.link})" if self.link else markup.text(self.title)
        return f"**{title}**" if self.ours else title

    def memory(self) -> list[float]:
        """Return GiB used when ready, above the idle GPU, per run."""
        return [(run.ready_mib - run.idle_mib) * MIB / GIB for run in self.runs]

    def figures(self, image: str, concurrency: int) -> list[float]:
        """Return per run with this load: median ms at concurrency 1, else requests/s."""
        figures = [run_figures.figures(phase) for phase in self._phases(image, concurrency)]
        usable = [figure for figure in figures if figure.requests and figure.trusted]
        return [figure.p50_ms if concurrency == 1 else figure.rps for figure in usable]

    def refused(self, image: str, concurrency: int) -> bool:
        """Return whether the load was tried and no request succeeded."""
        phases = self._phases(image, concurrency)
        return bool(phases) and not any(run_figures.figures(phase).requests for phase in phases)

    def _phases(self, image: str, concurrency: int) -> list[records.Phase]:
        load = (image, concurrency)
        return [phase for run in self.runs for phase in run.phases if (phase.image, phase.concurrency) == load]


def lines(data: SiteData) -> list[TableLine]:
    """Return the measured configurations: LMDeploy's defaults, each adviser, ours."""
    followed = [(DEFAULTS, data.t("LMDeploy's defaults"), "")]
    followed += [(who.id, data.t(who.name), f"/advisers/{who.id}.md") for who in data.store.advisers.values()]
    return [
        line
        for line in (
            *(TableLine(name, title, link, False, _runs_following(name)) for name, title, link in followed),
            *(TableLine(name, data.t(name), "", True, _runs_of_request(OURS[name])) for name in OURS),
        )
        if line.runs
    ]


# A table line asks for all of them, in each language.
@cache
def _comparable() -> tuple[tuple[records.SmokeRun, dict[str, object]], ...]:
    model = Request(gpu=GPU).model
    runs = (run for run in site_data().runs.values() if run.kind != "python" and run.copies == 1 and run.model == model)
    requested = ((run, json.loads(run.request)) for run in runs)
    return tuple((run, request) for run, request in requested if request.get("gpu") == GPU)


def _runs_following(adviser: str) -> tuple[records.SmokeRun, ...]:
    return tuple(
        run
        for run, request in _comparable()
        if request.get("follow") == adviser and set(request.get("with", ())) <= UNCHANGED  # type: ignore[call-overload]
    )


def _runs_of_request(request: Mapping[str, object]) -> tuple[records.SmokeRun, ...]:
    """Return the runs of a request whose launch is still the recommended one."""
    runs = [run for run, asked in _comparable() if asked == request and run.kind == "bash"]
    return tuple(run for run in runs if is_same_launch(*_recommended_launch(runs[0]), run))  # one launch for all


def is_same_launch(environment: Sequence[str], words: Sequence[str], run: records.SmokeRun) -> bool:
    """Return whether a run had these variables and options, but for a small difference of the cache's share."""
    share, rest = _split_share(words)
    run_share, run_rest = _split_share(run.command)
    return (*environment, *rest) == (*run.environment, *run_rest) and math.isclose(share, run_share, rel_tol=SAME_SHARE)


def _split_share(words: Sequence[str]) -> tuple[float, Sequence[str]]:
    """Return the cache's share, 0 where it is not given, and the other words."""
    if CACHE_SHARE not in words:
        return 0.0, words
    place = words.index(CACHE_SHARE)
    return float(words[place + 1]), (*words[:place], *words[place + 2 :])


@cache
def _recommended_launch(run: records.SmokeRun) -> tuple[Sequence[str], Sequence[str]]:
    """Return the variables and options that are recommended for a run's request."""
    parse_request = artefact.parse_request(artefact.Artefact(run.kind, "", "", json.loads(run.request)), {})
    recommendation = artefact.remake(*parse_request)
    script = artefact.parse(render(recommendation, run.kind), "serve.sh")
    return script.exported({}), script.words(recommendation.resolved, {})


def measured_table(data: SiteData) -> Iterator[str]:
    """Return the table of memory and speed; several runs give a range."""
    head = [data.t("Configuration"), "VRAM, GiB"]
    head += [f"{image}, {count}: {data.t('p50 ms' if count == 1 else 'requests/s')}" for image, count in LOADS]
    known = lines(data)
    yield from markup.table([*head, data.t("Runs")], (_cells(data, line) for line in known))
    first = known[0].runs[0]
    yield data.t(
        "{model} (weights: {weights}) on one {card}, LMDeploy {release}, {cores} CPU cores. Two figures are the"
        " lowest and highest of several runs. Advisers' configurations are as given, except for two changes "
        "that every start needs: `--trust-remote-code` is added, and the chat template file, which is not "
        "available, is left out."
    ).format(
        model=markup.text(data.store.models[first.model].hub),
        weights=markup.text(data.t(first.checkpoint)),
        card=markup.text(first.gpu_name),
        release=first.lmdeploy,
        cores=first.cpus,
    )


def _cells(data: SiteData, line: TableLine) -> list[str]:
    speeds = []
    for image, count in LOADS:
        nothing = data.t("refused") if line.refused(image, count) else "–"
        speeds.append(data.span(line.figures(image, count), 0 if count == 1 else 1) or nothing)
    runs = " ".join(f"[{number}](/runs.md#{run.id})" for number, run in enumerate(line.runs, 1))
    return [line.heading, data.span(line.memory(), 1), *speeds, runs]


STEP, LONGEST = 36, 66
"""Height of a row; percent of the width of the longest bar, which leaves room for its figure."""


def picture(data: SiteData) -> Iterator[str]:
    """Return two bar charts: requests/s at concurrency 16, and memory."""
    known = lines(data)
    rates = [(line, line.figures("448x448", 16)) for line in known]
    memory = [(line, line.memory()) for line in known]
    yield '\n<div class="pair">'
    yield _chart(data, data.t("Requests per second at concurrency 16, 448x448 images (higher is better)"), rates, 1)
    yield _chart(data, data.t("Memory when ready, GiB (lower is better)"), memory, 1)
    yield "</div>\n"


def _chart(data: SiteData, title: str, rows: Sequence[tuple[TableLine, list[float]]], digits: int) -> str:
    scale = LONGEST / max(max(values, default=0.0) for _, values in rows)
    parts: list[str] = []
    for number, (line, values) in enumerate(rows):
        parts += _bar(line, values, data.span(values, digits) or data.t("all requests rejected"), number * STEP, scale)
    spoken = (f"{line.title}: {data.span(values, digits) or data.t('no answer')}" for line, values in rows)
    return svg.bar_chart(title, ". ".join(spoken), parts, len(rows) * STEP)


def _bar(line: TableLine, values: list[float], figures: str, top: int, scale: float) -> Iterator[str]:
    yield svg.text(line.title, class_="strong" if line.ours else "", x=0, y=top + 13)
    low, high = (scale * min(values), scale * max(values)) if values else (0.0, 0.0)
    kind = "ours" if line.ours else "theirs"
    yield svg.element("rect", class_=kind, x=0, y=top + 18, width=f"{low:.1f}%", height=14)
    if high > low:
        width = f"{high - low:.1f}%"
        yield svg.element("rect", class_=f"{kind} more", x=f"{low:.1f}%", y=top + 18, width=width, height=14)
    yield svg.text(figures, class_="small", x=f"{high:.1f}%", dx=6 if values else 0, y=top + 29)
