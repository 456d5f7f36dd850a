"""Check an artefact without starting anything."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.common.units import GIB
from recommender.render.artefact import ASSIGNED, Artefact
from recommender.render.summary import rate
from recommender.smoke.expected_load import describe_drawn, draw_load
from recommender.smoke.failures import Failure
from recommender.smoke.fleet_folder import ANYWHERE, FRONT, READ, FleetArtefact
from recommender.smoke.process import host
from recommender.smoke.report import wrap
from recommender.smoke.result import describe_load

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.smoke.result import Load

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


def dry_run(
    script: Artefact, recommendation: Recommendation, environment: Mapping[str, str], loads: tuple[Load, ...] = ()
) -> str:
    """Return what would be launched; raise RequestError if LMDeploy refuses its options."""
    resolved, speed = recommendation.resolved, recommendation.speed
    if script.head is None:
        raise RequestError(
            f"{script.name}: recommend did not write this, so only a run shows what it launches; "
            "omit --dry-run, or render a script"
        )
    words = script.words(resolved, environment)
    model = script.values(environment).get("MODEL") or resolved.model_source
    changes = find_edits(script, recommendation)
    checker = check_options([model, *words], resolved.release.id, environment)
    lines = [
        f"{script.name}: {'edited' if changes else 'unchanged'}; nothing was started",
        *(f"  {change} is edited" for change in changes),
        f"options checked against {checker}",
        "would run:",
        *(f"  {assignment}" for assignment in script.exported(environment)),
        *_commands(script, recommendation, environment),
        *_describe_loads(script, recommendation, loads),
        f"predicted on {recommendation.config.cards} x {resolved.gpu.name}:",
        f"  {recommendation.memory.total / GIB:.2f} GiB per GPU, {speed.latency_ms.value:,.0f} ms per request, "
        f"{rate(speed.rps.value)} requests/s",
    ]
    return "\n".join(lines) + "\n"


def _describe_loads(script: Artefact, recommendation: Recommendation, loads: tuple[Load, ...]) -> list[str]:
    if script.kind == "python" or not loads:
        return []
    lines = ["would measure:"]
    for load in loads:
        drawn = draw_load(recommendation, load)
        lines += wrap(describe_load(load) + (f": {describe_drawn(drawn)}" if drawn else ""))
    if recommendation.request.repeated_share and not all(load.replay for load in loads):
        lines += wrap("prompts repeat only the prefix; --phase trace drives the other repeated text of the trace, too")
    return lines


def _commands(script: Artefact, recommendation: Recommendation, environment: Mapping[str, str]) -> list[str]:
    words = script.words(recommendation.resolved, environment)
    model = script.values(environment).get("MODEL") or recommendation.resolved.model_source
    if isinstance(script, FleetArtefact):
        servers = script.servers(recommendation, ANYWHERE | dict(environment))
        command = "lmdeploy serve api_server"
        commands = [f"  CUDA_VISIBLE_DEVICES={server.cards} {command} {shlex.join(server.words)}" for server in servers]
        return [*commands, f"  haproxy -db -f {FRONT}"]
    if script.kind == "bash":
        return [f"  lmdeploy serve api_server {shlex.quote(model)} {shlex.join(words)}"]
    return [f"  python3 {script.name}, its engine settings as options: {shlex.join(words)}"]


def check_options(words: list[str], release: str, environment: Mapping[str, str]) -> str:
    """Parse a server's options and name the parser used.

    That is LMDeploy's own where it is installed, else one rebuilt from extracted facts.
    """
    try:
        host.check_lmdeploy(release, environment)
    except Failure:
        return _check_with_facts(words, release)
    process = subprocess.run(
        [*host.find_python(environment), "-c", PARSE, *words],
        env=dict(environment), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    if process.returncode == NOT_IMPORTED:
        return _check_with_facts(words, release)
    if process.returncode:
        raise RequestError(f"LMDeploy {release} refuses the options: {_last_line(process.stderr)}")
    return f"the parser of the installed LMDeploy {release}"


def _check_with_facts(words: list[str], release: str) -> str:
    from recommender.knowledge.load import data_root
    from recommender.maintenance.argparse_rebuild import rebuild_parser
    from recommender.maintenance.wheel_facts import load_extracted

    parser = rebuild_parser(load_extracted(data_root() / "knowledge" / "extracted" / "api_server.json"), release)
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            parser.parse_args(words)
    except SystemExit:
        raise RequestError(f"LMDeploy {release} refuses the options: {_last_line(stderr.getvalue())}") from None
    return f"LMDeploy {release}'s list (LMDeploy is not installed)"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rpartition("error: ")[2] if lines else "it says nothing"


def find_edits(script: Artefact, recommendation: Recommendation) -> list[str]:
    """Return what differs from a fresh rendering, ignoring comments: variables, lines."""
    if isinstance(script, FleetArtefact):
        return _find_fleet_edits(script, recommendation)
    from recommender.render.formats import render

    text = render(recommendation, script.kind)
    fresh = Artefact(script.kind, script.name, text, script.head)
    fresh_values, script_values = fresh.values({}), script.values({})
    names = {name for name, _ in fresh_values.items() ^ script_values.items()}
    lines = _edited_lines(script.text, _code_lines(text, script.kind), script.kind)
    return sorted(names) + [f"line {number}" for number in lines]


def _find_fleet_edits(fleet: FleetArtefact, recommendation: Recommendation) -> list[str]:
    """Return where a fleet's files differ from a fresh rendering, ignoring comments."""
    from recommender.fleet.layout import Layout
    from recommender.fleet.write import render_files

    fresh = render_files(Layout(recommendation, fleet.hosts), fleet.kind)
    edits = [f"{name} (added)" for name in fleet.texts if name not in fresh]
    for name in filter(READ[fleet.kind].fullmatch, fresh):
        text = fleet.texts.get(name)
        edits += [f"{name} (missing)"] if text is None else _find_file_edits(name, text, fresh[name], fleet.kind)
    return edits


def _find_file_edits(name: str, text: str, fresh: str, kind: str) -> list[str]:
    """Return the changed lines of a file; without any, the first missing line."""
    rendered, actual = Counter(_code_lines(fresh, kind)), Counter(_code_lines(text, kind))
    edited = [f"{name} line {number}" for number in _edited_lines(text, rendered, kind)]
    lacking = "" if edited else next(iter(rendered - actual), "")
    return edited + ([f"{name} (without {lacking[:60]!r})"] if lacking else [])


def _edited_lines(text: str, rendered: Collection[str], kind: str) -> list[int]:
    """Return the numbers of the first lines of code that were not rendered."""
    lines = enumerate(text.split("\n"), 1)
    return [number for number, line in lines if line.strip() not in rendered and _code_lines(line, kind)][:5]


def _code_lines(text: str, kind: str) -> list[str]:
    lines = (line.strip() for line in text.split("\n"))
    return [
        line for line in lines if line and not line.startswith("#") and not (kind == "bash" and ASSIGNED.match(line))
    ]
