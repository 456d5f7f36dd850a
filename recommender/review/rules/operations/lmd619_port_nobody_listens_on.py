"""A port on which the server does not listen

## What it does
Reports ports that lead to another port than the server's `--server-port` (23333 by default): published ports of a
container, ports of probes, and ports of a pod or its Service. Also reports a script that starts a server in the
background and then calls `/health` or sends a request on a port that nothing else in the script names.

## Why
The server starts, but nobody reaches it: connections to the published port are refused, and a probe that asks the
wrong port never succeeds, so the pod is never ready or restarts forever.

## Bad

    docker run --gpus all -p 127.0.0.1:8000:8000 openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct

## Good
Give the server the port, or publish the port that it has:

    docker run --gpus all -p 127.0.0.1:8000:8000 openmmlab/lmdeploy:v0.16.0-cu12.8 \\
      lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 8000
"""

import re

from recommender.common.pattern import pattern
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Call, Container, Word

LOADERS = ("curl", "wget")
URL = pattern(
    r"(?:http://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(\d{1,5})/(?:health|v1/(?:models|(?:chat/)?completions))"
)
MAPPED = pattern(r"(?:.*:)?(\d{1,5})(?:/tcp)?")
HOST_NETWORK = pattern(
    r"--net(?:work)?[= ]host\b|(?:network_mode|[nN]etworkMode)[\"']?\s*[:=]\s*[\"']?host|hostNetwork:\s*true"
)


@launch_rule("error", sources=("flags/server-port", "https://docs.docker.com/engine/network/port-publishing"))
def rule(case: Case) -> Diagnostics:
    yield from _of_container(case)
    yield from _wrong_port(case)


def _wrong_port(case: Case) -> Diagnostics:
    """Report a request to a port on which the script starts nothing."""
    script, launch, ports = case.script, case.launch, [surroundings.port(server) for server in case.script.launches]
    apart = launch.container is not None and script.kind != "steps"
    if not launch.background or launch is not script.launches[0] or apart or None in ports:
        return
    requests = [(call, port) for call in script.calls for word in call.words[1:] if (port := _local_port(call, word))]
    for call, port in requests:
        places = (match.start() for match in re.finditer(rf"(?<!\d){port}(?!\d)", script.text))
        spans = [other.place for other, other_port in requests if other_port == port]
        if int(port) not in ports and all(any(span.start <= at < span.end for span in spans) for at in places):
            yield Diagnostic(
                call.place,
                f"The request goes to port {port}, but the server listens on {ports[0]}.",
                "Nothing answers there, so a loop that waits for it never ends; use the port of --server-port.",
                severity="warning",
            )
            return


def _local_port(call: Call, word: Word) -> str:
    """Return the local port that a command sends a request of LMDeploy's API to; empty if none."""
    match = URL.fullmatch(word.value or "") if (call.words[0].value or "") in LOADERS else None
    return match[1] if match else ""


def _of_container(case: Case) -> Diagnostics:
    container, port = case.launch.container, surroundings.port(case.launch)
    if container is None or port is None or case.launch.starts == "pipeline" or _shares_network(case, container):
        return
    for probe in container.probes:
        asked = probe.port
        if asked is not None and asked.value and asked.value.isdecimal() and asked.value.lstrip("0") != str(port):
            yield Diagnostic(
                asked.place,
                f"The {probe.kind} probe asks port {asked.value}, but the server listens on {port}.",
                "The probe never succeeds; use the port of --server-port.",
            )
    listed = ((container.published, "published"), (container.targets, "named"), (container.services, "a Service's"))
    for words, what in listed:
        ports = {int(match[1]): word for word in words if (match := MAPPED.fullmatch(word.value or ""))}
        if not ports or port in ports or len(ports) < len(words) or (what == "published" and _host_only(words)):
            continue
        number, word = next(iter(ports.items()))
        yield Diagnostic(
            word.literal or word.place,
            f"Port {number} of the container is {what}, but the server listens on {port}.",
            "Nothing answers there; set --server-port, or use the server's port.",
            severity="warning" if what == "named" else None,
        )


def _shares_network(case: Case, container: Container) -> bool:
    """Return whether the container has the host's network."""
    whole = case.script.kind in ("compose", "kubernetes", "steps", "hcl")
    start, end = (0, len(case.script.text)) if whole else (container.place.start, case.launch.place.end)
    return bool(HOST_NETWORK.search(surroundings.code(case.script, start, max(start, end))))


def _host_only(words: tuple[Word, ...]) -> bool:
    """Return whether the words are ports of a host without the container's, as hostPort."""
    return all(":" not in (word.value or "") for word in words)
