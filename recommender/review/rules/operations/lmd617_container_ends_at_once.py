"""A container that exits at once

## What it does
Reports a container whose command starts the server in the background and does not wait for it.

## Why
A container lives as long as its first process. The shell that starts the server in the background has nothing left to
do and exits, and stops the container and the server.

## Bad

    docker run --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      bash -c "lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &"

## Good
Start the last server in the foreground with `exec`, or add `wait`:

    docker run --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      bash -c "exec lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct"
"""

from recommender.common.pattern import pattern
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

SHELL = pattern(r"\b(?:ba|da)?sh\b[\"',\s\]-]+(?:-\w+[\"',\s]+)*-\w*c\b")
ENDS = pattern(r"[ \t]*(?:\d?>>?[ \t]*+&?[^\s>&]++[ \t]*+)*+&[ \t]*(?:disown[ \t]*)?(?=[\"'\]\n]|\Z)")
WAITS = pattern(r"\b(?:wait|exec|tail|sleep|while|until|for|python\d?|node|nginx|supervisord|uvicorn|lmdeploy)\b")
NEXT = pattern(r"[ \t]*\n(?P<indent>[ \t]*)(?P<first>[^\s'\"\]])")


@launch_rule(
    "error",
    sources=(
        "https://besthub.dev/articles/why-do-docker-containers-exit-instantly-understanding-pid-1-and-daemon-modes-47f67fd47a29",
    ),
)
def rule(case: Case) -> Diagnostics:
    container, launch, text = case.launch.container, case.launch, case.script.text
    if container is None or launch.starts == "pipeline":
        return
    below = text[launch.place.end : container.place.start]  # of a script that a Dockerfile writes, its CMD
    ends = launch.background and case.script.kind == "docker" and below and not WAITS.search(below)
    before = text[container.place.start : launch.place.start]
    end = ENDS.match(text, launch.place.end) or ENDS.match(text, max(launch.place.end - 1, 0))
    if end and not ends and _goes_on(text, launch.place.start, end.end()):
        return
    if ends or (SHELL.search(before) and end and before.rstrip(" \t\n|>-\\")[-1:] in ("'", '"')):
        yield Diagnostic(
            launch.place,
            "The container's command starts the server in the background and exits, so the container stops.",
            "Start it in the foreground with exec, or add wait after it.",
        )


def _goes_on(text: str, start: int, end: int) -> bool:
    """Return whether the shell text continues after the server: a line of the same indent in a YAML block."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    after = NEXT.match(text, end)
    return after is not None and not line.strip() and after["indent"] == line
