"""The site in Vietnamese: which pages there are, that nothing on them is English in silence, the switch, the search,
and that the catalogue says what the records say."""

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from babel.messages.pofile import read_po
from sitepages import ROOT, words

from recommender.cli import root
from recommender.knowledge.load import load
from recommender.lookup.option import option_info
from recommender.review import engine
from recommender.review.rule import Rule
from recommender.site.browser import bundle
from recommender.site.i18n import translation
from recommender.site.markup import text
from recommender.site.missing_translations import lacking
from recommender.site.pages.reference import commands
from recommender.site.site_data import SiteData

STORE = load()
DATA = SiteData(STORE)
GUIDE = STORE.advisers["guide"]
GUIDED = list(dict.fromkeys(each.option for each in GUIDE.settings if each.final))
BY_HAND = [
    path.relative_to(ROOT / "site").as_posix().removesuffix(".md")
    for path in sorted((ROOT / "site").rglob("*.md"))
    if not path.name.endswith(".vi.md")
]
LEFT_OUT = ("404.html", "picker.html", "concepts/index.html")
PROMISED = [
    *BY_HAND,
    "compare",
    "runs",
    "releases/index",
    "releases/compare",
    *(f"releases/{each}" for each in STORE.releases),
    "reference/cli",
    "reference/schemas",
    "reference/python",
    "claims",
    "threads",
    "constraints",
    "rules/index",
    *(f"rules/{each.id.lower()}" for each in engine.rules()),
    "flags/index",
    "gpus/index",
    "models/index",
    *(f"flags/{each.id}" for each in STORE.options()),
    "advisers/index",
    *(f"advisers/{each}" for each in STORE.advisers),
    *(f"gpus/{each}" for each in STORE.gpus),
    *(f"models/{each}" for each in STORE.models),
]
ALSO_IN = re.compile(r'<a class="switch" href="([^"]+)" hreflang="(\w+)" lang="\w+">(.*?)</a>', re.S)
NUMBER = re.compile(r"\d[\d.,]*\d|\d")
NAME = re.compile(r"--[a-z][a-z-]*[a-z]|`+[^`]+`+|\{\w*\}|\]\([^)]+\)|\b[A-Za-z]+_[A-Za-z_]+|https?://\S+[\w/]")


def content(page: str) -> str:
    """What stands between a page's header and its footer, the navigation left out."""
    return page[page.index("<article") : page.index("</article>")]


def in_vietnamese(site: Path) -> Iterator[tuple[str, str]]:
    """The Vietnamese pages, without those that only lead on."""
    for path in (site / "vi").rglob("*.html"):
        if "http-equiv" not in (made := path.read_text("utf-8")):
            yield path.relative_to(site).as_posix(), made


def switch(page: str) -> dict[str, tuple[str, str]]:
    return {language: (link, " ".join(words(said).split())) for link, language, said in ALSO_IN.findall(page)}


def lead(page: str, link: str) -> str:
    """The page that a link on a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link.partition("#")[0]))


def test_the_guide_has_eleven_options() -> None:
    """As many as it explains."""
    assert len(GUIDED) == 11


@pytest.mark.parametrize("page", PROMISED)
def test_the_main_pages_are_there_in_vietnamese(site: Path, page: str) -> None:
    """Each says that it is in Vietnamese, to the reader and to the browser, and leaves nothing untranslated."""
    made = (site / "vi" / f"{page}.html").read_text("utf-8")
    assert '<html lang="vi"' in made
    assert "Tìm kiếm" in made  # the theme's own words
    found = re.findall(r'<t?span lang="en" class="untranslated">(.*?)</t?span>|<(\w+)[^>]* data-untranslated', made)
    assert not found, f"{len(found)} untranslated: {found[:3]}"
    assert not set("".join(translation.MARKS)) & set(made)


@pytest.mark.parametrize("page", PROMISED)
def test_the_switch_stays_on_the_page(site: Path, page: str) -> None:
    """From each language to the same page in the other, by a link that needs no host and no root."""
    english, own = f"{page}.html", f"vi/{page}.html"
    for name, other, language, said in ((english, own, "vi", "Tiếng Việt"), (own, english, "en", "English")):
        made = (site / name).read_text("utf-8")
        ((link, shown),) = [switch(made)[each] for each in switch(made)]
        assert (lead(name, link), [*switch(made)], shown) == (other, [language], said)
        assert set(re.findall(r'<link rel="alternate " href="[^"]+" hreflang="(\w+)"', made)) == {"en", "vi"}


ENGLISH = {"the", "of", "is", "with", "for", "which", "are", "not", "by", "as", "if", "only", "than"}
"""English words that Vietnamese does not have."""


def test_no_english_sentence_stands_unmarked(site: Path) -> None:
    """Besides code, pictures and what says that it is English, such as quotes."""
    found = {}
    for name, made in in_vietnamese(site):
        text = re.sub(r"<(code|pre|svg|script|textarea)\b.*?</\1>", "", content(made), flags=re.DOTALL)
        text = unescape(re.sub(r"<[^>]+>", "|", re.sub(r'<(\w+)[^>]* lang="en".*?</\1>', "", text, flags=re.DOTALL)))
        for said in re.findall(r"(?:[A-Za-z']+,? ){3,}[A-Za-z']+", text):
            if len(ENGLISH & set(said.lower().replace(",", "").split())) > 1:
                found.setdefault(said, name)
    assert not found


def test_every_page_is_translated(site: Path) -> None:
    """All but those that only lead on."""
    names = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {*LEFT_OUT}
    assert not [
        name for name in names if not name.startswith(("vi/", "evidence/")) and not (site / "vi" / name).exists()
    ]


def test_links_lead_to_vietnamese_pages(site: Path) -> None:
    """Those of a Vietnamese page's text, as every page is translated."""
    for name, made in in_vietnamese(site):
        for tag in re.findall(r"<a\b[^>]*>", content(made)):
            link = re.search(r'href="([^"#:]+\.html)', tag)
            assert not link or lead(name, link[1]).startswith("vi/"), (name, tag)


def test_the_navigation_is_in_vietnamese(site: Path) -> None:
    """It leads to Vietnamese pages."""
    for name, made in in_vietnamese(site):
        around = made.replace(content(made), "")
        beside = re.search(r'<nav class="pages".*?</nav>', around, re.DOTALL)
        assert beside, name
        doors = re.search(r'<nav class="md-tabs".*?</nav>', around, re.DOTALL)
        assert doors, name
        for link, said in re.findall(r'<a href="([^"]+)"[^>]*>(.*?)</a>', doors[0] + beside[0]):
            if not link.startswith("#") and not lead(name, link).startswith("vi/"):
                assert "(EN)" in said, (name, link)


@pytest.mark.parametrize("option", GUIDED)
def test_the_guide_comes_first(site: Path, option: str) -> None:
    """The page of each of its options has its advice, in its own language, with the verdicts, before other advice."""
    made = content((site / "vi" / "flags" / f"{option}.html").read_text("utf-8"))
    start = made.index('id="guide"')
    end = made.index("<h2", start)
    assert start < made.index('id="effect"')
    assert 'id="advised"' not in made[:start]
    part = " ".join(words(made[start:end]).split())
    known = option_info(STORE, STORE.flags[option], DATA.newest)
    for each in known.said:
        if each.adviser == "guide":
            assert each.value in part
            assert " ".join(each.reason_vi.split()) in part
    judged = [each for each in known.judged if "guide" in each.advisers and each.holds]
    assert made[start:end].count('class="verdict ') == len(judged)


def test_each_language_has_its_search(site: Path) -> None:
    """The English index has English pages; the Vietnamese one its own, and those that are in English only, marked."""
    english, own = (json.loads((site / folder / "assets/search.json").read_text("utf-8")) for folder in ("", "vi"))
    assert not [entry for entry in english["entries"] if entry[0].startswith("vi/")]
    assert {f"vi/{page}.html" for page in PROMISED} <= {entry[0] for entry in own["entries"]}
    assert own["kinds"]["Option"][0] == "Tùy chọn"
    for address, title, kind, *_ in own["entries"]:
        location = address.partition("#")[0]
        assert (site / location).exists(), location
        assert kind in own["kinds"]
        if not location.startswith("vi/"):
            assert title.endswith("(EN)")
            assert not (site / "vi" / location).exists(), location


def test_the_catalogue_has_what_the_pages_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missing in it, nothing in it is out of use, and nothing stands there twice."""
    monkeypatch.setattr(bundle, "files", lambda: dict.fromkeys(bundle.START, b""))  # which hold no text of a page
    monkeypatch.setattr(bundle, "folder", lambda: bundle.FOLDER)
    lacks, unused = lacking("vi")
    assert not lacks
    assert not unused
    said = translation.path("vi").read_text("utf-8")
    with translation.path("vi").open("rb") as file:
        assert len(read_po(file, locale="vi", abort_invalid=True)) + 1 == len(
            re.findall(r"^msgid ", said, re.MULTILINE)
        )


@pytest.mark.parametrize("path", [path for path, _ in commands(root)])
def test_the_help_of_a_command_is_in_vietnamese(site: Path, path: str) -> None:
    """Its options, their values, its examples and its exit codes are those of --help-all; its text is not."""
    part = re.compile(rf'<h2 id="{path.replace(" ", "-")}".*?<pre>(.*?)</pre>', re.DOTALL)
    pages = ((site / folder / "reference/cli.html").read_text("utf-8") for folder in ("", "vi"))
    said, shown = (unescape(re.sub("<[^>]+>", "", found[1])) for page in pages if (found := part.search(page)))
    assert said.split("\n")[0].removeprefix("Usage: ") == shown.split("\n")[0].removeprefix("Cách dùng: ")
    listed = [
        re.search(r"^(?:Options|Tùy chọn):\n((?: .*\n)*)", f"{help}\n", re.MULTILINE)[1] for help in (said, shown)
    ]
    first, second = (re.findall(r"^  (-.*?)(?:  |$)", options, re.MULTILINE) for options in listed)
    assert first == second
    for kept in (r"^( {4,}(?:recommend|echo|claude) .*?)(?:   |$)", r"^  +(\d+  +[a-z]+(?:-[a-z]+)+)"):
        assert re.findall(kept, said, re.MULTILINE) == re.findall(kept, shown, re.MULTILINE)
    assert not re.search(r"Show this message|Every option|Exit codes|Example|Options:|Commands:", shown)
    for line in said.splitlines():
        if re.fullmatch(r"  [A-Z][a-z]+ [a-z]+ .{20,}", line):
            assert line not in shown


@pytest.mark.parametrize("rule", engine.rules(), ids=lambda rule: rule.id)
def test_every_paragraph_of_a_rule_is_translated(site: Path, rule: Rule) -> None:
    """What its docstring says outside code stands on its Vietnamese page in Vietnamese, and nowhere in English."""
    head, *lines = engine.page(rule).split("\n")
    prose = (f"\n{line[3:]}\n" if line[:3] == "## " else "" if line[:4] == "    " else line for line in lines)
    said = [head.rstrip("."), *(part.strip() for part in "\n".join(prose).split("\n\n") if part.strip())]
    shown = " ".join(words(content((site / "vi/rules" / f"{rule.id.lower()}.html").read_text("utf-8"))).split())
    for english in (" ".join(part.split()) for part in said):
        vietnamese = translation.catalogue("vi")[english].replace("`", "")
        assert vietnamese in shown
        assert english.replace("`", "") not in shown


def test_translations_keep_what_is_no_language() -> None:
    """Numbers, options, code, placeholders and links of a text are in its translation too."""
    known = translation.catalogue("vi")
    assert len(known) > 1000
    assert not {english: lost for english, own in known.items() if (lost := _lost(english, own))}
    assert not [own for own in known.values() if own != " ".join(own.split())]


def _lost(english: str, own: str) -> list[str]:
    """The names and numbers of a text that its translation lacks."""
    numbers = Counter(NUMBER.findall(english)) - Counter(NUMBER.findall(own))
    return [*({*NAME.findall(english)} - {*NAME.findall(own)}), *numbers.elements()]


def test_texts_without_a_translation_are_marked() -> None:
    """Wherever they stand: in text, in an attribute, in a drawing."""
    said = translation.translated("vi", "no such text, ever")
    span = '<span lang="en" class="untranslated">no such text, ever</span>'
    assert translation.marked(f"<p>{text(said)}</p>") == f"<p>{span}</p>"
    assert translation.marked(f'<td title="{said}">1</td>') == '<td title="no such text, ever" data-untranslated>1</td>'
    drawn = translation.marked(f"<svg><title>{said}</title><text>{said}</text></svg>")
    assert "<title>no such text, ever</title>" in drawn
    assert '<text><tspan lang="en" class="untranslated">' in drawn
    assert "data-untranslated" in drawn
    assert translation.translated("vi", "") == ""
    assert DATA.t("no such text, ever") == "no such text, ever"


def test_the_language_of_a_page_is_in_its_name() -> None:
    """And only a language that the site has."""
    assert translation.language_of("flags/backend.vi.md") == "vi"
    assert translation.language_of("flags/backend.md") == "en"
    assert translation.language_of("models/qwen2.5.md") == "en"
    assert translation.in_language("flags/backend.md", "vi") == "flags/backend.vi.md"
    assert translation.in_language("flags/backend.md", "en") == "flags/backend.md"
