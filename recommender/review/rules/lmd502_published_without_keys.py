"""A container's port published to everyone

Finds a port of a container that is published on all addresses of the host, for a server without API keys.

Docker opens a published port to the outside world unless the address of the host is part of it, and its firewall
rules come before the host's own. The server behind it asks for nothing.

Mend it by publishing on 127.0.0.1, with a reverse proxy that authenticates in front.

Bad:

    docker run --gpus all -p 23333:23333 openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct

Good:

    docker run --gpus all -p 127.0.0.1:23333:23333 openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

import re
from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said

# HOST:CONTAINER without an address, or with that of all; a lone number (a port of the container) counts too.
EVERYWHERE = re.compile(r"(?:0\.0\.0\.0:|\[::\]:)?\d+(?:-\d+)?(?::\d+(?:-\d+)?)?(?:/tcp)?")


def check(case: Case) -> Iterator[Said]:
    """Each published port whose address is known."""
    container = case.launch.container
    if not support.server(case) or container is None or case.launch.unsure or "api-keys" in case.settings:
        return
    for word in container.published:
        if word.value and EVERYWHERE.fullmatch(word.value):
            yield Said(
                word.written or word.place,
                f"{word.value} is published on every address of the host, and the server asks for no key.",
                "Whoever reaches the host may use it; write 127.0.0.1: before it and put authentication in front.",
            )


RULE = Rule(
    id="LMD502",
    name="published-without-keys",
    family="safety",
    severity="info",
    sources=("flags/api-keys", "https://docs.docker.com/engine/network/port-publishing"),
    check=check,
)
