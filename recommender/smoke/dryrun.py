"""Checks an artefact without starting anything."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from recommender.request import RequestError
from recommender.smoke import host
from recommender.smoke.failures import Failure
from recommender.smoke.folder import ANYWHERE, FRONT, Fleet
from recommender.smoke.launch import ASSIGNED, Artefact

if TYPE_CHECKING:
    from recommender.pipeline import Recommendation

# Run by the interpreter that has LMDeploy: 77 where it cannot be imported, else as argparse ends.
PARSE = """
import sys
try:
    from lmdeploy.cli.serve import SubCliServe
    SubCliServe.add_parsers()
    parser = SubCliServe.subparsers.choices["api_server"]
except Exception as error:
    print(error)
    sys.exit(77)
parser.parse_args(sys.argv[1:])
"""
NOT_IMPORTED = 77


def dry_run(script: Artefact, found: Recommendation, environment: Mapping[str, str]) -> str:
    """What would be launched, and who checked its options. Raises RequestError where they are wrong."""
    facts = found.facts
    if script.head is None:
        raise RequestError(
            f"{script.name}: recommend did not write this, so only running it would show what it launches; "
            "leave --dry-run out, or render a script of your own"
        )
    words = script.words(facts, environment)
    model = script.values(environment).get("MODEL") or facts.model_source
    changes = edited(script, found)
    checker = check([model, *words], facts.release.id, environment)
    lines = [
        f"{script.name}: {'edited' if changes else 'as recommend renders it'}; nothing was started",
        *(f"  {each} is edited" for each in changes),
        f"options checked with {checker}",
        "would run:",
        *(f"  {each}" for each in script.exported(environment)),
        *_commands(script, found, environment),
        f"predicted on {found.config.cards} x {facts.gpu.name}:",
        f"  {found.memory.total / 2**30:.2f} GiB a card, {found.speed.latency_ms.value:,.0f} ms a request, "
        f"{found.speed.rps.value:,.1f} requests/s",
    ]
    return "\n".join(lines) + "\n"


def _commands(script: Artefact, found: Recommendation, environment: Mapping[str, str]) -> list[str]:
    """The commands of a launch, a line each."""
    words = script.words(found.facts, environment)
    model = script.values(environment).get("MODEL") or found.facts.model_source
    if isinstance(script, Fleet):
        places = [(each.cards, *each.words) for each in script.servers(found, ANYWHERE | dict(environment))]
        made = [f"  CUDA_VISIBLE_DEVICES={card} lmdeploy serve api_server {shlex.join(each)}" for card, *each in places]
        return [*made, f"  haproxy -db -f {FRONT}"]
    if script.kind == "bash":
        return [f"  lmdeploy serve api_server {shlex.quote(model)} {shlex.join(words)}"]
    return [f"  python3 {script.name}, its engine settings as options: {shlex.join(words)}"]


def check(words: list[str], release: str, environment: Mapping[str, str]) -> str:
    """Parses a server's command line with LMDeploy's own parser, else with the extracted facts; says which."""
    try:
        host.lmdeploy(release, environment)
    except Failure:
        return _by_facts(words, release)
    done = subprocess.run(
        [*host.python(environment), "-c", PARSE, *words],
        env=dict(environment), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    if done.returncode == NOT_IMPORTED:
        return _by_facts(words, release)
    if done.returncode:
        raise RequestError(f"LMDeploy {release} refuses the options: {_last(done.stderr)}")
    return f"the parser of the installed LMDeploy {release}"


def _by_facts(words: list[str], release: str) -> str:
    from recommender.extract import load_extracted
    from recommender.parser import rebuild_parser
    from recommender.store import data_root

    parser = rebuild_parser(load_extracted(data_root() / "knowledge" / "extracted" / "api_server.json"), release)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(words)
    except SystemExit:
        raise RequestError(f"LMDeploy {release} refuses the options: {_last(said.getvalue())}") from None
    return f"the facts extracted from LMDeploy {release} (it is not installed here)"


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rpartition("error: ")[2] if lines else "it says nothing"


def edited(script: Artefact, found: Recommendation) -> list[str]:
    """What differs from the artefact that recommend would write now, comments aside: variables, then lines."""
    if isinstance(script, Fleet):
        return _edited_files(script, found)
    from recommender.render import render

    text = render(found, script.kind)
    fresh = Artefact(script.kind, script.name, text, script.head)
    ours, theirs = fresh.values({}), script.values({})
    names = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
    kept = set(_code(text, script.kind))
    lines = [number for number, line in _numbered(script) if line not in kept]
    return sorted(names) + [f"line {number}" for number in lines[:5]]


def _edited_files(fleet: Fleet, found: Recommendation) -> list[str]:
    """Where a fleet's files are not what recommend would write now, comments aside."""
    from recommender.fleet.layout import Layout
    from recommender.fleet.written import SECRETS, made

    fresh = made(Layout(found, fleet.hosts), fleet.kind)
    told = [f"{name} (added)" for name in fleet.texts if name not in fresh]
    for name in (each for each in fresh if each not in SECRETS):
        text = fleet.texts.get(name)
        told += [f"{name} (missing)"] if text is None else _edited_file(name, text, fresh[name], fleet.kind)
    return told


def _edited_file(name: str, text: str, fresh: str, kind: str) -> list[str]:
    """Its lines that recommend would not write; where there are none of these, what it lacks."""
    kept, own = Counter(_code(fresh, kind)), Counter(_code(text, kind))
    odd = [n for n, each in enumerate(text.split("\n"), 1) if each.strip() not in kept and _code(each, kind)]
    lacking = "" if odd else next(iter(kept - own), "")
    return [f"{name} line {number}" for number in odd[:5]] + ([f"{name} (without {lacking[:60]!r})"] if lacking else [])


def _code(text: str, kind: str) -> list[str]:
    lines = (line.strip() for line in text.split("\n"))
    return [
        line for line in lines if line and not line.startswith("#") and not (kind == "bash" and ASSIGNED.match(line))
    ]


def _numbered(script: Artefact) -> list[tuple[int, str]]:
    kept = set(_code(script.text, script.kind))
    return [(n, line.strip()) for n, line in enumerate(script.text.split("\n"), 1) if line.strip() in kept]
