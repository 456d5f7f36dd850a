"""The site: it builds strictly, every link in it leads somewhere, it asks no other host, and its pages hold what
the records hold."""

import gzip
import html
import json
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import markdown
import pytest
from artefacts import KNOWLEDGE
from packaging.version import Version
from sitepages import ROOT, pages, words

import recommender
from recommender import options
from recommender.choose.reasons import has_source
from recommender.cli import root
from recommender.commands.smoke import command
from recommender.knowledge.load import load
from recommender.knowledge.provenance import web_address
from recommender.knowledge.records import CodeSource
from recommender.lookup.option import option_info
from recommender.render import artefact
from recommender.request import image_tokens
from recommender.review import engine
from recommender.site import markup, page_list, snippets, social_card
from recommender.site.pages import reference, runs
from recommender.site.site_data import SiteData, site_data

STORE = load()
DATA = site_data()
PACKAGE = Path(recommender.__file__).parent / "site"


def test_every_link_and_anchor_resolves(site: Path) -> None:
    """No link inside the site leads to a page, a file or an anchor that is not there."""
    known = pages(site)
    assert len(known) > 450
    broken = []
    for name, read in known.items():
        for link in {*read.links, *read.loads}:
            parts_of = urlsplit(link)
            if parts_of.scheme or parts_of.netloc or name == "404.html":
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts_of.path)))
            target = name if not parts_of.path else path
            if not (site / target).exists():
                broken.append(f"{name}: {link}")
            elif (
                parts_of.fragment
                and "=" not in parts_of.fragment
                and target in known
                and unquote(parts_of.fragment) not in known[target].ids
            ):
                broken.append(f"{name}: {link}: no such anchor")
    assert not broken


def test_an_address_that_leads_nowhere_leads_on(site: Path) -> None:
    """The page that a host shows instead links to the doors in its text, not in its header alone."""
    text = re.search(r"<article.*</article>", (site / "404.html").read_text("utf-8"), re.DOTALL)
    assert text
    links = re.findall(r'href="/?([^"]+)"', text[0])
    assert len(links) > 3
    assert all((site / link).exists() for link in links), links


def test_nothing_is_asked_of_another_host(site: Path) -> None:
    """Scripts, styles, fonts and images come with the site."""
    outside = {(name, each) for name, read in pages(site).items() for each in read.loads if urlsplit(each).netloc}
    assert not outside
    for path in site.rglob("*.css"):
        asked = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", path.read_text("utf-8"))
        assert not asked, path.name


def test_the_site_is_light(site: Path) -> None:
    """Under 30 MB with the runtime, and the search index of a language under 150 kB compressed."""
    sizes = {path.relative_to(site).as_posix(): path.stat().st_size for path in site.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 30_000_000
    assert not [name for name in sizes if name.endswith(".map") or "/lunr/" in name]
    for folder in ("", "vi/"):
        assert len(gzip.compress((site / folder / "assets/search.json").read_bytes())) < 150_000


def test_side_bars_are_short(site: Path) -> None:
    """At most 40 links on each side of a page."""
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8").partition('<div class="md-content"')[0]
        _, *bars = text.split('<div class="md-sidebar__inner">')
        assert len(bars) == 2 or "http-equiv" in text, path
        assert all(bar.count("<a ") <= 40 for bar in bars), path


def test_pages_describe_themselves(site: Path) -> None:
    """Each has a description of its own, a title for link previews, an icon, and its door marked."""
    seen, counted = dict[str, str](), 0
    for path in site.rglob("*.html"):
        name, text = path.relative_to(site).as_posix(), path.read_text("utf-8")
        if "http-equiv" in text or name == "404.html":
            continue
        counted += 1
        (found,) = re.findall(r'<meta name="description" content="([^"]+)"', text)
        assert len(found) > 20, name
        assert 'property="og:title"' in text
        assert re.search(r'<link rel="icon" href="[./]*assets/icon.svg"', text)
        assert text.count('<li class="active">') == 1, name
        seen.setdefault(found, name)
    assert len(seen) > 0.98 * counted


@pytest.mark.parametrize("base", ["https://someone.example/tool/0.1.0", "https://someone.example/tool/0.1.0/"])
def test_a_preview_finds_its_picture(site: Path, base: str) -> None:
    """Below the address of a version, with and without a slash at its end; the picture is part of the site."""
    for page in ("index.html", "compare.html", "how-to/index.html", "fix.html", "flags/index.html"):
        found = social_card.address(base, social_card.door(page))
        assert found.startswith("https://someone.example/tool/0.1.0/assets/")
        assert (site / found.removeprefix("https://someone.example/tool/0.1.0/")).is_file()


OLD = {
    "picker.html": "index.html", "vi/picker.html": "vi/index.html", "concepts/index.html": "how-to/index.html#concepts",
    "evidence/index.html": "runs.html",
} | {f"evidence/{name}.html": f"runs.html#{name}" for name in (*STORE.evidence, *STORE.probes)}  # fmt: skip
"""Where addresses that were published once lead now."""


def test_old_addresses_lead_on(site: Path) -> None:
    """By a link, by a refresh and by a script that keeps the question; the row of a run is there."""
    rows = pages(site)["runs.html"].ids
    for old, new in OLD.items():
        (link,) = pages(site)[old].links
        assert posixpath.normpath(posixpath.join(posixpath.dirname(old), link)) == new
        assert "location.search" in (site / old).read_text("utf-8")
        assert "#" not in new or new.startswith("how-to") or new.partition("#")[2] in rows


def test_the_repository_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the header, and in the command that clones it: what REPO_URL says."""
    from mkdocs.config import load_config

    monkeypatch.setenv("REPO_URL", "https://github.com/someone/lmdeploy-recommender")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path))
    config = config.plugins.on_config(config)
    assert config.repo_url == "https://github.com/someone/lmdeploy-recommender"
    assert "git clone REPOSITORY_URL" in (ROOT / "site/how-to/first-deployment.md").read_text("utf-8")
    assert "config.repo_url" in (ROOT / "site/overrides/partials/header.html").read_text("utf-8")


KINDS = {
    "flags": [option.id for option in STORE.options()],
    "gpus": list(STORE.gpus),
    "models": list(STORE.models),
    "advisers": list(STORE.advisers),
    "rules": [rule.id.lower() for rule in engine.rules()],
    "releases": list(STORE.releases),
}
INDEXES = {"releases": ["index", "compare"]}
"""Pages that are about all records of a kind, where that is not the index alone."""


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_has_its_page(site: Path, kind: str) -> None:
    """A page a record, and an index beside them."""
    wanted = {f"{kind}/{name}.html" for name in (*KINDS[kind], *INDEXES.get(kind, ["index"]))}
    assert wanted == {name for name in pages(site) if name.startswith(f"{kind}/")}


@pytest.mark.parametrize("kind", ["claims", "threads", "constraints"])
def test_each_record_has_its_anchor(site: Path, kind: str) -> None:
    """Records that share a page have an anchor of their own on it."""
    assert set(getattr(STORE, kind)) <= pages(site)[f"{kind}.html"].ids


def compared(site: Path) -> dict[str, dict[str, str]]:
    """The comparison: by option and column what a cell says, and its classes."""
    text = (site / "compare.html").read_text("utf-8")
    found = {}
    for option, row in re.findall(r'<tr id="([^"]+)"[^>]*>(.*?)(?=<tr|</tbody>)', text, re.DOTALL):
        cells = re.findall(r'<td class="([^"]*)" data-who="([^"]*)"[^>]*><span>(.*?)</span>', row, re.DOTALL)
        found[option] = {html.unescape(who): f"{words(value)}|{kinds}" for kinds, who, value in cells}
    return found


def test_the_comparison_holds_what_the_records_hold(site: Path) -> None:
    """Every final setting of every adviser stands in its cell, marked where it differs from LMDeploy's default."""
    table = compared(site)
    newest = max(STORE.releases, key=Version)
    defaults = {option.id: option_info(STORE, option, STORE.releases[newest]).default for option in STORE.options()}
    checked = 0
    for adviser in STORE.advisers.values():
        first = {each.option: each for each in reversed(adviser.settings) if each.final}
        for option, each in first.items():
            said, _, kinds = table[option][adviser.name].partition("|")
            assert said == (f"{each.value} to {each.up_to}" if each.up_to else each.value), (adviser.id, option)
            same = (each.value, each.up_to) == (defaults[option], "")
            assert ("differs" not in kinds) == same, (adviser.id, option)
            checked += 1
    assert checked > 80


def test_the_comparison_shows_ours(site: Path) -> None:
    """Our columns are what the recommender answers."""
    from recommender.site.pages.comparison import answers

    table = compared(site)
    for name, answer in answers(DATA).items():
        for setting in answer.settings:
            said = table[setting.option][name].partition("|")[0]
            up_to = f" to {setting.ours.up_to}" if setting.ours.up_to else ""
            assert said == (setting.ours.value or "none") + up_to + (" (default)" if setting.ours.left else "")


def test_what_nobody_opened_is_shown_as_unverified(site: Path) -> None:
    """A claim without a source says so where its sources would stand."""
    bare = [each.id for each in STORE.claims.values() if not has_source(each.sources)]
    text = (site / "claims.html").read_text("utf-8")
    assert bare
    for name in bare:
        assert 'class="unverified"' in text[text.index(f'id="{name}"') :][:4000]


def test_sources_lead_to_the_tag_or_name_the_wheel() -> None:
    """A line of a tagged release is a link; one of a later release, or of METADATA, names the wheel."""
    tagged = CodeSource(release="0.16.0", path="lmdeploy/cli/serve.py", line=7, token="serve")
    assert web_address(STORE, tagged) == "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli/serve.py#L7"
    for release, path in (("0.18.0", "lmdeploy/cli/serve.py"), ("0.9.2", "METADATA")):
        source = CodeSource(release=release, path=path, line=7, token="serve")
        assert not web_address(STORE, source)
        assert f"{release} wheel" in markup.line_of(STORE, source)


@pytest.mark.parametrize(
    "said",
    [
        "a*b*c_d_e", "<b>x</b> & y", "`x` [y](z) {name}", "a | b", "back\\slash", "# no heading", "--x and __y__",
        "![i](j)",
    ],
)  # fmt: skip
def test_text_is_shown_as_it_stands(said: str) -> None:
    """Nothing in a record's text is taken for markup."""
    made = markdown.markdown(f"said: {markup.text(said)}", extensions=["tables", "attr_list", "md_in_html"])
    assert words(made) == f"said: {said}"
    assert "said" in made
    assert not re.search(r"<(b|em|strong|a|img|code|h1)\b", made)


def test_options_in_text_are_links() -> None:
    """A known option is a link to its page, and a longer word is none."""
    made = markup.prose(STORE, "Lower --session-len, not --session-length.")
    assert "](/flags/session-len.md)" in made
    assert made.count("](") == 1


@pytest.mark.parametrize("name", sorted(path.stem for path in (KNOWLEDGE / "evidence").glob("*.yaml")))
def test_the_command_of_a_run_asks_for_its_artefact(name: str) -> None:
    """What a record's page tells to type gives the request that the record was taken with."""
    import shlex

    run = DATA.runs[name]
    first, *second = map(shlex.split, runs.command(run).splitlines())
    driven = command.make_context("smoke", (second[0] if second else first)[2:]).params
    if second:  # a fleet: its files are written, then run
        assert (first[0], second[0][:3]) == ("recommend", ["recommend", "smoke", "fleet"])
        assert (driven["kill"], first[-4:]) == (bool(run.killed), ["--format", run.kind, "-o", "fleet"])
        given = root.make_context("recommend", first[1:]).params
    else:
        assert first[:2] == ["recommend", "smoke"]
        given = driven
    head = json.loads(run.request)
    request, follow = artefact.parse_request(artefact.Artefact(run.kind, run.id, "", head), {})
    assert options.build_request(given) == (replace(request, tp=0) if second else request)
    assert (given["follow"] or "") == follow.get("follow", "")
    assert dict(each.split("=", 1) for each in given["added"]) == dict(follow.get("with", {}))
    assert list(given["left_out"]) == list(follow.get("without", []))
    assert len(driven["phases"]) == len(run.phases)


def test_the_same_knowledge_gives_the_same_pages() -> None:
    """Pages are made of the records alone."""
    assert tuple(page_list.pages(SiteData(STORE))) == page_list.generated_pages()


def test_every_command_is_described(site: Path) -> None:
    """The reference has each command with its help."""

    def names(command: click.Command, path: str) -> Iterator[str]:
        yield path
        for name in command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ():
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from names(found, f"{path}-{name}")

    assert set(names(root, "recommend")) <= pages(site)["reference/cli.html"].ids


def test_every_schema_is_there(site: Path) -> None:
    """Each schema has its part of the page, and the file as it is."""
    for path in reference.schema_files():
        assert path.stem in pages(site)["reference/schemas.html"].ids
        assert (site / "reference" / "schema" / path.name).read_bytes() == path.read_bytes()


def test_the_picture_of_image_tokens_is_right() -> None:
    """The tiles and tokens that the diagram shows are the model's."""
    text = (ROOT / "site" / "concepts" / "image-tokens.md").read_text("utf-8")
    vision = STORE.models["internvl3-8b-awq"].vision[0]
    tiles = image_tokens.tiles(vision, 1280, 720)
    assert f"{tiles} x {vision.tokens_per_tile} tokens" in text
    assert f"tiles of {vision.image} x {vision.image}" in text
    assert text.count('width="36" height="36"') == tiles


@pytest.mark.parametrize("page", ["high-load.md", "high-load.vi.md"])
@pytest.mark.parametrize(("argument", "froze"), [("api_server", True), ("chat", False)])
def test_the_file_that_freezes_the_collector(page: str, argument: str, froze: bool, tmp_path: Path) -> None:
    """As the page has it, in front of a process' own start; here its minute is a moment. Only a server is frozen."""
    text = (ROOT / "site" / "how-to" / page).read_text("utf-8")
    (found,) = re.findall(r"```python title=\"freeze/sitecustomize.py\"\n(.*?)```", text, re.S)
    assert found.count("Timer(60,") == 1
    (tmp_path / "sitecustomize.py").write_text(found.replace("Timer(60,", "Timer(0,"), "utf-8")
    look = "import gc, threading; [t.join() for t in threading.enumerate() if hasattr(t, 'interval')]; "
    result = subprocess.run(
        [sys.executable, "-c", look + "print(gc.get_freeze_count() > 1000)", argument],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == str(froze)


def test_hand_written_pages_name_known_parts() -> None:
    """Each marker for a generated part names one, and each part is used or may go."""
    used = set()
    for path in (ROOT / "site").rglob("*.md"):
        used |= set(re.findall(r"<!-- generated: ([a-z-]+)", path.read_text("utf-8")))
    assert used == set(snippets.SNIPPETS)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_only_the_hooks_know_mkdocs(path: Path) -> None:
    """Pages are made without it, so that what makes them can be tried without a build."""
    known = re.search(r"^\s*(from|import) mkdocs", path.read_text("utf-8"), re.MULTILINE)
    assert bool(known) == (path.stem in ("hook", "mkdocs_hook"))
