"""The site's tables, charts and comparisons of releases hold what the records hold, and what their controls need."""

from __future__ import annotations

import gzip
import html
import json
import re
from dataclasses import dataclass
from itertools import pairwise, product

import pytest

from recommender import measured
from recommender.changes import diff
from recommender.conditions import version
from recommender.diff import published
from recommender.facts import options_of
from recommender.site import charts, claimed, comparison, history, measurements, options, people, series, sidebyside
from recommender.site.book import Book
from recommender.store import load

STORE = load()
BOOK = Book(STORE)
SEEDS = (
    "session-len",
    "cache-max-entry-count",
    "max-concurrent-requests",
    "max-batch-size",
    "max-prefill-token-num",
    "quant-policy",
    "cache-block-seq-len",
    "vision-max-batch-size",
    "dtype",
    "log-level",
    "eager-mode",
    "enable-prefix-caching",
    "num-tokens-per-iter",
)
"""The rows of the table that the users had."""


def words(text: str) -> str:
    """Text without its markup."""
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def attributes(tag: str) -> dict[str, str]:
    """The attributes of the first tag."""
    return {name: html.unescape(value) for name, value in re.findall(r'([a-z-]+)="([^"]*)"', tag.partition(">")[0])}


@dataclass(frozen=True)
class Row:
    """A setting of the comparison: its data for the script, and its cells by column with their tags."""

    data: dict[str, str]
    cells: dict[str, str]


@pytest.fixture(scope="module")
def compare() -> str:
    """The page's body."""
    return next(iter(comparison.pages(BOOK))).body


@pytest.fixture(scope="module")
def rows(compare: str) -> dict[str, Row]:
    """The rows of the comparison."""
    table = compare[compare.index('<table class="settings"') : compare.index("</table>")]
    found = {}
    for tag, body in re.findall(r"<tbody([^>]*)>(.*?)</tbody>", table, re.DOTALL):
        cells = re.findall(r"(<td class=[^>]*data-column[^>]*>.*?)</td>", body, re.DOTALL)
        data = attributes(tag)
        found[data["data-row"]] = Row(data, {attributes(each)["data-column"]: each for each in cells})
    return found


def test_no_setting_of_the_users_table_is_missing(rows: dict[str, Row]) -> None:
    """Every row that their own table had is there, and every adviser is a column."""
    assert set(SEEDS) <= set(rows)
    for row in rows.values():
        assert list(row.cells) == [*STORE.advisers, "ours-1", "ours-2"]


def test_rows_carry_what_the_controls_sort_and_filter_by(rows: dict[str, Row]) -> None:
    """The data of a row say of it what its cells show."""
    for option, row in rows.items():
        differs = [name for name, cell in row.cells.items() if "differs" in attributes(cell)["class"].split()]
        marks = {name: re.findall(r'class="verdict ([a-z-]+)"', cell) for name, cell in row.cells.items()}
        judged = [name for name, verdicts in marks.items() for _ in verdicts]
        refuted = [name for name, verdicts in marks.items() for each in verdicts if each == "refuted"]
        assert row.data["data-differs"].split() == differs
        assert row.data["data-judged"].split() == judged
        assert [each for each in row.data["data-refuted"].split() if each != "*"] == refuted
        known = STORE.flags.get(option)
        assert row.data["data-topic"] == (known.topic if known else row.data["data-topic"])
        assert row.data["data-name"]
    assert any(row.data["data-refuted"] for row in rows.values())
    assert any(not row.data["data-refuted"] for row in rows.values())


def test_verdicts_stand_with_those_who_claimed(rows: dict[str, Row]) -> None:
    """A mark in a cell is of a claim that this adviser made about this setting."""
    for option, row in rows.items():
        for name, cell in row.cells.items():
            for verdict, claim in re.findall(r'class="verdict ([a-z-]+)" href="md:claims.md#([a-z0-9.-]+)"', cell):
                record = STORE.claims[claim]
                assert record.verdict == verdict
                assert name in record.advisers
                assert option in record.options


def test_the_controls_name_what_is_there(compare: str, rows: dict[str, Row]) -> None:
    """A button a column, buttons say whether they are pressed, and without a script none is shown."""
    form = compare[compare.index('<form id="compare-controls"') : compare.index("</form>")]
    assert " hidden>" in form.split("\n")[0]
    assert re.findall(r'data-toggle="([^"]+)" aria-pressed="true"', form) == list(next(iter(rows.values())).cells)
    assert re.findall(r'data-sort="([^"]+)"', form) == list(comparison.SORTS)
    assert re.findall(r'data-only="([^"]+)" aria-pressed="false"', form) == ["differs", "refuted"]
    assert 'role="status"' in form
    assert '<label for="compare-text">' in form
    assert not re.search(r"<t[dhr][^>]* hidden", compare)


def test_every_figure_that_is_claimed_is_in_the_table() -> None:
    """All kinds of figures are known, and each has its row; of each adviser memory and throughput are told."""
    made = list(claimed.rows(BOOK))
    figures = [each for adviser in STORE.advisers.values() for each in adviser.figures]
    assert {each.kind for each in figures} <= set(claimed.KINDS)
    assert sorted(map(id, figures)) == sorted(id(row.figure) for row in made if row.figure)
    for adviser, kind in product(STORE.advisers, claimed.ALWAYS):
        assert [row for row in made if (row.adviser, row.kind) == (adviser, kind) and row.runs], (adviser, kind)


def test_what_was_measured_is_what_the_evidence_has(compare: str) -> None:
    """Beside each claim stand the figures of that adviser's own runs, from the raw records."""
    table = compare[compare.index('<table class="claimed"') :]
    shown = re.findall(r'<tr role="row" data-adviser="([^"]+)" data-kind="([^"]+)">(.*?)</tr>', table, re.DOTALL)
    made = list(claimed.rows(BOOK))
    assert len(shown) == len(made)
    for row, (adviser, kind, text) in zip(made, shown, strict=True):
        assert (row.adviser, row.kind) == (adviser, kind)
        assert re.findall(r'href="md:evidence/([^"]+)\.md"', text) == [run.id for run in row.runs]
        values = []
        for run in row.runs:
            asked = json.loads(run.request)
            assert asked["follow"] == adviser
            assert set(asked.get("with", {})) <= {"trust-remote-code"}
            if kind == "vram":
                values.append((run.ready_mib - run.idle_mib) * 2**20 / 1e9)
            for phase in run.phases:
                wanted = {"throughput": ("448x448", 16), "latency": ("448x448", 1)}.get(kind)
                got = measured.figures(phase)
                if (phase.image, phase.concurrency) == wanted and got.requests:
                    values.append(got.rps if kind == "throughput" else got.p50_ms)
        if values:
            assert (row.low, row.high) == (min(values), max(values))
            digits = 0 if kind == "latency" else 1
            assert f"{min(values):,.{digits}f}" in words(text)
        if row.figure and row.figure.unit == "GB" and values:
            assert row.times == (min(values) / row.figure.high, max(values) / row.figure.low)
            assert f"{row.times[0]:.1f}×" in words(text)


def test_ours_in_the_table_is_what_is_recommended_now() -> None:
    """A run of what was recommended for that load once, with another prefill budget, is none of ours any more."""
    every = {each.name: {run.id for run in each.runs} for each in sidebyside.lines(BOOK)}
    asked = {run.id for run in BOOK.runs.values() if json.loads(run.request) == sidebyside.OURS["ours, 16 in flight"]}
    ours = every["ours, 16 in flight"]
    assert {"h100-2026-11-21-ours-16", "h100-2026-11-21-rec-16-r2"} <= ours < asked
    budgets = {each: tuple(BOOK.runs[each].command).index("--max-prefill-token-num") + 1 for each in asked}
    values = {each: BOOK.runs[each].command[place] for each, place in budgets.items()}
    assert {values[each] for each in ours} == {"4096"}
    assert {values[each] for each in asked - ours} >= {"1024"}


def test_claims_carry_what_their_controls_filter_by() -> None:
    """Each claim is a part of the page with its verdict and its advisers; the buttons count them."""
    body = next(each.body for each in people.pages(BOOK) if each.path == "claims.md")
    parts = re.findall(
        r'<section class="claim" markdown="1" data-verdict="([^"]+)" data-advisers="([^"]*)">\s+### .*? \{ #(\S+) \}',
        body,
    )
    assert {name: (verdict, advisers) for verdict, advisers, name in parts} == {
        each.id: (each.verdict, " ".join(each.advisers)) for each in STORE.claims.values()
    }
    assert len(parts) == len(STORE.claims) == body.count("</section>")
    counts = re.findall(r'data-verdict="([^"]+)" aria-pressed="false">(.*?)</button>', body)
    assert {name: int(words(said).split()[-1]) for name, said in counts} == {
        name: sum(each.verdict == name for each in STORE.claims.values()) for name, _ in counts
    }
    assert sum(int(words(said).split()[-1]) for _, said in counts) == len(STORE.claims)
    assert re.findall(r'<option value="([^"]+)"', body) == list(STORE.advisers)


SERIES = {option.id: found for option in STORE.options() if (found := series.series_of(BOOK, option))}


def test_the_evidence_has_series() -> None:
    """The campaign varied at least these one at a time."""
    assert {"omp-num-threads", "quant-policy", "max-prefill-token-num", "max-dynamic-patch"} <= set(SERIES)


@pytest.mark.parametrize("option", SERIES)
def test_runs_of_a_series_differ_in_its_option_only(option: str) -> None:
    """What ran, read anew from the records, is the same but for the option and for what is a default."""
    flag = STORE.flags.get(option)
    for each in SERIES[option]:
        launches = set()
        for value, run in each.runs:
            command = " ".join(run.command)
            variables = [word for word in run.environment if not word.startswith(f"{each.name}=")]
            if flag:
                command = re.sub(rf"{re.escape(flag.option)}(?: (?!--)\S+)?(?= |$)", "", command)
            for name in series.ANY:
                command = re.sub(rf"--{name}(?: (?!--)\S+)?(?= |$)", "", command)
            for name, era in options_of(STORE, version(run.lmdeploy)).items():
                command = re.sub(rf"--{name} {re.escape(era.default or '-')}(?= |$)", "", command)
            tiles = run.max_tiles if option != "max-dynamic-patch" else 0
            launches.add(
                (*sorted([*command.split(), *variables]), run.gpu, run.cpus, run.model, run.copies, run.mps, tiles)
            )
            if value.given and value.text:
                assert value.text in (*run.command, str(run.max_tiles), "true") or (
                    f"{each.name}={value.text}" in run.environment or each.values.count(value) == 1
                )
        assert len(launches) == 1, each.runs
        assert len(each.values) > 1


@pytest.mark.parametrize("option", SERIES)
def test_a_chart_shows_the_figures_of_the_evidence(option: str) -> None:
    """Every dot leads to its run and says the figure that the record has; so does the table."""
    body = "\n".join(charts.for_option(BOOK, next(each for each in STORE.options() if each.id == option)))
    dots = re.findall(r'<a href="md:evidence/([^"]+)\.md" tabindex="-1" aria-label="([^"]+)"><circle', body)
    known = [
        (run.id, figure, panel.digits)
        for each in SERIES[option]
        if charts._tells(each)
        for panel in charts.PANELS
        for _, run, _, figure in charts.dots(each, panel)
    ]
    assert len(dots) == len(known)
    assert bool(dots) == bool(body)
    for (link, said), (name, figure, digits) in zip(dots, known, strict=True):
        assert link == name
        assert html.unescape(said).endswith(f": {figure:,.{digits}f} ({name})")
        run = BOOK.runs[name]
        every = [measured.figures(phase) for phase in run.phases]
        assert figure in {run.ready_mib - run.idle_mib, *(x.rps for x in every), *(x.p50_ms for x in every)}
        assert re.search(rf"\[{re.escape(name)}\]\(.*\|.*{re.escape(f'{figure:,.{digits}f}')}", body)


@pytest.mark.parametrize("option", SERIES)
def test_a_chart_stays_in_its_frame(option: str) -> None:
    """No dot leaves it, and no two words of a line run into each other, at 6 units a sign."""
    body = "\n".join(charts.for_option(BOOK, next(each for each in STORE.options() if each.id == option)))
    for width, height, inner in re.findall(r'<svg viewBox="0 0 (\d+) (\d+)"[^>]*>(.*?)</svg>', body, re.DOTALL):
        for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', inner):
            assert 4.5 <= float(x) <= float(width) - 4.5
            assert 0 <= float(y) <= float(height)
        rows: dict[str, list[tuple[float, float]]] = {}
        for x, y, anchor, text in re.findall(
            r'<text class="small" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]*)<', inner
        ):
            wide = 6 * len(html.unescape(text))
            left = float(x) - {"middle": wide / 2, "end": wide}[anchor]
            rows.setdefault(y, []).append((left, left + wide))
            assert float(y) <= float(height)
        for row in rows.values():
            assert all(one[1] <= other[0] for one, other in pairwise(sorted(row))), row


def test_no_series_no_chart() -> None:
    """A page of an option that nobody varied has no heading for it."""
    bare = [each for each in STORE.options() if each.id not in SERIES]
    assert bare
    for each in bare:
        assert not list(charts.for_option(BOOK, each))


def test_charts_are_the_same_each_time() -> None:
    """Their bytes follow from the records alone, and they stand on the options' pages."""
    again = Book(STORE)
    body = {each.path: each.body for each in options.pages(again)}
    for option in STORE.options():
        made = "\n".join(charts.for_option(BOOK, option))
        assert made == "\n".join(charts.for_option(again, option))
        assert made in body[f"flags/{option.id}.md"]
    assert "\n".join(charts.copies(BOOK)) == "\n".join(charts.copies(again))


def test_a_run_that_failed_has_no_dot() -> None:
    """Runs that did not end well are left out of series."""
    used = {run.outcome for found in SERIES.values() for each in found for _, run in each.runs}
    assert used == {"ok"}


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The files that the page about two releases loads, made once."""
    return dict(history.files(BOOK))


PAIRS = [(old, new) for old, new in product(BOOK.releases[::4], BOOK.releases[::5]) if old is not new]


def test_the_files_hold_what_diff_says(files: dict[str, str]) -> None:
    """Of more than thirty pairs, both ways, each file has all that the command says but for its sources."""
    assert len(PAIRS) >= 30
    assert any(history.diff(STORE, old, new).back for old, new in PAIRS)
    for old, new in PAIRS:
        wanted = json.loads(json.dumps(published(diff(STORE, old, new))))
        for name in ("removed", "added", "changed"):
            wanted[name] = [{key: each[key] for key in each if key != "sources"} for each in wanted[name]]
        assert json.loads(files[f"api/v1/diff/{old.id}.json"])["new"][new.id] == wanted


def test_there_is_a_file_a_release_and_each_is_small(files: dict[str, str]) -> None:
    """Each holds all other releases, in less than 25 kB compressed."""
    names = [each.id for each in BOOK.releases]
    assert set(files) == {f"api/v1/diff/{name}.json" for name in names}
    for name in names:
        text = files[f"api/v1/diff/{name}.json"]
        assert list(json.loads(text)["new"]) == [each for each in names if each != name]
        assert len(gzip.compress(text.encode(), mtime=0)) < 25_000


def test_the_page_offers_every_release() -> None:
    """Both lists have all covered releases, and the command stands there without a script."""
    body = next(each.body for each in history.pages(BOOK) if each.path == "releases/compare.md")
    lists = re.findall(r"<select .*?</select>", body)
    assert len(lists) == 2
    for each in lists:
        assert re.findall(r'value="([^"]+)"', each) == [release.id for release in reversed(BOOK.releases)]
    assert f"recommend diff 0.9.2 {BOOK.newest.id}" in body


def test_a_record_shows_its_errors() -> None:
    """A page of a run has a picture of predicted over measured wherever something was predicted."""
    made = {each.path: each.body for each in measurements.pages(BOOK)}
    for run in BOOK.runs.values():
        body = made[f"evidence/{run.id}.md"]
        assert "recommend smoke" in body
        assert ("Predicted over measured" in body) == bool(re.search(r"[+-]\d+\.\d%", body))


def test_another_release_of_a_run_is_another_series() -> None:
    """Runs of different releases are never in one picture."""
    first = SERIES["quant-policy"][0].runs[0][1].id
    runs = {**BOOK.runs, first: BOOK.runs[first].model_copy(update={"lmdeploy": "0.17.0"})}

    class Other(Book):
        """A book with those runs."""

        @property
        def runs(self):  # type: ignore[no-untyped-def]
            """The altered ones."""
            return runs

    option = next(each for each in STORE.options() if each.id == "quant-policy")
    found = series.series_of(Other(STORE), option)
    assert len(found[0].runs) == len(SERIES["quant-policy"][0].runs) - 1
    for each in found:
        assert len({run.lmdeploy for _, run in each.runs}) == 1
