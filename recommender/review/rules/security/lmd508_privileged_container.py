"""A privileged container

## What it does
Reports a server container that runs privileged.

## Why
A privileged container has all devices and capabilities of the host and no isolation. A GPU does not need that:
`--gpus` passes only the GPU. Together with remote code or a reachable server, it puts the host at risk.

## Bad

    docker run --privileged --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct

## Good
Remove the option. If something is then missing, add only that capability or device.

    docker run --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

from recommender.common.pattern import pattern
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Script

IN_COMMAND = pattern(r"(?<!\S)--privileged(?:=true)?(?!\S)")
LONGEST = 20_000
IN_YAML = pattern(r"\bprivileged:\s*true\b")


@launch_rule(
    "warning",
    sources=(
        "https://docs.podman.io/en/v4.3/_sources/markdown/options/privileged.md.txt",
        "https://www.tenable.com/audits/items/CIS_Docker_1.13.0_L1_v1.0.0.audit:a41a720a0128c91d87ff22eb7857a3bc",
    ),
)
def rule(case: Case) -> Diagnostics:
    container = case.launch.container
    if container is None:
        return
    manifest = case.script.kind in ("compose", "kubernetes")
    start = container.place.start
    end = _block(case.script, start) if manifest else max(start, case.launch.place.start)
    match = (IN_YAML if manifest else IN_COMMAND).search(surroundings.code(case.script, start, end))
    if match:
        yield Diagnostic(
            case.script.place(start + match.start(), start + match.end()),
            "The container is privileged.",
            "It has all devices and rights of the host; a GPU does not need them.",
        )


def _block(script: Script, start: int) -> int:
    """Return the end of the YAML entry at ``start``: before the next line with the same or less indent."""
    first = script.text.rfind("\n", 0, start) + 1
    depth = len(script.text[first:start]) - len(script.text[first:start].lstrip(" "))
    end = (script.text + "\n").index("\n", start) + 1
    for line in script.text[end : end + LONGEST].splitlines(keepends=True):
        if line.strip() and len(line) - len(line.lstrip(" ")) <= depth:
            break
        end += len(line)
    return min(end, len(script.text))
