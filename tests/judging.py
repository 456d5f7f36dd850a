"""Holds what a review says against what was labelled before any rule existed: the corpus and the seeds' blocks.

A finding is right where a label of its family lies at its place, and counts neither way where a ``maybe`` lies
there. Place: their characters overlap, or they stand on one line of a text with several. Everything else is a
false alarm; a label that no finding meets is a miss.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import seedblocks
import yaml
from labels import FAMILIES
from seeds import ROOT, Seeds

from recommender.common.errors import UnknownName
from recommender.knowledge.load import load
from recommender.knowledge.names import resolve_gpu, resolve_model
from recommender.review.engine import UNREAD, Review, review
from recommender.review.rule import Finding
from recommender.review.script.source import read

CORPUS = sorted((ROOT / "tests" / "reviews" / "corpus").glob("*.yaml"))
FILES = sorted((ROOT / "tests" / "reviews" / "files").glob("*.yaml"))
USELESS = {"nothing", "costs"}
"""Families that labels and rules draw the line between differently: what does nothing mostly costs something too."""
NAMES = {"bash": "x.sh", "python": "x.py", "compose": "compose.yaml", "kubernetes": "x.yaml", "docker": "x.sh"}

EXCUSED = frozenset({"LMD117", "LMD412", "LMD501", "LMD502"})
"""Remarks on: no engine asked for by name, prompts in the log, the default address, published ports."""
LOADS: dict[str, dict[str, Any]] = {
    "32 requests at once": {"load": "32"},
    "a prompt of 60,008 tokens": {"load": "1", "prompt_tokens": "60008", "text_only": True},
    "many requests at once with an image each": {"load": "high"},
    "one request with one image": {"load": "1"},
    "one request with two images": {"load": "1", "image": "448x448x2"},
    "three images of 1920x1080 in one request": {"load": "1", "image": "1920x1080x3"},
    "one request at a time, each one image of 448x448 and a short prompt": {"load": "1", "image": "448x448"},
}
"""What a context's words about the load are as options; other words tell no number."""

Entry = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """One labelled text, its findings sorted by what they turned out to be, and the labels that none met."""

    id: str
    text: str
    right: tuple[tuple[Finding, Entry], ...]
    open: tuple[Finding, ...]
    wrong: tuple[Finding, ...]
    missed: tuple[Entry, ...]


def judge(name: str, text: str, kind: str, context: Entry, labels: list[Entry], maybe: list[Entry]) -> Judged:
    """A review of one text, held against its labels."""
    found = review(NAMES.get(kind, "-"), text, told(context))
    assert not found.defects, found.defects
    return compare(name, text, found.findings, labels, maybe)


def compare(name: str, text: str, findings: Iterable[Finding], labels: list[Entry], maybe: list[Entry]) -> Judged:
    """Findings, held against the labels of their text."""
    right: list[tuple[Finding, Entry]] = []
    unsettled, wrong, met = [], [], []
    for finding in findings:
        here = [label for label in labels if _meets(finding, label, text)]
        if here:
            right.append((finding, here[0]))
            met += here
        elif any(_at(finding, each["where"], text) for each in maybe) or _excused(finding):
            unsettled.append(finding)
        else:
            wrong.append(finding)
    missed = [label for label in labels if label not in met and not label.get("once")]
    return Judged(name, text, tuple(right), tuple(unsettled), tuple(wrong), tuple(missed))


def _excused(finding: Finding) -> bool:
    """What stands under ``maybe`` for every text, as the corpus' README says."""
    return finding.severity == "info" and finding.rule.id in EXCUSED


def told(context: Entry) -> dict[str, Any]:
    """A context as options of ``recommend review``; a GPU or a model that the project does not know is left out."""
    store = load()
    options: dict[str, Any] = {"lmdeploy": context["release"], **LOADS.get(context["load"], {})}
    with suppress(UnknownName):
        gpu, _ = resolve_gpu(store, context["gpu"])
        options["gpu"] = f"{gpu.id}:{context['gpus']}" if context["gpus"] else gpu.id
    with suppress(UnknownName):
        options["model"] = resolve_model(store, context["model"]).id
    return options


def _meets(finding: Finding, label: Entry, text: str) -> bool:
    families = {"starts" if label["family"] == "unread" else FAMILIES[label["family"]], finding.rule.family}
    same = len(families) == 1 or families == USELESS
    return same and _at(finding, label["where"], text)


def _at(finding: Finding, where: Any, text: str) -> bool:
    """Whether a finding lies where a label or a ``maybe`` points."""
    place = finding.place
    several = text.count("\n") > 1
    return any(
        (start < max(place.end, place.start + 1) and place.start < end)
        or (several and text.count("\n", 0, start) <= place.line - 1 <= text.count("\n", 0, end))
        for start, end in _stretches(where, text)
    )


def _stretches(where: Any, text: str) -> Iterator[tuple[int, int]]:
    """The stretches of characters that a ``where`` of either form names."""
    if isinstance(where, str):
        at = text.find(where)
        while at >= 0:
            yield at, at + len(where)
            at = text.find(where, at + 1)
        return
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    yield starts[where["line"] - 1], starts[where.get("to", where["line"])] - 1
    for each in where.get("also", ()):
        yield starts[each["line"] - 1], starts[each["line"]] - 1


@cache
def corpus() -> tuple[Judged, ...]:
    made = []
    for path in CORPUS:
        one = yaml.safe_load(Path(path).read_text("utf-8"))
        made.append(judge(one["id"], one["text"], one["kind"], one["context"], one["labels"], one["maybe"]))
    return tuple(made)


def seeds_judged(seeds: Seeds) -> Iterator[Judged]:
    """Every code block of the seeds that starts a server."""
    for path in seedblocks.FILES:
        one = seedblocks.entry(path)
        text = seedblocks.reviewed(seeds, one)
        yield judge(path.stem, text, one["kind"], one["context"], one["labels"], one["maybe"])


@dataclass(frozen=True)
class File:
    """A labelled file, judged.

    ``silent``: it starts more than was read, and no finding says so; or it has labels, and there is no finding at all.
    """

    judged: Judged
    silent: bool


@cache
def files() -> tuple[File, ...]:
    """Every labelled file, written with those beside it into a folder and reviewed there; infos do not count."""
    judged = []
    for path in FILES:
        one = yaml.safe_load(path.read_text("utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            found = reviewed(Path(folder), one)
        assert not found.defects, (one["id"], found.defects)
        findings = [finding for finding in found.findings if finding.severity != "info"]
        said = any(finding.rule.id == UNREAD for finding in findings)
        silent = (len(found.script.launches) < one["launches"] and not said) or (bool(one["labels"]) and not findings)
        judged.append(File(compare(one["id"], one["text"], findings, one["labels"], one["maybe"]), silent))
    return tuple(judged)


def reviewed(folder: Path, one: Entry) -> Review:
    """The review of one labelled file, in a folder with the files beside it."""
    for name, text in {**one.get("beside", {}), one["path"]: one["text"]}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        whole = "\ufeff" + text.replace("\n", "\r\n") if one.get("windows") else text
        (folder / name).write_text(whole, encoding="utf-8", newline="")
    path = one["path"] if one["path"] == "-" else str(folder / one["path"])
    context = one["context"]
    options = {"lmdeploy": context["release"], "gpu": context["gpu"], "load": context["load"]}
    source = read(str(folder / one["path"]))
    given = {name: text for name, text in options.items() if text}
    return review(path, source.text, given, windows=source.line_end == "\r\n")
