"""Read compose files and Kubernetes manifests: containers and what they start."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from recommender.review.readers.manifest_words import CLUSTER, COMPOSE, one_word, unescape, variables, words
from recommender.review.readers.yaml_nodes import Node, UnreadableYaml, comments, documents, map_scalar
from recommender.review.script.model import Comment, Container, Probe, ReadProblem, Script, Word
from recommender.review.script.source_map import Field, Mapped, SourceText
from recommender.review.script.unwrap import probe_path, size_of
from recommender.review.script.variables import Variables
from recommender.review.shell.nested import start, walk
from recommender.review.shell.state import Run, Where, complete_script, export
from recommender.review.shell.walker import new_run

DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|us|ns|h|m|s)?")
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "ns": 1e-9}
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
SHARED_MEMORY = "/dev/shm"
GPU = "nvidia.com/gpu"
MOST_CONTAINERS = 300


def read(script: Script) -> Script:
    """Read a compose file or a Kubernetes manifest."""
    page = SourceText(script)
    try:
        roots = documents(script.text)
    except UnreadableYaml as problem:
        at = min(problem.at, len(script.text))
        return replace(script, problems=(ReadProblem(str(problem), page.place(at, at)),))
    run = new_run(page)
    yaml_comments = tuple(
        Comment(script.text[start:end].rstrip(), page.place(start, start + len(script.text[start:end].rstrip())))
        for start, end in comments(script.text, roots)
    )
    for started in _compose(page, roots) if script.kind == "compose" else _kubernetes(page, roots):
        _start(run, started)
    manifest = complete_script(replace(script, comments=yaml_comments), run, [])
    return replace(manifest, comments=tuple(sorted(manifest.comments, key=lambda comment: comment.place)))


@dataclass(frozen=True)
class ContainerCommand:
    """What a container runs: words, or a script in one of them; and its context."""

    fields: list[Field]
    environment: dict[str, Word]
    container: Container
    line: Mapped | None = None


def _start(run: Run, started: ContainerCommand) -> None:
    """Follow one container; each has its own environment."""
    run.state, run.functions, run.container = Variables(), {}, started.container
    if started.line is None:
        start(run, started.fields, started.environment, started.container)
        return
    # Compose expands variables from its own environment, never from the container's.
    export(run, {name: replace(word, value=None) for name, word in started.environment.items()})
    before = len(run.launches)
    walk(run, _one_line(started.line), Where())
    run.launches[before:] = [
        (replace(server, environment=started.environment | _own(server.environment, started.environment)), frame)
        for server, frame in run.launches[before:]
    ]


def _own(environment: Mapping[str, Word], given: Mapping[str, Word]) -> dict[str, Word]:
    """Return the variables that a command sets itself."""
    return {name: word for name, word in environment.items() if name not in given or word.place != given[name].place}


def _one_line(line: Mapped) -> Mapped:
    """Join a command's lines; only in quotes is a line end more than a blank."""
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


def _compose(page: SourceText, roots: Sequence[Node]) -> Iterator[ContainerCommand]:
    for root in roots:
        services = root.get("services")
        for name, service in services.pairs[:MOST_CONTAINERS] if services else ():
            if service.kind == "map":
                yield _service(page, name, service)


def _service(page: SourceText, name: Node, service: Node) -> ContainerCommand:
    outside: dict[str, Word] = {}
    environment = variables(page, service.get("environment"))
    container = _around_service(page, name, service)
    entrypoint, command = service.get("entrypoint"), service.get("command")
    first = words(page, entrypoint, COMPOSE, outside)
    text = command if command is not None else entrypoint
    if text is not None and text.kind == "scalar" and not (entrypoint is not None and command is not None):
        return ContainerCommand([], environment, container, unescape(map_scalar(page.text, text)))
    return ContainerCommand([*first, *words(page, command, COMPOSE, outside)], environment, container)


def _around_service(page: SourceText, name: Node, service: Node) -> Container:
    size, ipc = service.get("shm_size"), service.get("ipc")
    restart = service.get("restart") or service.get("deploy", "restart_policy", "condition")
    shared = _mounts_shared_memory(service.get("volumes")) or _mounts_shared_memory(service.get("tmpfs"))
    bytes_ = size_of(size.text) if size else None
    if size and size.text.isdecimal():
        bytes_ = int(size.text[:18])
    return Container(
        place=page.place(name.start, name.end),
        image=one_word(page, service.get("image"), COMPOSE),
        shm_bytes=bytes_,
        shm_known=not shared and (size is None or bytes_ is not None) and (ipc is None or "$" not in ipc.text),
        host_ipc=bool(ipc and ipc.text == "host"),
        gpus=_reserved_gpus(service),
        published=tuple(_published(page, service.get("ports"))),
        restart=one_word(page, restart, COMPOSE),
        probes=tuple(_healthcheck(page, service.get("healthcheck"))),
        replicas=_replicas(service.get("deploy", "replicas") or service.get("scale")),
    )


def _replicas(node: Node | None) -> int | None:
    """Return the number of replicas, 1 by default; None if unknown."""
    return 1 if node is None else _whole(node)


def _whole(node: Node | None) -> int | None:
    """Return a whole number; None if it is missing or unknown."""
    return int(node.text[:6]) if node and node.text.isdecimal() else None


def _mounts_shared_memory(node: Node | None) -> bool:
    """Return whether a volume or tmpfs is mounted at /dev/shm, of unknown size."""
    for item in (node.items or [node]) if node else ():
        target = item.get("target") if item.kind == "map" else item
        if target is not None and SHARED_MEMORY in target.text:
            return True
    return False


def _reserved_gpus(service: Node) -> int | None:
    """Return how many GPUs a service reserves; None for all or unknown."""
    devices = service.get("deploy", "resources", "reservations", "devices")
    for device in devices.items if devices else ():
        ids, count = device.get("device_ids"), device.get("count")
        if ids is not None and ids.items:
            return len(ids.items)
        if count is not None and count.text.isdecimal():
            return int(count.text[:6])
    return _whole(service.get("gpus"))


def _published(page: SourceText, ports: Node | None) -> Iterator[Word]:
    for item in ports.items if ports else ():
        port = item if item.kind == "scalar" else item.get("published") or item.get("target")
        published = one_word(page, port, COMPOSE)
        if published is not None:
            yield published


def _healthcheck(page: SourceText, node: Node | None) -> Iterator[Probe]:
    test = node.get("test") if node else None
    if node is None or test is None or _true(node.get("disable")):
        return
    text = " ".join(item.text for item in test.items) if test.items else test.text
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
    """Return ``1m30s``, ``30s`` or a number in seconds; 0 if missing."""
    if node is None:
        return 0.0
    durations = DURATION.findall(node.text[:40])
    return sum(float(number[:12]) * SECONDS[unit or "s"] for number, unit in durations)


# --- Kubernetes


def _kubernetes(page: SourceText, roots: Sequence[Node]) -> Iterator[ContainerCommand]:
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
        stack += reversed([(item, below) for item in node.items])


def _pod_container(page: SourceText, pod: Node, container: Node) -> ContainerCommand:
    environment: dict[str, Word] = {}
    listed = container.get("env")
    for item in listed.items if listed else ():
        name, value = item.get("name"), item.get("value")
        if name is None:
            continue
        source = value or item.get("valueFrom") or item
        word = one_word(page, value, CLUSTER, environment) if value is not None else None
        place = page.place(source.start, source.end)
        environment[name.text] = word or Word(page.text[place.start : place.end], None, place)
    command = words(page, container.get("command"), CLUSTER, environment)
    arguments = words(page, container.get("args"), CLUSTER, environment)
    return ContainerCommand([*command, *arguments], environment, _around_container(page, pod, container))


def _around_container(page: SourceText, pod: Node, container: Node) -> Container:
    name = container.get("name") or container
    gpus = container.get("resources", "limits", GPU) or container.get("resources", "requests", GPU)
    size, known = _pod_memory(pod, container)
    ports = container.get("ports")
    published = [item.get("hostPort") for item in ports.items] if ports else []
    end = name.end if name is not container else min(container.end, container.start + 1)
    return Container(
        place=page.place(name.start, end),
        image=one_word(page, container.get("image")),
        shm_bytes=size,
        shm_known=known,
        host_ipc=_true(pod.get("hostIPC")),
        gpus=_whole(gpus),
        published=tuple(word for port in published if (word := one_word(page, port)) is not None),
        restart=one_word(page, pod.get("restartPolicy")),
        probes=tuple(_probes(page, container)),
    )


def _pod_memory(pod: Node, container: Node) -> tuple[int | None, bool]:
    """Return the size of the volume at /dev/shm, and whether it is known."""
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


def _probes(page: SourceText, container: Node) -> Iterator[Probe]:
    for title in PROBES:
        node = container.get(title)
        if node is None or node.kind != "map":
            continue
        path, command = node.get("httpGet", "path"), node.get("exec", "command")
        asked = " ".join(item.text for item in command.items) if command else ""
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
