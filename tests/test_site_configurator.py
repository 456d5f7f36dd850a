"""The configurator in a real browser: the recommender in its worker, typing, links, refusals, keyboard, no JavaScript.

All of it is skipped, and says so, where Chromium, Playwright or npm's registry is missing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from browser import Visit, violations, visiting
from questions import FOLDERS, question, words

from recommender.knowledge.load import load
from recommender.site.browser.run import run
from recommender.site.browser.stored_answers import stored_answers

pytestmark = pytest.mark.usefixtures("npm_packages")
STORE = load()
QUESTIONS = range(300)
"""Numbers of questions; of these, four ask for a form that the answer does not have."""
FIRST = ["--model", "internvl3-8b-awq", "--gpu", "h100-sxm-80g", "--load", "16"]
READY = "() => document.querySelector('#configurator')?.dataset.engine === 'ready'"
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
WARNED = {"model": "internvl3-8b-awq", "gpu": "h100-sxm-80g", "load": "16", "lmdeploy": "0.16.0"}
"""A question whose answer has a warning."""
ANSWERED = """form => {
  const { asked, shown } = document.querySelector("#configurator").dataset;
  return shown === `${form} ${asked}`;
}"""
"""The latest question has its answer."""
FOLLOW = """address => {
  document.querySelector("#tab-bash").click();
  history.pushState(null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
SEEN = "seen => { document.body.style.display = seen ? '' : 'none'; }"
"""Lay the page out and paint it, or not: that takes as long as the answers."""
FILE = """() => fetch(document.querySelector("#download").href).then(each => each.text())"""
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


def ready(visit: Visit, path: str = "index.html") -> Any:
    page = visit.open(path)
    visit.wait(READY)
    return page


# A page loads the recommender for seconds: tests share one where they ask a question of their own, and put back what
# else they change.


@pytest.fixture(scope="module")
def asking(browser: Any, base: str) -> Iterator[Visit]:
    """A page for tests that ask by link."""
    with visiting(browser, base) as visit:
        ready(visit)
        yield visit


@pytest.fixture(scope="module", params=["index.html", "vi/index.html"])
def answered(browser: Any, base: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """The page of each language with an answer."""
    with visiting(browser, base) as visit:
        ready(visit, request.param)
        visit.wait(ANSWERED, "bash")
        yield visit


def follow(visit: Visit, address: str) -> None:
    """Ask what a link to the page asks, without loading it again."""
    visit.page.evaluate(FOLLOW, address)


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_every_question_has_the_commands_bytes(asking: Visit) -> None:
    """Random full questions by link, in all forms, fleets included: files, refusals and messages are the command's."""
    page = asking.page
    page.evaluate(SEEN, False)
    outcomes = {"answered": 0, "refused": 0, "no such form": 0}
    for number in QUESTIONS:
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
            assert f"recommend: {shown['wrong']}" == expected.stderr.rstrip("\n"), values
        else:
            outcomes["answered"] += 1
            files = expected.files if folder else {next(iter(shown["files"])): expected.stdout}
            assert shown["files"] == files, values
    page.evaluate(SEEN, True)
    assert outcomes["answered"] > 0.6 * len(QUESTIONS)
    assert min(outcomes.values()) > 3, outcomes


def file_shown(visit: Visit) -> str:
    """The file of the answer, as it is downloaded."""
    return str(visit.page.evaluate(FILE))


def ask(visit: Visit, change: Any, shows: str) -> None:
    """Change the question and wait until the next one has its answer."""
    before = visit.page.evaluate("() => document.querySelector('#configurator').dataset.asked")
    change()
    visit.wait("before => document.querySelector('#configurator').dataset.asked !== before", before)
    visit.wait(ANSWERED, shows)


def asked(visit: Visit) -> dict[str, list[str]]:
    return parse_qs(urlsplit(visit.page.url).query)


def test_a_question_that_stays_is_no_step(answered: Visit) -> None:
    """A field that is left as it was asks again, as slow typing does: the address stays, and so does Back."""
    page = answered.page
    ask(answered, lambda: follow(answered, "index.html"), "bash")
    steps = page.evaluate("() => history.length")
    assert steps < 40  # browsers count no more than 50
    ask(answered, lambda: page.locator("#q-model").dispatch_event("change"), "bash")
    assert asked(answered) == {}
    assert page.evaluate("() => history.length") == steps


def test_the_question_by_keyboard_alone(asking: Visit) -> None:
    """Aliases find model and GPU, the address and the script follow; Back takes the last step back."""
    page, visit = asking.page, asking
    ask(visit, lambda: follow(visit, "index.html"), "bash")
    page.locator("#q-model").focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("InternVL3 8B")
    page.keyboard.press("ArrowDown")
    ask(visit, lambda: page.keyboard.press("Enter"), "bash")
    assert page.locator("#q-model").input_value() == "internvl3-8b"
    page.keyboard.press("Tab")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("4090")
    page.keyboard.press("ArrowDown")
    ask(visit, lambda: page.keyboard.press("Enter"), "bash")
    assert asked(visit) == {"model": ["internvl3-8b"], "gpu": ["rtx-4090"], "load": ["16"]}
    wanted = run(["--model", "internvl3-8b", "--gpu", "rtx-4090", "--load", "16"]).stdout
    assert file_shown(visit) == wanted
    page.locator("#tab-bash").focus()
    page.keyboard.press("ArrowRight")
    visit.wait(ANSWERED, "command")
    assert file_shown(visit) != wanted
    page.keyboard.press("ArrowLeft")
    visit.wait(ANSWERED, "bash")
    ask(visit, page.go_back, "bash")
    assert asked(visit)["gpu"] == ["h100-sxm-80g"]
    assert page.locator("#q-gpu").input_value() == "h100-sxm-80g"
    ask(visit, page.go_back, "bash")
    assert asked(visit) == {}
    assert page.locator("#q-model").input_value() == "internvl3-8b-awq"
    assert file_shown(visit) == run(FIRST).stdout


def test_copied_is_what_the_command_prints(asking: Visit, visit: Visit) -> None:
    """The script, the command that gives it, and the link that asks for it again."""
    page, question = asking.page, urlencode({"model": "InternVL3-8B", "gpu": "L40S:2", "load": "4"})
    ask(asking, lambda: follow(asking, f"index.html?{question}"), "bash")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    words = ["--model", "InternVL3-8B", "--gpu", "L40S:2", "--load", "4"]

    def copied(button: str) -> str:
        page.locator(button).press("Enter")
        page.locator(button, has_text="Copied").wait_for()
        return str(page.evaluate("() => navigator.clipboard.readText()"))

    assert copied("#copy") == run(words).stdout
    assert copied("#copy-command") == f"recommend {' '.join(words)} > serve.sh"
    visit.page.goto(copied("#copy-link"))
    visit.wait(READY)
    visit.wait(ANSWERED, "bash")
    assert file_shown(visit) == run(words).stdout


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("gpu=A1000&model=internvl3-8b", "gpu"),
        ("gpu=2xH100&model=qwen3-32b", "gpu"),
        ("gpu=L40S&model=no-such-model-9000", "model"),
        ("gpu=L4&model=internvl3-78b&load=16", ""),
        ("gpu=L4&ttft=p95:1s", "ttft"),
        ("gpu=L4&nonsense=3", ""),
    ],
)
def test_a_refusal_stays_in_the_box_and_offers_answers(asking: Visit, question: str, field: str) -> None:
    """What was asked is not replaced; the reason is the command's, at its field; an offer has an answer."""
    page = asking.page
    ask(asking, lambda: follow(asking, f"?{question}"), "refused")
    values = {name: value for name, (value,) in parse_qs(question).items()}
    expected = run([word for name, value in values.items() for word in (f"--{name}", value)])
    assert expected.code
    assert page.locator("#q-gpu").input_value() == values["gpu"]
    refusal = one_line(page.locator("#refusal > p").first.inner_text())
    assert re.sub(r"^(Not understood|Nothing fits): ", "", refusal) in one_line(expected.stderr)
    if field:
        assert page.locator(f"#said-{field}").inner_text()
    ask(asking, page.locator("#refusal button").first.click, "bash")
    assert file_shown(asking).startswith("#!/usr/bin/env bash\n")


def test_goals_and_lengths_are_those_of_the_answer(asking: Visit) -> None:
    """A goal stands beside its prediction; fields that are left empty show what was taken."""
    page = asking.page
    question = "model=qwen3-8b&gpu=a100-sxm-80g&rps=4&ttft=p99:500ms&latency=9s"
    ask(asking, lambda: follow(asking, f"?{question}"), "bash")
    words = ["--model", "qwen3-8b", "--gpu", "a100-sxm-80g", "--rps", "4", "--ttft", "p99:500ms", "--latency", "9s"]
    speed = json.loads(run([*words, "--json"]).stdout)["speed"]
    shown = page.locator("#tile-latency .goal").all_inner_texts()
    first, mean = speed["profile"]["ttft"]["p99"], speed["latency_ms"]["value"]
    assert shown == [f"p99 TTFT {first:,.0f} ms, goal 500 ms", f"mean latency {mean:,.0f} ms, goal 9,000 ms"]
    assert page.locator("#tile-latency .goal.kept").count() == 2
    boxes = ("image", "input-tokens", "output-tokens")
    assert [page.locator(f"#q-{box}").get_attribute("placeholder") for box in boxes] == ["none", "1024", "128"]


def test_a_gpu_that_is_not_listed_leads_to_adding_it(asking: Visit) -> None:
    """By a link beside the offers."""
    ask(asking, lambda: follow(asking, "index.html?gpu=Zeta-9000"), "refused")
    link = asking.page.locator("#refusal a", has_text="not listed")
    with asking.page.context.expect_page() as opened:  # in a tab of its own, so that this page stays
        link.click(modifiers=["ControlOrMeta"])
    opened.value.locator("h1", has_text="Adding").wait_for()
    opened.value.close()


@pytest.mark.parametrize(("width", "height", "screens"), [(1440, 900, 1), (390, 844, 2)])
def test_the_answer_is_near_the_top(answered: Visit, width: int, height: int, screens: int) -> None:
    """The three tiles are in the first screen of a desktop, and in the second of a phone; nothing scrolls sideways."""
    page = answered.page
    page.set_viewport_size({"width": width, "height": height})
    answered.wait("width => document.documentElement.clientWidth === width", width)
    page.evaluate("() => scrollTo(0, 0)")
    boxes = [page.locator(f"#tile-{tile}").bounding_box() for tile in ("memory", "latency", "rate")]
    assert all(box and box["y"] + box["height"] <= screens * height for box in boxes), boxes
    assert page.evaluate(WIDER) == 0


def test_reasons_open_at_their_line(answered: Visit) -> None:
    """By keyboard, with sources; in Vietnamese in that language."""
    page = answered.page
    hint = page.locator("#file .why").first
    hint.press("Enter")
    assert hint.get_attribute("aria-expanded") == "true"
    reason = page.locator("#file .reason")
    assert reason.locator("a").count() > 1
    hint.press("Enter")
    assert reason.count() == 0
    cells = page.locator("#reasons td:last-child")
    assert cells.count() > 5
    assert page.locator("#reasons td[lang=en]").count() == 0


SHIFTED = """() => new Promise(done => {
  new PerformanceObserver(list => done(list.getEntries().reduce((sum, each) => sum + each.value, 0)))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(0), 500);
})"""
"""How far what is seen jumped while the page loaded; browsers' makers call up to 0.1 good."""


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_nothing_jumps_while_it_loads(visit: Visit, width: int, height: int) -> None:
    """Not when the stored answer comes, nor when the recommender's progress comes and goes."""
    visit.page.set_viewport_size({"width": width, "height": height})
    page = ready(visit)
    visit.wait(ANSWERED, "bash")
    assert page.evaluate(SHIFTED) < 0.01


def test_the_open_list_covers_the_answer(answered: Visit) -> None:
    """It is wider than its box, and read to its edges."""
    page = answered.page
    page.set_viewport_size({"width": 1440, "height": 900})
    page.locator("#q-model").click()
    edge = page.locator("#list-model").evaluate("""list => {
      const box = list.getBoundingClientRect();
      return [box.right, list.contains(document.elementFromPoint(box.right - 30, box.top + 20))];
    }""")
    form = page.locator("#question").bounding_box()
    page.keyboard.press("Escape")
    assert form
    assert edge[0] > form["x"] + form["width"]
    assert edge[1]


OPEN = "open => document.querySelectorAll('#question details').forEach(each => { each.open = open; })"


def test_no_label_is_cut(answered: Visit) -> None:
    """In the whole form, on each width."""
    page = answered.page
    page.evaluate(OPEN, True)
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        answered.wait("width => document.documentElement.clientWidth === width", width)
        cut = page.locator("#question :is(label, legend)").evaluate_all(
            "all => all.filter(each => each.checkVisibility() && each.scrollWidth > each.clientWidth)"
            ".map(each => each.textContent)"
        )
        assert cut == []
    page.evaluate(OPEN, False)


def test_on_paper_the_answer_is_whole(answered: Visit) -> None:
    """Without the form, and with nothing beyond the edge of the sheet."""
    page = answered.page
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 794, "height": 1123})
    assert not page.locator("#question").is_visible()
    beyond = page.locator("#answer :is(td, code, .tile)").evaluate_all(
        "all => all.filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth)"
    )
    page.emulate_media(media="screen")
    assert beyond == []


def test_a_button_that_is_pressed_twice_keeps_its_name(answered: Visit) -> None:
    """It says for two seconds that it copied."""
    button = answered.page.locator("#copy")
    name = button.inner_text()
    for _ in range(2):
        button.evaluate("each => each.click()")
        answered.wait("name => document.querySelector('#copy').textContent !== name", name)
    answered.wait("name => document.querySelector('#copy').textContent === name", name)


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_every_form_is_seen(answered: Visit, width: int) -> None:
    """No tab is scrolled away, on any screen."""
    answered.page.set_viewport_size({"width": width, "height": 900})
    answered.wait("width => document.documentElement.clientWidth === width", width)
    tabs = answered.page.locator("[role=tab]")
    edges = [(box["x"], box["x"] + box["width"]) for tab in tabs.all() if (box := tab.bounding_box())]
    assert len(edges) == 11
    assert all(0 <= left < right <= width for left, right in edges)
    holder = answered.page.locator("[role=tablist]").first
    assert holder.evaluate("each => each.scrollWidth <= each.clientWidth")


def test_an_answer_has_nothing_for_axe(answered: Visit, axe: str) -> None:
    """With an open reason and a warning, in both palettes and both widths; nothing scrolls sideways."""
    page = answered.page
    ask(answered, lambda: follow(answered, f"?{urlencode(WARNED)}"), "bash")
    assert page.locator("#notes .warning").count()
    assert page.locator(":is(#title, #load, #notes) [lang=en]").count() == 0
    page.locator("#file .why").first.press("Enter")
    page.evaluate(axe)
    for palette in ("default", "slate"):
        answered.wait("name => document.body.dataset.mdColorScheme === name", palette)
        for width, height in ((1440, 900), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            answered.wait("width => document.documentElement.clientWidth === width", width)
            assert page.evaluate(WIDER) == 0
            assert violations(answered) == [], (palette, width)
        page.locator("form[data-md-component=palette] label:visible").click()


PLANNED = ["--rps", "190", "--gpu", "l4", "--model", "qwen3-8b-awq", "--workload", "chat"]
"""More than one GPU serves: the configurator offers the plan of a fleet. Ranges of 4-bit weights on an L4 are wide."""


def test_a_fleet_is_the_commands_plan(answered: Visit, axe: str) -> None:
    """Too high a rate offers a plan; its table has the figures of the command, in the page's language."""
    words = PLANNED
    question = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    page = answered.page
    page.set_viewport_size({"width": 1280, "height": 900})
    ask(answered, lambda: follow(answered, f"?{urlencode(question)}"), "refused")
    page.locator("#refusal button", has_text="recommend plan").click()
    page.locator("#refusal .output table").nth(1).wait_for()
    (fleet,) = json.loads(run(["plan", *words, "--json"]).stdout)["fleets"]
    name, *figures = page.locator(".output table").first.locator("tbody tr > *").all_inner_texts()
    assert name == "l4:1"
    counts = (fleet["hosts"], fleet["cards"], fleet["servers"])
    assert figures[:5] == [f"{each:,}" for each in counts] + [
        f"{fleet['server_rps']:,.1f}",
        f"{fleet['p99_ms']['value']:,.0f}",
    ]
    rows = page.locator(".output table").nth(1).locator("tbody tr")
    up, down, slow = (row.locator("td").all_inner_texts() for row in rows.all())
    for shown, state in ((up, fleet["peak"]["up"]), (down, fleet["peak"]["spare_down"])):
        times = (state["p50_ms"], state["p99_ms"], state["ttft"]["p99"])
        assert shown[1:4] == [f"{math.floor(each + 0.5):,}" for each in times]
    assert fleet["peak"]["slow_end"]["p99_ms"] is None
    assert slow[2] == {"en": "does not keep up", "vi": "không theo kịp tải"}[str(page.get_attribute("html", "lang"))]
    english = page.locator(".output [lang=en]").all_inner_texts()
    assert english == [f"recommend plan {' '.join(words)} --format k8s -o fleet"]
    assert page.locator(".output a").count() == 1
    page.evaluate(axe)
    assert violations(answered) == []


def test_without_javascript_there_is_a_table_of_answers(browser: Any, base: str) -> None:
    """Each stored answer with its figures and its script, which is the command's."""
    with visiting(browser, base, java_script_enabled=False) as visit:
        page = visit.open("index.html")
        rows = page.locator("#configurator table tbody tr")
        assert rows.count() == len(stored_answers()) > 20
        address = str(rows.first.locator("a").get_attribute("href"))
        assert page.request.get(f"{base}{address}").text() == run(FIRST).stdout
        assert page.locator("#title").inner_text()
        for dead in ("#question", ".tile", "#file", "#answer button", ".search-button"):
            assert not page.locator(dead).first.is_visible(), dead


def test_a_folder_opens_with_the_file_that_starts_it(asking: Visit) -> None:
    """Its command is shown; sums of the files come last; where nothing fits, no field has the answer before."""
    page = asking.page
    follow(asking, "?model=llama-3.1-8b-instruct&gpu=a100-sxm-80g&load=64&workload=chat")
    asking.wait(ANSWERED, "bash")
    assert page.locator("#q-input-tokens").get_attribute("placeholder") != ""
    page.locator("#tab-compose").click()
    asking.wait(ANSWERED, "compose")
    names = page.locator("#files button").all_inner_texts()
    assert (names[0], names[-1]) == ("compose.yaml", ".written.sha256")
    assert page.locator("#download").get_attribute("download") == "compose.yaml"
    for form, first in (("k8s", "kustomization.yaml"), ("systemd", "lmdeploy.target")):
        page.locator(f"#tab-{form}").click()
        asking.wait(ANSWERED, form)
        assert page.locator("#files button").first.inner_text() == first
        command = page.locator("#command").inner_text()
        assert command.endswith(" -o fleet")
        written = run([*command.removesuffix("fleet").split()[1:], "files"]).files
        assert {*written} == {*page.locator("#files button").all_inner_texts()}
    follow(asking, "?model=internvl3-38b-awq&gpu=t4&load=1")
    asking.wait(ANSWERED, "refused")
    assert page.locator("#q-input-tokens").get_attribute("placeholder") == ""


def test_without_webassembly_stored_answers_are_given_and_said(browser: Any, base: str) -> None:
    """The answer of the first question; another one offers the stored ones."""
    with visiting(browser, base) as visit:
        visit.page.add_init_script("delete globalThis.WebAssembly")
        page = visit.open("index.html")
        visit.wait(ANSWERED, "bash")
        assert file_shown(visit) == run(FIRST).stdout
        page.locator("#progress", has_text="cannot run WebAssembly").wait_for()
        page.locator("#tab-compose").click()
        page.locator("#file .wrong", has_text="The command answers every question").wait_for()
        assert page.locator("#copy").is_disabled()
        page.locator("#tab-bash").click()
        visit.wait(ANSWERED, "bash")
        assert page.locator("#copy").is_enabled()
        visit.open("index.html?model=internvl3-8b&gpu=b200&load=7")
        visit.wait(ANSWERED, "refused")
        assert "WebAssembly" in page.locator("#refusal").inner_text()
        offers = page.locator("#refusal button:visible").all_inner_texts()
        assert 1 < len(offers) <= 6
        assert all("internvl3-8b " in each for each in offers)
        page.locator("#refusal summary").click()
        assert page.locator("#refusal button:visible").count() == len(stored_answers())
        ask(visit, page.locator("#refusal button").first.click, "bash")


def test_every_stored_answer_is_the_commands(site: Path) -> None:
    """So the first paint shows what the recommender then answers."""
    for each in stored_answers():
        script = (site / "assets" / "configure" / "stored" / f"{each.name}.sh").read_text("utf-8")
        assert script == run(each.words.split()).stdout


def test_the_boxes_know_what_people_call_things(asking: Visit) -> None:
    """Each name and alias of a GPU or model finds its record among the first five."""
    tried, missed = asking.page.evaluate("""async () => {
      const { matching, prepared } = await import(new URL("assets/configure/combobox.js", document.baseURI));
      const data = JSON.parse(document.querySelector("#configurator-data").textContent);
      const tried = ["gpus", "models"].map(kind => prepared(data[kind])).flatMap(items =>
        items.filter(item => !item.part).flatMap(item =>
          item.names.map(name => [name, item.id, matching(items, name)])));
      return [tried.length, tried.filter(([, id, hits]) => !hits.slice(0, 5).some(hit => hit.id === id))];
    }""")
    assert tried > 2 * len(STORE.models)
    assert not missed
