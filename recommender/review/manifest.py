"""Reads docker compose files and Kubernetes manifests: what their containers start, and what stands around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from recommender.review.following import Run, Where, export, finished, start, walk
from recommender.review.manifestwords import CLUSTER, COMPOSE, one_word, unescaped, variables, words
from recommender.review.mapped import Field, Mapped, Page
from recommender.review.script import Comment, Container, Probe, Script, Trouble, Word
from recommender.review.unwrap import probe_path, size_of
from recommender.review.variables import State
from recommender.review.yamlnodes import Node, Unread, comments, documents, mapped

DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|us|ns|h|m|s)?")
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "ns": 1e-9}
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
SHARED_MEMORY = "/dev/shm"
GPU = "nvidia.com/gpu"
MOST_CONTAINERS = 300


def read(script: Script) -> Script:
    """Reads a compose file or a Kubernetes manifest."""
    page = Page(script)
    try:
        roots = documents(script.text)
    except Unread as problem:
        at = min(problem.at, len(script.text))
        return replace(script, troubles=(Trouble(str(problem), page.place(at, at)),))
    run = Run(page)
    found = tuple(
        Comment(script.text[start:end].rstrip(), page.place(start, start + len(script.text[start:end].rstrip())))
        for start, end in comments(script.text, roots)
    )
    for started in _compose(page, roots) if script.kind == "compose" else _kubernetes(page, roots):
        _start(run, started)
    made = finished(replace(script, comments=found), run, [])
    return replace(made, comments=tuple(sorted(made.comments, key=lambda each: each.place)))


@dataclass(frozen=True)
class Started:
    """What a container runs: its words, or a script in one of them; and what holds there."""

    fields: list[Field]
    environment: dict[str, Word]
    container: Container
    line: Mapped | None = None


def _start(run: Run, started: Started) -> None:
    """Each container has an environment of its own."""
    run.state, run.functions, run.container = State(), {}, started.container
    if started.line is None:
        start(run, started.fields, started.environment, started.container)
        return
    # Compose replaces variables by what stands in its own environment, never by the container's.
    export(run, {name: replace(word, value=None) for name, word in started.environment.items()})
    before = len(run.launches)
    walk(run, _one_line(started.line), Where())
    run.launches[before:] = [
        (replace(made, environment=started.environment | _own(made.environment, started.environment)), frame)
        for made, frame in run.launches[before:]
    ]


def _own(environment: Mapping[str, Word], given: Mapping[str, Word]) -> dict[str, Word]:
    """What a command sets for itself."""
    return {name: word for name, word in environment.items() if name not in given or word.place != given[name].place}


def _one_line(line: Mapped) -> Mapped:
    """A command of several lines is one: only within quotes a line's end is more than a blank."""
    code, quote = list(line.code), ""
    for at, char in enumerate(code):
        if char in ("'", '"') and quote in ("", char):
            quote = "" if quote else char
        elif char == "\n" and not quote:
            code[at] = " "
            if at and code[at - 1] == "\\":
                code[at - 1] = " "
    return Mapped("".join(code), line.at)


# --- compose


def _compose(page: Page, roots: Sequence[Node]) -> Iterator[Started]:
    for root in roots:
        services = root.get("services")
        for name, service in services.pairs[:MOST_CONTAINERS] if services else ():
            if service.kind == "map":
                yield _service(page, name, service)


def _service(page: Page, name: Node, service: Node) -> Started:
    outside: dict[str, Word] = {}
    environment = variables(page, service.get("environment"))
    container = _around_service(page, name, service)
    entrypoint, command = service.get("entrypoint"), service.get("command")
    first = words(page, entrypoint, COMPOSE, outside)
    text = command if command is not None else entrypoint
    if text is not None and text.kind == "scalar" and not (entrypoint is not None and command is not None):
        return Started([], environment, container, unescaped(mapped(page.text, text)))
    return Started([*first, *words(page, command, COMPOSE, outside)], environment, container)


def _around_service(page: Page, name: Node, service: Node) -> Container:
    size, ipc = service.get("shm_size"), service.get("ipc")
    restart = service.get("restart") or service.get("deploy", "restart_policy", "condition")
    shared = _mentions(service.get("volumes")) or _mentions(service.get("tmpfs"))
    bytes_ = size_of(size.text) if size else None
    if size and size.text.isdecimal():
        bytes_ = int(size.text[:18])
    return Container(
        place=page.place(name.start, name.end),
        image=one_word(page, service.get("image"), COMPOSE),
        shm_bytes=bytes_,
        shm_known=not shared and (size is None or bytes_ is not None) and (ipc is None or "$" not in ipc.text),
        host_ipc=bool(ipc and ipc.text == "host"),
        gpus=_reserved(service),
        published=tuple(_published(page, service.get("ports"))),
        restart=one_word(page, restart, COMPOSE),
        probes=tuple(_healthcheck(page, service.get("healthcheck"))),
        replicas=_replicas(service.get("deploy", "replicas") or service.get("scale")),
    )


def _replicas(node: Node | None) -> int | None:
    """How many of something there are: one unless the file says so; None where only a run would tell."""
    if node is None:
        return 1
    return int(node.text[:6]) if node.text.isdecimal() else None


def _mentions(node: Node | None) -> bool:
    """Whether a volume or a tmpfs lies at /dev/shm: how large it is, the file need not tell."""
    for each in (node.items or [node]) if node else ():
        target = each.get("target") if each.kind == "map" else each
        if target is not None and SHARED_MEMORY in target.text:
            return True
    return False


def _reserved(service: Node) -> int | None:
    """The number of GPUs that a service reserves, None for all and where nothing tells."""
    devices = service.get("deploy", "resources", "reservations", "devices")
    for device in devices.items if devices else ():
        ids, count = device.get("device_ids"), device.get("count")
        if ids is not None and ids.items:
            return len(ids.items)
        if count is not None and count.text.isdecimal():
            return int(count.text[:6])
    gpus = service.get("gpus")
    return int(gpus.text[:6]) if gpus and gpus.text.isdecimal() else None


def _published(page: Page, ports: Node | None) -> Iterator[Word]:
    for each in ports.items if ports else ():
        found = each if each.kind == "scalar" else each.get("published") or each.get("target")
        made = one_word(page, found, COMPOSE)
        if made is not None:
            yield made


def _healthcheck(page: Page, node: Node | None) -> Iterator[Probe]:
    test = node.get("test") if node else None
    if node is None or test is None or _true(node.get("disable")):
        return
    text = " ".join(each.text for each in test.items) if test.items else test.text
    if text.strip() in ("", "NONE"):
        return
    yield Probe(
        "healthcheck",
        page.place(test.start, test.end),
        path=probe_path(text),
        initial_s=_seconds(node.get("start_period")),
        period_s=_seconds(node.get("interval")),
        timeout_s=_seconds(node.get("timeout")),
        failures=int(_seconds(node.get("retries"))),
    )


def _true(node: Node | None) -> bool:
    return bool(node and node.text.lower() in ("true", "yes", "on"))


def _seconds(node: Node | None) -> float:
    """``1m30s``, ``30s`` or a number of seconds; 0 where there is none."""
    if node is None:
        return 0.0
    found = DURATION.findall(node.text[:40])
    return sum(float(number[:12]) * SECONDS[unit or "s"] for number, unit in found)


# --- Kubernetes


def _kubernetes(page: Page, roots: Sequence[Node]) -> Iterator[Started]:
    stack: list[tuple[Node, int | None]] = [(root, 1) for root in reversed(roots)]
    seen, left = set[int](), MOST_CONTAINERS
    while stack and left:
        node, replicas = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        containers = node.get("containers") if node.kind == "map" else None
        for container in containers.items[:MOST_CONTAINERS] if containers else ():
            if container.kind == "map" and left:
                left -= 1
                started = _pod_container(page, node, container)
                yield replace(started, container=replace(started.container, replicas=replicas))
        own = node.get("spec", "replicas")
        below = _replicas(own) if own else replicas
        stack += reversed([(value, below) for _, value in node.pairs])
        stack += reversed([(each, below) for each in node.items])


def _pod_container(page: Page, pod: Node, container: Node) -> Started:
    environment: dict[str, Word] = {}
    listed = container.get("env")
    for each in listed.items if listed else ():
        name, value = each.get("name"), each.get("value")
        if name is None:
            continue
        source = value or each.get("valueFrom") or each
        made = one_word(page, value, CLUSTER, environment) if value is not None else None
        place = page.place(source.start, source.end)
        environment[name.text] = made or Word(page.text[place.start : place.end], None, place)
    command = words(page, container.get("command"), CLUSTER, environment)
    arguments = words(page, container.get("args"), CLUSTER, environment)
    return Started([*command, *arguments], environment, _around_container(page, pod, container))


def _around_container(page: Page, pod: Node, container: Node) -> Container:
    name = container.get("name") or container
    gpus = container.get("resources", "limits", GPU) or container.get("resources", "requests", GPU)
    size, known = _pod_memory(pod, container)
    ports = container.get("ports")
    published = [each.get("hostPort") for each in ports.items] if ports else []
    end = name.end if name is not container else min(container.end, container.start + 1)
    return Container(
        place=page.place(name.start, end),
        image=one_word(page, container.get("image")),
        shm_bytes=size,
        shm_known=known,
        host_ipc=_true(pod.get("hostIPC")),
        gpus=int(gpus.text[:6]) if gpus and gpus.text.isdecimal() else None,
        published=tuple(made for each in published if (made := one_word(page, each)) is not None),
        restart=one_word(page, pod.get("restartPolicy")),
        probes=tuple(_probes(page, container)),
    )


def _pod_memory(pod: Node, container: Node) -> tuple[int | None, bool]:
    """The size of a volume at /dev/shm; not known where a volume lies there and does not say."""
    mounts, volumes = container.get("volumeMounts"), pod.get("volumes")
    for mount in mounts.items if mounts else ():
        path, name = mount.get("mountPath"), mount.get("name")
        if path is None or path.text.rstrip("/") != SHARED_MEMORY:
            continue
        for volume in volumes.items if volumes else ():
            title = volume.get("name")
            limit = volume.get("emptyDir", "sizeLimit")
            if title is not None and name is not None and title.text == name.text and limit is not None:
                size = size_of(limit.text)
                return size, size is not None
        return None, False
    return None, True


def _probes(page: Page, container: Node) -> Iterator[Probe]:
    for title in PROBES:
        node = container.get(title)
        if node is None or node.kind != "map":
            continue
        path, command = node.get("httpGet", "path"), node.get("exec", "command")
        asked = " ".join(each.text for each in command.items) if command else ""
        key = next((key for key, value in container.pairs if key.value == title), node)
        yield Probe(
            kind=title.removesuffix("Probe"),  # type: ignore[arg-type]
            place=page.place(key.start, key.end),
            path=path.text if path else probe_path(asked),
            initial_s=_seconds(node.get("initialDelaySeconds")),
            period_s=_seconds(node.get("periodSeconds")),
            timeout_s=_seconds(node.get("timeoutSeconds")),
            failures=int(_seconds(node.get("failureThreshold"))),
        )
