"""A request before the server is ready

## What it does
Reports a curl or wget request to a server that the same script just started in the background, without waiting for it
or after a fixed pause. After a pause it is a warning only under `set -e`, where a refused request ends the script.

## Why
The port stays closed until the model is loaded: tens of seconds for an 8B model, longer for a larger model or a slow
disk, minutes with a download. An earlier request is refused. With a fixed pause, success depends on the day.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &
    sleep 20
    curl http://localhost:23333/v1/models

## Good
Retry until the server responds:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &
    until curl -sf http://localhost:23333/v1/models; do sleep 2; done
"""

import re

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Call, Launch, Script

LOADERS = ("curl", "wget")
WAITS = pattern(r"\b(?:until|while|for|wait|wait-for-it|wait_for\w*|dockerize|nc|read)\b|/dev/tcp/")
RETRIES = ("--retry", "--retry-connrefused", "--tries", "-t")
RUNNERS = pattern(r"^[ \t]+runs-on:|^[ \t]+(?:before_)?script:", re.MULTILINE)
PUBLISHED = pattern(r"(?:.*:)?(\d{1,5}):(\d{1,5})(?:/tcp)?")
HOST = pattern(r"(?:https?://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]):(\d{1,5})(?:[/?].*)?")


@script_rule("warning", sources=("threads/proxy-hides-failures", "flags/server-port"))
def rule(script: Script) -> Diagnostics:
    for launch in script.launches[: surroundings.MOST_SERVERS]:
        ports = _ports(launch)
        if not launch.background or launch.starts != "api_server" or not ports:
            continue
        request = next((call for call in script.calls if _asks(call, launch, ports)), None)
        if request is None or request.loop is not None:
            continue
        stretch = launch.place.end, request.place.start
        line = script.text.rfind("\n", 0, request.place.start) + 1
        waits = WAITS.search(
            _without(surroundings.code(script, *stretch), _other_waits(script, launch, request, ports))
        )
        if waits or surroundings.is_apart(script, *stretch) or _guarded(script, line, request):
            continue
        paused = [call for call in script.calls if _sleeps(call, launch, request)]
        yield Diagnostic(
            request.place,
            "The request follows a fixed pause after the server's start."
            if paused
            else "The request is sent while the server still loads the model.",
            "The port stays closed until the model is loaded, for tens of seconds or minutes; retry until it responds.",
            severity="info" if paused and script.error_exit is None and not _ends_steps(script) else None,
        )


def _ports(launch: Launch) -> set[str]:
    """Return the ports of the script's host that lead to a server: its own, and those that its container publishes."""
    port = surroundings.port(launch)
    if port is None:
        return set()
    published = launch.container.published if launch.container else ()
    mapped = {
        match[1] for word in published if (match := PUBLISHED.fullmatch(word.value or "")) and match[2] == str(port)
    }
    return mapped if published else {str(port)}


def _ends_steps(script: Script) -> bool:
    """Return whether a workflow's shell ends at the first failure, as those of GitHub and GitLab do."""
    return script.kind == "steps" and RUNNERS.search(script.text) is not None and "shell:" not in script.text


def _asks(call: Call, launch: Launch, ports: set[str]) -> bool:
    words = [word.value or "" for word in call.words]
    if not words or words[0] not in LOADERS or call.place.start < launch.place.end:
        return False
    if any(word.startswith(RETRIES) for word in words[1:]):
        return False
    return any(match[1] in ports for word in words if (match := HOST.fullmatch(word)))


def _other_waits(script: Script, launch: Launch, request: Call, ports: set[str]) -> list[tuple[int, int]]:
    """Return the loops before a request that only wait for other servers, from the launch's end."""
    begin = launch.place.end
    asked: dict[tuple[int, int], set[str]] = {}
    for call in script.calls:
        if call.loop is not None and begin <= call.place.start < request.place.start:
            found = {match[1] for word in call.words if (match := HOST.fullmatch(word.value or ""))}
            asked.setdefault((call.loop.place.start - begin, call.loop.place.end - begin), set()).update(found)
    return [loop for loop, found in asked.items() if found and not ports & found and loop[0] >= 0]


def _without(code: str, loops: list[tuple[int, int]]) -> str:
    for start, end in loops:
        code = code[:start] + " " * (end - start) + code[end:]
    return code


def _sleeps(call: Call, launch: Launch, request: Call) -> bool:
    inside = launch.place.end <= call.place.start < request.place.start
    return inside and bool(call.words) and call.words[0].value == "sleep"


def _guarded(script: Script, line: int, request: Call) -> bool:
    """Return whether the request is a condition, or its failure is handled."""
    before = script.text[line : request.place.start]
    behind = script.text[request.place.end :].lstrip(" \t")
    return bool(re.search(r"\b(?:if|elif)\b|!|\|\||\(", before)) or behind.startswith("||")
