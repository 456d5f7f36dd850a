"""The built site as its tests read it: building it, and what stands on each page."""

from __future__ import annotations

import html
import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from artefacts import KNOWLEDGE

from recommender.site import slices

ROOT = KNOWLEDGE.parent
COLD_S, KEPT_S = 180, 60
"""Most seconds that a build may compute, the picker's answers among it, and where those were kept from before."""
LOADING = {"script", "link", "img", "iframe", "source", "video", "audio", "object", "embed", "use", "image"}
"""Elements that make a browser ask for something."""


@dataclass
class Read(HTMLParser):
    """The ids of a page, its links, what it loads, and the cells of its comparison."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what matters of an element."""
        known = dict(attrs)
        if known.get("id"):
            self.ids.add(str(known["id"]))
        where = known.get("href") or known.get("src") or known.get("data") or known.get("xlink:href")
        if where and tag in LOADING:
            self.loads.append(where)
        elif where and tag == "a":
            self.links.append(where)


@cache
def pages(site: Path) -> dict[str, Read]:
    """Every page by its path."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path.relative_to(site).as_posix()] = read = Read()
        read.feed(path.read_text("utf-8"))
    return found


def words(page: str) -> str:
    """A page's text, without its markup."""
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def build(target: Path) -> None:
    """Builds the site into a folder; a warning fails it, as does computing for too long.

    What counts is the processor's time, of all processes together: on two idle cores a build takes no longer than that.
    """
    kept = (ROOT / "build" / ".cache" / f"recommendations-{slices.digest()}.json.gz").exists()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(target)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "WARNING" not in done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert took < (KEPT_S if kept else COLD_S), f"{took:.0f} s of computing, {kept=}"


if __name__ == "__main__":
    build(Path(sys.argv[1]))
