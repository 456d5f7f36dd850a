"""What to do with an output: start it, measure it, see why."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from recommender.common.terminal import labelled
from recommender.render.summary import missing

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation


class FirstStep(NamedTuple):
    """How an output starts: the name of a file, or folder, and commands with its place and variables to set.

    ``note``: what comes first.
    """

    name: str
    command: str
    smoke: bool = False
    note: str = ""


STARTS = {
    "bash": FirstStep("serve.sh", "{1}bash {0}", smoke=True),
    "command": FirstStep("command.sh", "{1}bash {0}"),
    "docker": FirstStep("docker.sh", "{1}bash {0}"),
    "python": FirstStep("pipeline.py", "{1}python3 {0}", smoke=True),
    "client": FirstStep("client.py", "{1}python3 {0}", note="start the server first: --format bash"),
    "env": FirstStep("serve.env", "set -a; . {0}; {1}bash serve.sh", note="serve.sh is --format bash"),
    "compose": FirstStep("fleet", "cd {} && docker compose run --rm fetch && docker compose up -d --wait", smoke=True),
    "systemd": FirstStep("fleet", "see the head of {}/lmdeploy.target", smoke=True),
    "k8s": FirstStep("fleet", "see the head of {}/kustomization.yaml"),
}
"""How to start each format; programs read the others."""
OWN_COMMIT = ("client", "compose", "systemd", "k8s")
"""Formats that start no server, or whose files hold the commit."""
OUTPUT_FLAGS = re.compile(r"--(json|force|quiet|verbose|why)|-[qv]+")
OUTPUT_OPTIONS = re.compile(r"--(format|output|comments)(=.*)?|-[qv]*o(.*)", re.DOTALL)


def request_words(words: Sequence[str]) -> list[str]:
    """Return a command line without what only says where its output goes, and how it looks."""
    kept, rest = [], iter(words)
    for word in rest:
        if option := OUTPUT_OPTIONS.fullmatch(word):
            if not (option[2] or option[3]):
                next(rest, None)
        elif not OUTPUT_FLAGS.fullmatch(word):
            kept.append(word)
    return kept


def next_steps(recommendation: Recommendation, words: Collection[str], file: str, form: str) -> Iterator[str]:
    """Yield the commands to go on with; ``words``: the command line, ``file``: where the output went."""
    asked = request_words([*words])
    yield "NEXT"
    if any(finding.severity == "reject" for finding in recommendation.findings):
        yield from _step("start", "not before the errors are repaired")
        yield from _step("ours", shlex.join(["recommend", *_without_follow(asked)]))
    else:
        yield from _start(recommendation, asked, file, form)
    yield from _step("why", shlex.join(["recommend", *asked, "--format", "report"]))


def _start(recommendation: Recommendation, arguments: Sequence[str], file: str, form: str) -> Iterator[str]:
    start = STARTS.get(form)
    lacking = "" if form in OWN_COMMIT or not missing(recommendation) else "REVISION=COMMIT "
    place = _place(file or (start.name if start else ""), form)
    if start:
        first = [*([f"recommend ... > {start.name}"] if not file else []), *([start.note] if start.note else [])]
        yield from _step(
            "start", start.command.format(place, lacking) + (f"   (first: {'; '.join(first)})" if first else "")
        )
    if missing(recommendation) and form != "client":
        name = "COMMIT" if start and form not in OWN_COMMIT else "REVISION"
        yield from _step(name, f"see https://huggingface.co/{recommendation.resolved.model.hub}/commits/main")
    yield from _step("measure", f"{lacking}recommend smoke {place if start and start.smoke else shlex.join(arguments)}")


def _place(name: str, form: str) -> str:
    """Return a file's name as a word: it is no option, and ``.`` looks for it here instead of on the PATH."""
    return shlex.quote(f"./{name}" if name.startswith("-") or (form == "env" and "/" not in name) else name)


def fleet_steps(recommendation: Recommendation, folder: str, form: str) -> Iterator[str]:
    """Yield how a plan's files go on; pods are measured where they are."""
    start, place = STARTS[form], _place(folder, form)
    yield "NEXT"
    yield from _step("start", start.command.format(place, ""))
    if missing(recommendation):
        yield from _step("REVISION", f"see https://huggingface.co/{recommendation.resolved.model.hub}/commits/main")
    if start.smoke:
        yield from _step("measure", f"recommend smoke {place}")


def _step(label: str, text: str) -> list[str]:
    return labelled(label, text, "  ", 9)


def _without_follow(words: Sequence[str]) -> list[str]:
    """Return a command line without the adviser that it follows."""
    kept, rest = [], iter(words)
    for word in rest:
        if word in ("--follow", "--with", "--without"):
            next(rest, None)
        elif not word.startswith(("--follow=", "--with=", "--without=")):
            kept.append(word)
    return kept
