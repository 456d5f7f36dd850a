"""Define ``recommend smoke``: arguments, signals, progress and exit codes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recommender.commands.short_help import ShortCommand
from recommender.common.errors import RequestError
from recommender.options import PATH, PATIENCE, SEED, TIME_LIMIT, WEIGHTS, WEIGHTS_DIR, files, request_options
from recommender.request.command_line import positive_float
from recommender.request.request import Request
from recommender.smoke import phases
from recommender.smoke.console import fail, handle_signals, progress
from recommender.smoke.failures import KINDS, Failure

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.render.artefact import Artefact
    from recommender.smoke.result import Load, RunRequest

QUICK_S, LONG_S, ENOUGH = 6.0, 20.0, 400


def _exit_codes() -> str:
    lines = "\n".join(f"  {kind.code:>3}  {kind.name:<19} {kind.description}" for kind in KINDS.values())
    return (
        "\b\nExit codes:\n    0  everything is sound, goals met\n    1  nothing fits the request\n"
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
    "smoke",
    cls=ShortCommand,
    epilog=EXAMPLES + "\n" + _exit_codes(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.argument("artefact", metavar="[SCRIPT|FOLDER]", required=False, type=PATH)
@request_options
@click.option(
    "--phase",
    "phases",
    metavar="N[rps][@WxH]",
    multiple=True,
    help="A load: concurrency N, or N arrivals a second. @text or @mix: the request's; trace or 2xtrace replays "
    "--trace. [1, then the request's]",
)
@click.option("--seconds", metavar="S", help="Length of each load. [20, or 6 with --quick; 400 answers end it sooner]")
@click.option(
    "--stream",
    type=click.Choice(["all"]),
    metavar="all",
    help="Stream every request, as loads with varying lengths do. [every fourth]",
)
@click.option("--quick", is_flag=True, help="Short loads: under 90 s, without the weights' download.")
@WEIGHTS
@WEIGHTS_DIR
@SEED
@click.option("--copies", metavar="N", default=1, type=click.IntRange(1, 16), help="Servers to start on one GPU. [1]")
@click.option("--mps", is_flag=True, help="Run the copies under CUDA MPS.")
@click.option("--pin", metavar="CORES", help="Pin the servers to CPU cores, such as 0-7; the load uses others.")
@click.option("--kill", is_flag=True, help="Fleet: kill a server under load, restart it. Lost requests are counted.")
@click.option("--dry-run", is_flag=True, help="Start nothing; check the artefact and its options.")
@PATIENCE
@TIME_LIMIT
@click.option("--json", "as_json", is_flag=True, help="Print the whole run as JSON.")
@click.option("--note", "notes", metavar="TEXT", multiple=True, help="Note to keep with the evidence.")
@click.option("--save-evidence", metavar="FILE", shell_complete=files, help="Write the run as an evidence record.")
def command(artefact: Path | None, **options: Any) -> None:
    """Launch an artefact with the installed LMDeploy, check its answers, measure it.

    SCRIPT is a serve.sh or pipeline.py that recommend wrote. FOLDER is a fleet
    of --format systemd or compose: the servers of one host and HAProxy start
    here as plain processes. Without either, the request options define what to
    launch. Everything that was started is stopped again, whatever happens.
    """
    from recommender.smoke import record

    if options["dry_run"] and options["as_json"]:
        raise RequestError("--json prints a run, and --dry-run makes none; remove one")
    script, recommendation = _resolve(artefact, options)
    evidence = record.evidence_path(options["save_evidence"]) if options["save_evidence"] else None
    seconds = positive_float("--seconds", options["seconds"], 3600) if options["seconds"] else 0.0
    lasting = seconds or (QUICK_S if options["quick"] else LONG_S)
    # Mistakes are refused before anything is made or started.
    driven = phases.parse_loads(options["phases"], recommendation, lasting)
    _check_options(script, recommendation, options)
    if options["dry_run"]:
        from recommender.smoke.dryrun import dry_run

        click.echo(dry_run(script, recommendation, dict(os.environ), driven), nl=False)
        return
    try:
        with handle_signals(options["time_limit"]), progress() as say:
            request = _run_request(script, recommendation, driven, lasting, options, say)
            changed = script.overridden(request.environment) if evidence else []
            if set(changed) - {"SERVER_PORT"}:  # which port it is changes no figure
                names = ", ".join(changed)
                raise RequestError(f"--save-evidence: this environment changes the artefact's {names}; unset them")
            _run(request, options, evidence, say)
    except Failure as failure:
        fail(failure)


def _resolve(path: Path | None, options: dict[str, Any]) -> tuple[Artefact, Recommendation]:
    """Return the artefact to launch and its recommendation."""
    from recommender import options as arguments
    from recommender.render import artefact as launch
    from recommender.render.formats import render
    from recommender.smoke import fleet_folder

    if options["kill"] and (path is None or not path.is_dir()):
        raise RequestError("--kill needs a fleet: name a folder that --format systemd or compose wrote")
    if path is None:
        if not options["gpu"]:
            raise RequestError(
                "name a script that recommend wrote, or pass --gpu; recommend smoke --help shows examples"
            )
        recommendation = arguments.build_recommendation(options)
        return launch.parse(render(recommendation, "bash"), "serve.sh"), recommendation
    artefact = fleet_folder.read(path) if path.is_dir() else launch.read(path)
    if options["follow"] or options["added"] or options["left_out"]:
        raise RequestError("--follow changes what is rendered, so it cannot go with a script; leave one out")
    if artefact.head is None and not options["gpu"]:
        raise RequestError(f"{path}: recommend did not write this (no line '# request: ...'); pass --gpu and the load")
    request, follow = launch.parse_request(artefact, _request_overrides(options, artefact))
    return artefact, launch.remake(request, follow)


def _request_overrides(options: dict[str, Any], artefact: Artefact) -> Mapping[str, Any]:
    """Return the request fields given on the command line."""
    from recommender import options as arguments

    if not any(options.get(name) for name in arguments.QUESTION):
        return {}
    script_gpu = (artefact.head or {}).get("gpu", "")
    request = arguments.build_request({**options, "gpu": options["gpu"] or script_gpu})
    blank = Request(gpu=request.gpu)
    changed = {field.name: getattr(request, field.name) for field in fields(Request)}
    explicit = {name: value for name, value in changed.items() if value != getattr(blank, name)}
    return explicit | ({"gpu": request.gpu, "gpu_count": request.gpu_count} if options["gpu"] else {})


def _run_request(
    script: Artefact,
    recommendation: Recommendation,
    driven: tuple[Load, ...],
    lasting: float,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> RunRequest:
    """Return what to run on this machine; raise Failure if something is missing."""
    from recommender.render import artefact
    from recommender.smoke import fleet_folder
    from recommender.smoke.process import host
    from recommender.smoke.result import RunRequest

    environment, resolved = dict(os.environ), recommendation.resolved
    artefact.settings(resolved, script.words(resolved, environment))  # refuses values that are no numbers
    pin = host.check_cores(options["pin"] or "")
    host.check_packages()
    host.check_lmdeploy(resolved.release.id, environment)
    _check_gpu(recommendation, environment, bool(options["save_evidence"]), say)
    model, checkpoint = host.find_model(script, recommendation, options, environment, say)
    return RunRequest(
        artefact=script,
        recommendation=recommendation,
        loads=driven,
        environment=environment,
        set_by_smoke=host.launch_variables(model, environment, script.kind in fleet_folder.READ),
        checkpoint=checkpoint,
        notes=tuple(option for option in options["notes"] if option.strip()),
        copies=options["copies"],
        mps=options["mps"],
        kill=options["kill"],
        pin=pin,
        seconds=lasting,
        enough=0 if options["seconds"] else ENOUGH,  # many clients stay in step for longer than 400 answers
        patience_s=options["patience"],
        stream_all=options["stream"] == "all",
    )


def _check_gpu(
    recommendation: Recommendation, environment: Mapping[str, str], for_evidence: bool, say: Callable[[str], None]
) -> None:
    """Say that the machine has another GPU than planned for; raise Failure where evidence would name the wrong one."""
    from recommender.smoke.process import host

    other = host.other_gpu(recommendation, environment)
    if other:
        difference = f"the plan is for {recommendation.resolved.gpu.name}, and this machine has {other}"
        if for_evidence:
            raise Failure("machine", f"--save-evidence: {difference}; pass the GPU that the machine has as --gpu")
        say("")
        click.echo(f"recommend smoke: {difference}: predictions will not match", err=True)


def _check_options(script: Artefact, recommendation: Recommendation, options: dict[str, Any]) -> None:
    """Raise RequestError for options that this kind of artefact does not support."""
    from recommender.render import artefact
    from recommender.smoke import fleet_folder

    if options["mps"] and script.kind == "python":
        raise RequestError("--mps: a pipeline.py is a single process; use a serve.sh")
    if script.kind in fleet_folder.READ and (options["mps"] or options["copies"] > 1):
        raise RequestError("--copies and --mps need a script: a fleet's files already set how many servers share a GPU")
    if options["kill"] and recommendation.config.servers < 2:
        raise RequestError(
            "--kill: this fleet has one server a host, so nothing would answer meanwhile; use a larger one"
        )
    if options["copies"] > 1:
        artefact.require_server_port(script, recommendation.resolved)


def _run(
    request: RunRequest, options: dict[str, Any], evidence: tuple[Path, str] | None, say: Callable[[str], None]
) -> None:
    """Run, report and save; exit with the outcome's code."""
    from recommender.smoke import json_output, record, report
    from recommender.smoke.goals import check_goals
    from recommender.smoke.run import run

    result = run(request, say)
    say("")
    name = evidence[1] if evidence else "run"
    evidence_record = record.build_record(name, request, result, time.strftime("%Y-%m-%d"))
    if evidence and result.ready_mib:
        record.save(evidence[0], evidence_record)
    write = json_output.to_json if options["as_json"] else report.text
    click.echo(write(request.recommendation, evidence_record), nl=False)
    if not result.memory_back:
        click.echo("recommend smoke: GPU memory was not freed; see nvidia-smi", err=True)
    if evidence:
        wrote = f"wrote {evidence[0]}" if result.ready_mib else "no evidence written: the server never became ready"
        click.echo(f"recommend smoke: {wrote}", err=True)
    if result.failure:
        raise result.failure
    missed = [goal for goal in check_goals(request.recommendation, evidence_record) if not goal.met]
    if missed:
        texts = (f"{goal.name} {goal.measured_text}, wanted {goal.wanted_text}" for goal in missed)
        raise Failure("goals-missed", "; ".join(texts))
