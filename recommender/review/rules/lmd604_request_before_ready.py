"""A request before the server can answer

Finds a request by curl or wget to a server that the same script has just started in the background, without waiting
for it, or after a pause of a fixed length.

The port is closed until the model is loaded: tens of seconds for an 8B model, more for a larger one or from a slow
disk, minutes where it must be downloaded. A request before is refused; after a fixed pause it depends on the day.

Mend it by asking until the server answers.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &
    sleep 20
    curl http://localhost:23333/v1/models

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &
    until curl -sf http://localhost:23333/v1/models; do sleep 2; done
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Call, Launch, Script

LOADERS = ("curl", "wget")
WAITS = re.compile(r"\b(?:until|while|for|wait|wait-for-it|wait_for\w*|dockerize|nc|read)\b|/dev/tcp/")
RETRIES = ("--retry", "--retry-connrefused", "--tries", "-t")
HOST = re.compile(r"(?:https?://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]):(\d{1,5})(?:[/?].*)?")


def check(script: Script) -> Iterator[Said]:
    """The first request to each such server."""
    for launch in script.launches[: around.MOST]:
        port = around.port(launch)
        if not launch.background or launch.starts != "api_server" or launch.container or port is None:
            continue
        request = next((each for each in script.calls if _asks(each, launch, port)), None)
        if request is None or request.loop is not None:
            continue
        between = around.code(script, launch.place.end, request.place.start)
        line = script.text.rfind("\n", 0, request.place.start) + 1
        if WAITS.search(between) or around.APART.search(between) or _guarded(script, line, request):
            continue
        paused = [each for each in script.calls if _sleeps(each, launch, request)]
        yield Said(
            request.place,
            "The server is asked after a pause of fixed length."
            if paused
            else "The server is asked while it still loads the model.",
            "Its port is closed until the model is loaded, for tens of seconds or minutes; ask until it answers.",
            severity="info" if paused else None,
        )


def _asks(call: Call, launch: Launch, port: int) -> bool:
    words = [word.value or "" for word in call.words]
    if not words or words[0] not in LOADERS or call.place.start < launch.place.end:
        return False
    if any(word.startswith(RETRIES) for word in words[1:]):
        return False
    return any(match[1] == str(port) for word in words if (match := HOST.fullmatch(word)))


def _sleeps(call: Call, launch: Launch, request: Call) -> bool:
    inside = launch.place.end <= call.place.start < request.place.start
    return inside and bool(call.words) and call.words[0].value == "sleep"


def _guarded(script: Script, line: int, request: Call) -> bool:
    """Whether the request is in a condition, or a failure of it is taken up."""
    before = script.text[line : request.place.start]
    behind = script.text[request.place.end :].lstrip(" \t")
    return bool(re.search(r"\b(?:if|elif)\b|!|\|\||\(", before)) or behind.startswith("||")


RULE = Rule(
    id="LMD604",
    name="request-before-ready",
    family="operations",
    severity="warning",
    sources=("threads/proxy-hides-failures", "flags/server-port"),
    whole=check,
)
