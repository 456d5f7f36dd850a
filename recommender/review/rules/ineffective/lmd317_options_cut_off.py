"""Options that the command does not get

## What it does
Reports lines of options below a server's command that bash runs as a program of their own: after a comment inside
the continued command, or a missing backslash.

## Why
A comment ends a command, as does a line without a backslash. The server then starts without the options below; bash
prints `--tp: command not found` when the server ends.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct \\
      # --session-len 8192 \\
      --max-batch-size 64

## Good
Move the comment above the command, and end every line but the last with a backslash:

    # --session-len 8192
    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct \\
      --max-batch-size 64
"""

import re
from bisect import bisect_right

from recommender.common.text import shorten
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.script.model import Call, Launch, Script

KINDS = ("bash", "command", "docker", "lines", "steps", "markdown")


@script_rule("warning", sources=("https://www.shellcheck.net/wiki/SC1101", "https://www.shellcheck.net/wiki/SC2215"))
def rule(script: Script) -> Diagnostics:
    if script.kind not in KINDS:
        return
    calls = sorted(script.calls, key=lambda call: call.place.start)
    starts = [call.place.start for call in calls]
    for launch in script.launches:
        first = bisect_right(starts, launch.place.end)
        nearest = (call for call in calls[first : first + 9] if call.place.start == starts[first])
        lost = next((call for call in nearest if _is_below(script, launch, call)), None)
        if lost is not None:
            commented = "#" in script.text[launch.place.end : lost.place.start]
            cause = "a comment ends a continued command" if commented else "the backslash is missing"
            yield Diagnostic(
                lost.place,
                f"The command above ends before {shorten(lost.words[0].raw)}: {cause}.",
                "bash runs this line as a program, so the server starts without these options.",
            )


def _is_below(script: Script, launch: Launch, call: Call) -> bool:
    """Return whether options follow a command, with only comments and blanks between."""
    name = call.words[0].raw if call.words else ""
    between = script.text[launch.place.end : call.place.start]
    if (
        launch.place.end >= call.place.start
        or not re.match(r"--?[A-Za-z]", name)
        or re.match(r"[ \t]*\\[ \t]", between)
    ):
        return False  # LMD129 reports a blank behind the backslash
    return not re.sub(r"(?m)(?:^|\s)#.*", "", between).strip("\\ \t\n")
