"""A restart loop that the first crash ends

Finds a server in an endless loop of a script with ``set -e``, where nothing takes up the server's exit status.

With ``set -e`` the shell ends at the first command that fails. A server that crashes fails, so the script ends there
and the loop never comes round: it restarts only a server that ended well. A command in the condition of an ``if``,
or before ``||``, is not concerned.

Mend it with ``|| true`` behind the server (or ``|| code=$?``, which keeps the status), or with ``if``.

Bad:

    set -e
    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
      sleep 10
    done

Good:

    set -e
    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct || echo "ended with status $?" >&2
      sleep 10
    done
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Script

LIFTED = re.compile(r"\bset\s+\+\w*e|\bset\s+\+o\s+errexit")


def check(script: Script) -> Iterator[Said]:
    """Each server whose loop ``set -e`` would end."""
    stop = script.error_exit
    if stop is None:
        return
    for launch in script.launches:
        loop = launch.loop
        if loop is None or not loop.endless or launch.background or launch.guarded or stop.start > loop.place.end:
            continue
        if not LIFTED.search(around.code(script, 0, len(script.text))):
            yield Said(
                launch.place,
                f"set -e (line {stop.line}) ends the script when the server crashes, so it is never restarted.",
                "Put || true behind the server, or keep its status with || code=$?.",
            )


RULE = Rule(
    id="LMD603",
    name="error-exit-ends-loop",
    family="operations",
    severity="warning",
    sources=("https://explainshell.com/explain?cmd=set+-e",),
    whole=check,
)
