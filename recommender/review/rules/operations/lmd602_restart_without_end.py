"""An endless restart that never gives up

## What it does
Reports a server in an endless loop that always waits the same time and counts no failures, so it never gives up.

## Why
A server that cannot start then restarts forever without notice: every start loads the model again, and the script
looks healthy. The loop also misses an engine that hangs in a running process; `/health` reports that since 0.14.0.

## Bad

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
      sleep 5
    done

## Good
Add a growing pause, and end the script with an error after some failures:

    for pause in 5 10 20 40 80; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct && exit
      sleep "$pause"
    done
    exit 1
"""

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Call, Script

COUNTS = pattern(r"\(\(|\blet\b|\bexpr\b|\$\[|-(?:gt|ge|lt|le)\b|\bexit\s+[1-9]|\breturn\s+[1-9]|SECONDS")
NUMBER = pattern(r"\d+(?:\.\d+)?[smh]?")


@script_rule("info", sources=("claims/restart-loop-recovers", "threads/health-says-ok-while-dead"))
def rule(script: Script) -> Diagnostics:
    seen = set()
    sleeps: dict[int, list[Call]] = {}
    for call in script.calls:
        if call.loop is not None and call.words and call.words[0].value == "sleep":
            sleeps.setdefault(call.loop.place.start, []).append(call)
    for launch in script.launches:
        loop = launch.loop
        if loop is None or not loop.endless or not loop.pauses or launch.background or loop.place.start in seen:
            continue
        seen.add(loop.place.start)
        own = sleeps.get(loop.place.start, [])
        fixed = [call for call in own if len(call.words) == 2 and NUMBER.fullmatch(call.words[1].raw)]
        if not own or len(fixed) != len(own):
            continue
        if not COUNTS.search(surroundings.code(script, loop.place.start, loop.place.end)):
            yield Diagnostic(
                fixed[0].place,
                "The server restarts forever, always after the same pause.",
                "A server that cannot start reloads forever without notice; wait longer each time, then give up.",
            )
