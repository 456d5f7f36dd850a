"""A variable that is set after the server starts

## What it does
Reports OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES and other variables of the server that the script sets only after its
last server, or a Python program after its last pipeline.

## Why
A process copies the environment when it starts, so the server never sees a later `export`. If the server runs in the
foreground, the script does not even reach that line before the server ends.

## Bad

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf &
    export OMP_NUM_THREADS=4

## Good
Set the variable before the command:

    export OMP_NUM_THREADS=4
    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf &
"""

import re

from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules.ineffective.lmd311_variable_that_nobody_reads import KNOWN
from recommender.review.script.model import Assignment, Launch, Script, Span

OF_EACH_CALL = ("TOKENIZERS_PARALLELISM",)
"""Variables that a pipeline, which runs in the program's own process, reads at each call."""
COPIED = "A process copies the environment when it starts; set the variable before the command."
READ = "It is read while the model is loaded; set it before that, best at the top of the file."
SERVERS = ("OMP_", "CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "MKL_NUM_THREADS", "NCCL_")


@script_rule("warning", sources=("environment/omp-num-threads", "claims/omp-threads-limit-images"))
def rule(script: Script) -> Diagnostics:
    if script.kind not in ("bash", "command", "python") or not script.launches:
        return
    last = max(script.launches, key=lambda launch: launch.place)
    python = script.kind == "python"  # its reader lists only what is set after all that it starts
    pipeline = any(launch.starts == "pipeline" for launch in script.launches)
    earlier = {variable.name for variable in script.assignments if variable.place < last.place and not python}
    inherited = {name for launch in script.launches for name in launch.environment}
    for assignment in script.assignments:
        name = assignment.name
        read = (name in KNOWN or name.startswith(SERVERS)) and not (pipeline and name in OF_EACH_CALL)
        if read and name not in earlier | inherited and (python or _late(script, assignment, last)):
            yield Diagnostic(
                assignment.place,
                f"{name} is set after the server starts, so the server never sees it.",
                READ if pipeline else COPIED,
            )


def _late(script: Script, assignment: Assignment, last: Launch) -> bool:
    """Return whether an assignment follows the last server, outside functions and loops that restart the server."""
    if assignment.place.start < last.place.end or _in_function(script, last.place):
        return False
    loops = [loop.place for loop in script.loops]
    return not any(loop.start <= last.place.start and assignment.place.end <= loop.end for loop in loops)


def _in_function(script: Script, place: Span) -> bool:
    """Return whether a place is inside a shell function: its calls decide what runs before it."""
    before = script.text[: place.start]
    opened = re.findall(r"^[ \t]*(?:function[ \t]+[\w-]+|[\w-]+[ \t]*\(\))[ \t\n]*\{", before, re.MULTILINE)
    closed = re.findall(r"^[ \t]*\}", before, re.MULTILINE)
    return len(opened) > len(closed)
