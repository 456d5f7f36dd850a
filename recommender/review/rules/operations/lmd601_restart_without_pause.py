"""An endless restart without a pause

## What it does
Reports a server in an endless loop without a pause.

## Why
A server that cannot start (a wrong option, no memory, a missing model) ends within seconds and restarts at once,
forever. The loop keeps CPU and disk busy, floods the log and requests the model from the hub again and again.

## Bad

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
    done

## Good
Add a pause that grows with each failure, and give up after some failures. If the loop contains only the server,
`--fix` adds `sleep 5`.

    pause=5
    until lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct; do
      ((pause <= 300)) || exit 1
      sleep "$pause"
      pause=$((2 * pause))
    done
"""

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, Fix, script_rule
from recommender.review.script.model import Launch, Loop, Script

BODY = pattern(r"\bdo\b(\s*)\Z")
END = pattern(r"(\s*+;?\s*)done\b")


@script_rule("warning", sources=("claims/restart-loop-recovers",))
def rule(script: Script) -> Diagnostics:
    seen = set()
    for launch in script.launches:
        loop = launch.loop
        if loop is None or not loop.endless or loop.pauses or launch.background or loop.place.start in seen:
            continue
        seen.add(loop.place.start)
        yield Diagnostic(
            launch.place,
            "The server restarts forever without a pause.",
            "A server that cannot start then spins forever; wait longer after each failure, and give up after some.",
            _pause(script, launch, loop),
        )


def _pause(script: Script, launch: Launch, loop: Loop) -> Fix | None:
    """Add a sleep after the server if it is the only command of the loop."""
    text, place = script.text, launch.place
    if not loop.place.start <= place.start < place.end <= loop.place.end:
        return None
    before = BODY.search(text[loop.place.start : place.start])
    after = END.fullmatch(text[place.end : loop.place.end])
    if before is None or after is None:
        return None
    lead = before[1] if "\n" in before[1] else "; "
    return Fix(((script.place(place.end, place.end), f"{lead}sleep 5"),), "wait 5 seconds before the next start")
