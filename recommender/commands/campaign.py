"""Define ``recommend campaign``: many smoke runs from a plan, over several sessions."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import fnmatch
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from recommender.commands.short_help import ShortCommand
from recommender.commands.smoke import command as smoke
from recommender.common.errors import PlanError, RequestError
from recommender.common.leftovers import work_folder
from recommender.common.terminal import show_json
from recommender.common.text import count, did_you_mean
from recommender.common.user_file import Unreadable, check_kind
from recommender.options import PATH, WEIGHTS_DIR
from recommender.smoke.campaign import archive, sweep
from recommender.smoke.campaign.plan import ParsedPlan, PlannedRun
from recommender.smoke.campaign.plan_file import read_plan
from recommender.smoke.campaign.report import describe_figures, format_duration, list_runs, ranking_text, wrap_rest
from recommender.smoke.console import LOG_MARK, stop_signals
from recommender.smoke.process.process_keeper import PR_SET_PDEATHSIG

MACHINE, LEFT_OVER = 3, 5
MESSAGE_LENGTH = 400
WATCH_S = 0.05

HELP = """\b
Examples:
  recommend campaign knowledge/campaigns/h100.yaml h100.jsonl --list
  recommend campaign knowledge/campaigns/h100.yaml h100.jsonl --time-limit 540
  recommend campaign knowledge/campaigns/h100.yaml h100.jsonl --ranking
  recommend campaign knowledge/campaigns/h100.yaml mon.jsonl tue.jsonl \\
      --unpack knowledge/evidence
  recommend campaign knowledge/campaigns/h100.yaml new.jsonl \\
      --pack knowledge/evidence

\b
Exit codes:
    0  everything is done; failed starts count, their lines say why
    2  the plan or the command line is wrong; nothing was started
    3  the machine lacks something, or a smoke run could not start
    5  starts are left: run it again
  130  stopped by Ctrl-C (143 by SIGTERM, 129 by SIGHUP)
"""


@click.command("campaign", cls=ShortCommand, epilog=HELP)
@click.argument("plan", metavar="PLAN", type=PATH)
@click.argument("results", metavar="RESULTS...", type=PATH, nargs=-1, required=True)
@click.option(
    "--time-limit", metavar="S", type=click.FloatRange(1, 604800), help="Start no run that would end after S seconds."
)
@WEIGHTS_DIR.but(help="Folder for random weights. [the user's cache]")
@click.option("--only", metavar="GLOB", help="Run or list only starts whose id matches.")
@click.option("--list", "as_list", is_flag=True, help="List what is done and what is next; run nothing.")
@click.option("--ranking", is_flag=True, help="Rank the starts of the sweep for each of its loads; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the ranking as JSON.")
@click.option("--unpack", metavar="DIR", type=PATH, help="Write each evidence record to DIR; run nothing.")
@click.option("--pack", metavar="DIR", type=PATH, help="Add results from the records in DIR; run nothing.")
def command(plan: Path, results: tuple[Path, ...], **options: Any) -> None:
    """Run the starts of PLAN that are missing in RESULTS.

    PLAN is a YAML file. It lists server starts with their loads, and may sweep
    over them. Each start is one recommend smoke; its outcome and evidence
    become a line of RESULTS. Stop whenever you like, and continue with the same
    RESULTS. All RESULTS are read; new lines go to the first.
    """
    modes = [name for name in ("as_list", "ranking", "unpack", "pack") if options[name]]
    if len(modes) > 1:
        raise click.UsageError("--list, --ranking, --unpack and --pack exclude each other; pass one")
    if options["as_json"] and not options["ranking"]:
        raise click.UsageError("--json requires --ranking")
    if modes and modes[0] != "as_list" and options["only"]:
        raise click.UsageError("--only works with --list or with a run")
    _check_results(results)
    try:
        checked = read_plan(plan, smoke)
    except PlanError as error:
        for problem in error.problems:
            click.echo(f"recommend campaign: {problem}", err=True)
        sys.exit(error.exit_code)
    if options["ranking"]:
        _show_ranking(checked, _read_results(results), options["as_json"])
    elif options["unpack"]:
        archive.unpack(checked, _read_results(results), options["unpack"])
    elif options["pack"]:
        lines = archive.pack(checked, _read_results(results), options["pack"])
        with _open_results(results[0]) as out:
            archive.append_lines(out, lines)
    elif options["as_list"]:
        results_read = _read_results(results)
        click.echo(list_runs(checked, results_read, _id_filter(checked, results_read, options["only"])), nl=False)
    else:
        _run(checked, results, options)


def _check_results(results: tuple[Path, ...]) -> None:
    """Raise UsageError for RESULTS that cannot be read."""
    for path in results:
        try:
            check_kind(path)
        except Unreadable as error:
            raise click.UsageError(f"{path}: {error}; RESULTS must be files") from None
        if path != results[0] and not path.exists():
            raise click.UsageError(f"{path}: no such file; only the first of RESULTS may be new")


def _read_results(results: tuple[Path, ...]) -> sweep.Results:
    """Return the lines of all results files."""
    return sweep.Results(line for path in results for line in sweep.read_lines(path)[0])


def _id_filter(plan: ParsedPlan, results: sweep.Results, glob: str | None) -> Callable[[PlannedRun], bool]:
    """Return a filter for the starts that --only names."""
    ids = [launch.id for launch in sweep.launches(plan, results)]
    if glob and not fnmatch.filter(ids, glob):
        raise click.BadParameter(f"no start's id matches {glob!r}{did_you_mean(glob, ids)}", param_hint="--only")
    return lambda launch: not glob or fnmatch.fnmatchcase(launch.id, glob)


# --- looking at results ----------------------------------------------------------------------------


def _show_ranking(plan: ParsedPlan, results: sweep.Results, as_json: bool) -> None:
    if not plan.loads:
        raise RequestError("--ranking: the plan has no sweep")
    rankings = [sweep.ranking(plan, results, load) for load in plan.loads]
    if as_json:
        show_json(sweep.CampaignJson(sweep.FORMAT, plan.plan.id, tuple(rankings)))
    else:
        click.echo(ranking_text(rankings), nl=False)


# --- running ---------------------------------------------------------------------------------------


class CampaignSession:
    """One session: run the open starts one after another and write a line for each."""

    def __init__(self, plan: ParsedPlan, results: sweep.Results, out: IO[bytes], options: dict[str, Any]) -> None:
        self.plan, self.results, self.out, self.options = plan, results, out, options
        self.chosen = _id_filter(plan, results, options["only"])
        self.begun = time.monotonic()
        self.tried: set[str] = set()
        self.child: subprocess.Popen[bytes] | None = None
        self.signals: list[int] = []

    def remaining_s(self) -> float:
        """Return the seconds left of the time limit; infinite without one."""
        return float(self.options["time_limit"] or "inf") - (time.monotonic() - self.begun)

    def remaining_runs(self) -> list[PlannedRun]:
        """Return the starts to run or to run again."""
        planned = sweep.launches(self.plan, self.results)
        return [launch for launch in planned if self.chosen(launch) and not self.results.final_line(launch)]

    def next_run(self) -> PlannedRun | None:
        """Return the first untried start that fits the remaining time."""
        clock = sweep.Clock(sweep.launches(self.plan, self.results), self.results)
        ahead = (run for run in self.remaining_runs() if run.id not in self.tried)
        return next((launch for launch in ahead if clock.expected(launch) <= self.remaining_s()), None)

    def run_all(self) -> str:
        """Run until done, out of time or stopped; return the machine's fault, if any."""
        while not self.signals and (launch := self.next_run()):
            self.tried.add(launch.id)
            total = sum(self.chosen(planned) for planned in sweep.launches(self.plan, self.results))
            start = f"{total - len(self.remaining_runs()) + 1}/{total} {launch.id}"
            click.echo(start, err=True, nl=False)
            line = self.run(launch)
            if self.signals and sweep.is_stopped(line.code):
                click.echo(" stopped", err=True)
                break
            self.save(line)
            click.echo("\n".join([wrap_rest(start, describe_figures(line)), *line.log]), err=True)
            if line.code in sweep.MACHINE and not launch.mps:  # only MPS may be missing
                return line.said
        return ""

    def run(self, launch: PlannedRun) -> sweep.ResultLine:
        """Run one smoke run to its end."""
        begun = time.monotonic()
        name = f"{self.plan.plan.id}-{time.strftime('%Y-%m-%d')}-{launch.id}"
        with work_folder("campaign") as folder:
            place, stderr = folder / f"{name}.yaml", folder / "said"
            with stderr.open("wb") as errors:
                code = self.run_command([*self.smoke_command(launch), "--save-evidence", str(place)], errors)
            lines = stderr.read_text("utf-8", "replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            log = tuple(line for line in lines if line.startswith(LOG_MARK)) if code else ()
            text = place.read_text("utf-8") if place.is_file() else ""
        took = round(time.monotonic() - begun, 1)
        return sweep.ResultLine(
            id=launch.id,
            digest=launch.digest,
            code=code,
            seconds=took,
            said=last[:MESSAGE_LENGTH],
            evidence=text,
            log=log,
        )

    def smoke_command(self, launch: PlannedRun) -> list[str]:
        """Return the command of a smoke run."""
        command_line = [sys.executable, "-m", "recommender", "smoke", *launch.options()]
        if self.options["weights_dir"]:
            command_line += ["--weights-dir", str(self.options["weights_dir"])]
        if self.options["time_limit"] and not any(word.startswith("--time-limit") for word in launch.words):
            command_line += ["--time-limit", f"{max(1.0, self.remaining_s()):.0f}"]
        return command_line

    def run_command(self, words: list[str], errors: IO[bytes]) -> int:
        """Run a command to its end; it gets SIGTERM if this process ends first."""
        libc, parent = ctypes.CDLL(None), os.getpid()

        def tie() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        # Its own session: Ctrl-C reaches it once, through us; a second one would cut its clean-up short.
        self.child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            preexec_fn=tie,
        )  # fmt: skip
        if self.signals:  # it came before the child started
            self.child.send_signal(self.signals[0])
        try:
            # Not wait: it would sit out a signal that comes just before it.
            while (code := self.child.poll()) is None:
                time.sleep(WATCH_S)
            return code
        finally:
            self.child = None

    def stop(self, number: int, _: object) -> None:
        """Pass a signal on; the run cleans up and ends, then this does."""
        self.signals.append(number)
        if self.child is not None:
            self.child.send_signal(number)

    def save(self, line: sweep.ResultLine) -> None:
        """Append a line to the results; if that fails, rescue its record and raise RequestError."""
        try:
            archive.append_lines(self.out, [line])
        except RequestError as error:
            click.echo(err=True)
            raise RequestError(f"{error}; the record of {line.id} is {_rescue_record(line.evidence)}") from None
        self.results.add(line)


def _rescue_record(evidence: str) -> str:
    """Save a record that RESULTS had no room for; return where it is."""
    name = next((line.removeprefix("id: ") for line in evidence.splitlines() if line.startswith("id: ")), "")
    if not name:
        return "empty: nothing is lost"
    with contextlib.suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="recommend-campaign-kept-"))
        try:
            (folder / f"{name}.yaml").write_text(evidence, encoding="utf-8")
        except OSError:
            shutil.rmtree(folder)
        else:
            return f"in {folder}: --pack adds it"
    return "lost: run it again"


def _run(plan: ParsedPlan, results: tuple[Path, ...], options: dict[str, Any]) -> NoReturn:
    """Run the open starts, report what is left and exit."""
    with _open_results(results[0]) as out:
        held = _read_results(results)  # not earlier: another session may just have ended
        session = CampaignSession(plan, held, out, options)
        before = {number: signal.signal(number, session.stop) for number in stop_signals()}
        try:
            fault = session.run_all()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    remaining = session.remaining_runs()
    clock = sweep.Clock(sweep.launches(plan, held), held)
    takes = format_duration(sum(map(clock.expected, remaining)))
    remaining_text = f"{count(len(remaining), 'start')} {'is' if len(remaining) == 1 else 'are'} left, about {takes}"
    if session.signals:
        name = signal.Signals(session.signals[0]).name
        _end(f"stopped by {name}, all processes are stopped; {remaining_text}", 128 + session.signals[0])
    if fault:
        _end(f"the machine is at fault: {fault.removeprefix('recommend smoke: ')}; {remaining_text}", MACHINE)
    if remaining:
        _end(
            f"{remaining_text}; run it again",
            MACHINE if any(_machine_failed(held, launch) for launch in remaining) else LEFT_OVER,
        )
    _end("everything is done", 0)


def _machine_failed(results: sweep.Results, launch: PlannedRun) -> bool:
    """Return whether the machine was at fault in the latest try."""
    tries = [line.code for line in results.lines if (line.id, line.digest) == (launch.id, launch.digest)]
    return bool(tries) and tries[-1] in sweep.MACHINE


def _end(text: str, code: int) -> NoReturn:
    click.echo(f"recommend campaign: {text}", err=True)
    sys.exit(code)


def _open_results(path: Path) -> IO[bytes]:
    """Return the locked results file, with an unfinished last line cut off."""
    try:
        out = path.open("ab", buffering=0)  # a full disk must fail at once, not on close
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RequestError(f"{path}: another campaign is writing to it; wait, or name another file") from None
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}; name a writable file") from None
    _, filled = sweep.read_lines(path)
    out.truncate(filled)
    if filled and not path.read_bytes().endswith(b"\n"):
        out.write(b"\n")
    return out
