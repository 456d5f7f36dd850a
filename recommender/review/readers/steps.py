"""Read commands in YAML and JSON of any tool: workflows, pipelines, playbooks, jobs.

No key is required: a text or list that starts a server is a command wherever it is, unless its key holds prose. The
variables of the maps around it apply, and the image is the nearest one above.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from recommender.common.pattern import pattern
from recommender.review.readers.manifest_words import one_word, variables, words
from recommender.review.readers.yaml_nodes import Node, UnreadableYaml, comments_of, documents, map_scalar
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import Container, ReadProblem, Script, Word
from recommender.review.script.source_map import Field, Mapped, SourceText
from recommender.review.script.variables import Variables
from recommender.review.shell.nested import start, walk
from recommender.review.shell.state import Run, Where, complete_script, export
from recommender.review.shell.walker import new_run

ENVIRONMENTS = ("env", "envs", "environment", "variables", "vars", "env_vars")
PROSE = frozenset({"name", "displayName", "description", "title", "summary", "help", "comment", "msg", "id", "label"})
PROGRAM = ("command", "entrypoint", "cmd", "program")
INSTALL = pattern(r"\b(?:install|add)\b[^\n]*\blmdeploy\b")
# Expressions of GitHub, Ansible and Helm, Azure, Terraform: the last name in them is the variable.
MACRO = pattern(
    r"(?:\$\{\{-?\s*|\{\{-?\s*|\$\(|\$\{(?=\w+[.}]))\.?(?:[\w\[\]'-]+\.)*(?P<name>\w+)[^{}()\n]*(?:-?\}\}|\)|\})"
)
MOST_COMMANDS = 300
DEEPEST = 40


@dataclass(frozen=True)
class Around:
    """What the maps around a command set."""

    environment: Mapping[str, Word] = field(default_factory=dict)
    container: Container | None = None


def read(script: Script) -> Script:
    """Read a YAML or JSON file."""
    page = SourceText(script)
    try:
        roots = documents(script.text)
    except UnreadableYaml as problem:
        at = min(problem.at, len(script.text))
        return replace(script, problems=(ReadProblem(str(problem), page.place(at, at)),))
    return read_nodes(replace(script, comments=comments_of(page, roots)), page, roots)


def read_nodes(script: Script, page: SourceText, roots: Sequence[Node], around: Around | None = None) -> Script:
    """Read the commands of a file's nodes; ``around`` is what the file sets for all."""
    reader = _Reader(page, new_run(page))
    for root in roots:
        reader.visit(root, around or Around(), 0)
    return complete_script(script, reader.run, [])


class _Reader:
    """Visit the maps that mention LMDeploy."""

    def __init__(self, page: SourceText, run: Run) -> None:
        self.page = page
        self.run = run
        self.seen: set[int] = set()
        self.left = MOST_COMMANDS

    def visit(self, node: Node, around: Around, depth: int) -> None:
        """Read the commands of a node and of those below."""
        if id(node) in self.seen or depth > DEEPEST or "lmdeploy" not in self.page.text[node.start : node.end]:
            return
        self.seen.add(id(node))
        if node.kind == "map":
            around = self._around(node, around)
            program = next((found for key in PROGRAM if (found := node.get(key)) is not None), None)
            arguments = node.get("args") or node.get("arguments")
            if program is not None and arguments is not None and arguments.kind == "list":
                fields = [*words(self.page, program, MACRO, dict(around.environment)), *self._words(arguments, around)]
                start(self.run, fields, dict(around.environment), around.container)
            for key, value in node.pairs:
                self._value(key.text, value, around, depth)
        else:
            for item in node.items:
                self.visit(item, around, depth + 1)

    def _around(self, node: Node, around: Around) -> Around:
        environment = dict(around.environment)
        for name in ENVIRONMENTS:
            own = variables(self.page, node.get(name))
            environment |= {key: _literal(word) for key, word in own.items()}
        image = node.get("image", "name") or node.get("container", "image") or node.get("image")
        word = one_word(self.page, image)
        if word is None:
            return replace(around, environment=environment)
        return Around(environment, Container(word.place, image=_literal(word), shm_known=False))

    def _words(self, node: Node, around: Around) -> list[Field]:
        return words(self.page, node, MACRO, dict(around.environment))

    def _value(self, key: str, value: Node, around: Around, depth: int) -> None:
        if value.kind == "scalar":
            self._text([value], around, key in PROSE)
        elif value.kind == "list" and any(item.kind == "scalar" for item in value.items):
            program = next((item.text.rpartition("/")[2] for item in value.items[:1]), "")
            listed = any(item.text.rpartition("/")[2] in ("lmdeploy", "api_server") for item in value.items)
            if listed and (program in ("lmdeploy", "env") or " " not in program):
                start(self.run, self._words(value, around), dict(around.environment), around.container)
            else:
                self._text(value.items, around, key in PROSE)
            for item in value.items:
                self.visit(item, around, depth + 1) if item.kind != "scalar" else None
        else:
            self.visit(value, around, depth + 1)

    def _text(self, nodes: list[Node], around: Around, prose: bool) -> None:
        """Read scalars as one script, each a command of it."""
        run = self.run
        run.state, run.functions, run.container = Variables(), {}, around.container
        export(run, around.environment)
        for node in nodes:
            if node.kind != "scalar" or not (LAUNCH.search(node.text) or INSTALL.search(node.text)):
                continue
            if prose:
                run.followed.append((node.start, node.end))
            elif self.left:
                self.left -= 1
                walk(run, _plain(map_scalar(self.page.text, node), around.environment), Where())


def _literal(word: Word) -> Word:
    """Return a variable; one whose value is an expression of the tool is unknown."""
    return word._replace(value=None, written=None) if MACRO.search(word.value or "") else word


def _plain(text: Mapped, known: Mapping[str, Word]) -> Mapped:
    """Replace expressions of the tool by variables of the shell, at their places."""
    parts: list[str] = []
    places: list[int] = []
    done = 0
    for match in MACRO.finditer(text.code):
        if match[0].startswith("$(") and match["name"] not in known:
            continue  # a command substitution
        new = f"${{{match['name']}}}"
        start, end = match.span()
        parts += [text.code[done:start], new]
        places += [*text.at[done:start], *[text.at[start]] * (len(new) - 1), text.at[end - 1]]
        done = end
    return Mapped("".join((*parts, text.code[done:])), [*places, *text.at[done:]]) if parts else text
