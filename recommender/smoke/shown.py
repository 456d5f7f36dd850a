"""What a campaign tells, in 80 columns: progress, the list of starts, the ranking."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable

from recommender.render import count
from recommender.smoke import sweep
from recommender.smoke.failures import KINDS
from recommender.smoke.plan import Checked, Launch
from recommender.smoke.report import wrapped

WIDTH = 80


def minutes(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours} h {rest:02d} min" if hours else f"{rest} min"


def outcome(code: int) -> str:
    """An exit code of a smoke run by its name; empty for one that ended well."""
    if sweep.stopped(code):
        return "stopped by a signal"
    return next((kind.name for kind in KINDS.values() if kind.code == code), f"exit code {code}" if code else "")


def figures_of(line: sweep.Line) -> str:
    """A run's main figures: by picture, ms alone and requests/s else, in the order of its loads."""
    groups: dict[str, list[str]] = {}
    for load, got in sweep.measured(line.evidence).items():
        picture = load.partition("@")[2]
        value = f"{got.p50_ms:.0f} ms" if sweep.alone(load) else f"{got.rps:.1f}/s"
        groups.setdefault(picture, []).append(value + (f" ({got.failed} failed)" if got.failed else ""))
    told = [f"{picture} {' '.join(values)}" for picture, values in groups.items()]
    ended = outcome(line.code)
    if ended and ended != "goals-missed":
        told.append(f"{ended}: {line.said.removeprefix(f'recommend smoke: {ended}: ')}")
    return "; ".join([f"{line.seconds:.0f} s", *told])


def after(start: str, text: str) -> str:
    """The rest of a line that begins with ``start``, which is shown already; wrapped."""
    lines = textwrap.wrap(f"{start} {text}", WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines)[len(start) :]


def listing(plan: Checked, found: sweep.Results, chosen: Callable[[Launch], bool]) -> str:
    """What is done, what is next and how long it all will take."""
    known = [each for each in sweep.launches(plan, found) if chosen(each)]
    clock = sweep.Clock(sweep.launches(plan, found), found)
    todo = [each for each in known if not found.done(each)]
    ahead = f"{len(todo)} to go, about {minutes(sum(map(clock.expected, todo)))}"
    lines = [f"{plan.plan.id}: {count(len(known), 'start')}, {len(known) - len(todo)} done, {ahead}"]
    for each in known:
        line = found.done(each)
        if line:
            ended = outcome(line.code)
            state, told = ("failed" if ended else "done"), f"{line.seconds:5.0f} s  {ended}"
        else:
            state, told = ("next" if each is todo[0] else "to go"), f"{clock.expected(each):5.0f} s expected"
        lines.append(f"  {state:<7}{each.id:<40}{told}".rstrip())
    return "\n".join([*lines, *_rungs(plan, found)]) + "\n"


def _rungs(plan: Checked, found: sweep.Results) -> Iterable[str]:
    """Which rungs cannot be listed yet."""
    known = sweep.launches(plan, found)
    reached = max((each.rung for each in known), default=0)
    open_ = sum(1 for each in known if each.rung == reached and not found.done(each))
    for number, rung in enumerate(plan.rungs[reached:], reached + 1):
        waits = f"{count(open_, 'more start')} of rung {reached}" if number == reached + 1 else f"rung {number - 1}"
        times = f", {rung.times} times each" if rung.times > 1 else ""
        yield f"  rung {number}: the best {rung.keep} of each load{times}; waits for {waits}"


def ranking_text(made: Iterable[sweep.Ranking]) -> str:
    """The rankings as tables."""
    lines: list[str] = []
    for each in made:
        head = f"  {'start':<36}{'rung':>5}{'runs':>5}{'median':>10}{'spread':>9}{'of best':>10}"
        lines += [f"{each.load}, {each.unit}", head]
        for row in each.rows:
            spread = f"{100 * row.spread:.1f} %" if row.runs > 1 else "-"
            share = f"{100 * row.of_best:.1f} %"
            lines.append(f"  {row.start:<36}{row.rung:>5}{row.runs:>5}{row.median:>10.1f}{spread:>9}{share:>10}")
        lines += _names("failed", each.failed) + _names("to run", each.open)
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _names(what: str, names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    return wrapped(f"{len(names)} {what}: {', '.join(names)}")
