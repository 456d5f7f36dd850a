"""A restart loop that the first crash ends

## What it does
Reports a server in an endless loop of a script with `set -e` if nothing handles the server's exit status.

## Why
With `set -e` the shell exits at the first command that fails. A crashed server fails, so the script ends there: the
loop restarts only a server that ended successfully. A command in an `if` condition or before `||` is not affected.

## Bad

    set -e
    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
      sleep 10
    done

## Good
Put `|| true` after the server, or `|| code=$?` to keep the status, or use `if`:

    set -e
    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct || echo "ended with status $?" >&2
      sleep 10
    done
"""

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Script

LIFTED = pattern(r"\bset\s+\+\w*e|\bset\s+\+o\s+errexit")


@script_rule("warning", sources=("https://explainshell.com/explain?cmd=set+-e",))
def rule(script: Script) -> Diagnostics:
    stop = script.error_exit
    if stop is None:
        return
    for launch in script.launches:
        loop = launch.loop
        if loop is None or not loop.endless or launch.background or launch.guarded or stop.start > loop.place.end:
            continue
        if not LIFTED.search(surroundings.code(script, 0, len(script.text))):
            yield Diagnostic(
                launch.place,
                f"set -e (line {stop.line}) ends the script when the server crashes, so the loop never restarts it.",
                "Put || true after the server, or keep its status with || code=$?.",
            )
