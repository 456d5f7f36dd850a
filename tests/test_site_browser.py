"""The site in a real browser: each kind of page, search, palettes, languages, tables, old addresses, the two tools.

All of it is skipped, and says so, where Chromium or Playwright is missing. The build is the one that all tests of the
site share; BUILT_SITE names a finished one to try instead. The configurator has its own file.
"""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from browser import Visit, violations, visiting
from click.testing import CliRunner
from sitepages import ROOT

from recommender.cli import root
from recommender.knowledge.load import load
from recommender.lookup.release_diff import diff
from recommender.site.browser.run import run
from recommender.site.pages import runs
from recommender.site.site_data import site_data

STORE = load()
REVIEWS = ROOT / "tests" / "reviews"
PHONES = (390, 360)
KINDS = {
    "start": "index.html", "compare": "compare.html", "claims": "claims.html", "threads": "threads.html",
    "a flag": "flags/quant-policy.html", "flags": "flags/index.html", "a release": "releases/0.16.0.html",
    "releases": "releases/index.html", "release diff": "releases/compare.html", "a GPU": "gpus/a100-sxm-80g.html",
    "GPUs": "gpus/index.html", "a model": "models/internvl3-8b-awq.html", "models": "models/index.html",
    "an adviser": "advisers/guide.html", "runs": "runs.html", "a rule": "rules/lmd201.html", "fix": "fix.html",
    "check": "check.html", "a concept": "concepts/kv-cache.html", "guides": "how-to/index.html",
    "a how-to": "how-to/first-deployment.html", "errors of predictions": "concepts/predictions.html",
    "reference": "reference/python.html", "Vietnamese start": "vi/index.html", "Vietnamese compare": "vi/compare.html",
    "Vietnamese flag": "vi/flags/session-len.html", "Vietnamese check": "vi/check.html",
    "Vietnamese fix": "vi/fix.html", "Vietnamese claims": "vi/claims.html",
}  # fmt: skip
OF_THE_LOOK = ["scrollable-region-focusable", "aria-hidden-focus", "list"]
"""What another palette and another width can break, beside contrast and links in text."""
RUN_OUT = """() => [...document.querySelectorAll("svg.diagram")].flatMap(drawing =>
  [...drawing.querySelectorAll("text")].filter(each => {
    const [box, whole] = [each.getBBox(), drawing.viewBox.baseVal];
    return box.x < -1 || box.x + box.width > whole.width + 1 || box.y + box.height > whole.height + 4;
  }).map(each => each.textContent))"""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
REACHED = """() => [...document.querySelectorAll(".md-typeset__scrollwrap, .data-scroll, .chart, .compare")]
  .every(each => each.scrollWidth <= each.clientWidth || each.tabIndex === 0)"""
NOTHING_SCROLLS = """() => [...document.querySelectorAll("article *")].every(each =>
  each.scrollWidth <= each.clientWidth + 1 || getComputedStyle(each).overflowX === "visible" ||
  !each.checkVisibility() || each.closest("pre, svg, .unseen, .chart"))"""
SHOWN = "selector => [...document.querySelectorAll(selector)].filter(each => each.checkVisibility())"
PALETTES = "form[data-md-component=palette] label:visible"
DIFFERENCE = "text => document.querySelector('#release-diff').innerText.trim() === text"
SEARCHED = "query => document.querySelector('#search').dataset.shown === query"


def said_by_cli(*words: str) -> str:
    done = CliRunner().invoke(root, list(words), prog_name="recommend")
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_page(reading: Visit, axe: str, kind: str) -> None:
    """No complaint, nothing for axe in either palette, no sideways scrolling on a phone, and its language named."""
    page = reading.open(KINDS[kind])
    assert page.get_attribute("html", "lang") == ("vi" if kind.startswith("Vietnamese") else "en")
    assert page.get_attribute("body", "data-md-color-scheme") == "default"
    page.evaluate(axe)
    assert violations(reading) == []
    page.locator(PALETTES).click()
    reading.wait("() => document.body.dataset.mdColorScheme === 'slate'")
    for width in PHONES:
        page.set_viewport_size({"width": width, "height": 800})
        reading.wait("width => document.documentElement.clientWidth === width", width)
        assert page.evaluate(WIDER) == 0, f"scrolls sideways at {width} px"
    # What scrolls by itself is made reachable once the new width is known.
    reading.wait(REACHED)
    assert violations(reading, OF_THE_LOOK) == []


def test_one_pale_row_of_many_is_found(visit: Visit, axe: str) -> None:
    """Though the contrast of rows that look alike is computed for a few of them: pale text, or a pale background."""
    page = visit.open("runs.html")
    page.evaluate(axe)
    for style in ("color: #ccc", "background: #888"):
        page.locator("#runs-table tbody tr:nth-last-child(5)").evaluate("(row, style) => { row.style = style; }", style)
        assert {rule for rule, *_ in violations(visit, OF_THE_LOOK)} == {"color-contrast"}, style


def test_one_link_like_its_text_is_found(reading: Visit, axe: str) -> None:
    """Though links that look alike are compared with the text around for a few of them: only its colour differs."""
    page = reading.open("claims.html")
    page.evaluate(axe)
    page.locator("article li a[href*='/issues/']").last.evaluate("link => { link.style = 'text-decoration: none'; }")
    assert [rule for rule, *_ in violations(reading, OF_THE_LOOK)] == ["link-in-text-block"]


def test_the_first_page_is_light(visit: Visit, site: Path) -> None:
    """What a browser asks for with the first page is under 200 kB compressed, before the recommender is loaded."""
    visit.open("index.html")
    files = {urlsplit(each).path.removeprefix(urlsplit(visit.base).path) for each in visit.asked}
    weights = {each: len(gzip.compress((site / each).read_bytes())) for each in files if "/runtime/" not in each}
    assert len(weights) > 8
    assert sum(weights.values()) < 200_000, weights


# Search, palettes, languages

WANTED = {
    "OOM": "how-to/short-of-memory", "--tp": "flags/tp", "out of memory": "how-to/short-of-memory",
    "hang at start": "threads.html#", "throughput": "how-to/high-load", "InternVL3": "models/internvl3-",
    "KV cache int8": "(concepts/kv-quantisation|flags/quant-policy)", "trust remote code": "flags/trust-remote-code",
    "prefix caching": "(concepts/prefix-caching|flags/enable-prefix-caching)", "session-len": "flags/session-len",
    "first token": "(threads.html#turbomind-vlm-first-token-slower|how-to/high-load)", "4090": "gpus/rtx-4090",
    "nccl": "(threads.html#|flags/nccl-)", "kubernetes": "how-to/fleet", "quant policy": "flags/quant-policy",
    "tensor parallelism": "concepts/tensor-parallelism", "chat template": "flags/chat-template",
    "LMD201": "rules/lmd201", "exit code": "reference/exit-codes", "image tokens": "concepts/image-tokens",
    "KV cache OOM": "how-to/short-of-memory", "cuda out of memory": "threads.html#out-of-memory",
    "slow first token": "threads.html#turbomind-vlm-first-token-slower", "tensor parallel": "concepts/tensor-parallel",
    "awq": "concepts/weight-quantisation", "docker": "how-to/first-deployment", "systemd": "how-to/fleet",
    "k8s": "how-to/fleet", "pytorch engine": "flags/backend", "metrics": "flags/enable-metrics",
    "prometheus": "flags/enable-metrics", "TurboMind vs PyTorch": "flags/backend", "503": "how-to/fleet",
    "gpu not listed": "how-to/adding-a-record", "--max-model-len": "flags/session-len",
    "gpu memory utilization": "flags/cache-max-entry-count", "max-num-seqs": "flags/max-batch-size",
    "what does cache-max-entry-count do": "flags/cache-max-entry-count", "context length": "flags/session-len",
    "LMDeploy 0.10": "releases/0.10", "what did 0.12 change": "releases/0.12.0",
    "health check": "threads.html#health-", "upgrade lmdeploy": "releases/",
    "how many H100 for 200 requests/s": "how-to/fleet", "gpu memory utilisation": "flags/cache-max-entry-count",
    "numa": "how-to/high-load", "gpu utilisation low": "how-to/high-load", "gpu idle": "how-to/high-load",
    "json mode": "flags/response-format", "4bit awq": "concepts/weight-quantisation", "timeout": "how-to/high-load",
    "latency too high": "how-to/high-load", "cuda graph": "flags/(eager-mode|cudagraph-)", "lora": "flags/adapters",
    "load balancing": "concepts/front", "rate limit": "flags/max-concurrent-requests",
    "batching": "concepts/persistent", "paged attention": "concepts/blocked-kv",
    "slow startup": "how-to/first-deployment", "helm": "how-to/fleet", "server stuck": "threads.html#health-says-ok",
    "fp8 kv cache": "concepts/kv-quantisation", "grafana": "how-to/fleet",
    "shm size": "threads.html#nccl-error-in-pod", "memory leak": "threads.html#nccl-2-27-leaks", "https": "flags/ssl",
    "which gpu do I need": "index.html", "concurrent requests": "flags/max-", "wrong answers": "threads.html#int4-kv-",
}  # fmt: skip
"""What one of the first three hits leads to, by what is typed."""


def find(visit: Visit, typed: str) -> list[str]:
    """Type into the search and return the addresses of the hits, once they are those of all that was typed."""
    visit.page.locator("#search input").fill(typed)
    visit.wait(SEARCHED, typed)
    hits = visit.page.locator("#search-hits a").evaluate_all("all => all.map(each => each.href)")
    return [hit.removeprefix(visit.base) for hit in hits]


def test_search_finds_what_people_type(reading: Visit) -> None:
    """The guide, option or known issue is one of the first three hits."""
    reading.open("index.html").keyboard.press("/")
    found = {typed: find(reading, typed)[:3] for typed in WANTED}
    missed = {typed: hits for typed, hits in found.items() if not any(re.match(WANTED[typed], hit) for hit in hits)}
    assert not missed


MISSPELT = {
    "througput": "how-to/high-load", "quantisaton": "concepts/(kv|weight)-quantisation",
    "quantizaton": "concepts/(kv|weight)-quantisation", "prefix-cachng": "concepts/prefix-caching",
    "kv cahe": "concepts/kv-cache", "kvcache": "concepts/kv-cache", "out of memroy": "how-to/short-of-memory",
    "tensor paralell": "concepts/tensor-parallelism", "sesion len": "flags/session-len",
    "sessionlen": "flags/session-len", "kuberntes": "how-to/fleet", "promethues": "flags/enable-metrics",
    "chat tempalte": "flags/chat-template", "first tokn": "threads.html#turbomind-vlm-first-token-slower",
    "hnag at start": "threads.html#", "max batch sise": "flags/max-batch-size", "quant polcy": "flags/quant-policy",
    "pytroch engine": "flags/backend", "contxt lenght": "flags/session-len", "image tokns": "concepts/image-tokens",
    "exit cods": "reference/exit-codes", "--cache-max-entry-cuont": "flags/cache-max-entry-count",
    "dokcer": "how-to/first-deployment", "intervl3": "models/internvl3-",
}  # fmt: skip
"""The same, with letters left out, added, changed or swapped, and words run together."""
IN_VIETNAMESE = {
    "OOM at start": "vi/threads.html#out-of-memory-at-start",
    "RuntimeError: [TM][ERROR] CUDA runtime error: out of memory": "vi/threads.html#out-of-memory",
    "hết bộ nhớ": "vi/how-to/short-of-memory", "server bị treo": "vi/threads.html#health-says-ok-while-dead",
    "multi node": "vi/concepts/several-hosts", "thông lượng": "vi/how-to/high-load",
    "nhiều gpu": "vi/concepts/tensor-", "bộ nhớ đệm tiền tố": "vi/concepts/prefix-caching",
    "phiên bản mới": "vi/releases/", "nâng cấp": "vi/releases/", "độ trễ": "vi/how-to/",
    "độ trễ token đầu": "vi/threads.html#turbomind-vlm-first-token-slower", "tải cao": "high-load",
    "lượng tử hóa": "vi/concepts/weight-quantisation", "tràn bộ nhớ": "vi/how-to/short-of-memory",
    "chạy chậm": "vi/concepts/what-limits-speed", "cân bằng tải": "vi/concepts/front", "nhiều máy": "several-hosts",
    "khóa api": "vi/flags/api-keys", "giám sát": "vi/how-to/fleet", "ảnh lớn": "vi/concepts/image-tokens",
    "số request đồng thời": "vi/flags/max-batch-size", "độ dài ngữ cảnh": "vi/flags/session-len",
    "bộ nhớ gpu": "vi/how-to/short-of-memory", "bao nhiêu gpu": "vi/how-to/fleet", "đo hiệu năng": "vi/how-to/measure",
    "gpu không có trong danh sách": "vi/how-to/adding-a-record",
    "server chết": "vi/threads.html#health-says-ok-while-dead", "so sánh phiên bản": "vi/releases/compare",
    "khởi động chậm": "vi/how-to/first-deployment",
}  # fmt: skip
"""The same in Vietnamese, where logs and half of the words are English."""


def test_search_forgives_misspelt_words(reading: Visit) -> None:
    """What they stand for is one of the first three hits, and is named; the words of the site stay as they are."""
    page = reading.open("index.html")
    page.keyboard.press("/")
    said = page.locator("#search [role=status]")
    missed = {}
    for typed, wanted in MISSPELT.items():
        hits = find(reading, typed)[:3]
        if not any(re.match(wanted, hit) for hit in hits) or not said.inner_text().startswith("≈ "):
            missed[typed] = hits
    assert not missed
    corrected = [typed for typed in WANTED if find(reading, typed) and said.inner_text()]
    assert corrected == []


def test_search_in_vietnamese_knows_english_logs(reading: Visit) -> None:
    """The Vietnamese guide or known issue is one of the first three hits; kinds are named in Vietnamese."""
    page = reading.open("vi/index.html")
    page.keyboard.press("/")
    found = {typed: find(reading, typed)[:3] for typed in IN_VIETNAMESE}
    missed = {typed: hits for typed, hits in found.items() if not any(IN_VIETNAMESE[typed] in hit for hit in hits)}
    assert not missed
    assert not set(page.locator("#search-hits small").all_inner_texts()) & {"Guide", "Known issue", "Rule", "Release"}


@pytest.mark.parametrize("folder", ["", "vi/"])
def test_search_finds_a_flag_and_opens_it(reading: Visit, folder: str) -> None:
    """By keyboard alone: its name, and Enter on the first hit."""
    page = reading.open(f"{folder}index.html")
    page.keyboard.press("/")
    assert find(reading, "session-len")[0] == f"{folder}flags/session-len.html"
    page.keyboard.press("Enter")
    page.wait_for_url(f"{reading.base}{folder}flags/session-len.html")
    page.locator("h1", has_text="session-len").wait_for()


def test_search_says_that_it_finds_nothing(reading: Visit) -> None:
    """In words, for a screen reader too."""
    page = reading.open("vi/index.html")
    page.keyboard.press("/")
    assert find(reading, "xyzzy") == []
    assert page.locator("#search [role=status]").inner_text()


@pytest.mark.parametrize(("folder", "language", "said"), [("", "en", "No page"), ("vi/", "vi", "Không có trang")])
def test_an_unknown_address_is_answered_in_its_language(
    visit: Visit, site: Path, folder: str, language: str, said: str
) -> None:
    """With links to pages of that language: in the text, in the header and from the search."""
    body = (site / "404.html").read_text("utf-8").replace('="/', f'="{urlsplit(visit.base).path}')
    body = body.replace('"/vi/', f'"{urlsplit(visit.base).path}vi/').replace('"base": "/"', '"base": "."')
    visit.page.route("**/no-such-page.html", lambda route: route.fulfill(body=body, content_type="text/html"))
    page = visit.open(f"{folder}no-such-page.html")
    assert page.get_attribute("html", "lang") == language
    assert [heading.startswith(said) for heading in page.locator("h1").all_inner_texts()] == [True]
    links = page.locator("article a, .md-tabs a, .md-logo").evaluate_all("all => all.map(each => each.href)")
    paths = [link.removeprefix(visit.base) for link in links]
    assert len(paths) > 9
    assert all(path.startswith(folder) and (site / path).exists() for path in paths), paths
    page.keyboard.press("/")
    assert find(visit, "session-len")[0] == f"{folder}flags/session-len.html"


def test_dark_mode_stays(reading: Visit) -> None:
    """The switch turns the palette, also on the next page."""
    page = reading.open("index.html")
    assert page.get_attribute("body", "data-md-color-scheme") == "default"
    # The boxes that a keyboard reaches are hidden; a mouse has the label of the other palette.
    page.locator(PALETTES).click()
    reading.wait("() => document.body.dataset.mdColorScheme === 'slate'")
    reading.open("flags/index.html")
    reading.wait("() => document.body.dataset.mdColorScheme === 'slate'")
    page.locator(PALETTES).click()
    reading.wait("() => document.body.dataset.mdColorScheme === 'default'")


@pytest.mark.parametrize("name", ["index.html", "compare.html", "flags/session-len.html", "concepts/kv-cache.html"])
def test_the_language_switch_stays_on_the_page(reading: Visit, name: str) -> None:
    """To Vietnamese and back is the same page, by keyboard."""
    page = reading.open(name)
    for language, path in (("vi", f"vi/{name}"), ("en", name)):
        link = page.locator(f".md-header a[hreflang={language}]")
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(reading.base + path)
        page.locator(f"html[lang={language}] h1").first.wait_for()


def test_what_is_not_translated_says_so(reading: Visit) -> None:
    """English on a Vietnamese page is marked as English."""
    page = reading.open("vi/compare.html")
    assert page.locator(".untranslated:not([lang=en])").count() == 0


# Tables


def number_shown(visit: Visit, selector: str, condition: str) -> None:
    """Wait until as many elements are visible as a condition on their number ``n`` says."""
    visit.wait(f"() => {{ const n = ({SHOWN})({json.dumps(selector)}).length; return {condition}; }}")


def test_compare_is_filtered(visit: Visit) -> None:
    """By words and by what differs; the count says how many; the address brings it back."""
    page = visit.open("compare.html")
    every_row = "table.settings tbody"
    rows = page.locator(f"{every_row}:visible")
    every = rows.count()
    page.locator("#compare-text").fill("quant-policy")
    number_shown(visit, every_row, f"0 < n && n < {every}")
    few = rows.count()
    page.locator("tr#quant-policy").wait_for()
    assert page.locator("#compare-count").inner_text().split()[0] == str(few)
    page.reload()
    number_shown(visit, every_row, f"n === {few}")
    page.locator("#compare-text").fill("")
    number_shown(visit, every_row, f"n === {every}")
    page.locator('#compare-controls [data-only="refuted"]').press("Space")
    number_shown(visit, every_row, f"0 < n && n < {every}")
    assert rows.count() == page.locator('tbody[data-only~="refuted"]').count()


def test_compare_tells_the_reason(visit: Visit) -> None:
    """A row unfolds by keyboard, on a phone too."""
    for width in (1280, PHONES[0]):
        visit.page.set_viewport_size({"width": width, "height": 800})
        page = visit.open("compare.html")
        why = page.locator("tbody:has(tr#session-len) details").first
        why.locator("summary").focus()
        page.keyboard.press("Enter")
        why.locator("dd").first.wait_for()


@pytest.mark.parametrize(
    "address",
    [
        *("compare.html", "vi/compare.html", "flags/quant-policy.html", "releases/index.html"),
        *("runs.html", "vi/runs.html", "models/index.html", "gpus/index.html", "how-to/describe-your-load.html"),
    ],
)
def test_no_table_scrolls_sideways_on_a_phone(visit: Visit, address: str) -> None:
    """A wide one becomes cards whose cells name their columns; a wide window shows it as a table again."""
    page = visit.open(address)
    heads = page.evaluate(
        "() => [...document.querySelectorAll(':is(.md-typeset__table, .data-scroll) thead')]"
        ".map(head => [...head.rows[0].cells].map("
        "each => each.textContent.trim()))"
    )
    for width in PHONES:
        page.set_viewport_size({"width": width, "height": 800})
        visit.wait("() => document.querySelector('[data-cards]')")
        visit.wait(NOTHING_SCROLLS)
        assert page.evaluate(WIDER) == 0
    named = page.evaluate(
        "() => [...document.querySelectorAll('[data-cards]')].flatMap(table => [...table.tBodies[0].rows].map("
        "row => [...row.cells].map(each => [each.dataset.head, each.textContent.trim()])))"
    )
    assert named
    for row in named:
        assert any(all(name in ("", head) for (name, _), head in zip(row, known, strict=False)) for known in heads), row
        assert all(name or not text for name, text in row[1:]), row
    page.set_viewport_size({"width": 1280, "height": 800})
    visit.wait("() => !document.querySelector('[data-cards]')")


def test_claims_are_filtered(visit: Visit) -> None:
    """By verdict and adviser: exactly those of the records."""
    page = visit.open("claims.html")
    shown = f"() => ({SHOWN})('section.claim').map(each => each.querySelector('h3').id)"
    page.locator("#claims-verdict").select_option("refuted")
    refuted = {each.id for each in STORE.claims.values() if each.verdict == "refuted"}
    number_shown(visit, "section.claim", f"n === {len(refuted)}")
    assert set(page.evaluate(shown)) == refuted
    page.locator("#claims-adviser").select_option("kimi")
    wanted = {each for each in refuted if "kimi" in STORE.claims[each].advisers}
    assert wanted
    number_shown(visit, "section.claim", f"n === {len(wanted)}")
    assert set(page.evaluate(shown)) == wanted
    assert page.locator("#claims-count").inner_text().split()[0] == str(len(wanted))
    page.reload()
    number_shown(visit, "section.claim", f"n === {len(wanted)}")


def test_runs_are_filtered_sorted_and_unfold(visit: Visit) -> None:
    """By GPU; the head of a column sorts; a row unfolds to its command; the address brings filter and order back."""
    page = visit.open("runs.html")
    every = len(STORE.evidence) + len(STORE.probes)
    number_shown(visit, "#runs-table tbody tr", f"n === {every}")
    page.locator("#by-2").select_option("2 x H200 141GB SXM")
    number_shown(visit, "#runs-table tbody tr", f"0 < n && n < {every}")
    head = page.locator("#runs-table th button", has_text="Peak requests/s")
    head.press("Enter")
    rates = """() => [...document.querySelectorAll("#runs-table tbody tr:not([hidden])")]
        .map(each => Number(each.cells[8].textContent))"""
    page.locator("#runs-table th[aria-sort=descending]").wait_for()
    sorted_rates = page.evaluate(rates)
    assert sorted_rates == sorted(sorted_rates, reverse=True)
    page.locator("#runs-table tbody tr:visible th a").first.press("Enter")
    page.locator("tr.detail pre", has_text="recommend smoke").first.wait_for()
    page.reload()
    page.locator("#runs-table th[aria-sort=descending]").wait_for()
    assert page.evaluate(rates) == sorted_rates


def test_runs_are_filtered_by_configuration(visit: Visit) -> None:
    """As recommended, an adviser's, or with an option changed: as many as were asked for so."""
    asked = [json.loads(run.request) for run in site_data().runs.values()]
    page = visit.open("runs.html")
    kimi = [each for each in asked if each.get("follow") == "kimi"]
    batch = [each for each in asked if "max-batch-size" in each.get("with", ())]
    assert kimi
    for value, wanted in (("kimi", kimi), ("max-batch-size", batch)):
        page.locator("#configuration").select_option(value)
        number_shown(visit, "#runs-table tbody tr", f"n === {len(wanted)}")
    page.reload()
    number_shown(visit, "#runs-table tbody tr", f"n === {len(batch)}")
    page.locator("#configuration").select_option("ours")
    number_shown(visit, "#runs-table tbody tr", "n > 0")
    shown = page.evaluate(f"() => ({SHOWN})('#runs-table tbody tr').map(each => each.id)")
    requests = [json.loads(site_data().runs[name].request) for name in shown]
    assert not [each for each in requests if "follow" in each or {*each.get("with", ())} - runs.NEEDED]


def test_old_addresses_lead_to_what_they_named(reading: Visit) -> None:
    """A run's page to its row, unfolded; a picker's link to the same question."""
    name = next(iter(STORE.evidence))
    page = reading.open(f"evidence/{name}.html")
    page.wait_for_url(f"{reading.base}runs.html#{name}")
    page.locator(f"tr#{name} + tr.detail pre").first.wait_for()
    reading.open("picker.html?gpu=l4&model=internvl3-8b-awq")
    page.wait_for_url(f"{reading.base}index.html?gpu=l4&model=internvl3-8b-awq")
    assert page.locator("#q-gpu").input_value() == "l4"


@pytest.mark.usefixtures("npm_packages")
def test_two_releases_differ_as_the_command_says(visit: Visit) -> None:
    """The page has the command's text, with a link for each option; the address brings it back."""
    page = visit.open("releases/compare.html#old=0.9.2&new=0.18.0")
    shown = page.locator("#release-diff")
    for old, new in (("0.9.2", "0.18.0"), ("0.13.0", "0.12.3")):
        if old != "0.9.2":  # which the address asks for
            page.locator("#release-old").select_option(old)
            page.locator("#release-new").select_option(new)
        visit.wait(DIFFERENCE, said_by_cli("diff", old, new).strip())
        found = diff(STORE, STORE.releases[old], STORE.releases[new])
        linked = set(shown.locator("a").all_inner_texts())
        assert {each.name for part in (found.removed, found.changed, found.added) for each in part} <= linked
        page.locator("#releases-controls [data-swap]").press("Enter")
        page.locator("#release-command", has_text=f"recommend diff {new} {old}").wait_for()
    page.reload()
    page.locator("#release-command", has_text=f"recommend diff {new} {old}").wait_for()


@pytest.mark.usefixtures("npm_packages")
def test_two_releases_differ_in_vietnamese(visit: Visit) -> None:
    """A button asks for the pair that is chosen already; the answer has what the command has, and none of its words."""
    page = visit.open("vi/releases/compare.html")
    old, new = (page.locator(f"#release-{each}").input_value() for each in ("old", "new"))
    assert not page.locator("#release-diff").inner_text()
    page.locator("#releases-controls [data-show]").press("Enter")
    page.locator("#release-diff .depth-1").first.wait_for()
    found = diff(STORE, STORE.releases[old], STORE.releases[new])
    shown = page.locator("#release-diff").inner_text()
    for option in (*found.removed, *found.added):
        assert option.name in shown
        assert STORE.flags[option.option].summary_vi in shown
    items = (*found.removed, *found.changed, *found.added, *found.needs, *found.rules_gone, *found.rules_new)
    notices = (*found.threads_gone, *found.threads_new, *found.claims_gone, *found.claims_new)
    assert page.locator("#release-diff .depth-1").count() == len(items) + len(notices) + bool(found.removed)
    for each in (*found.rules_gone, *found.rules_new, *notices):
        assert each.text not in shown
    filled = [each for each in found.rules_gone if "{lmdeploy}" in STORE.constraints[each.id].message]
    assert filled
    assert "<release>" not in shown


def test_diagrams_fit_a_phone(visit: Visit, site: Path) -> None:
    """No words run out of a hand-drawn diagram."""
    concepts = sorted(
        f"{folder}{each.name}" for folder in ("concepts/", "vi/concepts/") for each in (site / folder).iterdir()
    )
    assert len(concepts) > 16
    visit.page.set_viewport_size({"width": min(PHONES), "height": 800})
    for name in concepts:
        if "http-equiv" not in (site / name).read_text("utf-8"):
            visit.open(name)
            assert visit.page.evaluate(RUN_OUT) == [], name


# The check of a script, and the finder

BAD = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ --session-len 256 --max-batch-size 1\n"
CHECKED = "part => document.querySelector('#checker').dataset.shown?.startsWith(part)"


@pytest.fixture(scope="module", params=["", "vi/"])
def checking(browser: Any, base: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """The page of each language that checks a script; each test fills all of its form."""
    with visiting(browser, base) as visit:
        visit.open(f"{request.param}check.html")
        yield visit


def check(visit: Visit, script: str, gpu: str = "", load: str = "", release: str = "") -> None:
    """Fill the form and send it."""
    values = {"#script": script, "#c-gpu": gpu, "#c-load": load, "#c-lmdeploy": release}
    for field, value in values.items():
        visit.page.locator(field).fill(value)
    visit.page.evaluate("() => { delete document.querySelector('#checker').dataset.shown; }")
    visit.page.locator("#checker button[type=submit]").press("Enter")


@pytest.mark.usefixtures("npm_packages")
def test_a_pasted_script_gets_the_commands_findings(checking: Visit, tmp_path: Path) -> None:
    """Findings at their lines, the repaired text and our values: those of ``recommend review``."""
    (tmp_path / "script").write_text(BAD)
    asked = ["review", str(tmp_path / "script"), "--gpu", "A100-80G", "--load", "16", "--lmdeploy", "0.18.0"]
    report = json.loads(CliRunner().invoke(root, [*asked, "--format", "json"]).stdout)
    page = checking.page
    check(checking, BAD, "A100-80G", "16", "0.18.0")
    checking.wait(CHECKED, "findings")
    assert page.locator(".finding > p:first-child a").all_inner_texts() == [each["rule"] for each in report["findings"]]
    messages = [" ".join(each["message"].split()) for each in report["findings"]]
    shown = page.locator(".finding > p:first-child b").all_inner_texts()
    is_english = page.get_attribute("html", "lang") == "en"
    assert shown == messages if is_english else not set(shown) & set(messages)
    assert page.locator("#check-part [lang=en]").count() == 0
    question = "gpu=a100-sxm-80g&load=16&lmdeploy=0.18.0&model=internvl3-8b-awq"
    links = page.locator(".finding a.configure").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert links == [f"index.html?{question}"]  # one for all findings of the server
    assert page.locator(".finding").last.locator("a.configure").count() == 1
    for part, more in (("repaired", ["--diff", "--unsafe"]), ("optimized", ["--optimize", "--diff"])):
        page.locator(f"#tab-{part}").click()
        checking.wait(CHECKED, part)
        difference = CliRunner().invoke(root, [*asked, *more]).stdout.splitlines()[2:]
        assert page.locator("#check-part .row code").all_inner_texts() == [line for line in difference if line]
        assert difference
    page.locator("#tab-findings").click()


@pytest.mark.usefixtures("npm_packages")
@pytest.mark.parametrize("checking", [""], indirect=True)
def test_the_check_says_which_rules_lack_an_input(checking: Visit) -> None:
    """By the names of its fields, with as many rules as the command leaves out."""
    report = json.loads(run(["review", "script", "--format", "json"], {"script": BAD}).stdout)
    silent = {each["needs"]: len(each["rules"]) for each in report["silent"]}
    check(checking, BAD)
    names = {"gpu": "GPU", "load": "Concurrency"}
    wanted = [f"not checked without {names[needs]}: {count} rules" for needs, count in silent.items()]
    status = checking.page.locator("#check-status", has_text="not checked without")
    status.wait_for()
    _, *said = status.inner_text().split("; ")
    assert said == wanted
    assert len(said) == 2


@pytest.mark.usefixtures("npm_packages")
def test_an_impatient_reader_presses_twice(visit: Visit) -> None:
    """Both checks wait for the parser; the result is that of the last text, and goes with it."""
    page = visit.open("check.html")
    page.locator("#script").fill(BAD)
    page.locator("#checker button[type=submit]").evaluate("each => { each.click(); each.click(); }")
    visit.wait(CHECKED, "findings")
    assert "LMD203" in page.locator(".finding > p:first-child a").all_inner_texts()
    page.locator("#script").fill(BAD.replace("256", "4096 --tp 3"))
    page.locator("#c-gpu").fill("A100-80G")
    page.locator("#c-load").fill("16")
    page.locator("#c-load").press("Enter")
    page.locator("#tab-optimized").click()
    page.locator("#check-part .reasons", has_text="not optimized").wait_for()
    assert page.locator("#check-part .clean").count() == 0
    page.locator("#tab-findings").click()
    page.locator("#script").fill("vllm serve Qwen/Qwen2.5-7B --max-model-len 4096\n")
    page.locator("#checker button[type=submit]").press("Enter")
    page.locator("#check-part .clean", has_text="No call of LMDeploy").wait_for()
    page.locator("#script").fill("")
    page.locator("#checker button[type=submit]").press("Enter")
    page.locator("#check-status", has_text="Paste a script").wait_for()
    assert not page.locator("#check-result").is_visible()


PROGRAMS = (".go", ".java", ".js", ".mjs", ".rs", ".ts")

REVIEW = """async words => {
  const { pageEngine } = await import(new URL("assets/configure/engine.js", document.baseURI));
  window.engine ??= pageEngine(() => {});
  const [name, text, ...asked] = words;
  return window.engine.call("run", ["review", name, "--format", "json", ...asked], { [name]: text });
}"""


@pytest.mark.usefixtures("npm_packages")
def test_real_scripts_get_the_commands_findings(visit: Visit) -> None:
    """Published commands and scripts, read by the browser's parser: byte by byte what the command says of them."""
    visit.open("check.html")
    files = [path for folder in ("corpus", "files") for path in sorted((REVIEWS / folder).iterdir())[::4]]
    published = [yaml.safe_load(path.read_text("utf-8")) for path in files]
    assert len(published) > 30
    for each in published:
        # The parsers agree on shell, not on where other languages break its rules.
        suffix = Path(each.get("path", "")).suffix
        name = f"script{suffix}" if suffix in (".ps1", ".py", *PROGRAMS) else "script"
        name = each["path"] if each.get("path") == "Tiltfile" else name
        outcome = run(["review", name, "--format", "json", "--load", "16"], {name: each["text"]})
        shown = visit.page.evaluate(REVIEW, [name, each["text"], "--load", "16"])
        assert (shown["stdout"], shown["stderr"], shown["code"]) == (outcome.stdout, outcome.stderr, outcome.code), each


@pytest.mark.usefixtures("npm_packages")
@pytest.mark.parametrize("checking", [""], indirect=True)
def test_the_check_says_what_it_does_not_understand(checking: Visit) -> None:
    """Nothing pasted, and a GPU that nobody knows."""
    check(checking, "")
    checking.page.locator("#check-status", has_text="Paste a script").wait_for()
    check(checking, BAD, "A1000")
    checking.page.locator("#check-status", has_text="did you mean").wait_for()
    link = checking.page.locator("#check-status a.configure")
    assert link.get_attribute("href") == "index.html?gpu=A1000"


@pytest.mark.usefixtures("npm_packages")
@pytest.mark.parametrize("checking", [""], indirect=True)
def test_the_check_offers_values_that_it_understands(checking: Visit) -> None:
    """In place of an unknown GPU or load: buttons, each of which works; the boxes list GPUs and releases."""
    page = checking.page
    for field, typed in (("gpu", "A1000"), ("gpu", "zzz"), ("load", "often")):
        check(checking, BAD, **{field: typed})
        offers = page.locator("#check-status button")
        offers.first.wait_for()
        for value in offers.all_inner_texts():
            assert run(["review", "script", f"--{field}", value], {"script": BAD}).code <= 1, value
        wanted = offers.first.inner_text()
        offers.first.press("Enter")
        checking.wait(CHECKED, "findings")
        assert page.locator(f"#c-{field}").input_value() == wanted
    for field, typed, found in (("gpu", "4090", "rtx-4090"), ("lmdeploy", "0.17", "0.17.0")):
        page.locator(f"#c-{field}").fill(typed)
        page.locator(f"#list-{field} [role=option]").first.wait_for()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert page.locator(f"#c-{field}").input_value() == found


@pytest.mark.usefixtures("npm_packages")
@pytest.mark.parametrize("checking", [""], indirect=True)
def test_each_server_of_a_script_leads_to_its_own_answer(checking: Visit) -> None:
    """With the GPUs that the script gives it; the configurator answers the question of the link."""
    two = (
        "CUDA_VISIBLE_DEVICES=0,1 lmdeploy serve api_server Qwen/Qwen2.5-14B-Instruct --tp 2 --session-len 100000000\n"
        "CUDA_VISIBLE_DEVICES=2 lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ --session-len 256\n"
    )
    check(checking, two, "L40S", "4")
    checking.wait(CHECKED, "findings")
    checking.page.locator("#tab-optimized").click()
    links = checking.page.locator("#check-part a.configure").evaluate_all(
        "all => all.map(each => each.getAttribute('href').split('?')[1])"
    )
    assert links == ["gpu=l40s%3A2&load=4&model=qwen2.5-14b-instruct", "gpu=l40s&load=4&model=internvl3-8b-awq"]
    for link in links:
        words = [word for name, (value,) in parse_qs(link).items() for word in (f"--{name}", value)]
        assert run(words).code == 0, link


def test_a_pasted_log_line_finds_its_issue(visit: Visit) -> None:
    """The first hit is the known issue with that message, amid what a log line has besides."""
    page, missed = visit.open("fix.html"), []
    for thread in STORE.threads.values():
        if not thread.error:
            continue
        page.locator("#log").fill(f"2026-11-20 10:14:33,518 - lmdeploy - ERROR - {thread.error} (rank 0)")
        hits = page.locator("#found a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
        same = [f"threads.html#{each.id}" for each in STORE.threads.values() if each.error == thread.error]
        if not hits or hits[0] not in same:
            missed.append((thread.id, hits[:1]))
    assert not missed
    page.locator("#log").fill("ModuleNotFoundError: No module named 'timm'")
    page.locator("#found", has_text="Nothing known resembles").wait_for()


def test_log_lines_that_no_thread_tells_are_known(visit: Visit) -> None:
    """As servers and the system write them; the first hit says what helps, on a page that is there."""
    page = visit.open("fix.html")
    for line, words, place in (
        ("OSError: [Errno 98] error while attempting to bind: address already in use", "port", "flags/server-port"),
        ("RuntimeError: No enough gpu memory for runtime.", "few blocks", "constraints.html#kv-least-blocks-pytorch"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC", "C compiler", "how-to/first-deployment"),
        ("lmdeploy: error: unrecognized arguments: --num-gpu-blocks 3", "no such option", "check.html"),
        ("lmdeploy exited with exit code 137", "memory ran out", "how-to/short-of-memory"),
    ):
        page.locator("#log").fill(line)
        first = page.locator("#found a").first
        assert words in first.inner_text()
        href = first.get_attribute("href")
        assert href.startswith(place)


@pytest.mark.parametrize("name", ["gpus/index.html", "models/index.html", "runs.html"])
def test_tables_on_a_phone_keep_their_names_whole(visit: Visit, name: str) -> None:
    """A name is not broken into letters, and a head is large enough for a finger."""
    visit.page.set_viewport_size({"width": 390, "height": 844})
    page = visit.open(name)
    heads = page.locator("table.data tbody th").evaluate_all("all => all.map(each => each.clientWidth)")
    assert min(heads) > 90
    buttons = page.locator("table.data thead button").evaluate_all(
        "all => all.map(each => each.getBoundingClientRect().height)"
    )
    assert min(buttons) >= 24


@pytest.mark.parametrize("name", ["vi/flags/cache-max-entry-count.html", "flags/cache-max-entry-count.html"])
def test_figures_on_a_phone_stay_on_one_line(visit: Visit, name: str) -> None:
    """A value such as 0.008 is read as one."""
    visit.page.set_viewport_size({"width": 360, "height": 800})
    page = visit.open(name)
    broken = page.locator("td > code:only-child").evaluate_all(
        "all => all.filter(each => /^[0-9.]+$/.test(each.textContent) && each.getClientRects().length > 1)"
        ".map(each => each.textContent)"
    )
    assert broken == []


@pytest.mark.parametrize("name", ["models/gemma-3-12b-it.html", "rules/lmd201.html", "flags/quant-policy.html"])
def test_headings_of_a_level_look_alike(visit: Visit, name: str) -> None:
    """Whatever their ids: the configurator's own elements have names too."""
    sizes = (
        visit.open(name).locator("article h2").evaluate_all("all => all.map(each => getComputedStyle(each).fontSize)")
    )
    assert len(sizes) > 3
    assert len({*sizes}) == 1


TOUCHED = """least => [...document.querySelectorAll(
    "button, summary, select, input, textarea, nav a, .md-button, .segments span, :is(td, th) > a:only-child")]
  .filter(each => !each.matches("[type=radio], [type=checkbox]") && !each.closest("[hidden], dialog:not([open])"))
  .filter(each => each.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }))
  .map(each => [each, each.getBoundingClientRect()])
  .filter(([each, box]) => box.width && (box.height < least - .5 || box.width < least - .5))
  .map(([each, box]) => [each.outerHTML.slice(0, 80), box.width, box.height])"""
PRESSED = "#question :is(input, select, .segments span), #copy, #download, .configurator [role=tab], #checker button"


@pytest.mark.parametrize(
    "name", [KINDS[kind] for kind in ("start", "compare", "a flag", "runs", "GPUs", "check", "fix")]
)
def test_a_finger_hits_what_it_means(visit: Visit, name: str) -> None:
    """On a phone each control has at least 24 px, and those of the form and of its answer 44."""
    visit.page.set_viewport_size({"width": 390, "height": 844})
    page = visit.open(name)
    page.locator(".md-header").first.wait_for()
    assert page.evaluate(TOUCHED, 24) == []
    boxes = page.locator(PRESSED).evaluate_all(
        "all => all.filter(each => each.checkVisibility() && each.type !== 'radio')"
        ".map(each => each.getBoundingClientRect().height)"
    )
    assert all(height >= 43 for height in boxes), boxes
    assert boxes or name not in ("index.html", "check.html")


@pytest.mark.parametrize("name", ["index.html", "vi/index.html", "how-to/first-deployment.html", "how-to/measure.html"])
def test_each_button_that_copies_says_what(visit: Visit, name: str) -> None:
    """No two of a page have one name."""
    page = visit.open(name)
    buttons = page.locator("#copy, #copy-command, #copy-link, [data-clipboard-target]")
    visit.wait("() => [...document.querySelectorAll('[data-clipboard-target]')].every(each => each.ariaLabel)")
    names = buttons.evaluate_all("all => all.map(each => each.ariaLabel || each.textContent)")
    assert len(names) > 1
    assert len({*names}) == len(names)


def test_the_drawer_has_at_most_forty_links(visit: Visit, site: Path) -> None:
    """On a phone it has pages and headings in one list; only where both are too many do headings leave it."""
    visit.page.set_viewport_size({"width": 390, "height": 844})
    sides = {}
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        parts = re.findall(r'<nav class="(?:pages|md-nav)[^>]*>.*?</nav>', text, re.DOTALL)
        sides[path.relative_to(site).as_posix()] = sum(part.count("<a ") for part in parts)
    ranked = sorted(sides, key=lambda name: -sides[name])
    assert sides[ranked[0]] > 40
    for name in (*ranked[:4], "reference/schemas.html", "models/internvl3-8b.html"):
        page = visit.open(name)
        assert 5 < page.locator(".pages a").count() <= 40, name
        assert sides[name] > 40 or page.locator(".pages .headings").count(), name


def test_the_side_has_headings_or_no_room(visit: Visit) -> None:
    """A page of one part gives its tables the width; the title stays in the header on scrolling."""
    widths = {}
    for name in ("gpus/index.html", "flags/index.html"):
        page = visit.open(name)
        widths[name] = page.locator("article").evaluate("each => each.getBoundingClientRect().right")
        page.evaluate("scrollTo(0, 600)")
        visit.wait("() => getComputedStyle(document.querySelector('.md-header__topic')).opacity === '1'")
    assert widths["gpus/index.html"] - widths["flags/index.html"] > 100


def test_the_list_of_the_api_is_where_the_page_says(visit: Visit, site: Path) -> None:
    """The static JSON API is served as JSON, and its list names files that are there."""
    answer = visit.page.request.get(f"{visit.base}api/v1/index.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == json.loads((site / "api/v1/index.json").read_text("utf-8"))
