"""A container port published to everyone

## What it does
Reports a container port that is published on all addresses of the host, for a server without API keys.

## Why
Docker opens a published port to the network unless the host's address is part of it, and its firewall rules take
precedence over the host's. The server behind it has no authentication.

## Bad

    docker run --gpus all -p 23333:23333 openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct

## Good
Publish on 127.0.0.1, with an authenticating reverse proxy:

    docker run --gpus all -p 127.0.0.1:23333:23333 openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

from recommender.common.pattern import pattern
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

# HOST:CONTAINER without an address or with the any-address; a single container port counts too.
EVERYWHERE = pattern(r"(?:0\.0\.0\.0:|\[::\]:)?\d+(?:-\d+)?(?::\d+(?:-\d+)?)?(?:/tcp)?")


@launch_rule("info", sources=("flags/api-keys", "https://docs.docker.com/engine/network/port-publishing"))
def rule(case: Case) -> Diagnostics:
    container = case.launch.container
    if not checks.server(case) or container is None or case.launch.unsure or "api-keys" in case.settings:
        return
    for word in container.published:
        if word.value and EVERYWHERE.fullmatch(word.value):
            yield Diagnostic(
                word.literal or word.place,
                f"{word.value} is published on every address of the host, and the server has no API keys.",
                "Anyone who reaches the host can use it; publish on 127.0.0.1 and add an authenticating proxy.",
            )
