"""Format a campaign's progress, list of starts and rankings in 80 columns."""

import textwrap
from collections.abc import Callable, Iterable

from recommender.common.text import WIDTH, count
from recommender.smoke.campaign import sweep
from recommender.smoke.campaign.plan import ParsedPlan, PlannedRun
from recommender.smoke.failures import KINDS
from recommender.smoke.report import wrap


def format_duration(seconds: float) -> str:
    """Return seconds as s, min or h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, left_minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {left_minutes:02d} min" if hours else f"{left_minutes} min"


def describe_outcome(code: int) -> str:
    """Return the name of a smoke run's exit code, or an empty text for success."""
    if sweep.is_stopped(code):
        return "stopped by a signal"
    return next((kind.name for kind in KINDS.values() if kind.code == code), f"exit code {code}" if code else "")


def describe_figures(line: sweep.ResultLine) -> str:
    """Return a run's main figures by image: ms at concurrency 1, else requests/s."""
    groups: dict[str, list[str]] = {}
    for load, figures in sweep.load_figures(line.evidence).items():
        picture = load.partition("@")[2]
        rate = f"{figures.rps:.1f}/s" if figures.rps or figures.failed else "no answer in time"
        value = f"{figures.p50_ms:.0f} ms" if sweep.is_single(load) else rate
        groups.setdefault(picture, []).append(value + (f" ({figures.failed} failed)" if figures.failed else ""))
    parts = [f"{picture} {' '.join(values)}" for picture, values in groups.items()]
    failure = describe_outcome(line.code)
    if failure and failure != "goals-missed":
        parts.append(f"{failure}: {line.said.removeprefix(f'recommend smoke: {failure}: ')}")
    return "; ".join([f"{line.seconds:.0f} s", *parts])


def wrap_rest(start: str, text: str) -> str:
    """Return the rest of a wrapped line whose ``start`` is already printed."""
    lines = textwrap.wrap(f"{start} {text}", WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines)[len(start) :]


def list_runs(plan: ParsedPlan, results: sweep.Results, condition: Callable[[PlannedRun], bool]) -> str:
    """Return what is done, what is next and how long the rest takes."""
    planned = [launch for launch in sweep.launches(plan, results) if condition(launch)]
    clock = sweep.Clock(sweep.launches(plan, results), results)
    todo = [launch for launch in planned if not results.final_line(launch)]
    ahead = f"{len(todo)} to go, about {format_duration(sum(map(clock.expected, todo)))}"
    lines = [f"{plan.plan.id}: {count(len(planned), 'start')}, {len(planned) - len(todo)} done, {ahead}"]
    for launch in planned:
        line = results.final_line(launch)
        if line:
            failure = describe_outcome(line.code)
            state, note = ("failed" if failure else "done"), f"{line.seconds:5.0f} s  {failure}"
        else:
            state, note = ("next" if launch is todo[0] else "to go"), f"{clock.expected(launch):5.0f} s expected"
        lines.append(f"  {state:<7}{launch.id:<40}{note}".rstrip())
    return "\n".join([*lines, *_later_rungs(plan, results)]) + "\n"


def _later_rungs(plan: ParsedPlan, results: sweep.Results) -> Iterable[str]:
    planned = sweep.launches(plan, results)
    reached = max((launch.rung for launch in planned), default=0)
    open_ = sum(1 for launch in planned if launch.rung == reached and not results.final_line(launch))
    for number, rung in enumerate(plan.rungs[reached:], reached + 1):
        waits = f"{count(open_, 'more start')} of rung {reached}" if number == reached + 1 else f"rung {number - 1}"
        times = f", {rung.times} times each" if rung.times > 1 else ""
        yield f"  rung {number}: the best {rung.keep} of each load{times}, after {waits}"


def ranking_text(rankings: Iterable[sweep.Ranking]) -> str:
    """Return the rankings as tables."""
    lines: list[str] = []
    for ranking in rankings:
        head = f"  {'start':<36}{'rung':>5}{'runs':>5}{'median':>10}{'spread':>9}{'of best':>10}"
        lines += [f"{ranking.load}, {ranking.unit}", head]
        for row in ranking.rows:
            spread = f"{100 * row.spread:.1f} %" if row.runs > 1 else "-"
            share = f"{100 * row.of_best:.1f} %"
            lines.append(f"  {row.start:<36}{row.rung:>5}{row.runs:>5}{row.median:>10.1f}{spread:>9}{share:>10}")
        short = [row.start for row in ranking.rows if row.short]
        what_short = "too short, ranked by the answers after the first round"
        for what, names in ((what_short, short), ("failed", ranking.failed), ("to run", ranking.open)):
            lines += wrap(f"{len(names)} {what}: {', '.join(names)}") if names else []
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"
