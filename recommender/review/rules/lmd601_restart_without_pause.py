"""An endless restart without a pause

Finds a server in a loop without end in which nothing waits.

A server that cannot start (a wrong option, no memory, a missing model) ends within seconds and is started again at
once, for ever: the loop keeps cores and disk busy, floods the log and, where the model is on the hub, calls it again
and again.

Mend it with a pause that grows with each failure, and a number of failures after which the script gives up. Where
the loop holds nothing but the server, ``--fix`` puts a ``sleep 5`` behind it.

Bad:

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
    done

Good:

    pause=5
    until lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct; do
      ((pause <= 300)) || exit 1
      sleep "$pause"
      pause=$((2 * pause))
    done
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Fix, Rule, Said
from recommender.review.script import Launch, Loop, Script

BODY = re.compile(r"\bdo\b(\s*)\Z")
END = re.compile(r"(\s*;?\s*)done\b")


def check(script: Script) -> Iterator[Said]:
    """Each loop once, whatever number of servers it starts."""
    seen = set()
    for launch in script.launches:
        loop = launch.loop
        if loop is None or not loop.endless or loop.pauses or launch.background or loop.place.start in seen:
            continue
        seen.add(loop.place.start)
        yield Said(
            launch.place,
            "The server is started again at once, without end and without a pause.",
            "One that cannot start then spins for ever; wait longer after each failure, and give up after some.",
            _pause(script, launch, loop),
        )


def _pause(script: Script, launch: Launch, loop: Loop) -> Fix | None:
    """A sleep behind the server where the loop's body is that one command and nothing else."""
    text, place = script.text, launch.place
    if not loop.place.start <= place.start < place.end <= loop.place.end:
        return None
    before = BODY.search(text[loop.place.start : place.start])
    after = END.fullmatch(text[place.end : loop.place.end])
    if before is None or after is None:
        return None
    lead = before[1] if "\n" in before[1] else "; "
    return Fix(((script.place(place.end, place.end), f"{lead}sleep 5"),), "wait 5 seconds before the next start")


RULE = Rule(
    id="LMD601",
    name="restart-without-pause",
    family="operations",
    severity="warning",
    sources=("claims/restart-loop-recovers",),
    whole=check,
)
