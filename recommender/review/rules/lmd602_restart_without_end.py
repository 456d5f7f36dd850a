"""An endless restart that never gives up

Finds a server in a loop without end that always waits equally long, counts nothing and so never gives up.

A server that cannot start is then started again and again, and nobody is told: each start loads the model anew, and
the script looks alive all the while. Nor does the loop see an engine that hangs within a living process: ``/health``
tells that, from 0.14.0 on.

Mend it with a pause that grows, and a number of failures after which the script ends with an error.

Bad:

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
      sleep 5
    done

Good:

    for pause in 5 10 20 40 80; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct && exit
      sleep "$pause"
    done
    exit 1
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Call, Script

COUNTS = re.compile(r"\(\(|\blet\b|\bexpr\b|\$\[|-(?:gt|ge|lt|le)\b|\bexit\s+[1-9]|\breturn\s+[1-9]|SECONDS")
NUMBER = re.compile(r"\d+(?:\.\d+)?[smh]?")


def check(script: Script) -> Iterator[Said]:
    """Loops whose every pause is a literal and in which nothing is counted."""
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
        if not COUNTS.search(around.code(script, loop.place.start, loop.place.end)):
            yield Said(
                fixed[0].place,
                "The server is restarted for ever, always after the same pause.",
                "One that cannot start loads again and again and nobody is told; wait longer each time, then give up.",
            )


RULE = Rule(
    id="LMD602",
    name="restart-without-end",
    family="operations",
    severity="info",
    sources=("claims/restart-loop-recovers", "threads/health-says-ok-while-dead"),
    whole=check,
)
