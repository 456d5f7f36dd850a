"""The site in a real browser: each kind of page, search, palettes, filters, languages and the picker.

All of it is skipped, and says so, where Chromium or Playwright is missing. The build is the one that all tests of the
site share; BUILT_SITE names a finished one to try instead.
"""

import gzip
import json
import re
import shlex
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from browser import Visit, chromium, served, visiting
from click.testing import CliRunner
from cpu_time import slowness

from recommender.cli import root
from recommender.knowledge.load import load
from recommender.lookup.release_diff import diff

STORE = load()
PHONES = (390, 360)
KINDS = {
    "start": "index.html", "compare": "compare.html", "claims": "claims.html", "threads": "threads.html",
    "a flag": "flags/quant-policy.html", "flags": "flags/index.html", "a release": "releases/0.16.0.html",
    "releases": "releases/index.html", "release diff": "releases/compare.html", "a GPU": "gpus/a100-sxm-80g.html",
    "a model": "models/internvl3-8b-awq.html", "an adviser": "advisers/guide.html",
    "evidence": "evidence/h100-2026-11-21-guide.html", "a rule": "rules/lmd201.html",
    "a concept": "concepts/kv-cache.html", "a how-to": "how-to/first-deployment.html",
    "reference": "reference/python.html", "picker": "picker.html", "Vietnamese start": "vi/index.html",
    "Vietnamese compare": "vi/compare.html", "Vietnamese flag": "vi/flags/session-len.html",
    "Vietnamese picker": "vi/picker.html",
}  # fmt: skip
STATE = "picker.html?model=internvl3-8b-awq&gpu=h100-sxm-80g&load=medium&goal=throughput"
ASKED = ["--model", "internvl3-8b-awq", "--gpu", "h100-sxm-80g", "--load", "medium", "--goal", "throughput"]
AXE = """options => axe.run(document, options).then(done => done.violations
  .filter(each => ["serious", "critical"].includes(each.impact))
  .map(each => [each.id, each.nodes.length, each.nodes[0].target.join(" "), each.nodes[0].failureSummary]))"""
OF_THE_LOOK = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "aria-hidden-focus", "list"]
"""What another palette and another width can break: the other rules look at the same elements as before."""
TOO_WIDE = """() => [...document.querySelectorAll(".chart, .chart svg, .language-sh code")]
  .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.outerHTML.slice(0, 200))"""
RUN_OUT = """() => [...document.querySelectorAll("svg.diagram")].flatMap(drawing =>
  [...drawing.querySelectorAll("text")].filter(each => {
    const [box, whole] = [each.getBBox(), drawing.viewBox.baseVal];
    return box.x < -1 || box.x + box.width > whole.width + 1 || box.y + box.height > whole.height + 4;
  }).map(each => each.textContent))"""
SHOWN = "selector => [...document.querySelectorAll(selector)].filter(each => each.checkVisibility())"
PALETTES = "form[data-md-component=palette] label:visible"
SEARCHABLE = """() => document.querySelector(".md-search-result__meta").textContent.trim() ===
  JSON.parse(document.querySelector("#__config").textContent).translations["search.result.placeholder"]"""
"""The index is read: what was typed before is looked for at the next key only."""
ANSWERED = "state => document.querySelector('#picker-answer')?.dataset.state === state"


# Playwright keeps an event loop running in this thread, which other files' asyncio.run would stumble over: it ends
# with this file.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def base(browser: Any, site: Path) -> Iterator[str]:
    """The address of the site below a host, as a published release has it."""
    with served(site) as address:
        yield address


@pytest.fixture
def visit(browser: Any, base: str) -> Iterator[Visit]:
    """A fresh page; an error, a failed request or a request to another host fails the test."""
    with visiting(browser, base) as started:
        yield started


@pytest.fixture(scope="module")
def axe() -> str:
    engine = pytest.importorskip("axe_playwright_python.base", reason="NO AXE: accessibility was not tried")
    return str(engine.AXE_SCRIPT)


def command(visit: Visit) -> list[str]:
    words = shlex.split(visit.page.locator("#picker-command").inner_text().partition(">")[0])
    assert words[0] == "recommend"
    return words[1:]


def said_by_cli(*words: str) -> str:
    done = CliRunner().invoke(root, list(words), prog_name="recommend")
    assert done.exit_code == 0, done.output
    return done.stdout


def violations(visit: Visit, options: dict[str, Any]) -> list[Any]:
    """Serious and critical violations on the page, once nothing moves on it any more."""
    visit.wait("() => document.getAnimations().every(each => each.playState !== 'running')")
    return list(visit.page.evaluate(AXE, {"resultTypes": ["violations"], **options}))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_page(visit: Visit, axe: str, kind: str) -> None:
    """No complaint, nothing for axe in either palette, no sideways scrolling on a phone, and its language named."""
    page = visit.open(KINDS[kind])
    assert page.get_attribute("html", "lang") == ("vi" if kind.startswith("Vietnamese") else "en")
    assert page.get_attribute("body", "data-md-color-scheme") == "default"
    page.evaluate(axe)
    assert violations(visit, {}) == []
    page.locator(PALETTES).click()
    visit.wait("() => document.body.dataset.mdColorScheme === 'slate'")
    for width in PHONES:
        page.set_viewport_size({"width": width, "height": 800})
        visit.wait("width => document.documentElement.clientWidth === width", width)
        wider = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wider) == 0, f"scrolls sideways at {width} px"
    # What scrolls by itself is made reachable once the new width is known.
    visit.wait("""() => [...document.querySelectorAll(".md-typeset__scrollwrap, .chart")].every(
        each => each.scrollWidth <= each.clientWidth || each.tabIndex === 0)""")
    assert violations(visit, {"runOnly": OF_THE_LOOK}) == []


def test_the_first_page_is_light(visit: Visit, site: Path) -> None:
    """All that a browser asks for with the first page is under 300 kB compressed, the search index not counted."""
    visit.open("index.html")
    visit.wait("() => document.readyState === 'complete'")
    files = {urlsplit(each).path.removeprefix(urlsplit(visit.base).path) for each in visit.asked}
    weights = {each: len(gzip.compress((site / each).read_bytes())) for each in files if "search_index" not in each}
    assert len(weights) > 4
    assert sum(weights.values()) < 300_000, weights


# Search, palettes, languages


@pytest.mark.parametrize(
    ("start", "typed", "wanted"),
    [
        ("index.html", "session-len", "flags/session-len.html"),
        ("vi/index.html", "session-len", "vi/flags/session-len.html"),
    ],
)
def test_search_finds_a_flag_and_opens_it(visit: Visit, start: str, typed: str, wanted: str) -> None:
    """Typing a flag's name shows its page, and Enter on it leads there."""
    page = visit.open(start)
    page.keyboard.press("/")
    field = page.locator("input.md-search__input")
    field.click()
    visit.wait(SEARCHABLE)
    field.press_sequentially(typed)
    page.locator(f'a.md-search-result__link[href^="{visit.base}{wanted}"]').first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(re.escape(visit.base + wanted)))
    page.locator("h1", has_text="session-len").wait_for()


def test_dark_mode_stays(visit: Visit) -> None:
    """The switch turns the palette, also on the next page."""
    page = visit.open("index.html")
    assert page.get_attribute("body", "data-md-color-scheme") == "default"
    # The boxes that a keyboard reaches are hidden; a mouse has the label of the other palette.
    page.locator(PALETTES).click()
    visit.wait("() => document.body.dataset.mdColorScheme === 'slate'")
    visit.open("flags/index.html")
    visit.wait("() => document.body.dataset.mdColorScheme === 'slate'")
    page.locator(PALETTES).click()
    visit.wait("() => document.body.dataset.mdColorScheme === 'default'")


@pytest.mark.parametrize("name", ["index.html", "compare.html", "flags/session-len.html", "concepts/kv-cache.html"])
def test_the_language_switch_stays_on_the_page(visit: Visit, name: str) -> None:
    """To Vietnamese and back is the same page, by keyboard."""
    page = visit.open(name)
    for language, path in (("vi", f"vi/{name}"), ("en", name)):
        link = page.locator(f".md-header a[hreflang={language}]")
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(visit.base + path)
        page.locator(f"html[lang={language}] h1").first.wait_for()


def test_what_is_not_translated_says_so(visit: Visit) -> None:
    """A page without a translation says where the switch leads; English on a Vietnamese page is marked as English."""
    page = visit.open("evidence/index.html")
    link = page.locator(".md-header a[hreflang=vi]")
    assert link.locator(".missing").count() == 1
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{visit.base}vi/index.html")
    visit.open("vi/compare.html")
    assert page.locator(".untranslated:not([lang=en])").count() == 0


# Tables and filters


def test_compare_is_sorted_by_keyboard(visit: Visit) -> None:
    """The order by name, turned round, is in the address, which brings it back."""
    page = visit.open("compare.html")
    names = """() => [...document.querySelectorAll("table.settings tbody[data-row]")].map(each => each.dataset.name)"""
    given = page.evaluate(names)
    button = page.locator('#compare-controls button[data-sort="name"]')
    button.focus()
    page.keyboard.press("Enter")
    page.locator("#compare-setting[aria-sort=ascending]").wait_for()
    up = page.evaluate(names)
    assert sorted(up) == sorted(given)
    assert up == page.evaluate("names => names.sort((a, b) => a.localeCompare(b))", given)
    page.keyboard.press("Enter")
    page.locator("#compare-setting[aria-sort=descending]").wait_for()
    down = page.evaluate(names)
    assert down == up[::-1]
    page.reload()
    page.locator("#compare-setting[aria-sort=descending]").wait_for()
    assert page.evaluate(names) == down


def test_compare_is_filtered(visit: Visit) -> None:
    """By words, by what differs and by column; the count says how many; the address brings it back."""
    page = visit.open("compare.html")
    rows = page.locator("table.settings tbody[data-row]:visible")
    every = rows.count()
    page.locator("#compare-text").press_sequentially("quant-policy")
    visit.wait(f"every => ({SHOWN})('table.settings tbody[data-row]').length < every", every)
    few = rows.count()
    page.locator('tbody[data-row="quant-policy"]:visible').wait_for()
    assert page.locator("#compare-count").inner_text().split()[0] == str(few)
    page.reload()
    visit.wait(f"few => ({SHOWN})('table.settings tbody[data-row]').length === few", few)
    page.locator("#compare-controls [data-clear]").click()
    visit.wait(f"every => ({SHOWN})('table.settings tbody[data-row]').length === every", every)
    page.locator('#compare-controls [data-only="refuted"]').press("Space")
    visit.wait(f"every => ({SHOWN})('table.settings tbody[data-row]').length < every", every)
    assert rows.count() == page.locator("tbody[data-refuted]:visible").count() > 0
    page.locator("#compare-controls [data-clear]").click()
    page.locator('#compare-controls [data-toggle="kimi"]').press("Enter")
    page.locator('td[data-column="kimi"]').first.wait_for(state="hidden")
    page.locator('td[data-column="guide"]').first.wait_for()


def test_compare_tells_the_reason(visit: Visit) -> None:
    """A row unfolds by keyboard, on a phone too."""
    for width in (1280, PHONES[0]):
        visit.page.set_viewport_size({"width": width, "height": 800})
        page = visit.open("compare.html")
        why = page.locator('tbody[data-row="session-len"] tr.why details')
        why.locator("summary").focus()
        page.keyboard.press("Enter")
        why.locator("dd").first.wait_for()


def test_claims_are_filtered(visit: Visit) -> None:
    """By verdict and adviser: exactly those of the records."""
    page = visit.open("claims.html")
    shown = f"() => ({SHOWN})('section.claim').map(each => each.querySelector('h3').id)"
    page.locator('#claims-controls [data-verdict="refuted"]').press("Enter")
    wanted = sorted(each.id for each in STORE.claims.values() if each.verdict == "refuted")
    visit.wait(f"wanted => ({shown})().length === wanted", len(wanted))
    assert sorted(page.evaluate(shown)) == wanted
    page.locator("#claims-adviser").select_option("kimi")
    visit.wait(f"wanted => ({shown})().length < wanted", len(wanted))
    kimi = page.evaluate(shown)
    assert kimi
    assert set(kimi) < set(wanted)
    assert page.locator("#claims-count").inner_text().split()[0] == str(len(kimi))
    page.reload()
    visit.wait(f"wanted => ({shown})().length === wanted", len(kimi))
    page.locator("#claims-controls [data-clear]").click()
    visit.wait(f"wanted => ({shown})().length === wanted", len(STORE.claims))


def test_two_releases_are_compared(visit: Visit) -> None:
    """What the command names for two releases stands on the page; the address brings it back."""
    page = visit.open("releases/compare.html#old=0.9.2&new=0.18.0")
    done = "() => document.querySelector('#release-diff')?.getAttribute('aria-busy') !== 'true'"
    page.locator("#release-diff :text('--disable-vision-encoder')").first.wait_for()
    visit.wait(done)
    text = page.locator("#release-diff").inner_text()
    named = set(re.findall(r"^  (--[a-z0-9-]+)", said_by_cli("diff", "0.9.2", "0.18.0"), re.MULTILINE))
    assert len(named) > 10
    assert {each for each in named if each not in text} == set()
    assert page.locator("#release-command").inner_text() == "recommend diff 0.9.2 0.18.0"
    page.locator("#releases-controls [data-swap]").press("Enter")
    page.locator("#release-command", has_text="recommend diff 0.18.0 0.9.2").wait_for()
    page.reload()
    page.locator("#release-command", has_text="recommend diff 0.18.0 0.9.2").wait_for()


@pytest.mark.parametrize(("old", "new"), [("0.9.2", "0.18.0"), ("0.13.0", "0.12.3")])
def test_two_releases_differ_as_the_command_says(visit: Visit, old: str, new: str) -> None:
    """The page names the options that came, went and changed, no other ones, and in that order."""
    found = diff(STORE, STORE.releases[old], STORE.releases[new])
    wanted = [[each.name for each in part] for part in (found.removed, found.changed, found.added)]
    assert any(wanted)
    page = visit.open(f"releases/compare.html#old={old}&new={new}")
    visit.wait("() => document.querySelector('#release-diff h2')")
    titles = ("Removed options", "Changed options", "New options")
    shown = """title => {
      const head = [...document.querySelectorAll("#release-diff h2")].find(each => each.textContent.startsWith(title));
      return head ? [...head.parentElement.querySelectorAll("h2 ~ ul")]
        .find(each => head.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING)
        .querySelectorAll(":scope > li > a:first-child").values().map(each => each.textContent).toArray() : [];
    }"""
    assert [page.evaluate(shown, each) for each in titles] == wanted


def test_pictures_and_commands_fit_a_phone(visit: Visit, site: Path) -> None:
    """Bars, diagrams and commands are seen whole without scrolling, and no words run out of a hand-drawn diagram."""
    concepts = sorted(
        f"{folder}{each.name}" for folder in ("concepts/", "vi/concepts/") for each in (site / folder).iterdir()
    )
    assert len(concepts) > 16
    visit.page.set_viewport_size({"width": min(PHONES), "height": 800})
    for name in ("index.html", "vi/index.html", KINDS["a flag"], KINDS["evidence"], *concepts):
        visit.open(name)
        assert visit.page.evaluate(TOO_WIDE) == [], name
        assert visit.page.evaluate(RUN_OUT) == [], name


# The picker


def script(visit: Visit) -> str:
    return str(visit.page.locator("#picker-script code").evaluate("each => each.textContent"))


def test_a_link_to_the_picker_gives_what_the_command_gives(visit: Visit) -> None:
    """The state in the address is answered; copied and downloaded are the bytes of the command line."""
    page = visit.open(STATE)
    visit.wait(ANSWERED, "answer")
    wanted = said_by_cli(*ASKED)
    assert script(visit) == wanted
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#picker-copy").press("Enter")
    page.locator("#picker-copied", has_text=re.compile(r"\S")).wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == wanted
    with page.expect_download() as coming:
        page.locator("#picker-download").press("Enter")
    assert coming.value.suggested_filename == "serve.sh"
    assert Path(coming.value.path()).read_bytes() == wanted.encode()
    assert said_by_cli(*command(visit)) == wanted


def select(visit: Visit, field: str, value: str) -> None:
    """Chooses in the list that has the focus: its first word, then as many steps as it takes."""
    chosen, wanted = (
        visit.page.locator(f"#picker-{field} option{each}") for each in (":checked", f"[value='{value}']")
    )
    index = "each => each.index"
    visit.page.keyboard.type(wanted.inner_text().split()[0])
    for _ in range(200):
        steps = wanted.evaluate(index) - chosen.evaluate(index)
        if not steps:
            break
        visit.page.keyboard.press("ArrowDown" if steps > 0 else "ArrowUp")
    assert chosen.get_attribute("value") == value


def test_the_picker_by_keyboard_alone(visit: Visit) -> None:
    """Four answers without a mouse; the address then gives the same script anew; Back undoes the last answer."""
    page = visit.open("picker.html")
    visit.wait("() => document.querySelector('#picker-answer').dataset.state !== 'waiting'")
    page.locator("#picker-model").focus()
    for field, value in (("model", "internvl3-8b-awq"), ("gpu", "h100-sxm-80g")):
        for _ in range(12):
            if page.evaluate("() => document.activeElement.id") == f"picker-{field}":
                break
            page.keyboard.press("Tab")
        select(visit, field, value)
    for field, wanted in (("load", "medium"), ("goal", "throughput")):
        chosen = page.locator(f"input[name={field}]:checked")
        for _ in range(20):
            if page.evaluate("() => document.activeElement.name") == field:
                break
            page.keyboard.press("Tab")
        for _ in range(5):
            if chosen.get_attribute("value") == wanted:
                break
            page.keyboard.press("ArrowDown")
        assert chosen.get_attribute("value") == wanted, field
    visit.wait(ANSWERED, "answer")
    wanted_state = {"model": ["internvl3-8b-awq"], "gpu": ["h100-sxm-80g"], "load": ["medium"], "goal": ["throughput"]}
    assert parse_qs(urlsplit(page.url).query) == wanted_state
    wanted_script = said_by_cli(*ASKED)
    visit.wait("wanted => document.querySelector('#picker-script code')?.textContent === wanted", wanted_script)
    page.reload()
    visit.wait(ANSWERED, "answer")
    assert script(visit) == wanted_script
    page.go_back()
    visit.wait("() => new URLSearchParams(location.search).get('goal') !== 'throughput'")
    visit.wait("""() => document.querySelector("input[name=goal]:checked").value !== "throughput" """)


@pytest.mark.alone
def test_the_picker_answers_at_once(visit: Visit) -> None:
    """Half of the changes after loading are answered in under 100 ms; times are those of a machine of usual speed."""
    page = visit.open(STATE)
    visit.wait(ANSWERED, "answer")
    change = """async () => {
      const code = "#picker-script code", took = [];
      for (const id of ["load-high", "goal-memory", "load-single", "goal-latency", "load-low", "goal-throughput",
                        "load-medium"]) {
        const before = document.querySelector(code)?.textContent, start = performance.now();
        document.querySelector(`#picker-${id}`).click();
        while (document.querySelector(code)?.textContent === before && performance.now() - start < 5000)
          await new Promise(done => setTimeout(done, 1));
        took.push(performance.now() - start);
      }
      return took;
    }"""
    rounds: list[float] = []
    while len(rounds) < 3 and not (rounds and min(rounds) < 100):
        rounds.append(statistics.median(page.evaluate(change)) / slowness())
    assert min(rounds) < 100, rounds


def test_the_drawer_of_the_picker_gives_the_command(visit: Visit) -> None:
    """An answer that is not among the prepared ones is the command that gives it."""
    page = visit.open(f"{STATE}&p99=800")
    visit.wait(ANSWERED, "elsewhere")
    page.locator("#picker-why", has_text=re.compile(r"\S")).wait_for()
    assert "800" in command(visit)
    assert said_by_cli(*command(visit)) == said_by_cli(*ASKED, "--p99", "800")
    visit.open(STATE)
    visit.wait(ANSWERED, "answer")
    page.locator("#picker-more summary").press("Enter")
    page.locator("#picker-p99").fill("800")
    page.locator("#picker-p99").press("Enter")
    visit.wait(ANSWERED, "elsewhere")
    assert parse_qs(urlsplit(page.url).query)["p99"] == ["800"]


def test_a_load_that_is_a_number_is_asked_as_it_is(visit: Visit) -> None:
    """No named load stands for it; another answer leaves it as it is, until a named load is chosen."""
    page = visit.open(STATE.replace("load=medium", "load=16"))
    visit.wait(ANSWERED, "elsewhere")
    asked = [each.replace("medium", "16") for each in ASKED]
    assert said_by_cli(*command(visit)) == said_by_cli(*asked)
    assert page.locator("input[name=load]:checked").count() == 0
    page.locator("#picker-goal-memory").press("Space")
    page.locator("#picker-command", has_text="--load 16 --goal memory").wait_for()
    page.locator("#picker-load-medium").press("Space")
    visit.wait(ANSWERED, "answer")


@pytest.mark.parametrize("name", ["index.html", "vi/index.html"])
def test_the_first_page_answers(visit: Visit, name: str) -> None:
    """The four questions stand on it, with the script; figures and reasons fold out."""
    page = visit.open(f"{name}?{STATE.partition('?')[2]}")
    visit.wait(ANSWERED, "answer")
    assert script(visit) == said_by_cli(*ASKED)
    page.locator("#picker-behind > summary").press("Enter")
    page.locator("#picker-memory-table tr").nth(3).wait_for()


def test_the_picker_says_what_it_does_not_know(visit: Visit) -> None:
    """A card that nobody knows is said, and the page still answers."""
    page = visit.open(STATE.replace("h100-sxm-80g", "h999"))
    page.locator("#picker-notice", has_text="h999").wait_for()
    visit.wait("() => !['waiting', 'failed'].includes(document.querySelector('#picker-answer').dataset.state)")
    assert page.locator("#picker-gpu").input_value() in STORE.gpus


def test_the_answer_of_the_picker_is_complete(visit: Visit, axe: str) -> None:
    """Memory as a picture and as a table, a reason for each flag, advisers; nothing for axe, on a phone too."""
    visit.page.set_viewport_size({"width": PHONES[0], "height": 800})
    page = visit.open(STATE)
    visit.wait(ANSWERED, "answer")
    assert page.locator("#picker-memory-table tr").count() > 3
    assert page.locator("#picker-advisers tr").count() > 3
    assert page.locator("#picker-status").inner_text()
    flag = page.locator("#picker-flags .picker-flag[data-option=session-len]")
    flag.locator("summary").press("Enter")
    flag.locator("a").first.wait_for()
    page.evaluate(axe)
    assert violations(visit, {}) == []


def test_the_list_of_the_api_is_where_the_page_says(visit: Visit, site: Path) -> None:
    """The static JSON API is served as JSON, and its list names files that are there."""
    answer = visit.page.request.get(f"{visit.base}api/v1/index.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == json.loads((site / "api/v1/index.json").read_text("utf-8"))
