"""A log that is overwritten

Finds servers beside each other that write to one file with ``>``, and a server in a restart loop whose ``>`` empties
the log at each start.

Two writers that each opened the file for themselves write over each other's lines. In a restart loop the log of
the crash, which is the one that matters, is gone when the next start begins.

Mend it with a file for each server, and with ``>>`` in the loop; ``--fix`` writes the latter.

Bad:

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct > server.log 2>&1
      sleep 10
    done

Good:

    while true; do
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct >> server.log 2>&1
      sleep 10
    done
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Fix, Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Launch, Place, Script

WRITES = re.compile(r"(?<![\d>&|<])(?:1|&)?(>)\|?(?![>&(|])\s*([\w./~-]+)(?=[\s;&|)]|\Z)")
NOWHERE = re.compile(r"/dev/.*")


def check(script: Script) -> Iterator[Said]:
    """Files that are known, by the redirection behind each server."""
    files: dict[int, tuple[str, Place, Place]] = {}
    for launch in script.launches:
        found = _file(script, launch)
        if found is None or launch.container is not None:
            continue
        files[launch.place.start] = found
        inside = launch.loop is not None and launch.loop.place.start <= launch.place.start < launch.loop.place.end
        if launch.loop is not None and launch.loop.endless and inside and not launch.background:
            _, whole, sign = found
            yield Said(
                whole,
                "Each restart empties the log, and with it what the crash left there.",
                "Write >> so that the log goes on.",
                Fix(((sign, ">>"),), "write >>"),
            )
    for earlier, later in around.beside(script, "api_server", "proxy"):
        one, other = files.get(earlier.place.start), files.get(later.place.start)
        if one and other and one[0] == other[0]:
            yield Said(
                other[1],
                f"{other[0]} is written by the server of line {earlier.place.line} too.",
                "Each writes from the start of the file, over the other's lines; give each a log of its own.",
            )


def _file(script: Script, launch: Launch) -> tuple[str, Place, Place] | None:
    """File, redirection and its sign, of a file whose name holds nothing to expand."""
    start = launch.place.start
    text = around.code(script, start, launch.place.end + len(around.rest_of_line(script, launch)))
    match = WRITES.search(text)
    if match is None or NOWHERE.fullmatch(match[2]):
        return None
    whole = script.place(start + match.start(), start + match.end())
    return match[2], whole, script.place(start + match.start(1), start + match.end(1))


RULE = Rule(
    id="LMD616",
    name="log-overwritten",
    family="operations",
    severity="info",
    sources=("claims/restart-loop-recovers",),
    whole=check,
)
