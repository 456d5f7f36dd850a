"""The charts on the site's pages: which runs they show, and that each dot is a figure of the evidence."""

import html
import re
from functools import cache
from itertools import pairwise

from recommender.knowledge import run_figures
from recommender.knowledge.conditions import version
from recommender.knowledge.eras import options_of
from recommender.knowledge.load import load
from recommender.site.charts import option_charts
from recommender.site.charts.series import ANY, Series, series_of
from recommender.site.pages import options, runs
from recommender.site.site_data import SiteData, site_data

STORE = load()
DATA = site_data()


@cache
def charts() -> dict[str, tuple[list[Series], str]]:
    return {
        option.id: (series_of(DATA, option), "\n".join(option_charts.charts_of_option(DATA, option)))
        for option in STORE.options()
    }


def series() -> list[tuple[str, Series]]:
    return [(option, single) for option, (known, _) in charts().items() for single in known]


def test_the_evidence_has_series() -> None:
    """The campaign varied at least these one at a time; runs that did not end well are left out."""
    options = {option for option, _ in series()}
    assert {"omp-num-threads", "quant-policy", "max-prefill-token-num", "max-dynamic-patch"} <= options
    assert {run.outcome for _, single in series() for _, run in single.runs} == {"ok"}


def launch(option: str, single: Series, run: object) -> tuple[object, ...]:
    """What ran, read anew from the record, without the option and without what is a default."""
    record = DATA.runs[run.id]  # type: ignore[attr-defined]
    command = " ".join(record.command)
    for name in (*ANY, *([option] if option in STORE.flags else [])):
        command = re.sub(rf"--{name}(?: (?!--)\S+)?(?= |$)", "", command)
    for name, era in options_of(STORE, version(record.lmdeploy)).items():
        command = re.sub(rf"--{name} {re.escape(era.default or '-')}(?= |$)", "", command)
    variables = [word for word in record.environment if not word.startswith(f"{single.name}=")]
    tiles = record.max_tiles if option != "max-dynamic-patch" else 0
    where = (record.gpu, record.cpus, record.model, record.copies, record.mps, tiles)
    return (*sorted([*command.split(), *variables]), *where)


def test_runs_of_a_series_differ_in_its_option_only() -> None:
    """What ran is the same but for the option, and the option's value is what the run was given."""
    for option, single in series():
        assert len({launch(option, single, run) for _, run in single.runs}) == 1, single.runs
        assert len(single.values) > 1, option
        for value, run in single.runs:
            if value.is_set and value.text:
                assert (
                    value.text in (*run.command, str(run.max_tiles), "true")
                    or f"{single.name}={value.text}" in run.environment
                    or single.values.count(value) == 1
                )


def test_a_chart_shows_the_figures_of_the_evidence() -> None:
    """Every dot leads to its run and says the figure that the record has; so does the table."""
    for option, (known, body) in charts().items():
        dots = re.findall(r'<a href="md:runs.md#([^"]+)" tabindex="-1" aria-label="([^"]+)"><circle', body)
        wanted = [
            (point.run, point.figure, panel.number(point.figure))
            for single in known
            for panel, points in option_charts.panels(single)
            for point in points
        ]
        assert bool(dots) == bool(body), option
        for (link, label), (run, figure, number) in zip(dots, wanted, strict=True):
            assert link == run.id
            assert html.unescape(label).endswith(f": {number}")
            figures = [run_figures.figures(phase) for phase in run.phases]
            assert figure in {
                (run.ready_mib - run.idle_mib) / 1024,
                *(x.rps for x in figures),
                *(x.p50_ms for x in figures),
            }
            assert re.search(rf"\[{re.escape(run.id)}\]\(.*\|.*{re.escape(number)}", body)


def test_a_chart_stays_in_its_frame() -> None:
    """No dot leaves it, and no two words of a line run into each other, at 6 units a sign."""
    bodies = "\n".join(body for _, body in charts().values())
    for width, height, inner in re.findall(r'<svg viewBox="0 0 (\d+) (\d+)"[^>]*>(.*?)</svg>', bodies, re.DOTALL):
        for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', inner):
            assert 4.5 <= float(x) <= float(width) - 4.5
            assert 0 <= float(y) <= float(height)
        rows: dict[str, list[tuple[float, float]]] = {}
        for x, y, anchor, text in re.findall(
            r'<text class="small" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]*)<', inner
        ):
            wide = 6 * len(html.unescape(text))
            left = float(x) - {"middle": wide / 2, "end": wide}[anchor]
            assert anchor == "middle" or left >= 0, text
            assert not re.search(r"\de[+-]\d", text), text
            rows.setdefault(y, []).append((left, left + wide))
            assert float(y) <= float(height)
        for row in rows.values():
            assert all(first[1] <= second[0] for first, second in pairwise(sorted(row))), row


def test_charts_stand_on_their_pages() -> None:
    """Those of an option on its page, those of copies on the evidence's; an option that nobody varied has none."""
    bodies = {page.path: page.body for page in options.pages(DATA)}
    for option, (known, body) in charts().items():
        assert body in bodies[f"flags/{option}.md"]
        assert known or not body
    assert not all(known for known, _ in charts().values())
    assert "\n".join(option_charts.charts_of_copies(DATA)) in next(runs.pages(DATA)).body


def test_another_release_of_a_run_is_another_series() -> None:
    """Runs of different releases are never in one picture."""
    option = STORE.flags["quant-policy"]
    before = series_of(DATA, option)[0]
    first = before.runs[0][1].id
    runs = {**DATA.runs, first: DATA.runs[first].model_copy(update={"lmdeploy": "0.17.0"})}

    class Altered(SiteData):
        @property
        def runs(self):  # type: ignore[no-untyped-def]
            return runs

    after = series_of(Altered(STORE), option)
    assert len(after[0].runs) == len(before.runs) - 1
    assert all(len({run.lmdeploy for _, run in single.runs}) == 1 for single in after)
