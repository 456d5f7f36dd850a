"""A container that ends at once

Finds a server that a container's own command starts in the background, with nothing behind it that waits.

A container lives as long as its first process. A shell that puts the server in the background has nothing more to
do, ends, and takes the container and the server with it.

Mend it by starting the last server in the foreground, with ``exec``, or put ``wait`` behind them.

Bad:

    docker run --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      bash -c "lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &"

Good:

    docker run --gpus all openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      bash -c "exec lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct"
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Case, Rule, Said

SHELL = re.compile(r"\b(?:ba|da)?sh\b[\"',\s\]-]+(?:-\w+[\"',\s]+)*-\w*c\b")
ENDS = re.compile(r"[ \t]*(?:\d?>>?[ \t]*&?[^\s>&]+[ \t]*)*&[ \t]*(?:disown[ \t]*)?(?=[\"'\]\n]|\Z)")
NEXT = re.compile(r"[ \t]*\n(?P<indent>[ \t]*)(?P<first>[^\s'\"\]])")


def check(case: Case) -> Iterator[Said]:
    """The ampersand as the last thing of the command within a shell's quotes."""
    container, launch, text = case.launch.container, case.launch, case.script.text
    if container is None or launch.starts == "pipeline":
        return
    before = text[container.place.start : launch.place.start]
    end = ENDS.match(text, launch.place.end) or ENDS.match(text, max(launch.place.end - 1, 0))
    if end and _goes_on(text, launch.place.start, end.end()):
        return
    if SHELL.search(before) and end and before.rstrip(" \t\n|>-\\")[-1:] in ("'", '"'):
        yield Said(
            launch.place,
            "The container's command puts the server in the background and ends, and the container with it.",
            "Start it in the foreground with exec, or put wait behind it.",
        )


def _goes_on(text: str, start: int, end: int) -> bool:
    """Whether the shell's text has another line behind the server's: as deep as this one, in a block of YAML."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    after = NEXT.match(text, end)
    return after is not None and not line.strip() and after["indent"] == line


RULE = Rule(
    id="LMD617",
    name="container-ends-at-once",
    family="operations",
    severity="error",
    sources=(
        "https://besthub.dev/articles/why-do-docker-containers-exit-instantly-understanding-pid-1-and-daemon-modes-47f67fd47a29",
    ),
    check=check,
)
