"""The configurator in a real browser: the recommender in its worker, typing, links, refusals, keyboard, no JavaScript.

All of it is skipped, and says so, where Chromium, Playwright or npm's registry is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from browser import Visit, chromium, served, visiting
from questions import FOLDERS, question, words

from recommender.site.browser.run import run

pytestmark = pytest.mark.usefixtures("npm_packages")
QUESTIONS = 300
READY = "() => document.querySelector('#configurator')?.dataset.engine === 'ready'"
SHOWN = "form => document.querySelector('#configurator')?.dataset.shown?.startsWith(form)"
ASK = """async ([address, form]) => {
  const root = document.querySelector("#configurator");
  const file = form => root.querySelector(`[data-form=${form}]`);
  file("bash").click();
  history.pushState(null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
  const until = async test => { while (!test()) await new Promise(done => setTimeout(done, 4)); };
  const shows = name => [name, "refused"].some(each => root.dataset.shown === `${each} ${root.dataset.asked}`);
  await until(() => shows("bash"));
  if (root.dataset.shown.startsWith("refused")) return { refused: root.querySelector("#refusal").textContent };
  if (form !== "bash") {
    const wrong = () => root.querySelector("#file > .wrong");
    file(form).click();
    await until(() => shows(form) || wrong());
    if (wrong()) return { wrong: wrong().textContent };
  }
  const names = [...root.querySelectorAll("#files button")].map(each => each.textContent);
  const files = {};
  for (const name of names.length > 1 ? names : [root.querySelector("#download").download]) {
    [...root.querySelectorAll("#files button")].find(each => each.textContent === name)?.click();
    files[name] = await (await fetch(root.querySelector("#download").href)).text();
    const rows = [...root.querySelectorAll("#file code, #file summary")].map(each => each.cloneNode(true));
    for (const each of rows) each.querySelector("small")?.remove();
    const text = rows.map(each => each.textContent + "\\n").join("");
    if (text !== files[name].replace(/\\n*$/, "\\n")) return { wrong: "shown otherwise" };
  }
  return { files };
}"""
"""Ask by address, choose the form, and read the files as they are downloaded."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def base(browser: Any, site: Path) -> Iterator[str]:
    with served(site) as address:
        yield address


@pytest.fixture
def visit(browser: Any, base: str) -> Iterator[Visit]:
    with visiting(browser, base) as started:
        yield started


def ready(visit: Visit, path: str = "index.html") -> Any:
    page = visit.open(path)
    visit.wait(READY)
    return page


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_every_question_has_the_commands_bytes(visit: Visit) -> None:
    """Random full questions by link, in all forms, fleets included: files, refusals and messages are the command's."""
    page = ready(visit)
    outcomes = {"answered": 0, "refused": 0, "no such form": 0}
    for number in range(QUESTIONS):
        values, form = question(number)
        shown = page.evaluate(ASK, ["?" + urlencode([(name, value or "yes") for name, value in values]), form])
        folder = ["-o", "files"] if form in FOLDERS else []
        expected = run([*words(values), "--format", form, *folder])
        if "refused" in shown:
            outcomes["refused"] += 1
            assert expected.code, (values, shown)
            reason = one_line(shown["refused"]).partition("These have an answer")[0]
            assert re.sub(r"^(Not understood|Nothing fits): ", "", reason) in one_line(expected.stderr), values
        elif "wrong" in shown:
            outcomes["no such form"] += 1
            assert f"recommend: {shown['wrong']}" == expected.stderr, values
        else:
            outcomes["answered"] += 1
            files = expected.files if folder else {next(iter(shown["files"])): expected.stdout}
            assert shown["files"] == files, values
    assert outcomes["answered"] > 0.6 * QUESTIONS
    assert min(outcomes.values()) > 3, outcomes
