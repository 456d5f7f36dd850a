"""A variable that is set after the server has started

Finds OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES and other variables of the server's that the script sets only below the
last server it starts.

A process gets a copy of the environment when it begins. What the script exports later, the server never sees; where it
runs in the foreground, the line is not even reached before it ends.

Set the variable above the command.

Bad:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf &
    export OMP_NUM_THREADS=4

Good:

    export OMP_NUM_THREADS=4
    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf &
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.script import Assignment, Launch, Place, Script

SERVERS = ("OMP_", "TM_", "LMDEPLOY_", "CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "MKL_NUM_THREADS", "NCCL_")


def _whole(script: Script) -> Iterator[Said]:
    if script.kind not in ("bash", "command") or not script.launches:
        return
    last = max(script.launches, key=lambda launch: launch.place)
    earlier = {each.name for each in script.assignments if each.place < last.place}
    told = {name for launch in script.launches for name in launch.environment}
    for each in script.assignments:
        if each.name.startswith(SERVERS) and each.name not in earlier | told and _late(script, each, last):
            yield Said(
                each.place,
                f"{each.name} is set after the server has started: the server never sees it.",
                "A process gets the environment as it is when it begins; set it above the command.",
            )


def _late(script: Script, assignment: Assignment, last: Launch) -> bool:
    """Below the last server, at the top level, and not in a loop that starts it again."""
    if assignment.place.start < last.place.end or _in_function(script, last.place):
        return False
    loops = [loop.place for loop in script.loops]
    return not any(each.start <= last.place.start and assignment.place.end <= each.end for each in loops)


def _in_function(script: Script, place: Place) -> bool:
    """Whether a place of a shell script stands within a function: what runs before it, its calls say."""
    before = script.text[: place.start]
    opened = re.findall(r"^[ \t]*(?:function[ \t]+[\w-]+|[\w-]+[ \t]*\(\))[ \t\n]*\{", before, re.MULTILINE)
    closed = re.findall(r"^[ \t]*\}", before, re.MULTILINE)
    return len(opened) > len(closed)


RULE = Rule(
    id="LMD310",
    name="variable-after-start",
    family="nothing",
    severity="warning",
    sources=("environment/omp-num-threads", "claims/omp-threads-limit-images"),
    whole=_whole,
)
