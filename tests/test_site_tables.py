"""The site's tables and comparisons of releases hold what the records hold, and what their controls need."""

import html
import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from urllib.parse import parse_qs

import pytest
from sitepages import ROOT, words

from recommender.knowledge import run_figures
from recommender.knowledge.conditions import version
from recommender.knowledge.eras import within
from recommender.knowledge.load import load
from recommender.site.api import run_details
from recommender.site.browser.answer import answer
from recommender.site.pages import (
    advisers,
    claimed_figures,
    comparison,
    hardware,
    measured_table,
    outcomes,
    releases,
    runs,
)
from recommender.site.site_data import rebuild_setup, site_data
from recommender.smoke.report import phase_rows

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
        option = re.search(r'<tr id="([^"]+)"', body)[1]
        found[option] = Row(data, {attributes(each)["data-column"]: each for each in cells})
    return found


def test_no_setting_of_the_users_table_is_missing(rows: dict[str, Row]) -> None:
    """Every row that their own table had is there, and every adviser is a column."""
    assert set(SEEDS) <= set(rows)
    for row in rows.values():
        assert list(row.cells) == ["ours-1", "ours-2", *STORE.advisers]


def test_rows_carry_what_the_buttons_filter_by(rows: dict[str, Row]) -> None:
    """The data of a row say of it what its cells and its reasons show."""
    for row in rows.values():
        kinds = row.data["data-only"].split()
        assert ("differs" in kinds) == any(
            "differs" in attributes(cell)["class"].split() for cell in row.cells.values()
        )
    refuted = {option for option, row in rows.items() if "refuted" in row.data["data-only"].split()}
    newest = version(DATA.newest.id)
    claims = [
        each for each in STORE.claims.values() if each.verdict == "refuted" and within(each.since, each.until, newest)
    ]
    assert refuted == {option for each in claims for option in each.options} & rows.keys()


def test_verdicts_stand_with_those_who_claimed(rows: dict[str, Row]) -> None:
    """A mark in a cell is of a claim that this adviser made about this setting."""
    for option, row in rows.items():
        for name, cell in row.cells.items():
            for verdict, claim in re.findall(r'class="verdict ([a-z-]+)" href="md:claims.md#([a-z0-9.-]+)"', cell):
                record = STORE.claims[claim]
                assert record.verdict == verdict
                assert name in record.advisers
                assert option in record.options


def test_the_controls_name_what_is_there(compare: str) -> None:
    """Buttons say whether they are pressed, and without a script none is shown."""
    form = compare[compare.index('<form id="compare-controls"') : compare.index("</form>")]
    assert " hidden>" in form.split("\n")[0]
    assert re.findall(r'data-only="([^"]+)" aria-pressed="false"', form) == ["differs", "refuted"]
    assert 'role="status"' in form
    assert '<label for="compare-text">' in form
    assert not re.search(r"<t[dhr][^>]* hidden", compare)


def test_the_comparison_concludes_first(compare: str) -> None:
    """The first table has who starts, answers and is fastest, ours first; its figures are those of the runs."""
    first, table = compare.split("\n\n", 1)[0], compare[: compare.index('<div class="pair">')]
    lines = {line.name: line for line in measured_table.lines(DATA)}
    ours, defaults = (sorted(lines[name].figures("448x448", 16)) for name in (outcomes.PICK, "defaults"))
    gain = ours[len(ours) // 2] / defaults[len(defaults) // 2]
    assert f"answers {gain:.1f} times as many requests" in first
    names = re.findall(r"^\| (?:\*\*|\[)?([^|*\]]+)", table, re.MULTILINE)[2:]
    assert names[:3] == ["ours, concurrency 16", "ours, concurrency 16, 1280x720", "ours, one request"]
    cells = {
        row[0].strip(" *[").split("]")[0]: [each.strip() for each in row[1:]]
        for row in (line.strip("|").split("|") for line in table.splitlines())
        if len(row) > 5
    }
    assert cells["ChatGPT"][1:4] == ["no request", "–", "–"]
    assert cells["Grok"][1] == "448x448 only"
    rates = [float(cells[name.strip()][2]) for name in names[3:] if cells[name.strip()][2] != "–"]
    assert rates == sorted(rates, reverse=True)


def test_the_users_scenarios_and_critical_settings_are_judged(compare: str) -> None:
    """Each scenario has its picks and a verdict; so has each statement about the settings that they call critical."""
    part = compare[compare.index("{ #scenarios }") : compare.index("{ #critical }")]
    rows = [row for row in part.splitlines() if row.startswith("| [")]
    assert len(rows) == len(STORE.scenarios)
    assert all(row.count('class="verdict') == 1 for row in rows)
    constrained = next(row for row in rows if "#scenario-memory-constrained" in row)
    assert "answers no request" in constrained
    part = compare[compare.index("{ #critical }") : compare.index("{ #settings }")]
    options = set(re.findall(r"/flags/([a-z-]+)\.md", part))
    # The four that the comparison explains, and those of its hybrid.
    assert {"quant-policy", "cache-max-entry-count", "session-len", "eager-mode", "vision-max-batch-size"} <= options


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
        assert re.findall(r'href="md:runs.md#([^"]+)"', text) == [run.id for run in row.runs]
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
    counts = {name: int(count) for name, count in re.findall(r'<option value="[a-z-]+">([a-z-]+) \((\d+)\)', claims)}
    assert counts == Counter(claim.verdict for claim in STORE.claims.values())
    assert re.findall(r'<option value="([^"]+)"', claims) == [*counts, *STORE.advisers]


def test_the_page_offers_every_release() -> None:
    """Both lists have all covered releases, and the command stands there without a script."""
    page = body(releases, "releases/compare.md")
    lists = re.findall(r"<select .*?</select>", page)
    assert len(lists) == 2
    for options in lists:
        assert re.findall(r'value="([^"]+)"', options) == [release.id for release in reversed(DATA.releases)]
    assert f"recommend diff 0.9.2 {DATA.newest.id}" in page


def test_each_run_is_a_row_with_details() -> None:
    """What a row unfolds to has the commands, and each load's figures beside their predictions, as in the report."""
    table = body(runs, "runs.md")
    assert re.findall(r'<tr id="([^"]+)"', table) == [*DATA.runs, *DATA.probes]
    files = {path.rpartition("/")[2].removesuffix(".json"): blocks for path, blocks in run_details.files(DATA)}
    assert list(files) == [*DATA.runs, *DATA.probes]
    for name, run in DATA.runs.items():
        blocks = {block["title"]: block for block in files[name] if "title" in block}
        assert {block.get("head", "") for block in files[name]} <= {"", *runs.HEADS}
        assert "recommend smoke" in blocks["reproduce"]["code"]
        for phase in run.phases:
            block = blocks[run_details.describe_load(phase)]
            shown = {row[0]: row[1:] for row in block["rows"]}
            rows = {row.name: row for row in phase_rows(rebuild_setup(run, STORE), run, phase) if row.measured}
            if len([each for each in run.phases if run_details.describe_load(each) == block["title"]]) == 1:
                assert shown.keys() == rows.keys()
                assert all(len(shown[key]) == (1 if row.error is None else 4) for key, row in rows.items())


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
    """Also what is two levels down, under what the schema says of each field, and nothing as Python prints it."""
    bodies = {page.path: words(page.body) for page in hardware.pages(site_data())}
    index = STORE.models["deepseek-v3.2"].text.latent[0].index[0]
    assert f"| **Width of a scoring head** | {index.head_dim} |" in bodies["models/deepseek-v3.2.md"]
    assert "Audio encoder" in bodies["models/qwen3-omni-30b-a3b-instruct.md"]
    assert not [path for path, body in bodies.items() if "object at 0x" in body]


@pytest.mark.parametrize("kind", ["gpus", "models"])
def test_pages_name_what_has_an_answer(kind: str) -> None:
    """The models beside a GPU, and the GPUs beside a model, are served; most pages name some."""
    pages = [page for page in hardware.pages(DATA) if page.path.startswith(f"{kind}/") and "index" not in page.path]
    named = [re.findall(r"index\.md\?(model=[^\"]+)\"", page.body) for page in pages]
    assert sum(len(each) > 1 for each in named) > 0.8 * len(pages)
    for address in [link for each in named for link in each if "&amp;" in link][::9]:
        asked = parse_qs(html.unescape(address))
        words = [word for name, (value,) in asked.items() for word in (f"--{name}", value)]
        assert answer([*words, "--load", "1"])["exit"] == 0, address


@pytest.mark.parametrize("kind", ["gpus", "models"])
def test_each_page_leads_to_runs(kind: str) -> None:
    """Its own, or those of the nearest that were measured; a filtered link shows as many rows as it says."""
    rows = re.findall(r'<tr id="([^"]+)"[^>]*>(.*?)</tr>', body(runs, "runs.md"))
    cells = {name: [words(each) for each in re.split(r"<t[dh]\b[^>]*>", row)[1:]] for name, row in rows}
    pages = [page for page in hardware.pages(DATA) if page.path.startswith(f"{kind}/") and "index" not in page.path]
    for page in pages:
        part = page.body.partition("{ #measured }")[2].partition("\n## ")[0]
        for name in re.findall(r"\(/runs\.md#([^)]+)\)", part):
            assert name in cells
        links = re.findall(r'href="md:runs\.md#([^"]+)">[^<]*?(\d+) ', part)
        assert links or "(/runs.md#" in part, page.path
        for address, count in links:
            ((name, (value,)),) = parse_qs(html.unescape(address)).items()
            column = name.removeprefix("by-")
            found = [
                row
                for row in cells.values()
                if (row[int(column)] == value if column.isdigit() else value.lower() in " ".join(row).lower())
            ]
            assert len(found) == int(count), (page.path, address)


def test_the_nearest_run_of_a_slice_or_a_variant_is_of_its_own_kind() -> None:
    """A slice leads to the whole card first; a quantised or smaller variant to its architecture."""
    bodies = {page.path: page.body for page in hardware.pages(DATA)}
    first = {
        path: text.partition("No run ")[2].partition("\n- [")[2].partition("\n")[0] for path, text in bodies.items()
    }
    for gpu in ("h100-sxm-80g", "h200-sxm"):
        assert f"/gpus/{gpu}.md" in first[f"gpus/{gpu}-mig-1g.md"]
    ran = {STORE.models[run.model].architecture for run in DATA.runs.values()}
    for path in ("models/qwen2.5-vl-72b-instruct-awq.md", "models/internvl3-78b.md", "models/qwen3-14b-awq.md"):
        model = STORE.models[path.removeprefix("models/").removesuffix(".md")]
        assert model.architecture in ran
        assert "same architecture" in first[path]
