"""Build the site, and parse its pages for the tests."""

import html
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from artefacts import KNOWLEDGE
from cpu_time import children_seconds

from recommender.site.browser import bundle, npm

ROOT = KNOWLEDGE.parent
RENDERING = """
import markdown
words = "A **paragraph** with `code`, [a link](x.md) and words.\\n\\n" * 40
row = "| [row {0}](page-{0}.md) | `--option-{0}` | {1:,} | *number* {0} |\\n"
table = "| a | b | c | d |\\n|---|---|--:|---|\\n" + "".join(row.format(n, n * 7919 % 10007) for n in range(400))
for _ in range(10):
    markdown.markdown(words + table, extensions=["tables", "attr_list", "md_in_html", "toc"])
"""
"""The work that a build's CPU time is measured in: pages of a fixed text. It needs memory and caches as a build does,
so a machine that others use slows both alike."""
LIMIT = 80
"""Most CPU time of a build, in times of ``RENDERING``: a minute where that takes 0.75 s. A build takes 57 to 60 times:
a third of it predicts the runs that the site shows."""
LOADING = {"script", "link", "img", "iframe", "source", "video", "audio", "object", "embed", "use", "image"}
"""Elements that make a browser load something."""


@dataclass
class ParsedPage(HTMLParser):
    """The ids of a page, its links and what it loads."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if identifier := values.get("id"):
            self.ids.add(identifier)
        address = values.get("href") or values.get("src") or values.get("data") or values.get("xlink:href")
        if address and tag in LOADING:
            self.loads.append(address)
        elif address and tag == "a":
            self.links.append(address)


@cache
def pages(site: Path) -> dict[str, ParsedPage]:
    parsed = {}
    for path in sorted(site.rglob("*.html")):
        parsed[path.relative_to(site).as_posix()] = page = ParsedPage()
        page.feed(path.read_text("utf-8"))
    return parsed


def words(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def build(target: Path) -> None:
    """Build the site into a folder; fail on a warning, or if it takes too much CPU time for this machine.

    Without npm's registry it is built without the recommender for browsers, and what needs that is skipped.
    """
    without = {bundle.WITHOUT: "1"} if why_no_npm() else {}
    unit = _rendering_seconds()
    before = children_seconds()
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(target)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"} | without,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    taken = children_seconds() - before
    unit = (unit + _rendering_seconds()) / 2
    assert result.returncode == 0, result.stderr[-4000:]
    assert "WARNING" not in result.stderr
    assert taken < LIMIT * unit, f"{taken:.0f} s of CPU time: {taken / unit:.0f} times the rendering's {unit:.2f} s"


def _rendering_seconds() -> float:
    before = children_seconds()
    subprocess.run([sys.executable, "-c", RENDERING], check=True)
    return children_seconds() - before


@cache
def why_no_npm() -> str:
    """Return why the packages of npm cannot be had; empty if they can."""
    try:
        npm.read_members(npm.PYODIDE, ("package.json",))
    except npm.NotFetched as error:
        return f"NO NPM: nothing was run in a browser: {error}"
    return ""


if __name__ == "__main__":
    build(Path(sys.argv[1]))
