"""Read the services of a compose file."""

from collections.abc import Iterator, Sequence

from recommender.review.readers.container_command import (
    MOST_CONTAINERS,
    SHARED_MEMORY,
    ContainerCommand,
    port_of,
    replicas,
    reserved,
    seconds,
    true,
    whole,
)
from recommender.review.readers.dockerfile import base_image, entry_words
from recommender.review.readers.manifest_words import COMPOSE, one_word, variables, words
from recommender.review.readers.yaml_nodes import Node, map_scalar
from recommender.review.script import sibling_files
from recommender.review.script.docker_run import probe_path, size_of
from recommender.review.script.model import Container, Probe, ReadProblem, Word
from recommender.review.script.source_map import Field, Piece, SourceText

INLINE = "dockerfile_inline"
"""Where a service has its Dockerfile within the file."""


def services(page: SourceText, roots: Sequence[Node]) -> Iterator[ContainerCommand]:
    """Yield what each service runs."""
    place = page.place(0, 0)
    given = sibling_files.read_environment(page.script.path, ".env") or {}
    outside = {name: Word(text, text, place, variable=name) for name, text in given.items()}
    for root in roots:
        listed = root.get("services")
        awaited = _awaited(listed)
        for name, service in listed.pairs[:MOST_CONTAINERS] if listed else ():
            if service.kind == "map":
                yield _service(page, name, service, outside, awaited=name.text in awaited)


def _awaited(services: Node | None) -> set[str]:
    """Return the services that others wait for until they are healthy."""
    waited = (service.get("depends_on") for _, service in (services.pairs if services else ()))
    pairs = (pair for node in waited for pair in (node.pairs if node else ()))
    return {name.text for name, how in pairs if (on := how.get("condition")) and on.text == "service_healthy"}


def _service(page: SourceText, name: Node, service: Node, outside: dict[str, Word], awaited: bool) -> ContainerCommand:
    environment, unread = _environment_files(page, service.get("env_file"))
    environment |= variables(page, service.get("environment"), outside)
    container = _around_service(page, name, service, outside, awaited)
    entrypoint, command = service.get("entrypoint"), service.get("command")
    first = words(page, entrypoint, COMPOSE, outside) if entrypoint is not None else _built_words(page, service)
    text = command if command is not None else entrypoint
    if text is not None and text.kind == "scalar" and not ((entrypoint is not None or first) and command):
        return ContainerCommand([], environment, container, map_scalar(page.text, text), outside, unread)
    fields = [*first, *words(page, command, COMPOSE, outside)]
    return ContainerCommand(fields, environment, container, outside=outside, unread=unread)


def _built_words(page: SourceText, service: Node) -> list[Field]:
    """Return the server's words in the Dockerfile from which a service is built, at the place that names it."""
    build = service.get("build")
    if build is None:
        return []
    context = build if build.kind == "scalar" else build.get("context")
    file, text = build.get("dockerfile"), ""
    if (inline := build.get(INLINE)) is not None:
        file, text = inline, inline.text
    elif source := sibling_files.read(
        page.script.path, f"{context.text if context else '.'}/{file.text if file else 'Dockerfile'}"
    ):
        text = source.text
    entrypoint, command = entry_words(text)
    if not entrypoint or not any("lmdeploy" in word for word in entrypoint):
        return []
    place = (file or build).start, (file or build).end
    texts = entrypoint if service.get("command") else [*entrypoint, *command]
    return [Field((Piece(text),), *place) for text in texts]


def _image(page: SourceText, service: Node, outside: dict[str, Word]) -> Word | None:
    """Return the image of a service; of one that is built from a Dockerfile within the file, what it is built from."""
    inline = service.get("build", INLINE)
    if inline is None:
        return one_word(page, service.get("image"), COMPOSE, outside)
    place = page.place(inline.start, inline.end)
    return Word(page.text[place.start : place.end], base_image(inline.text), place)


def _environment_files(page: SourceText, node: Node | None) -> tuple[dict[str, Word], tuple[ReadProblem, ...]]:
    """Return the variables of a service's env_file, and a problem for each that is not there."""
    environment: dict[str, Word] = {}
    problems: list[ReadProblem] = []
    for item in (node.items or [node]) if node else ():
        path = item if item.kind == "scalar" else item.get("path")
        if path is None or not path.text:
            continue
        place = page.place(path.start, path.end)
        given = sibling_files.read_environment(page.script.path, path.text)
        if given is None:
            problems.append(ReadProblem(f"{path.text} is not beside the file and was not read", place))
        environment |= {name: Word(text, text, place, variable=name) for name, text in (given or {}).items()}
    return environment, tuple(problems)


def _around_service(page: SourceText, name: Node, service: Node, outside: dict[str, Word], awaited: bool) -> Container:
    size, ipc = service.get("shm_size"), service.get("ipc")
    restart = service.get("restart") or service.get("deploy", "restart_policy", "condition")
    shared = _mounts_shared_memory(service.get("volumes")) or _mounts_shared_memory(service.get("tmpfs"))
    bytes_ = size_of(size.text) if size else None
    if size and size.text.isdecimal():
        bytes_ = int(size.text[:18])
    count, devices = reserved(service.get("deploy", "resources", "reservations", "devices"))
    return Container(
        place=page.place(name.start, name.end),
        image=_image(page, service, outside),
        shm_bytes=bytes_,
        shm_known=not shared and (size is None or bytes_ is not None) and (ipc is None or "$" not in ipc.text),
        host_ipc=bool(ipc and ipc.text == "host"),
        gpus=count or whole(service.get("gpus")),
        devices=devices,
        published=tuple(_published(page, service.get("ports"), outside)),
        restart=one_word(page, restart, COMPOSE),
        probes=tuple(_healthcheck(page, service.get("healthcheck"), awaited)),
        replicas=replicas(service.get("deploy", "replicas") or service.get("scale")),
    )


def _mounts_shared_memory(node: Node | None) -> bool:
    """Return whether a volume or tmpfs is mounted at /dev/shm, of unknown size."""
    for item in (node.items or [node]) if node else ():
        target = item.get("target") if item.kind == "map" else item
        if target is not None and SHARED_MEMORY in target.text:
            return True
    return False


def _published(page: SourceText, ports: Node | None, outside: dict[str, Word]) -> Iterator[Word]:
    for item in ports.items if ports else ():
        port = item if item.kind == "scalar" else item.get("published") or item.get("target")
        target, address = item.get("target"), item.get("host_ip")
        published = one_word(page, port, COMPOSE, outside)
        if published is not None and target is not None and port is not target:
            text = f"{address.text + ':' if address else ''}{published.value}:{target.text}"
            published = published._replace(value=text if published.value else None, literal=None)
        if published is not None:
            yield published


def _healthcheck(page: SourceText, node: Node | None, awaited: bool) -> Iterator[Probe]:
    test = node.get("test") if node else None
    if node is None or test is None or true(node.get("disable")):
        return
    text = " ".join(item.text for item in test.items) if test.items else test.text
    if text.strip() in ("", "NONE"):
        return
    yield Probe(
        "healthcheck",
        page.place(test.start, test.end),
        path=probe_path(text),
        port=port_of(page, test, text),
        initial_s=seconds(node.get("start_period")),
        period_s=seconds(node.get("interval")),
        timeout_s=seconds(node.get("timeout")),
        failures=int(seconds(node.get("retries"))),
        awaited=awaited,
    )
