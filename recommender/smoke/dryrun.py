"""Checks an artefact without starting anything."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

from recommender.request import RequestError
from recommender.smoke import host
from recommender.smoke.failures import Failure
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
    cards = found.config.cards
    lines = [
        f"{script.name}: {'edited' if changes else 'as recommend renders it'}; nothing was started",
        *(f"  {each} is edited" for each in changes),
        f"options checked with {checker}",
        "would run:",
        *(f"  {each}" for each in script.exported(environment)),
        f"  lmdeploy serve api_server {shlex.quote(model)} {shlex.join(words)}"
        if script.kind == "bash"
        else f"  python3 {script.name}, its engine settings as options: {shlex.join(words)}",
        f"predicted on {cards} x {facts.gpu.name}:",
        f"  {found.memory.total / 2**30:.2f} GiB a card, {found.speed.latency_ms.value:,.0f} ms a request, "
        f"{found.speed.rps.value:,.1f} requests/s",
    ]
    return "\n".join(lines) + "\n"


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
    from recommender.render import render

    text = render(found, script.kind)
    fresh = Artefact(script.kind, script.name, text, script.head)
    ours, theirs = fresh.values({}), script.values({})
    names = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
    kept = set(_code(text, script.kind))
    lines = [number for number, line in _numbered(script) if line not in kept]
    return sorted(names) + [f"line {number}" for number in lines[:5]]


def _code(text: str, kind: str) -> list[str]:
    lines = (line.strip() for line in text.split("\n"))
    return [
        line for line in lines if line and not line.startswith("#") and not (kind == "bash" and ASSIGNED.match(line))
    ]


def _numbered(script: Artefact) -> list[tuple[int, str]]:
    kept = set(_code(script.text, script.kind))
    return [(n, line.strip()) for n, line in enumerate(script.text.split("\n"), 1) if line.strip() in kept]
