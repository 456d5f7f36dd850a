"""``recommend smoke``: arguments, signals, progress and exit codes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recommender.arguments import request_options
from recommender.request import MAX_CONCURRENCY, Request, RequestError, parse_image, positive_float, positive_int
from recommender.smoke.console import fail as _fail
from recommender.smoke.console import progress as _progress
from recommender.smoke.console import signals as _signals
from recommender.smoke.failures import KINDS, Failure

if TYPE_CHECKING:
    from recommender.pipeline import Recommendation
    from recommender.smoke.launch import Artefact
    from recommender.smoke.taken import Asked, Load

QUICK_S, LONG_S, ENOUGH = 6.0, 20.0, 400
FILE = click.Path(path_type=Path)
LOAD = re.compile(r"(?P<count>\d+)(?P<open>rps)?(?:@(?P<image>text|\d+x\d+(?:x\d+)?))?", re.IGNORECASE)


def _codes() -> str:
    lines = "\n".join(f"  {kind.code:>3}  {kind.name:<19} {kind.what}" for kind in KINDS.values())
    return (
        "\b\nExit codes:\n    0  all sound, goals met\n    1  nothing fits the request\n"
        f"    2  the command line is wrong\n{lines}\n  130  stopped by Ctrl-C (143 by SIGTERM, 129 by SIGHUP)"
    )


EXAMPLES = """\b
Examples:
  recommend smoke --gpu auto --load 16 --quick
  recommend smoke serve.sh --weights random
  recommend smoke serve.sh --phase 1 --phase 64@1280x720 --json > run.json
  recommend smoke --gpu H100-80G --follow gemini --with trust-remote-code \\
      --without chat-template --save-evidence gemini.yaml
  recommend smoke serve.sh --dry-run
  recommend plan --rps 60 --gpu H100:2 --format systemd -o fleet
  recommend smoke fleet --phase 64 --kill
"""


@click.command(
    epilog=EXAMPLES + "\n" + _codes(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.argument("artefact", metavar="[SCRIPT|FOLDER]", required=False, type=FILE)
@request_options
@click.option(
    "--phase",
    "phases",
    metavar="N[rps][@WxH]",
    multiple=True,
    help="A load: N in flight, or N arrivals a second. [1, then the request's]",
)
@click.option(
    "--seconds", metavar="S", help="Of each load, in full. [20, or 6 with --quick; 400 answers end it sooner]"
)
@click.option("--quick", is_flag=True, help="Short loads: under 90 s once the weights are there.")
@click.option(
    "--weights",
    metavar="random",
    type=click.Choice(["random"]),
    help="Make a checkpoint of the model's shapes with random weights.",
)
@click.option("--weights-dir", metavar="DIR", type=FILE, help="Where to keep such checkpoints. [the user's cache]")
@click.option("--seed", metavar="N", default=0, type=click.IntRange(0, 2**31), help="Of the random weights. [0]")
@click.option("--copies", metavar="N", default=1, type=click.IntRange(1, 16), help="Start it so often on its card. [1]")
@click.option("--mps", is_flag=True, help="Put the copies under CUDA MPS.")
@click.option("--pin", metavar="CORES", help="Hold the servers to these CPU cores, such as 0-7; the load takes others.")
@click.option("--kill", is_flag=True, help="Of a fleet: kill a server under load, start it again, count what is lost.")
@click.option("--dry-run", is_flag=True, help="Start nothing: check the artefact and its options.")
@click.option(
    "--patience",
    metavar="S",
    default=120.0,
    type=click.FloatRange(1, 3600),
    help="How long a starting server's log may stand still, or an answer take. [120]",
)
@click.option(
    "--time-limit",
    metavar="S",
    default=1800.0,
    type=click.FloatRange(1, 86400),
    help="How long all of it may take. [1800]",
)
@click.option("--json", "as_json", is_flag=True, help="The whole run as JSON on stdout.")
@click.option("--note", "notes", metavar="TEXT", multiple=True, help="Words to keep with the evidence.")
@click.option("--save-evidence", metavar="FILE", help="Write the run as an evidence record.")
def smoke(artefact: Path | None, **options: Any) -> None:
    """Launch an artefact with the real LMDeploy, prove its answers and measure it.

    SCRIPT is a serve.sh or pipeline.py that recommend wrote, FOLDER a fleet's of
    --format systemd or compose, of which one host's servers and the front start
    here as plain processes. Without either the request options say what to
    launch. Everything that was started is stopped again, whatever happens.
    """
    from recommender.smoke import record

    script, found = _resolved(artefact, options)
    evidence = record.place(options["save_evidence"]) if options["save_evidence"] else None
    driven = loads(options["phases"], found)  # a mistake in them is told before anything is made or started
    _fit(script, found, options)
    if options["dry_run"]:
        from recommender.smoke.dryrun import dry_run

        click.echo(dry_run(script, found, dict(os.environ)), nl=False)
        return
    try:
        with _signals(options["time_limit"]), _progress() as say:
            asked = _asked(script, found, driven, options, say)
            if evidence and script.overridden(asked.environment):
                names = ", ".join(script.overridden(asked.environment))
                raise RequestError(f"--save-evidence: this environment changes the artefact's {names}; unset that")
            _run(asked, options, evidence, say)
    except Failure as failure:
        _fail(failure)


def _resolved(path: Path | None, options: dict[str, Any]) -> tuple[Artefact, Recommendation]:
    """The artefact to launch and the recommendation behind it."""
    from recommender import arguments, render
    from recommender.smoke import folder, launch

    if options["kill"] and (path is None or not path.is_dir()):
        raise RequestError("--kill is for a fleet: name a folder that --format systemd or compose wrote")
    if path is None:
        if not options["gpu"]:
            raise RequestError(
                "name a script that recommend wrote, or say --gpu; recommend smoke --help shows examples"
            )
        found = arguments.answer(options)
        return launch.of(render.render(found, "bash"), "serve.sh"), found
    artefact = folder.read(path) if path.is_dir() else launch.read(path)
    if options["follow"] or options["added"] or options["left_out"]:
        raise RequestError("--follow says what to render; it cannot be given with a script")
    if artefact.head is None and not options["gpu"]:
        raise RequestError(
            f"{path}: recommend did not write this (no line '# request: ...'); say --gpu and the load for it"
        )
    request, follow = launch.asked(artefact, _changed(options, artefact))
    return artefact, launch.remake(request, follow)


def _changed(options: dict[str, Any], artefact: Artefact) -> Mapping[str, Any]:
    """The fields of the request that the command line gives."""
    from recommender import arguments

    names = [each for each in ("gpu", *_REQUEST) if options.get(each)]
    if not names:
        return {}
    own = (artefact.head or {}).get("gpu", "")
    given = arguments.asked({**options, "gpu": options["gpu"] or own})
    blank = Request(gpu=given.gpu)
    changed = {each.name: getattr(given, each.name) for each in fields(Request)}
    kept = {name: value for name, value in changed.items() if value != getattr(blank, name)}
    return kept | ({"gpu": given.gpu, "gpu_count": given.gpu_count} if options["gpu"] else {})


_REQUEST = (
    "model", "load", "rps", "image", "text_only", "prompt_tokens", "output_tokens",
    "goal", "p99", "ttft", "vram", "cpus", "kv", "lmdeploy", "calibrate",
)  # fmt: skip


def _asked(
    script: Artefact,
    found: Recommendation,
    driven: tuple[Load, ...],
    options: dict[str, Any],
    say: Callable[[str], None],
) -> Asked:
    """What to run, on this machine. Raises Failure for what is missing."""
    from recommender.smoke import folder, host, launch
    from recommender.smoke.taken import Asked

    environment = dict(os.environ)
    launch.settings(found.facts, script.words(found.facts, environment))  # refuses what is no number
    host.packages()
    host.lmdeploy(found.facts.release.id, environment)
    model, checkpoint = host.model(script, found, options, environment, say)
    seconds = positive_float("--seconds", options["seconds"], 3600) if options["seconds"] else 0.0
    return Asked(
        artefact=script,
        found=found,
        loads=driven,
        environment=environment,
        set_by_smoke=host.variables(model, environment, script.kind in folder.READ),
        checkpoint=checkpoint,
        notes=tuple(each for each in options["notes"] if each.strip()),
        copies=options["copies"],
        mps=options["mps"],
        kill=options["kill"],
        pin=host.pinned(options["pin"] or ""),
        seconds=seconds or (QUICK_S if options["quick"] else LONG_S),
        enough=0 if seconds else ENOUGH,  # many in flight keep the step they began in for longer than 400 answers
        patience_s=options["patience"],
    )


def _fit(script: Artefact, found: Recommendation, options: dict[str, Any]) -> None:
    """Raises RequestError for options that this kind of artefact has no use for."""
    from recommender.smoke import folder, launch

    if options["mps"] and script.kind == "python":
        raise RequestError("--mps: a pipeline.py is one process; use serve.sh")
    if script.kind in folder.READ and (options["mps"] or options["copies"] > 1):
        raise RequestError("--copies and --mps are for a script: a fleet's files say how many servers share a card")
    if options["kill"] and found.config.servers < 2:
        raise RequestError("--kill: this fleet has one server on a host, so nothing would answer meanwhile")
    if options["copies"] > 1:
        launch.needs_ports(script, found.facts)


def loads(texts: tuple[str, ...], found: Recommendation) -> tuple[Load, ...]:
    """The loads to drive: as given, else one request at a time and then the request's own load."""
    from recommender.smoke.taken import Load

    facts = found.facts
    size = (facts.images, facts.image_width, facts.image_height)
    if not texts:
        alone = Load(1, 0.0, *size)
        rate = facts.request.rps
        own = Load(0, rate, *size) if rate else Load(facts.concurrency, 0.0, *size)
        return (alone,) if own == alone else (alone, own)
    made = []
    for text in texts:
        match = LOAD.fullmatch(text.strip())
        if not match:
            raise RequestError(f"--phase {text[:40]!r}: write N, Nrps, N@WIDTHxHEIGHT or N@text, such as 16@1280x720")
        count = positive_int("--phase", match["count"], MAX_CONCURRENCY)
        images = size
        if match["image"]:
            width, height, number = (0, 0, 0) if match["image"].lower() == "text" else parse_image(match["image"])
            images = (number, width, height)
        if images[0] and not facts.model.vision:
            raise RequestError(f"--phase {text}: {facts.model.hub} reads text only; write {match['count']}@text")
        made.append(Load(0, float(count), *images) if match["open"] else Load(count, 0.0, *images))
    return tuple(made)


def _run(asked: Asked, options: dict[str, Any], evidence: tuple[Path, str] | None, say: Callable[[str], None]) -> None:
    """Runs, tells and keeps; ends with the exit code of the outcome."""
    from recommender.smoke import record, report
    from recommender.smoke.run import run

    taken = run(asked, say)
    say("")
    made = record.record(evidence[1] if evidence else "run", asked, taken, time.strftime("%Y-%m-%d"))
    if evidence and taken.ready_mib:
        record.save(evidence[0], made)
    if options["as_json"]:
        click.echo(report.to_json(asked.found, made), nl=False)
    else:
        click.echo(report.text(asked.found, made), nl=False)
    if not taken.memory_back:
        click.echo("recommend smoke: the card's memory did not come back: see nvidia-smi", err=True)
    if evidence:
        wrote = f"wrote {evidence[0]}" if taken.ready_mib else "no evidence is written of a server that never got ready"
        click.echo(f"recommend smoke: {wrote}", err=True)
    if taken.failure:
        raise taken.failure
    missed = [each for each in report.goals(asked.found, made) if not each.met]
    if missed:
        raise Failure(
            "goals-missed", "; ".join(f"{each.name} {each.measured:,.1f}, wanted {each.wanted:,.1f}" for each in missed)
        )
