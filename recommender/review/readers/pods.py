"""Read the containers of Kubernetes manifests, whatever resource holds the pod."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from recommender.review.readers.container_command import (
    MOST_CONTAINERS,
    SHARED_MEMORY,
    ContainerCommand,
    port_of,
    replicas,
    seconds,
    true,
    whole,
)
from recommender.review.readers.manifest_words import CLUSTER, expressions, one_word, words
from recommender.review.readers.yaml_nodes import Node, map_scalar
from recommender.review.script.docker_run import probe_path, size_of
from recommender.review.script.model import Container, Probe, ReadProblem, Word
from recommender.review.script.source_map import Field, Piece, SourceText

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
SINGLE = ("container", "script")
"""Where a template of Argo has its only container."""
SOURCE = ("source", "script")
"""Where Argo and a step of Tekton have the text of a script."""
GPU = "nvidia.com/gpu"
SERVED = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"})


def pods(page: SourceText, roots: Sequence[Node]) -> Iterator[ContainerCommand]:
    """Yield what each container of a pod runs."""
    by_kind = {kind: [root for root in roots if _text(root.get("kind")) == kind] for kind in ("ConfigMap", "Service")}
    maps = {_text(root.get("metadata", "name")): data for root in by_kind["ConfigMap"] if (data := root.get("data"))}
    parameters = {name: word for root in roots for name, word in _parameters(page, root)}
    services = tuple(_service_ports(page, by_kind["Service"]))
    alone = len(roots) - len(by_kind["ConfigMap"]) - len(by_kind["Service"]) == 1 == len(by_kind["Service"])
    stack: list[tuple[Node, int | None, bool]] = [(root, 1, False) for root in reversed(roots)]
    seen, left = set[int](), MOST_CONTAINERS
    while stack and left:
        node, count, serves = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        containers = node.get("containers") or node.get("steps") if node.kind == "map" else None
        first = node.get("initContainers") if node.kind == "map" else None
        single = [spec for key in SINGLE if node.kind == "map" and (spec := node.get(key)) is not None]
        main = [*(containers.items[:MOST_CONTAINERS] if containers else ()), *single]
        for container in [*main, *(first.items[:MOST_CONTAINERS] if first else ())]:
            if container.kind == "map" and left:
                left -= 1
                started = _pod_container(page, node, container, maps, parameters)
                of_main = container in main
                led = services if of_main and alone and containers and len(containers.items) == 1 else ()
                around = started.container._replace(replicas=count, services=led, serves=serves and of_main)
                yield replace(started, container=around)
        own = node.get("spec", "replicas")
        below = replicas(own) if own else count
        serves = serves or _text(node.get("kind")) in SERVED
        stack += reversed([(child, below, serves) for child in (*(value for _, value in node.pairs), *node.items)])


def _text(node: Node | None) -> str:
    return node.text if node else ""


def _parameters(page: SourceText, root: Node) -> Iterator[tuple[str, Word]]:
    """Yield the parameters of a workflow of Argo with the values that it gives them."""
    listed = root.get("spec", "arguments", "parameters")
    for item in listed.items if listed else ():
        name, word = item.get("name"), one_word(page, item.get("value"))
        if name is not None and word is not None:
            yield name.text, word


def _service_ports(page: SourceText, services: Sequence[Node]) -> Iterator[Word]:
    """Yield the numbers of the pod's ports that Services lead to."""
    for service in services:
        ports = service.get("spec", "ports")
        for item in ports.items if ports else ():
            word = one_word(page, item.get("targetPort") or item.get("port"))
            if word is not None and (word.value or "").isdecimal():
                yield word


def _environment_sources(
    page: SourceText, node: Node | None, maps: Mapping[str, Node]
) -> tuple[dict[str, Word], tuple[ReadProblem, ...]]:
    """Return the variables of ConfigMaps of the file; others were not read. Secrets do not belong into a file."""
    environment: dict[str, Word] = {}
    problems: list[ReadProblem] = []
    for item in node.items if node else ():
        name = item.get("configMapRef", "name")
        if name is not None and name.text in maps:
            for key, value in maps[name.text].pairs:
                word = one_word(page, value)
                environment |= {key.text: word} if word else {}
        elif name is not None:
            what = f"the ConfigMap {name.text} is not in this file and was not read"
            problems.append(ReadProblem(what, page.place(name.start, name.end)))
    return environment, tuple(problems)


def _pod_container(
    page: SourceText, pod: Node, container: Node, maps: Mapping[str, Node], parameters: Mapping[str, Word]
) -> ContainerCommand:
    environment, unread = _environment_sources(page, container.get("envFrom"), maps)
    listed = container.get("env")
    for item in listed.items if listed else ():
        name, value = item.get("name"), item.get("value")
        if name is None:
            continue
        source = value or item.get("valueFrom") or item
        filled = item.get("valueFrom", "fieldRef", "fieldPath")  # an address or a name: its path stands for it
        word = one_word(page, value or filled, CLUSTER, environment)
        place = page.place(source.start, source.end)
        environment[name.text] = word or Word(page.text[place.start : place.end], None, place)
    known = {**parameters, **environment}
    command = words(page, container.get("command"), CLUSTER, known)
    arguments = words(page, container.get("args"), CLUSTER, known)
    script = next((found for key in SOURCE if (found := container.get(key)) is not None), None)
    if script is not None and script.kind == "scalar":
        text = expressions(map_scalar(page.text, script), environment)
        inner = (text, 0, len(text.code), False)
        shell = [] if command else [Field((Piece("bash"),), script.start, script.start)]
        arguments = [
            *shell,
            Field((Piece("-c"),), script.start, script.start),
            Field((), script.start, script.end, inner=inner),
        ]
    around = _around_container(page, pod, container)
    return ContainerCommand([*command, *arguments], environment, around, unread=unread, mounted=_mounted(pod))


def _mounted(pod: Node) -> frozenset[str]:
    """Return the names of the ConfigMaps among a pod's volumes."""
    volumes, names = pod.get("volumes"), set[str]()
    for volume in volumes.items if volumes else ():
        projected = volume.get("projected", "sources")
        for source in (volume, *(projected.items if projected else ())):
            name = source.get("configMap", "name")
            names |= {name.text} if name else set()
    return frozenset(names)


def _around_container(page: SourceText, pod: Node, container: Node) -> Container:
    name = container.get("name") or container
    gpus = container.get("resources", "limits", GPU) or container.get("resources", "requests", GPU)
    size, known = _pod_memory(pod, container)
    ports = container.get("ports")
    published = [item.get("hostPort") for item in ports.items] if ports else []
    targets = [item.get("containerPort") for item in ports.items] if ports else []
    end = name.end if name is not container else min(container.end, container.start + 1)
    return Container(
        place=page.place(name.start, end),
        image=one_word(page, container.get("image")),
        shm_bytes=size,
        shm_known=known,
        host_ipc=true(pod.get("hostIPC")),
        gpus=whole(gpus),
        published=tuple(word for port in published if (word := one_word(page, port)) is not None),
        targets=tuple(word for port in targets if (word := one_word(page, port)) is not None),
        restart=one_word(page, pod.get("restartPolicy")),
        probes=tuple(probes(page, container)),
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


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def child(node: Node, *names: str) -> Node | None:
    """Return the node below keys, as Kubernetes or Terraform spells them: ``httpGet`` or ``http_get``."""
    return node.get(*names) or node.get(*(_snake(name) for name in names))


def _probe_port(page: SourceText, probe: Node, container: Node) -> Word | None:
    """Return the port that a probe asks, by number or by the name of a container's port."""
    word = one_word(page, child(probe, "httpGet", "port") or child(probe, "tcpSocket", "port"))
    if word is None or (word.value or "").isdecimal():
        return word
    ports = container.get("ports")
    named = (
        item.get("containerPort") for item in (ports.items if ports else ()) if _text(item.get("name")) == word.value
    )
    return next((word._replace(value=port.text, literal=None) for port in named if port), None)


def probes(page: SourceText, container: Node) -> Iterator[Probe]:
    """Yield the probes of a container, of Kubernetes or of Terraform."""
    for title in PROBES:
        node = child(container, title)
        if node is None or node.kind != "map":
            continue
        path, command = child(node, "httpGet", "path"), node.get("exec", "command")
        asked = " ".join(item.text for item in command.items) if command else ""
        key = next((key for key, _ in container.pairs if key.value in (title, _snake(title))), node)
        yield Probe(
            kind=title.removesuffix("Probe"),  # type: ignore[arg-type]
            place=page.place(key.start, key.end),
            path=path.text if path else probe_path(asked),
            port=_probe_port(page, node, container) or (port_of(page, command, asked) if command else None),
            initial_s=seconds(child(node, "initialDelaySeconds")),
            period_s=seconds(child(node, "periodSeconds")),
            timeout_s=seconds(child(node, "timeoutSeconds")),
            failures=int(seconds(child(node, "failureThreshold"))),
        )
