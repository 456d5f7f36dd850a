"""A container with the rights of the host

Finds a server's container that is started privileged.

A privileged container has all devices and capabilities of the host, and what isolates it otherwise is off. A GPU
needs none of that: ``--gpus`` hands over the card alone. With a model whose code runs, or a server that others
reach, it puts the host at stake.

Mend it by leaving it out; where one thing is missing then, give that capability or device alone.

Bad:

    docker run --privileged --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct

Good:

    docker run --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Script

IN_COMMAND = re.compile(r"(?<!\S)--privileged(?:=true)?(?!\S)")
LONGEST = 20_000
IN_YAML = re.compile(r"\bprivileged:\s*true\b")


def check(case: Case) -> Iterator[Said]:
    """The switch as it stands in the container's text, before the server's own command."""
    container = case.launch.container
    if container is None:
        return
    manifest = case.script.kind in ("compose", "kubernetes")
    start = container.place.start
    end = _block(case.script, start) if manifest else max(start, case.launch.place.start)
    match = (IN_YAML if manifest else IN_COMMAND).search(around.code(case.script, start, end))
    if match:
        yield Said(
            case.script.place(start + match.start(), start + match.end()),
            "The container is privileged.",
            "It then has all of the host's devices and rights; a GPU needs none of them.",
        )


def _block(script: Script, start: int) -> int:
    """Where the entry of a YAML file ends whose key or item stands there: before the next line no deeper."""
    first = script.text.rfind("\n", 0, start) + 1
    depth = len(script.text[first:start]) - len(script.text[first:start].lstrip(" "))
    end = (script.text + "\n").index("\n", start) + 1
    for line in script.text[end : end + LONGEST].splitlines(keepends=True):
        if line.strip() and len(line) - len(line.lstrip(" ")) <= depth:
            break
        end += len(line)
    return min(end, len(script.text))


RULE = Rule(
    id="LMD508",
    name="privileged-container",
    family="safety",
    severity="warning",
    sources=(
        "https://docs.podman.io/en/v4.3/_sources/markdown/options/privileged.md.txt",
        "https://www.tenable.com/audits/items/CIS_Docker_1.13.0_L1_v1.0.0.audit:a41a720a0128c91d87ff22eb7857a3bc",
    ),
    check=check,
)
