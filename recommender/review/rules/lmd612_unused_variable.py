"""A variable that nothing uses

Finds a variable that a script with a server sets, does not export, and names nowhere else.

Somebody changes it, starts the script again and wonders why nothing is different: the option that should read it
has a fixed value, a misspelt name, or is not there.

Mend it by using it, or take it out.

Bad:

    MAX_BATCH_SIZE=64
    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 32

Good:

    MAX_BATCH_SIZE=64
    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size "$MAX_BATCH_SIZE"
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Script

# Ways to use a variable, or to hand it on, without writing its name where it is read.
INDIRECT = re.compile(
    r"\beval\b|\$\{!|\bset\s+-\w*a|\ballexport\b|\bdeclare\s+-\w*[nx]|\btypeset\s+-\w*x|\benvsubst\b"
    r"|\bsource\b|^\s*\.\s",
    re.MULTILINE,
)
SHELLS_OWN = re.compile(r"IFS|PATH|PS\d|LANG|LC_\w+|TERM|HOME|SHELL|TMPDIR|OPTIND|OPTARG|REPLY|HIST\w*|_\w*|\w*_")


def check(script: Script) -> Iterator[Said]:
    """Variables whose name occurs in nothing but their own assignments."""
    if script.kind != "bash" or not script.launches:
        return
    text = around.code(script, 0, len(script.text))
    if INDIRECT.search(text):
        return
    seen: set[str] = set()
    passed = {name for launch in script.launches for name in launch.environment}
    for each in script.assignments:
        name = each.name
        if name in seen or each.exported or name in passed or SHELLS_OWN.fullmatch(name):
            continue
        seen.add(name)
        if around.only_assigned(script, name):
            yield Said(
                each.place,
                f"{name} is set, and nothing uses it.",
                "Whoever changes it wonders why nothing is different; use it, or take it out.",
            )


RULE = Rule(
    id="LMD612",
    name="unused-variable",
    family="operations",
    severity="info",
    sources=("https://shellcheck.net/wiki/SC2034",),
    whole=check,
)
