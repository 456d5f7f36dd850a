"""Read commands in YAML and JSON of any tool: workflows, pipelines, playbooks, jobs.

No key is required: a text or list that starts a server is a command wherever it is, unless its key holds prose. The
variables of the maps around it apply, and the image is the nearest one above.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from recommender.common.pattern import pattern
from recommender.review.readers.container_command import gpus_of_task, of_task, ports_of_task, reserved, whole
from recommender.review.readers.manifest_words import (
    MACRO,
    default_of,
    expressions,
    one_line,
    one_word,
    variables,
    words,
)
from recommender.review.readers.matrix import combinations
from recommender.review.readers.pods import GPU, probes
from recommender.review.readers.yaml_nodes import Node, UnreadableYaml, comments_of, documents, map_scalar
from recommender.review.script.mentions import INSTALLED_AS, LAUNCH
from recommender.review.script.model import HOSTS, Container, Script, Span, Word
from recommender.review.script.relocation import relocate
from recommender.review.script.source_map import Field, SourceText, line_starts
from recommender.review.script.variables import Variables
from recommender.review.shell.inner_scripts import start, walk
from recommender.review.shell.state import Frame, Run, Where, complete_script, export
from recommender.review.shell.walker import new_run

ENVIRONMENTS = ("env", "envs", "environment", "Environment", "variables", "vars", "env_vars")
PROSE = frozenset({"name", "displayName", "description", "title", "summary", "help", "comment", "msg", "id", "label"})
PROGRAM = ("entryPoint", "entrypoint", "command", "cmd", "program", "module", "script")
ARGUMENTS = ("args", "arguments", "command")
INSTALL = pattern(r"\b(?:install|add)\b[^\n]*\blmdeploy\b|\b(?:curl|wget)\b[^\n]*\|")
NOTHING: Mapping[str, Word] = MappingProxyType({})
WAITS = pattern(r"\s*(?:sleep|curl|wget|until|while|for|timeout|kill|wait|export)\b")
"""Other commands of a list that starts a server."""
GOES_ON = pattern(r"[^\n]*[^\\\n](?:\n[ \t]*-[^\n]*[^\\\n])+\n*")
"""A command whose further lines hold options only; llama-swap joins them, without backslashes."""
NAMED = ("lmdeploy", "curl", "wget")
"""Marks a part of the file that is worth reading."""
INPUTS = (
    ("on", "workflow_dispatch", "inputs"),
    ("on", "workflow_call", "inputs"),
    ("inputs",),
    ("parameters",),
    ("spec", "inputs"),
)
"""Where workflows declare what their caller may give, with defaults."""
AROUND = ("container", "base_image")
"""Maps that name the image of what stands beside them: in a workflow, in a configuration of Truss."""
JSON_COMMENT = pattern(r"(\"(?:[^\"\\\n]|\\.)*+\"?)|//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
STARTS = pattern(r"(?m)^[ \t]*\[Service\][ \t]*$(?:\n(?![ \t]*\[).*)*?\n[ \t]*ExecStart[ \t]*=")
MOST_COMMANDS = 300
DEEPEST = 40


@dataclass(frozen=True)
class Around:
    """What the maps around a command set."""

    environment: Mapping[str, Word] = field(default_factory=dict)
    container: Container | None = None
    ports: tuple[Word, ...] = ()
    """Of a group of Nomad: where the container is expected to listen."""

    def beside(self, variables: Mapping[str, Word]) -> "Around":
        """Return the same with further variables."""
        return replace(self, environment={**self.environment, **variables}) if variables else self


def read(script: Script) -> Script:
    """Read a YAML or JSON file."""
    page = SourceText(script)
    try:
        roots = documents(_without_comments(script.text))
    except UnreadableYaml as problem:
        return problem.unread(page)
    return read_nodes(replace(script, comments=comments_of(page, roots)), page, roots)


def read_nodes(script: Script, page: SourceText, roots: Sequence[Node], around: Around | None = None) -> Script:
    """Read the commands of a file's nodes; ``around`` is what the file sets for all."""
    reader = _StepReader(page, new_run(page), dict(_environment_files(roots)))
    for root in roots:
        reader.visit(root, around or Around(_defaults(page, root)), 0)
    return complete_script(script, reader.run, [])


def _without_comments(text: str) -> str:
    """Return JSON with its comments replaced by blanks: YAML knows neither of their two forms."""
    if text.lstrip()[:1] not in ("{", "[") or not ("//" in text or "/*" in text):
        return text
    return JSON_COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)


def _defaults(page: SourceText, root: Node) -> dict[str, Word]:
    """Return the defaults of a workflow's inputs and of a template's parameters."""
    found: dict[str, Word] = {}
    for path in INPUTS:
        found |= _declared(page, root.get(*path) if root.kind == "map" else None)
    cards = one_word(page, root.get("resources", "accelerators") if root.kind == "map" else None)
    if cards is not None and cards.value:  # SkyPilot: L4:8
        found["SKYPILOT_NUM_GPUS_PER_NODE"] = cards._replace(value=cards.value.partition(":")[2] or "1", literal=None)
    return found


def _declared(page: SourceText, declared: Node | None) -> dict[str, Word]:
    """Return the defaults of declared inputs or parameters, a map or a list."""
    found: dict[str, Word] = {}
    pairs = declared.pairs if declared else []
    pairs = [*pairs, *((name, item) for item in (declared.items if declared else ()) if (name := item.get("name")))]
    for name, value in pairs:
        word = one_word(page, value.get("default"))
        listed = word is None or (word.value or "").startswith(("[", "{"))  # a list or map for fromJSON
        found |= {name.text: _literal(page, word)} if word is not None and not listed else {}
    return found


def _environment_files(roots: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """Yield the environment files that cloud-init or a copy of Ansible writes, if they hold no expression."""
    for root in roots:
        listed = root.get("write_files") if root.kind == "map" else None
        tasks = [task for play in root.items if (found := play.get("tasks")) for task in found.items]
        copied = [value for task in tasks for _, value in task.pairs if value.kind == "map"]
        for item in [*(listed.items if listed else ()), *copied]:
            path, content = item.get("path") or item.get("dest"), item.get("content")
            if path is not None and content is not None and "{{" not in content.text:
                yield path.text, content.text


class _StepReader:
    """Visit the maps that mention LMDeploy."""

    def __init__(self, page: SourceText, run: Run, environment_files: Mapping[str, str]) -> None:
        """``environment_files``: the environment files that the file writes."""
        self.page = page
        self.environment_files = environment_files
        self.run = run
        self.seen: set[int] = set()
        self.left = MOST_COMMANDS
        self.inside = False
        """A job with a matrix is being read."""

    def visit(self, node: Node, around: Around, depth: int) -> None:
        """Read the commands of a node and of those below."""
        text = self.page.text[node.start : node.end]
        if id(node) in self.seen or depth > DEEPEST or not any(name in text for name in NAMED):
            return
        self.seen.add(id(node))
        if node.kind == "map":
            first, *others = ([] if self.inside else combinations(self.page, node)) or [{}]
            before, self.inside = len(self.run.launches), self.inside or bool(first)
            self._map(node, around.beside(first), depth)
            if first:
                self._of_matrix(node, around, depth, before, [first, *others])
                self.inside = False
        else:
            for item in node.items:
                if any(word.kind == "scalar" for word in item.items):  # runcmd of cloud-init: a list of lists
                    self._value("", item, around, depth)
                else:
                    self.visit(item, around, depth + 1)

    def _map(self, node: Node, around: Around, depth: int) -> None:
        around = self._around(node, around)
        program = next((found for key in PROGRAM if (found := node.get(key)) is not None), None)
        arguments = next((found for key in ARGUMENTS if (found := node.get(key)) is not None), None)
        whole = program is not None and arguments is not None and _is_command(program, arguments)
        if whole and program is not None and arguments is not None and program is not arguments:
            fields = [*self._words(program, around), *self._words(arguments, around)]
            start(self.run, fields, dict(around.environment), around.container)
            self.seen |= {id(program), id(arguments)}
        for key, value in node.pairs:
            if id(value) not in self.seen:
                self._value(key.text, value, around, depth)

    def _of_matrix(
        self, job: Node, around: Around, depth: int, before: int, combinations: Sequence[Mapping[str, Word]]
    ) -> None:
        """Give the launches of a job the alternatives that the other combinations of its matrix make."""
        first, *others = combinations
        pinned = INSTALLED_AS.search(self.page.text, job.start, job.end)
        name = pinned[1] if pinned else ""
        mine = self.run.launches
        mine[before:] = [(launch._replace(installed=first.get(name)), frame) for launch, frame in mine[before:]]
        for other in others:
            reader = _StepReader(self.page, new_run(self.page), self.environment_files)
            reader.left, reader.inside = self.left, True
            reader._map(job, around.beside(other), depth)
            self.left = reader.left
            for at, (made, _) in enumerate(reader.run.launches[: len(mine) - before], before):
                launch, frame = mine[at]
                alternatives = (*launch.alternatives, made._replace(installed=other.get(name)))
                mine[at] = launch._replace(alternatives=alternatives), frame

    def _around(self, node: Node, around: Around) -> Around:
        environment = dict(around.environment) | _declared(self.page, node.get("parameters"))
        for name in ENVIRONMENTS:
            own = variables(self.page, node.get(name))
            environment |= {key: _literal(self.page, word, around.environment) for key, word in own.items()}
        image = node.get("image", "name") or of_task(node, "image")
        image = next((found for key in AROUND if (found := node.get(key, "image")) is not None), image)
        image = node.get("image", "repository") or image
        port = one_word(self.page, node.get("network", "port", "to"))
        around = replace(around, ports=(port,)) if port is not None else around
        word = one_word(self.page, image)
        if word is None:
            return replace(around, environment=environment)
        asked = tuple(probes(self.page, node))
        published, named = ports_of_task(self.page, node, lambda word: _literal(self.page, word, environment))
        around_it = Container(
            word.place,
            image=_literal(self.page, word, environment),
            gpus=_gpus(node),
            shm_known=False,
            targets=(*around.ports, *named),
            published=(*_published(self.page, node, environment), *published),
            probes=asked,
        )
        return replace(around, environment=environment, container=around_it)

    def _words(self, node: Node, around: Around) -> list[Field]:
        return words(self.page, node, MACRO, dict(around.environment))

    def _value(self, key: str, value: Node, around: Around, depth: int) -> None:
        if value.kind == "scalar":
            self._text([value], around, key in PROSE, joined=key == "cmd")
        elif value.kind == "list" and any(item.kind == "scalar" for item in value.items):
            program = next((item.text.rpartition("/")[2] for item in value.items[:1]), "")
            listed = any(item.text.rpartition("/")[2] in ("lmdeploy", "api_server") for item in value.items)
            if listed and (program in ("lmdeploy", "env") or " " not in program):
                start(self.run, self._words(value, around), dict(around.environment), around.container)
            else:
                self._text(value.items, around, key in PROSE)
            for item in value.items:
                if item.kind == "list":
                    self._value("", item, around, depth + 1)
                elif item.kind != "scalar":
                    self.visit(item, around, depth + 1)
        else:
            self.visit(value, around, depth + 1)

    def _text(self, nodes: list[Node], around: Around, prose: bool, joined: bool = False) -> None:
        """Read scalars as one script, each a command of it."""
        run = self.run
        run.state, run.functions, run.container = Variables(), {}, around.container
        export(run, around.environment)
        script = any(node.kind == "scalar" and LAUNCH.search(node.text) for node in nodes[:MOST_COMMANDS])
        for node in nodes:
            if node.kind != "scalar" or not (
                LAUNCH.search(node.text) or INSTALL.search(node.text) or (script and WAITS.match(node.text))
            ):
                continue
            if prose:
                run.followed.append((node.start, node.end))
            elif self.left and STARTS.search(node.text):
                self.left -= 1
                self._unit(node, around)
            elif self.left:
                self.left -= 1
                text = map_scalar(self.page.text, node)
                text = one_line(text) if joined and GOES_ON.fullmatch(node.text) else text
                walk(run, expressions(text, around.environment), Where())

    def _unit(self, node: Node, around: Around) -> None:
        """Read the text of a unit, as cloud-init and Ansible write it."""
        from recommender.review.readers import unit_file

        run, known = self.run, around.environment
        whole = map_scalar(self.page.text, node)
        signs = [match for match in MACRO.finditer(whole.code) if match[0].startswith("{{")]
        values = (word.value if (word := known.get(match["name"])) else default_of(match[0]) for match in signs)
        text = whole.replaced(
            (*match.span(), HOSTS if value is None else value) for match, value in zip(signs, values, strict=True)
        )
        starts = line_starts(text.code)
        unit = unit_file.read(
            Script("inner.service", "systemd", text.code, lines=starts, environment_files=self.environment_files)
        )

        def place(span: Span) -> Span:
            return self.page.place(*text.span(span.start, span.end))

        for launch in relocate(unit.launches, place):
            loop = launch.loop
            run.launches.append((launch, Frame(loop.place, loop.endless, loop.pauses) if loop else None))
        run.unread += relocate(unit.problems, place)
        run.followed.append((node.start, node.end))
        run.elsewhere = True


def _published(page: SourceText, node: Node, values: Mapping[str, Word]) -> Iterator[Word]:
    """Yield the ports that a container of Ansible, or of Terraform, publishes."""
    listed = node.get("published_ports")
    for item in listed.items if listed else ():
        word = one_word(page, item)
        yield _literal(page, word, values) if word is not None else Word("", None, page.place(item.start, item.end))
    yield from _opened(page, node)


def _opened(page: SourceText, node: Node) -> Iterator[Word]:
    """Yield the ports that a container of Terraform publishes, in blocks of its own; those of a dynamic one unknown."""
    blocks = [block for name, value in node.pairs if name.text == "ports" for block in (value.items or [value])]
    blocks = [block for block in blocks if block.kind == "map" and block.get("internal") is not None]
    made = [value for name, value in node.pairs if name.text == "dynamic" and value.get("content", "internal")]
    for block in (*blocks, *made):
        parts = [block.get(name) for name in ("ip", "external", "internal")]
        words = [one_word(page, part) for part in parts if part is not None]
        inner = words[-1] if words else None
        known = inner is not None and all(word is not None and word.value for word in words)
        text = ":".join(word.value for word in words if word is not None and word.value)
        place = inner.place if inner is not None else page.place(block.start, block.end)
        yield Word(inner.raw if inner else "", text if known else None, place)


def _is_command(program: Node, arguments: Node) -> bool:
    """Return whether arguments belong to a program: they are a list, or one text after lmdeploy as in PM2."""
    named = program.text.rpartition("/")[2] if program.kind == "scalar" else ""
    return arguments.kind == "list" or (arguments.kind == "scalar" and named == "lmdeploy")


def _gpus(node: Node) -> int | None:
    """Return how many GPUs a task of ECS, or a container of Ansible, is given."""
    if (asked := gpus_of_task(node)) is not None:
        return asked
    requests = node.get("device_requests") or node.get("deploy", "resources", "reservations", "devices")
    return reserved(requests)[0] or whole(node.get("resources", "limits", GPU))


def _literal(page: SourceText, word: Word, values: Mapping[str, Word] = NOTHING) -> Word:
    """Return a variable; one whose value is an expression of the tool is unknown, unless its variables are known."""
    if (match := MACRO.fullmatch(word.value or "")) is not None and (given := values.get(match["name"])) is not None:
        return given
    if word.value and values:
        text = MACRO.sub(
            lambda sign: (values[sign["name"]].value if sign["name"] in values else None) or sign[0], word.value
        )
        word = word if text == word.value else word._replace(value=text, literal=None)
    if (default := default_of(word.value or "")) is not None:
        start = word.literal.start + (word.value or "").index(default) if word.literal else -1
        return word._replace(value=default, literal=page.place(start, start + len(default)) if start >= 0 else None)
    return word._replace(value=None, literal=None) if MACRO.search(word.value or "") else word
