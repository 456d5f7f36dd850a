"""A log that is overwritten

## What it does
Reports servers that run at the same time and write to one file with `>` or `tee`, and a server in a restart loop whose
`>` or `tee` empties the log at each start. So does a command in the loop, such as `: > server.log` or
`exec > server.log`.

## Why
Two processes that write one file overwrite each other's lines. In a restart loop the next start erases the log of the
crash, which is the one you need.

## Bad

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct > server.log 2>&1
      sleep 10
    done

## Good
Use one file per server, and `>>` or `tee -a` in the loop; `--fix` writes them:

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct >> server.log 2>&1
      sleep 10
    done
"""

import re
from itertools import pairwise, takewhile
from typing import NamedTuple

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, Fix, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Launch, Script, Span

NAME = r"(?:[\w./~-]|\$\w+|\$\{\w+\})+"
WRITES = pattern(rf"(?<![\d>&|<])(?:1|&)?(>\|?)(?![>&(|])\s*(\"?{NAME}\"?)(?=[\s;&|)]|\Z)")
PASSES = pattern(rf"(?<![\d>&|<])(?:1|&)?>\s*>\(\s*((?:\S*/)?tee)(?:\s+-[-ip]+)*\s+(\"?{NAME}\"?)\s*\)")
"""A redirection to tee, which empties its file."""
TOKEN = pattern(
    r"(?P<pipe>\|&?(?!\|))|(?P<redirect>\d?[<>]+[&|]?|&>+)|(?P<end>[;&|()])"
    r"|(?P<word>(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\[^\n]|[^\s\"';&|<>()\\])+)",
    re.DOTALL,
)
FILE = pattern(rf"\"?{NAME}\"?")
APPENDS = pattern(r"-[ip]*a[aip]*|--a(?:p(?:p(?:e(?:nd?)?)?)?)?")
NOWHERE = pattern(r"\"?/dev/.*")
APPENDED = pattern(rf"(?:>>\s*|\btee\s+(?:-\w*a\w*|--append)\s+)\"?({NAME})\"?")
EMPTIED = pattern(
    r"(?:^|;|\bdo\b)[ \t]*((?:(?::|true|cat[ \t]+/dev/null)[ \t]*)?>[ \t]*"
    rf"|truncate[ \t]+(?:-s[ \t]*|--size[= ])0[ \t]+|rm[ \t]+(?:-\w+[ \t]+)*)\"?({NAME})\"?(?=[ \t]*(?:[;\n]|\Z))",
    re.MULTILINE,
)
"""A command that empties a file or removes it."""
EXEC = pattern(r"(?:^|[;&|({]|\b(?:do|then|else)\b)[ \t]*exec[ \t]+((?:\d|&)?[<>][^;\n]*)", re.MULTILINE)
"""A redirection of all that the script writes from here on."""
ELSEWHERE = pattern(r"(?<![2-9])>|(?<!\|)\|(?!\|)")
"""Text behind a launch that takes its output away from the script's."""
KEPT = pattern(r"\b(?:if|case|mv|cp|gzip|savelog|logrotate)\b|&&|\|\||\[")
"""Text that shows that the log is kept elsewhere, or emptied under a condition."""
VARIABLE = pattern(r"\$\{?(\w+)")
CHANGING = frozenset({"RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID"})


class Log(NamedTuple):
    """A file that a launch empties as it starts, where it says so, and what to write there to append."""

    file: str
    whole: Span
    sign: Span
    append: str


@script_rule("info", sources=("claims/restart-loop-recovers",))
def rule(script: Script) -> Diagnostics:
    logs: dict[int, Log] = {}
    for launch in script.launches:
        log = _log(script, launch) if launch.container is None else None
        if log is not None:
            logs[launch.place.start] = log
        inside = launch.loop is not None and launch.loop.place.start <= launch.place.start < launch.loop.place.end
        if launch.container is None and launch.loop is not None and launch.loop.endless and inside:
            yield from () if launch.background else _in_loop(script, launch, launch.loop.place, log)
    for earlier, later in surroundings.concurrent_pairs(script, "api_server", "proxy"):
        first, second = logs.get(earlier.place.start), logs.get(later.place.start)
        if first and second and first.file == second.file and "$" not in first.file:
            yield Diagnostic(
                second.whole,
                f"The server on line {earlier.place.line} also writes {second.file}.",
                "They overwrite each other's lines; give each its own log.",
            )


def _in_loop(script: Script, launch: Launch, loop: Span, log: Log | None) -> Diagnostics:
    """Report what empties the log of a launch at each turn of its loop: its redirection, or a command before it."""
    what = "Each restart empties the log, and the messages of the crash with it."
    before = surroundings.code(script, loop.start, launch.place.start)
    rest = surroundings.code(script, launch.place.start, launch.place.end) + surroundings.rest_of_line(script, launch)
    files = {match[1] for match in APPENDED.finditer(rest)}
    if log is None and not KEPT.search(before) and (redirections := [*EXEC.finditer(before)]):
        last = redirections[-1]
        emptied = _redirected(script, last[1], loop.start + last.start(1))
        log = emptied if emptied and (emptied.file in files or not ELSEWHERE.search(rest)) else None
    if log is not None:
        if not _changes(script, log.file, loop):
            fix = Fix(((log.sign, log.append),), f"write {log.append}")
            yield Diagnostic(log.whole, what, f"Write {log.append} to append to the log.", fix)
        return
    for match in () if KEPT.search(before) else EMPTIED.finditer(before):
        if match[2] in files:
            place = script.place(loop.start + match.start(1), loop.start + match.end(2))
            yield Diagnostic(place, what, "Empty it once before the loop, or keep the old log under another name.")


def _changes(script: Script, file: str, loop: Span) -> bool:
    """Return whether a variable in a file's name may have another value in each turn of a loop."""
    names = VARIABLE.findall(file)
    body = surroundings.code(script, loop.start, loop.end)
    return any(name in CHANGING or re.search(rf"(?<![\w$])(?<!\$\{{){name}(?!\w)", body) for name in names)


def _log(script: Script, launch: Launch) -> Log | None:
    """Return the log that a launch empties; None if its name depends on a command."""
    start = launch.place.start
    text = surroundings.code(script, start, launch.place.end + len(surroundings.rest_of_line(script, launch)))
    return _redirected(script, text, start) or _tee(script, text, start)


def _redirected(script: Script, text: str, start: int) -> Log | None:
    """Return the log that a redirection in a text empties."""
    match = WRITES.search(text) or PASSES.search(text)
    if match is None or NOWHERE.fullmatch(match[2]):
        return None
    whole, sign = (script.place(start + match.start(group), start + match.end(group)) for group in (0, 1))
    return Log(match[2].strip('"'), whole, sign, f"{match[1]} -a" if match[1].endswith("tee") else ">>")


def _tee(script: Script, text: str, start: int) -> Log | None:
    """Return the log that ``tee`` writes behind a pipe, without -a."""
    tokens = [*takewhile(lambda token: token["end"] is None, TOKEN.finditer(text))]
    for before, token in pairwise(tokens):
        if before["pipe"] and (token["word"] or "").rpartition("/")[2] == "tee":
            words = [*takewhile(lambda word: word["word"], tokens[tokens.index(token) + 1 :])]
            if any(APPENDS.fullmatch(word[0]) for word in words):
                return None
            files = [word for word in words if FILE.fullmatch(word[0]) and not word[0].startswith("-")]
            files = [word for word in files if not NOWHERE.fullmatch(word[0])]
            if not files:
                return None
            whole = script.place(start + token.start(), start + files[0].end())
            sign = script.place(start + token.start(), start + token.end())
            return Log(files[0][0].strip('"'), whole, sign, f"{token[0]} -a")
    return None
