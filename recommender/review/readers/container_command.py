"""What a container of compose, of a pod or of an ECS task runs, and the small values that these files have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from recommender.common.pattern import pattern
from recommender.common.units import SECONDS
from recommender.review.readers.manifest_words import one_word
from recommender.review.readers.yaml_nodes import Node
from recommender.review.script.model import Container, ReadProblem, Span, Word
from recommender.review.script.source_map import Field, Mapped, SourceText

DURATION = pattern(r"(\d+(?:\.\d+)?)\s*(ms|us|ns|h|m|s)?")
SHARED_MEMORY = "/dev/shm"
LOCAL_PORT = pattern(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])[: ](\d{1,5})\b")
MOST_CONTAINERS = 300
Words = tuple[Word, ...]


@dataclass(frozen=True)
class ContainerCommand:
    """What a container runs: words, or a script in one of them; and its context."""

    fields: list[Field]
    environment: dict[str, Word]
    container: Container
    line: Mapped | None = None
    outside: Mapping[str, Word] = field(default_factory=dict)
    """The variables that compose itself expands, of its .env."""
    unread: tuple[ReadProblem, ...] = ()
    mounted: frozenset[str] = frozenset()
    """The names of the ConfigMaps that its pod mounts."""


def replicas(node: Node | None) -> int | None:
    """Return the number of replicas, 1 by default; None if unknown."""
    return 1 if node is None else whole(node)


def whole(node: Node | None) -> int | None:
    """Return a whole number; None if it is missing or unknown."""
    return int(node.text[:6]) if node and node.text.isdecimal() else None


def reserved(requests: Node | None) -> tuple[int | None, tuple[str, ...]]:
    """Return how many GPUs the device requests of a container reserve, None for all or unknown, and which they name."""
    for request in requests.items if requests else ():
        ids, count = request.get("device_ids"), whole(request.get("count"))
        if ids is not None and ids.items:
            return len(ids.items), tuple(item.text for item in ids.items)
        if count is not None:
            return count, ()
    return None, ()


def of_task(node: Node, name: str) -> Node | None:
    """Return a value of ECS by its name in a task, or in CloudFormation."""
    return node.get(name) or node.get(name[0].upper() + name[1:])


def gpus_of_task(node: Node) -> int | None:
    """Return the number of GPUs of an ECS task."""
    asked = of_task(node, "resourceRequirements")
    for request in asked.items if asked else ():
        kind = of_task(request, "type")
        if kind is not None and kind.text == "GPU":
            return whole(of_task(request, "value"))
    return None


def ports_of_task(page: SourceText, node: Node, literal: Callable[[Word], Word]) -> tuple[Words, Words]:
    """Return the ports that a task of ECS publishes, or those that it names if none has a port of the host.

    ``literal``: what a value is with the file's variables.
    """
    listed = of_task(node, "portMappings")
    inner, known = list[Word](), list[Word]()
    for item in listed.items if listed else ():
        protocol = of_task(item, "protocol")
        if protocol is not None and protocol.text == "udp":
            continue
        named, outer = (one_word(page, of_task(item, name)) for name in ("containerPort", "hostPort"))
        port = literal(named) if named is not None else Word("", None, page.place(item.start, item.end))
        inner.append(port)
        if outer is not None and outer.value != "0":  # 0: any free port
            outside = literal(outer).value
            whole_text = f"{outside}:{port.value}" if outside and port.value else None
            known.append(port._replace(value=whole_text, literal=None))
    if not known:
        return (), tuple(inner)
    places = {word.place: word for word in known}
    return tuple(places.get(word.place, word) for word in inner), ()


def port_of(page: SourceText, node: Node, text: str) -> Word | None:
    """Return the local port that a check's command asks."""
    return port_asked(page, page.place(node.start, node.end), text)


def port_asked(page: SourceText, place: Span, text: str) -> Word | None:
    """Return the local port that a command asks, at the command's place."""
    match = LOCAL_PORT.search(text)
    return Word(page.text[place.start : place.end], match[1], place) if match else None


def true(node: Node | None) -> bool:
    """Return whether a value says yes."""
    return bool(node and node.text.lower() in ("true", "yes", "on"))


def seconds(node: Node | None) -> float:
    """Return ``1m30s``, ``30s`` or a number in seconds; 0 if missing."""
    if node is None:
        return 0.0
    durations = DURATION.findall(node.text[:40])
    return sum(float(number[:12]) * SECONDS[unit or "s"] for number, unit in durations)


# --- Kubernetes
