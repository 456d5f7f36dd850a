"""``recommend campaign``: many smoke runs from a plan, over as many sessions as it takes."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from recommender.render import count
from recommender.request import RequestError
from recommender.smoke import packing, sweep
from recommender.smoke.console import stopping
from recommender.smoke.keeper import PR_SET_PDEATHSIG
from recommender.smoke.plan import Checked, Launch, PlanError, read
from recommender.smoke.shown import after, figures_of, listing, minutes, ranking_text
from recommender.store import did_you_mean

BAD_PLAN, MACHINE, LEFT_OVER = 2, 3, 5
SAID = 400
WATCH_S = 0.05
FILE = click.Path(path_type=Path)

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
    0  everything is done; a start that failed counts, its line says why
    2  the plan or the command line is wrong; nothing was started
    3  the machine lacks something, or the smoke run could not begin
    5  starts are left over: run it again
  130  stopped by Ctrl-C (143 by SIGTERM, 129 by SIGHUP)
"""


@click.command(epilog=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.argument("plan", metavar="PLAN", type=FILE)
@click.argument("results", metavar="RESULTS...", type=FILE, nargs=-1, required=True)
@click.option(
    "--time-limit", metavar="S", type=click.FloatRange(1, 604800), help="Start nothing that would end after S seconds."
)
@click.option("--weights-dir", metavar="DIR", type=FILE, help="Where random weights are kept. [the user's cache]")
@click.option("--only", metavar="GLOB", help="Run or list only starts whose id matches.")
@click.option("--list", "as_list", is_flag=True, help="Say what is done and what is next; run nothing.")
@click.option("--ranking", is_flag=True, help="Rank the starts of the sweep for each of its loads; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="The ranking as JSON.")
@click.option("--unpack", metavar="DIR", type=FILE, help="Write each evidence record to DIR; run nothing.")
@click.option("--pack", metavar="DIR", type=FILE, help="Add the starts that DIR has a record of; run nothing.")
def campaign(plan: Path, results: tuple[Path, ...], **options: Any) -> None:
    """Run the starts of PLAN that RESULTS does not hold yet.

    PLAN is a YAML file of starts of a server, each with the loads that it
    serves, and of a sweep among them. Each start is one recommend smoke; its
    outcome and its evidence become one line at the end of RESULTS. Stop it
    whenever you like, and give it the same RESULTS to go on. Of several
    RESULTS all are read, and the first is added to.
    """
    modes = [name for name in ("as_list", "ranking", "unpack", "pack") if options[name]]
    if len(modes) > 1:
        raise click.UsageError("--list, --ranking, --unpack and --pack exclude each other; give one")
    if options["as_json"] and not options["ranking"]:
        raise click.UsageError("--json goes with --ranking")
    if modes and modes[0] != "as_list" and options["only"]:
        raise click.UsageError("--only goes with --list or with a run")
    _there(results)
    try:
        checked = read(plan)
    except PlanError as error:
        for problem in error.problems:
            click.echo(f"recommend campaign: {problem}", err=True)
        sys.exit(BAD_PLAN)
    if options["ranking"]:
        _ranking(checked, _held(results), options["as_json"])
    elif options["unpack"]:
        packing.unpack(checked, _held(results), options["unpack"])
    elif options["pack"]:
        made = packing.pack(checked, _held(results), options["pack"])
        with _opened(results[0]) as out:
            packing.write(out, made)
    elif options["as_list"]:
        found = _held(results)
        click.echo(listing(checked, found, _chooser(checked, found, options["only"])), nl=False)
    else:
        _run(checked, results, options)


def _there(results: tuple[Path, ...]) -> None:
    """Raises UsageError for RESULTS that cannot be read."""
    for path in results:
        if path.is_fifo() or path.is_socket():
            raise click.UsageError(f"{path}: a pipe; RESULTS are read again and added to, so name files")
        if path != results[0] and not path.exists():
            raise click.UsageError(f"{path}: no such file; only the first of RESULTS may be new")


def _held(results: tuple[Path, ...]) -> sweep.Results:
    """What the files of results hold."""
    return sweep.Results(line for path in results for line in sweep.lines(path)[0])


def _chooser(plan: Checked, found: sweep.Results, glob: str | None) -> Callable[[Launch], bool]:
    """Whether a launch is one of those that --only names."""
    known = [each.id for each in sweep.launches(plan, found)]
    if glob and not fnmatch.filter(known, glob):
        raise click.BadParameter(f"no start's id matches {glob!r}{did_you_mean(glob, known)}", param_hint="--only")
    return lambda launch: not glob or fnmatch.fnmatchcase(launch.id, glob)


# --- looking at results ----------------------------------------------------------------------------


def _ranking(plan: Checked, found: sweep.Results, as_json: bool) -> None:
    if not plan.loads:
        raise RequestError("--ranking: the plan has no sweep")
    made = [sweep.ranking(plan, found, load) for load in plan.loads]
    if as_json:
        told = {"format": 1, "campaign": plan.plan.id, "loads": [asdict(each) for each in made]}
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(ranking_text(made), nl=False)


# --- running ---------------------------------------------------------------------------------------


class Session:
    """One session: runs what is to be done, one after the other, and writes a line of each."""

    def __init__(self, plan: Checked, found: sweep.Results, out: IO[bytes], options: dict[str, Any]) -> None:
        self.plan, self.found, self.out, self.options = plan, found, out, options
        self.chosen = _chooser(plan, found, options["only"])
        self.begun = time.monotonic()
        self.tried: set[str] = set()
        self.child: subprocess.Popen[bytes] | None = None
        self.signals: list[int] = []

    def left_s(self) -> float:
        """What the time limit leaves; endless without one."""
        return float(self.options["time_limit"] or "inf") - (time.monotonic() - self.begun)

    def todo(self) -> list[Launch]:
        """What is to be run or run again."""
        known = sweep.launches(self.plan, self.found)
        return [each for each in known if self.chosen(each) and not self.found.done(each)]

    def next(self) -> Launch | None:
        """The first that was not tried yet and that the time is enough for."""
        clock = sweep.Clock(sweep.launches(self.plan, self.found), self.found)
        ahead = (each for each in self.todo() if each.id not in self.tried)
        return next((each for each in ahead if clock.expected(each) <= self.left_s()), None)

    def go(self) -> str:
        """Runs until nothing is left, nothing more fits, a signal came, or the machine is at fault: why not."""
        while not self.signals and (launch := self.next()):
            self.tried.add(launch.id)
            total = sum(self.chosen(each) for each in sweep.launches(self.plan, self.found))
            start = f"{total - len(self.todo()) + 1}/{total} {launch.id}"
            click.echo(start, err=True, nl=False)
            line = self.run(launch)
            if self.signals and sweep.stopped(line.code):
                click.echo(" stopped", err=True)
                break
            self.keep(line)
            click.echo(after(start, figures_of(line)), err=True)
            if line.code in sweep.MACHINE and not launch.mps:  # MPS alone may be what the machine lacks
                return line.said
        return ""

    def run(self, launch: Launch) -> sweep.Line:
        """One smoke run to its end."""
        begun = time.monotonic()
        name = f"{self.plan.plan.id}-{time.strftime('%Y-%m-%d')}-{launch.id}"
        with tempfile.TemporaryDirectory(prefix="recommend-campaign-") as folder:
            place, said = Path(folder, f"{name}.yaml"), Path(folder, "said")
            with said.open("wb") as errors:
                code = self.wait([*self.words(launch), "--save-evidence", str(place)], errors)
            told = said.read_text("utf-8", "replace").split("\n")
            last = next((each.strip() for each in reversed(told) if each.strip()), "")
            text = place.read_text("utf-8") if place.is_file() else ""
        took = round(time.monotonic() - begun, 1)
        return sweep.Line(id=launch.id, digest=launch.digest, code=code, seconds=took, said=last[:SAID], evidence=text)

    def words(self, launch: Launch) -> list[str]:
        """The command of a smoke run."""
        made = [sys.executable, "-m", "recommender", "smoke", *launch.options()]
        if self.options["weights_dir"]:
            made += ["--weights-dir", str(self.options["weights_dir"])]
        if self.options["time_limit"] and not any(each.startswith("--time-limit") for each in launch.words):
            made += ["--time-limit", f"{max(1.0, self.left_s()):.0f}"]
        return made

    def wait(self, words: list[str], errors: IO[bytes]) -> int:
        """Runs a command until it ends. It is told to stop when this process ends in any way."""
        libc, parent = ctypes.CDLL(None), os.getpid()

        def tie() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        # A session of its own: a terminal's Ctrl-C reaches it once, from here, since a second one cuts its clean-up.
        self.child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            preexec_fn=tie,
        )  # fmt: skip
        if self.signals:  # it came before there was anyone to pass it on to
            self.child.send_signal(self.signals[0])
        try:
            # Not wait: it would sit out a signal that comes just before it.
            while (code := self.child.poll()) is None:
                time.sleep(WATCH_S)
            return code
        finally:
            self.child = None

    def stop(self, number: int, _: object) -> None:
        """Passes a signal on; the run cleans up and ends, and then this does."""
        self.signals.append(number)
        if self.child is not None:
            self.child.send_signal(number)

    def keep(self, line: sweep.Line) -> None:
        """Adds a line to the results, for good. Raises RequestError, its record kept elsewhere where that can be."""
        try:
            packing.write(self.out, [line])
        except RequestError as error:
            click.echo(err=True)
            raise RequestError(f"{error}; the record of {line.id} is {_elsewhere(line.evidence)}") from None
        self.found.add(line)


def _elsewhere(evidence: str) -> str:
    """Where a record that RESULTS had no room for was put."""
    name = next((each.removeprefix("id: ") for each in evidence.splitlines() if each.startswith("id: ")), "")
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


def _run(plan: Checked, results: tuple[Path, ...], options: dict[str, Any]) -> NoReturn:
    """Runs what is to be done, says what is left, and ends with the exit code."""
    with _opened(results[0]) as out:
        found = _held(results)  # not before: another session may just have ended
        session = Session(plan, found, out, options)
        before = {each: signal.signal(each, session.stop) for each in stopping()}
        try:
            fault = session.go()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    left = session.todo()
    clock = sweep.Clock(sweep.launches(plan, found), found)
    takes = minutes(sum(map(clock.expected, left)))
    rest = f"{count(len(left), 'start')} {'is' if len(left) == 1 else 'are'} left, about {takes}"
    if session.signals:
        name = signal.Signals(session.signals[0]).name
        _end(f"stopped by {name}, nothing is left running; {rest}", 128 + session.signals[0])
    if fault:
        _end(f"the machine is at fault: {fault.removeprefix('recommend smoke: ')}; {rest}", MACHINE)
    if left:
        _end(f"{rest}; run it again", MACHINE if any(_faulty(found, each) for each in left) else LEFT_OVER)
    _end("everything is done", 0)


def _faulty(found: sweep.Results, launch: Launch) -> bool:
    """Whether the machine was at fault when a launch was tried last."""
    tries = [each.code for each in found.every if (each.id, each.digest) == (launch.id, launch.digest)]
    return bool(tries) and tries[-1] in sweep.MACHINE


def _end(text: str, code: int) -> NoReturn:
    click.echo(f"recommend campaign: {text}", err=True)
    sys.exit(code)


def _opened(path: Path) -> IO[bytes]:
    """The results file, open for one process alone; what a kill left of a line is cut off."""
    try:
        out = path.open("ab", buffering=0)  # what a full disk refuses is not kept for a second try
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RequestError(f"{path}: another campaign writes to it; wait for that, or name another file") from None
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}; name a file that can be written to") from None
    _, filled = sweep.lines(path)
    out.truncate(filled)
    if filled and not path.read_bytes().endswith(b"\n"):
        out.write(b"\n")
    return out
