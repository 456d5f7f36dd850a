"""Read compose files and Kubernetes manifests: containers and what they start."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from recommender.review.readers.compose import services
from recommender.review.readers.container_command import MOST_CONTAINERS, ContainerCommand
from recommender.review.readers.manifest_words import one_line, unescape
from recommender.review.readers.pods import pods
from recommender.review.readers.yaml_nodes import Node, UnreadableYaml, comments_of, documents, map_scalar
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import Embedded, Script, Word
from recommender.review.script.source_map import SourceText
from recommender.review.script.unwrap import PYTHON, program
from recommender.review.script.variables import Variables
from recommender.review.shell.inner_scripts import start, walk
from recommender.review.shell.state import Run, Where, complete_script, export
from recommender.review.shell.walker import new_run


def read(script: Script) -> Script:
    """Read a compose file or a Kubernetes manifest."""
    page = SourceText(script)
    try:
        roots = documents(script.text)
    except UnreadableYaml as problem:
        return problem.unread(page)
    run = new_run(page)
    containers = list(services(page, roots) if script.kind == "compose" else pods(page, roots))
    for started in containers:
        _start(run, started)
        run.unread += started.unread
    if script.kind == "compose":
        _configs(run, roots, containers)
    if script.kind == "kubernetes":
        _scripts(run, roots, containers)
        _entry_points(run, roots, containers)
        run.embedded += _patches(script.text, roots)
    manifest = complete_script(replace(script, comments=comments_of(page, roots)), run, [])
    return replace(manifest, comments=tuple(sorted(manifest.comments, key=lambda comment: comment.place)))


def _scripts(run: Run, roots: Sequence[Node], containers: Sequence[ContainerCommand]) -> None:
    """Follow the scripts in ConfigMaps, each in the container whose command names it."""
    maps = [root for root in roots if (kind := root.get("kind")) and kind.text == "ConfigMap"]
    held = [(root.get("metadata", "name"), *pair) for root in maps if (data := root.get("data")) for pair in data.pairs]
    for name, key, value in held[:MOST_CONTAINERS]:
        if value.kind == "scalar" and "\n" in value.text.strip() and LAUNCH.search(value.text):
            run.state, run.functions, run.container = Variables(), {}, None
            for started in containers:
                elsewhere = started.mounted and name and name.text not in started.mounted
                if not elsewhere and any(field.known_prefix.rpartition("/")[2] == key.text for field in started.fields):
                    run.container = started.container
                    export(run, started.environment)
            walk(run, map_scalar(run.page.text, value), Where())


def _configs(run: Run, roots: Sequence[Node], containers: Sequence[ContainerCommand]) -> None:
    """Follow the scripts that a compose file holds among its configs, in the service whose command names one."""
    configs = [pair for root in roots if (held := root.get("configs")) for pair in held.pairs]
    listed = [
        held
        for root in roots
        if (own := root.get("services"))
        for _, service in own.pairs
        if (held := service.get("configs"))
    ]
    targets = {
        source.text: target.text.rpartition("/")[2]
        for held in listed
        for item in held.items
        if (source := item.get("source")) and (target := item.get("target"))
    }
    for name, config in configs[:MOST_CONTAINERS]:
        content = config.get("content")
        if content is None or not LAUNCH.search(content.text):
            continue
        for started in containers:
            if any(
                field.known_prefix.rpartition("/")[2] == targets.get(name.text, name.text) for field in started.fields
            ):
                run.state, run.functions, run.container = Variables(), {}, started.container
                export(run, {**started.outside, **started.environment})
                walk(run, unescape(map_scalar(run.page.text, content)), Where())
                break


def _entry_points(run: Run, roots: Sequence[Node], containers: Sequence[ContainerCommand]) -> None:
    """Follow the entry points of KubeRay's jobs, which run in the head's container; its workers may add GPUs."""
    for entry in (root.get("spec", "entrypoint") for root in roots):
        if entry is not None and entry.kind == "scalar" and LAUNCH.search(entry.text):
            head = containers[0].container if containers else None
            workers = any(root.get("spec", "rayClusterSpec", "workerGroupSpecs") for root in roots)
            run.state, run.functions = Variables(), {}
            run.container = head._replace(gpus=None) if head and workers else head
            walk(run, one_line(map_scalar(run.page.text, entry)), Where())


def _patches(text: str, roots: Sequence[Node]) -> Iterator[Embedded]:
    """Yield the patches of a Kustomization, which are YAML in a text."""
    for root in roots:
        patches = root.get("patches")
        for patch in patches.items if patches else ():
            inner = patch.get("patch") if patch.kind == "map" else None
            if inner is not None and inner.style in ("|", ">"):
                yield Embedded("patch.yaml", text.find("\n", inner.start) + 1, inner.end)


def _start(run: Run, started: ContainerCommand) -> None:
    """Follow one container; each has its own environment."""
    run.state, run.functions, run.container = Variables(), {}, started.container
    run.embedded += _program(run.page.text, started)
    if started.line is None:
        start(run, started.fields, started.environment, started.container)
        return
    # Compose expands $NAME from its own environment, never from the container's; $$NAME is left to the shell.
    text = started.line.code
    own = {
        name: word if f"$${name}" in text or f"$${{{name}" in text else word._replace(value=None)
        for name, word in started.environment.items()
    }
    export(run, own | dict(started.outside))
    before = len(run.launches)
    walk(run, one_line(unescape(started.line), comments=False), Where())
    run.launches[before:] = [
        (server._replace(environment=started.environment | _own(server.environment, started.environment)), frame)
        for server, frame in run.launches[before:]
    ]


def _program(text: str, started: ContainerCommand) -> Iterator[Embedded]:
    """Yield the program of ``python -c``, if it is a block of its own."""
    words = started.fields
    at = next((at for at, field in enumerate(words[:-1]) if field.value == "-c"), -1)
    if at > 0 and PYTHON.fullmatch(program(words[at - 1])) and text[words[at + 1].start] == "|":
        first = text.find("\n", words[at + 1].start) + 1
        yield Embedded("command.py", first, words[at + 1].end, (), started.container)


def _own(environment: Mapping[str, Word], outer: Mapping[str, Word]) -> dict[str, Word]:
    """Return the variables that a command sets itself."""
    return {name: word for name, word in environment.items() if name not in outer or word.place != outer[name].place}
