"""A variable for the server that it never sees

Finds a variable that LMDeploy, CUDA or a library of theirs reads from the environment, set on a line of its own
without ``export``.

A shell variable belongs to the shell alone until it is exported; the server starts without it. The script looks as
if it chose the card or the number of threads, and the defaults hold.

Mend it with ``export``, or put the variable before the command on its own line; ``--fix`` adds the word.

Bad:

    OMP_NUM_THREADS=4
    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct

Good:

    export OMP_NUM_THREADS=4
    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Fix, Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Script
from recommender.store import load

FAMILIES = re.compile(r"(?:HF|NCCL|CUDA|OMP|TM|LMDEPLOY|UVICORN)_[A-Z]\w*")
HANDED_ON = re.compile(r"\bset\s+-\w*a|\ballexport\b|\beval\b")


def check(script: Script) -> Iterator[Said]:
    """Such variables that are used nowhere else in the script either."""
    text = around.code(script, 0, len(script.text))
    if script.kind != "bash" or not script.launches or HANDED_ON.search(text):
        return
    if any(launch.container for launch in script.launches):
        return
    first = min(launch.place.start for launch in script.launches)
    known = {each.name for each in load().environment.values() if each.sources.code}
    passed = {name for launch in script.launches for name in launch.environment}
    for each in script.assignments:
        name = each.name
        if each.exported or name in passed or not (name in known or FAMILIES.fullmatch(name)):
            continue
        if around.only_assigned(script, name) and each.place.end < first:
            yield Said(
                each.place,
                f"{name} is not exported, so the server never sees it.",
                "A shell variable stays in the shell; write export before it.",
                Fix(((script.place(each.place.start, each.place.start), "export "),), f"export {name}"),
            )


RULE = Rule(
    id="LMD613",
    name="variable-not-exported",
    family="operations",
    severity="warning",
    sources=(
        "environment/omp-num-threads",
        "environment/cuda-visible-devices",
        "https://docs.syntblaze.com/bash/variables/exported-variable",
    ),
    whole=check,
)
