"""A log that is overwritten

## What it does
Reports servers that run at the same time and write to one file with `>`, and a server in a restart loop whose `>`
empties the log at each start.

## Why
Two processes that write one file overwrite each other's lines. In a restart loop the next start erases the log of the
crash, which is the one you need.

## Bad

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct > server.log 2>&1
      sleep 10
    done

## Good
Use one file per server, and `>>` in the loop; `--fix` writes `>>`:

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct >> server.log 2>&1
      sleep 10
    done
"""

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, Fix, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Launch, Script, Span

WRITES = pattern(r"(?<![\d>&|<])(?:1|&)?(>)\|?(?![>&(|])\s*([\w./~-]+)(?=[\s;&|)]|\Z)")
NOWHERE = pattern(r"/dev/.*")


@script_rule("info", sources=("claims/restart-loop-recovers",))
def rule(script: Script) -> Diagnostics:
    files: dict[int, tuple[str, Span, Span]] = {}
    for launch in script.launches:
        log = _file(script, launch)
        if log is None or launch.container is not None:
            continue
        files[launch.place.start] = log
        inside = launch.loop is not None and launch.loop.place.start <= launch.place.start < launch.loop.place.end
        if launch.loop is not None and launch.loop.endless and inside and not launch.background:
            _, whole, sign = log
            yield Diagnostic(
                whole,
                "Each restart empties the log, and the messages of the crash with it.",
                "Write >> to append to the log.",
                Fix(((sign, ">>"),), "write >>"),
            )
    for earlier, later in surroundings.concurrent_pairs(script, "api_server", "proxy"):
        first, second = files.get(earlier.place.start), files.get(later.place.start)
        if first and second and first[0] == second[0]:
            yield Diagnostic(
                second[1],
                f"The server on line {earlier.place.line} also writes {second[0]}.",
                "They overwrite each other's lines; give each its own log.",
            )


def _file(script: Script, launch: Launch) -> tuple[str, Span, Span] | None:
    """Return the log file, the redirection and its sign; None if the name contains an expansion."""
    start = launch.place.start
    text = surroundings.code(script, start, launch.place.end + len(surroundings.rest_of_line(script, launch)))
    match = WRITES.search(text)
    if match is None or NOWHERE.fullmatch(match[2]):
        return None
    whole = script.place(start + match.start(), start + match.end())
    return match[2], whole, script.place(start + match.start(1), start + match.end(1))
