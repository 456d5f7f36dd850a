"""Serve the built site to a real browser, and record errors and requests of its pages."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request, Response

PREFIX = "/lmdeploy-recommender/latest/"
"""Path of a published release below its host; links from the root would break there."""
PATIENCE = 300_000
"""Time in ms after which a wait counts as endless: no busy machine needs it."""
AXE = """async ({ rules, kept }) => {
  const looks = new Map();
  const alike = [];
  const look = each => {
    const own = [...each.childNodes].filter(child => child.nodeType === 3).map(child => child.data).join("");
    const style = getComputedStyle(each);
    return [each.tagName, each.getAttribute("class"), each.matches(":disabled, [aria-disabled=true]"),
      each.checkVisibility(), /[\\p{L}\\p{N}]/u.test(own), Math.min(own.replace(/\\s/g, "").length, 2), style.color,
      style.backgroundColor, style.backgroundImage, style.opacity, style.fontSize, style.fontWeight, style.textShadow,
      style.textDecorationLine,
    ].join();
  };
  const isKnown = (each, above) => {
    const key = above + look(each);
    const known = looks.get(key) ?? { id: looks.size, count: 0 };
    looks.set(key, known);
    known.count += 1;
    const found = [...each.children].filter(child => isKnown(child, known.id));
    const whole = known.count > kept && found.length === each.children.length;
    if (!whole) alike.push(...found);
    return whole;
  };
  isKnown(document.body, "");
  const run = (context, options) => axe.run(context, { resultTypes: ["violations"], ...options });
  const serious = async (...asked) => (await run(...asked)).violations
    .filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => [each.id, each.nodes.length, each.nodes[0].target.join(" "), each.nodes[0].failureSummary]);
  const ofLook = ["color-contrast", "link-in-text-block"];
  const isOff = Object.fromEntries(ofLook.map(rule => [rule, { enabled: false }]));
  return [
    ...await serious({ include: [document.documentElement], exclude: alike }, { runOnly: ofLook }),
    ...await serious(document, rules.length ? { runOnly: rules } : { rules: isOff }),
  ];
}"""
KEPT = 3
"""Elements of one look of which axe computes the contrast and how links differ from text around, which takes longer
than all else: text, its background and those of what it is in have the same colours in all of them."""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first that is there is taken. The shell draws no window around the page: a page takes a quarter of the time."""
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

    def translate_path(self, path: str) -> str:
        if not path.startswith(PREFIX):
            return str(Path(self.directory) / "no such file")
        return super().translate_path("/" + path.removeprefix(PREFIX))

    def log_message(self, *_: object) -> None:
        """Log nothing: the browser records failed requests."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
        finally:
            server.shutdown()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's browser; skip the test without it or Playwright."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("NO BROWSER: chromium-headless-shell is not installed, so nothing was tried in a real browser")
    driver = pytest.importorskip(
        "playwright.sync_api", reason="NO PLAYWRIGHT: it is not installed, so nothing was tried in a real browser"
    )
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=PATIENCE)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """One page in its own context, with its errors and requests."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        host = urlsplit(self.base).netloc

        def asks(request: Request) -> None:
            self.asked.append(request.url)
            address = urlsplit(request.url)
            if address.scheme not in ("data", "blob") and address.netloc != host:
                self.complaints.append(f"asked another host: {request.url}")

        def answered(response: Response) -> None:
            if response.status >= 400:
                self.complaints.append(f"{response.status}: {response.url}")

        self.page.on("request", asks)
        self.page.on("response", answered)
        self.page.on("requestfailed", self._failed)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(f"console: {said.text}"))

    def _failed(self, request: Request) -> None:
        # The page aborts requests when it navigates or asks again: not a failure.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url}: {request.failure}")

    def open(self, path: str) -> Page:
        self.page.goto(self.base + path, wait_until="load")
        return self.page

    def wait(self, condition: str, argument: Any = None) -> None:
        self.page.wait_for_function(condition, arg=argument)


@contextmanager
def visiting(browser: Browser, base: str, **settings: Any) -> Iterator[Visit]:
    """Open a page in a fresh context; fail at the end if it had errors."""
    settings = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **settings}
    context = browser.new_context(**settings)
    context.set_default_timeout(PATIENCE)
    context.set_default_navigation_timeout(PATIENCE)
    try:
        visit = Visit(context.new_page(), base)
        yield visit
        assert visit.complaints == []
    finally:
        context.close()


def violations(visit: Visit, rules: Sequence[str] = ()) -> list[Any]:
    """Serious and critical violations on the page, once nothing moves on it any more: of all rules.

    With ``rules``, of contrast, links in text, and these.
    """
    visit.wait("() => document.getAnimations().every(each => each.playState !== 'running')")
    return list(visit.page.evaluate(AXE, {"rules": list(rules), "kept": KEPT}))
