"""The site's tables and comparisons of releases hold what the records hold, and what their controls need."""

import gzip
import html
import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import product
from types import ModuleType

import pytest
from sitepages import ROOT, words

from recommender.knowledge import run_figures
from recommender.knowledge.load import load
from recommender.lookup.release_diff import diff
from recommender.lookup.release_diff_text import as_json
from recommender.site.pages import (
    advisers,
    claimed_figures,
    comparison,
    hardware,
    measured_table,
    measurements,
    releases,
)
from recommender.site.site_data import site_data

STORE = load()
DATA = site_data()
SEEDS = (
    "session-len", "cache-max-entry-count", "max-concurrent-requests", "max-batch-size", "max-prefill-token-num",
    "quant-policy", "cache-block-seq-len", "vision-max-batch-size", "dtype", "log-level", "eager-mode",
    "enable-prefix-caching", "num-tokens-per-iter",
)  # fmt: skip
"""The rows of the table that the users had."""


def body(kind: ModuleType, path: str) -> str:
    return next(page.body for page in kind.pages(DATA) if page.path == path)


def attributes(tag: str) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in re.findall(r'([a-z-]+)="([^"]*)"', tag.partition(">")[0])}


@dataclass(frozen=True)
class Row:
    """A setting of the comparison: its data for the script, and its cells by column with their tags."""

    data: dict[str, str]
    cells: dict[str, str]


@pytest.fixture(scope="module")
def compare() -> str:
    return body(comparison, "compare.md")


@pytest.fixture(scope="module")
def rows(compare: str) -> dict[str, Row]:
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
    made = list(claimed_figures.rows(DATA))
    figures = [each for adviser in STORE.advisers.values() for each in adviser.figures]
    assert {each.kind for each in figures} <= set(claimed_figures.KINDS)
    assert sorted(map(id, figures)) == sorted(id(row.figure) for row in made if row.figure)
    for adviser, kind in product(STORE.advisers, claimed_figures.ALWAYS):
        assert [row for row in made if (row.adviser, row.kind) == (adviser, kind) and row.runs], (adviser, kind)


def test_what_was_measured_is_what_the_evidence_has(compare: str) -> None:
    """Beside each claim stand the figures of that adviser's own runs, from the raw records."""
    table = compare[compare.index('<table class="claimed"') :]
    shown = re.findall(r'<tr role="row" data-adviser="([^"]+)" data-kind="([^"]+)">(.*?)</tr>', table, re.DOTALL)
    made = list(claimed_figures.rows(DATA))
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
                got = run_figures.figures(phase)
                if (phase.image, phase.concurrency) == wanted and got.requests and got.trusted:
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
    every = {each.name: {run.id for run in each.runs} for each in measured_table.lines(DATA)}
    asked = {
        run.id for run in DATA.runs.values() if json.loads(run.request) == measured_table.OURS["ours, concurrency 16"]
    }
    ours = every["ours, concurrency 16"]
    assert {"h100-2026-11-21-ours-16", "h100-2026-11-21-rec-16-r2"} <= ours < asked
    budgets = {each: tuple(DATA.runs[each].command).index("--max-prefill-token-num") + 1 for each in asked}
    values = {each: DATA.runs[each].command[place] for each, place in budgets.items()}
    assert {values[each] for each in ours} == {"4096"}
    assert {values[each] for each in asked - ours} >= {"1024"}


def test_claims_carry_what_their_controls_filter_by() -> None:
    """Each claim is a part of the page with its verdict and its advisers; the buttons count them."""
    claims = body(advisers, "claims.md")
    parts = re.findall(
        r'<section class="claim" markdown="1" data-verdict="([^"]+)" data-advisers="([^"]*)">\s+### .*? \{ #(\S+) \}',
        claims,
    )
    assert {name: (verdict, who) for verdict, who, name in parts} == {
        claim.id: (claim.verdict, " ".join(claim.advisers)) for claim in STORE.claims.values()
    }
    assert len(parts) == len(STORE.claims) == claims.count("</section>")
    buttons = re.findall(r'data-verdict="([^"]+)" aria-pressed="false">(.*?)</button>', claims)
    counts = {name: int(words(label).split()[-1]) for name, label in buttons}
    verdicts = Counter(claim.verdict for claim in STORE.claims.values())
    assert counts == {name: verdicts[name] for name in counts}
    assert sum(counts.values()) == len(STORE.claims)
    assert re.findall(r'<option value="([^"]+)"', claims) == list(STORE.advisers)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The files that the page about two releases loads, made once."""
    return dict(releases.files(DATA))


PAIRS = [(old, new) for old, new in product(DATA.releases[::4], DATA.releases[::5]) if old is not new]


def test_the_files_hold_what_diff_says(files: dict[str, str]) -> None:
    """Of more than thirty pairs, both ways, each file has all that the command says but for its sources."""
    assert len(PAIRS) >= 30
    assert any(releases.diff(STORE, old, new).back for old, new in PAIRS)
    for old, new in PAIRS:
        wanted = json.loads(json.dumps(as_json(diff(STORE, old, new))))
        for name in ("removed", "added", "changed"):
            for each in wanted[name]:
                del each["sources"], each["caveat"]
        assert json.loads(files[f"api/v1/diff/{old.id}.json"])["new"][new.id] == wanted


def test_there_is_a_file_a_release_and_each_is_small(files: dict[str, str]) -> None:
    """Each holds all other releases, in less than 25 kB compressed."""
    names = [each.id for each in DATA.releases]
    assert set(files) == {f"api/v1/diff/{name}.json" for name in names}
    for name in names:
        text = files[f"api/v1/diff/{name}.json"]
        assert list(json.loads(text)["new"]) == [each for each in names if each != name]
        assert len(gzip.compress(text.encode(), mtime=0)) < 25_000


def test_the_page_offers_every_release() -> None:
    """Both lists have all covered releases, and the command stands there without a script."""
    page = body(releases, "releases/compare.md")
    lists = re.findall(r"<select .*?</select>", page)
    assert len(lists) == 2
    for options in lists:
        assert re.findall(r'value="([^"]+)"', options) == [release.id for release in reversed(DATA.releases)]
    assert f"recommend diff 0.9.2 {DATA.newest.id}" in page


def test_a_record_shows_its_errors() -> None:
    """A page of a run has a picture of predicted over measured wherever something was predicted."""
    bodies = {page.path: page.body for page in measurements.pages(DATA)}
    for name in DATA.runs:
        page = bodies[f"evidence/{name}.md"]
        assert "recommend smoke" in page
        assert ("Predicted / measured" in page) == bool(re.search(r"[+-]\d+\.\d%", page))


@pytest.mark.parametrize("page", ["measure.md", "measure.vi.md"])
def test_the_comparison_with_guidellm_is_its_raw_file(page: str) -> None:
    """The table has the raw file's figures; the text's "four of six within 3 %" and 60 in flight follow from them."""
    raw = json.loads((ROOT / "site" / "assets" / "guidellm-h200-2026-11-24.json").read_text())["rows"]
    text = (ROOT / "site" / "how-to" / page).read_text()
    runs = ("first", "second", "guidellm")
    for row in raw:
        cells = [f"{row[run]['rps']:.1f}" for run in runs] + [f"{row[run]['p50']:.0f}" for run in runs]
        assert f"| {row['concurrency']} | {' | '.join(cells)} |" in text
    near = [abs(2 * row["guidellm"]["rps"] / (row["first"]["rps"] + row["second"]["rps"]) - 1) <= 0.03 for row in raw]
    assert near.count(True) == 4
    busiest = raw[-1]["guidellm"]
    assert round(busiest["rps"] * busiest["p50"] / 1000) == 60


def test_a_models_page_has_its_whole_shape() -> None:
    """Also what is two levels down, and nothing as Python prints it."""
    bodies = {page.path: words(page.body) for page in hardware.pages(site_data())}
    assert "Index:" in bodies["models/deepseek-v3.2.md"]
    assert "Audio encoder" in bodies["models/qwen3-omni-30b-a3b-instruct.md"]
    assert not [path for path, body in bodies.items() if "object at 0x" in body]
