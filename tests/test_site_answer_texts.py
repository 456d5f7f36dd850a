"""What the recommender says on Vietnamese pages: every text of varied questions and of every rule is translated."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import Visit
from questions import STORE, WRONG, question, words
from test_review_rules import RULES, reviewed, table

from recommender.review import engine
from recommender.site.browser.answer import answer
from recommender.site.browser.run import folder_with, run
from recommender.site.i18n.extraction import templates

RANDOM = 60
VISION, TEXT = "internvl3-8b", "qwen2.5-7b-instruct"
GPUS = {gpu.compute_capability: gpu.id for gpu in STORE.gpus.values()}
"""A GPU of each generation."""
TRACES = {
    "good.csv": "timestamp,input_tokens,output_tokens\n0,100,20\n1,120,30\n2,100,20\n",
    "other.csv": "name,size\na,1\n",
    "empty.csv": "",
    "packed.csv": "\x1f\x8b",
}
NO_TEXT = re.compile(r"(--)?[a-z_-]+ [\w./-]+")
"""The exception: a repair that is only an option and its value."""
TRANSLATED = """async texts => {
  const { translated } = await import(new URL("../assets/configure/translate.js", document.baseURI));
  const read = id => JSON.parse(document.getElementById(id)?.textContent ?? "null");
  const { reasons } = read("configurator-data") ?? {};
  const check = read("checker-data");
  const lists = (kind, name) => kind === "any" ? [reasons.said, ...Object.values(reasons.constraints)] : reasons
    ? [kind === "option" ? reasons.options[name] : reasons.constraints[name], reasons.said]
    : [check.findings[name], check.findings[""], check.said];
  return texts.map(([kind, name, text]) => translated(text, ...lists(kind, name)));
}"""


def asked() -> Iterator[list[str]]:
    """Questions of all workloads, generations of GPUs, goals, engines, releases and advisers, and wrong ones."""
    usual = {"model": VISION, "gpu": "h100-sxm-80g", "load": "16"}

    def each(name: str, values: Iterable[str]) -> Iterator[list[str]]:
        yield from (words([*(usual | {name: value}).items()]) for value in values)

    for workload in STORE.workloads.values():
        yield ["--model", VISION if workload.images else TEXT, "--gpu", "l40s", "--workload", workload.id]
    yield from (["--model", TEXT, "--gpu", gpu, "--load", "16"] for gpu in GPUS.values())
    yield from each("goal", ("latency", "throughput", "memory", "balanced"))
    yield from each("backend", ("turbomind", "pytorch"))
    yield from each("lmdeploy", STORE.releases)
    yield from each("follow", ("defaults", *STORE.advisers))
    for name, values in WRONG.items():
        yield from each(name, values)
    yield words([*usual.items(), ("gpu", "l4")])
    yield from (["--model", TEXT, "--gpu", "h100-sxm-80g", "--trace", name] for name in (*TRACES, "missing.csv"))
    yield from (words(question(number)[0]) for number in range(RANDOM))


def said(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The texts of an answer that are for reading: of what kind, of which option or constraint."""
    binding = found.get("constraint", "")
    if found["exit"]:
        yield "", binding, found["error"]
        yield from (("", "", offer["text"]) for offer in found["offers"])
        return
    for text in (found["title"], found["load"], *found["assumed"], *found["notes"]):
        yield "", "", text
    yield from (("", "", found["speed"][name]) for name in ("limit", "basis"))
    for each in found["warnings"]:
        yield from (("", each["constraint"], each[name]) for name in ("message", "remedy"))
    for option in found["options"]:
        yield from (("option", option["id"], option[name]) for name in ("reason", "brief", "caveat"))


def untranslated(visit: Visit, path: str, texts: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    visit.open(path)
    own = visit.page.evaluate(TRANSLATED, texts)
    assert len(own) == len(texts)
    return [text for text, translation in zip(texts, own, strict=True) if translation is None]


def test_what_questions_are_answered_is_translated(visit: Visit) -> None:
    """Title, load, assumptions, notes, warnings, reasons, refusals with their offers."""
    with folder_with(TRACES):
        answers = [answer(each) for each in asked()]
    assert len(answers) > 120
    assert sum(each["exit"] != 0 for each in answers) > 20
    texts = [*dict.fromkeys(text for each in answers for text in said(each) if text[2])]
    assert len(texts) > 600
    assert untranslated(visit, "vi/index.html", texts) == []


PLANS = (
    "--rps 20 --gpu L40S:4 --p99 1", "--rps 1 --gpu T4 --model internvl3-78b", "--rps 100000 --gpu T4",
    "--rps 15 --gpu 'H100-80G MIG 3g.40gb:2' --tp 2", "--rps 5 --gpu H100:3 --tp 2", "--rps 5 --gpu L4 --tp 2",
    "--rps 5 --gpu L4 --cpus 1", "--rps 900 --gpu H100:8 --image 1280x720x2 --network 1", "--rps 2 --gpu A100",
    "--rps 50 --gpu L4 --model qwen3-8b --ttft p99:200ms --workload chat", "--rps 5", "--rps 5 --gpu L4 --tp 3",
    "--rps 5 --gpu L4 --peak 0", "--rps 20 --gpu L4 --model qwen3-8b --tpot 1ms --workload rag",
)  # fmt: skip
"""Fleets that cannot be, each for a reason of its own, and questions that are wrong."""


def test_what_a_plan_says_is_translated(visit: Visit) -> None:
    """Why hosts cannot, notes, limits, and what is not understood."""
    texts: dict[tuple[str, str, str], None] = {}
    for asked_plan in PLANS:
        done = run(["plan", *shlex.split(asked_plan), "--json"])
        if not done.stdout:
            texts["", "", re.sub(r"^recommend( plan)?: ", "", done.stderr.strip())] = None
            continue
        plan = json.loads(done.stdout)
        said = (*(each["why"] for each in plan["cannot"]), *plan["notes"], *(each["limit"] for each in plan["fleets"]))
        texts |= dict.fromkeys(("any", "", text) for text in said)
    assert len(texts) > 12
    assert untranslated(visit, "vi/index.html", [*texts]) == []


def test_errors_of_the_system_are_translated(visit: Visit) -> None:
    """On both pages that read files of the reader."""
    numbers = (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ENOSPC, errno.EROFS)
    texts = [("", "", f"script: cannot be read: {os.strerror(number)}") for number in numbers]
    assert untranslated(visit, "vi/check.html", texts) == []
    own = visit.page.evaluate(TRANSLATED, texts)
    assert not [text for text, number in zip(own, numbers, strict=True) if os.strerror(number) in text]


def test_what_rules_find_is_translated(visit: Visit) -> None:
    """Message, reason and repair of every finding in the tables of all rules."""
    findings = [found for rule in RULES for row in table(rule.id) for found in reviewed(rule, row).findings]
    assert {found.rule.id for found in findings} == {rule.id for rule in RULES}
    texts = {
        ("rule", found.rule.id, text): None
        for found in findings
        for text in (found.message, found.diagnostic.why, found.fix.description if found.fix else "")
        if text and not NO_TEXT.fullmatch(text)
    }
    assert untranslated(visit, "vi/check.html", [*texts]) == []


UNREAD = {
    "serve.py": "import lmdeploy\nlmdeploy serve api_server m\n",
    "serve.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": ["import lmdeploy as ("]}], "nbformat": 4}),
    "deployment.yaml": "kind: Deployment\nspec:\n  {{- with .replicas }}\n  command: [lmdeploy, serve, api_server]\n",
    "compose.yaml": "services: {a: {command: lmdeploy serve api_server m\n",
    "main.tf": "command = [lmdeploy serve api_server\n",
    "serve.sh": "lmdeploy serve api_server m 'a\n",
}
"""Files that name a server and that no reader understands."""


def test_what_was_not_read_is_translated(visit: Visit) -> None:
    """Whatever reader says it: those in folders of their own too."""
    findings = [(name, found) for name, text in UNREAD.items() for found in engine.review(name, text, {}).findings]
    unread = [(name, found) for name, found in findings if found.rule.id == engine.UNREAD]
    assert {name for name, _ in unread} == UNREAD.keys()
    texts = [("rule", found.rule.id, text) for _, found in unread for text in (found.message, found.diagnostic.why)]
    assert untranslated(visit, "vi/check.html", texts) == []


PYTORCH = 'if a; then\n  ARGS="$ARGS --backend pytorch"\nfi\nlmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct $ARGS\n'
BRANCHES = [f'ARGS="{option}"\n{PYTORCH}' for option in ("--eager-mode", "--communicator cuda-ipc")]
"""Scripts of which some commands have a fault that the others lack."""


def test_what_holds_for_some_commands_is_translated(visit: Visit) -> None:
    """The sentence that says which follows the message of any rule."""
    findings = [found for text in BRANCHES for found in engine.review("x.sh", text, {}).findings]
    texts = [("rule", found.rule.id, found.message) for found in findings if "This holds only" in found.message]
    assert len(texts) == len(BRANCHES)
    assert untranslated(visit, "vi/check.html", texts) == []


EXAMPLES = {
    "2 concurrent requests: 1 image of 448x448 (70%), 1280x720 (30%), 330 input and 64 output tokens; "
    "20 of each input are the same": "2 request đồng thời: 1 ảnh 448x448 (70%), 1280x720 (30%), 330 token đầu vào và "
    "64 token đầu ra; 20 token đầu vào giống nhau ở mọi request",
    "--gpu: unknown GPU 'H1000': did you mean h100-sxm-80g, h200-sxm?": "--gpu: không biết GPU 'H1000': có phải bạn "
    "muốn h100-sxm-80g, h200-sxm?",
    "20 requests/s may be too many: at most 30.4 are served (17.2 to 53.8). Beyond that the queue grows without end.": (
        "20 request/s có thể là quá nhiều: nhiều nhất phục vụ được 30.4 (17.2 đến 53.8). Vượt mức đó, hàng đợi dài ra "
        "mãi."
    ),
    "Nothing that anybody says.": None,
}
"""Texts of several pieces: by templates, by what fills their places, and sentence by sentence."""


def test_a_text_is_put_together_from_its_pieces(visit: Visit) -> None:
    """Places are filled with what stands there, translated as far as it is text; a text is translated whole or not."""
    visit.open("vi/index.html")
    assert visit.page.evaluate(TRANSLATED, [("", "", text) for text in EXAMPLES]) == [*EXAMPLES.values()]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('f"needs {gpus} GPUs" + f" on {host}."', ["needs {0} GPUs on {1}."]),
        ("f\"{what} has no effect{', which counts' if odd else ''}\"", ["{0} has no effect{1}", "which counts"]),
        ('def rule():\n    """A docstring is none."""\n    raise Wrong("use a number")', ["use a number"]),
        ('re.compile("no text for readers")', []),
        ('"qwen2d5 internlm2"', []),
    ],
)
def test_templates_are_found_in_code(tmp_path: Path, code: str, found: list[str]) -> None:
    """A text is found whole, with places for what is filled in; what a place may hold is a text too."""
    (tmp_path / "module.py").write_text(code, "utf-8")
    if code.startswith("f"):
        (tmp_path / "module.py").write_text(f"text = {code}", "utf-8")
    assert templates(tmp_path / "module.py") == found
