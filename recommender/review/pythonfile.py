"""Reads Python: ``pipeline(...)`` with its configurations, and servers that it starts as processes.

Only the syntax tree is looked at: nothing of the file is imported or run.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recommender.review.following import Run, walk
from recommender.review.launches import Surroundings, launch
from recommender.review.mapped import Field, Mapped, Page, Piece
from recommender.review.pythonvalues import Values, called
from recommender.review.script import Comment, Launch, Option, Script, Trouble, Word
from recommender.review.unwrap import unwrap

ENGINES = ("TurbomindEngineConfig", "PytorchEngineConfig")
CONFIGS = frozenset({*ENGINES, "VisionConfig", "ChatTemplateConfig", "GenerationConfig", "SpeculativeConfig"})
# The parameters of ``lmdeploy.pipeline`` in their order.
PARAMETERS = ("model_path", "backend_config", "chat_template_config", "log_level", "max_log_len")
PROCESSES = frozenset(
    {"run", "Popen", "call", "check_call", "check_output", "execvp", "execv", "spawn", "exec_command"}
)
SHELLED = frozenset({"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"})
SHELL_SIGNS = re.compile(r"[|&;<>]")


def read(script: Script) -> Script:
    """Reads a Python file."""
    page = Page(script)
    code = Mapped.whole(script.text).code
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except SyntaxError as error:
        return replace(script, comments=_comments(page, code), troubles=(_trouble(page, error),))
    except (ValueError, RecursionError, MemoryError):
        trouble = Trouble("this is no Python that can be read", page.place(0, 0))
        return replace(script, troubles=(trouble,))
    launches = tuple(sorted(_File(page, code, tree).launches(), key=lambda each: each.place))
    return replace(script, launches=launches, comments=_comments(page, code))


def _trouble(page: Page, error: SyntaxError) -> Trouble:
    starts = page.script.lines
    line = min(max(error.lineno or 1, 1), len(starts))
    start = starts[line - 1] + max((error.offset or 1) - 1, 0)
    return Trouble(f"this is no Python: {str(error.msg)[:200]}", page.place(start, start))


def _comments(page: Page, code: str) -> tuple[Comment, ...]:
    """The comments as far as the text can be taken apart."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline) if "#" in code else ():
            if token.type == tokenize.COMMENT:
                start = page.script.lines[token.start[0] - 1] + token.start[1]
                found.append(Comment(token.string.rstrip(), page.place(start, start + len(token.string.rstrip()))))
    except (tokenize.TokenError, SyntaxError, ValueError, IndexError):
        pass  # what came before is read
    return tuple(found)


@dataclass
class _Parts:
    """The configurations that a call was given, in options."""

    options: list[Option] = field(default_factory=list)
    engine: str = ""
    unsure: bool = False


class _File:
    """Finds what a Python file starts."""

    def __init__(self, page: Page, code: str, tree: ast.Module) -> None:
        self.page = page
        self.values = Values(page, code, tree)
        self.calls = [node for node in self.values.nodes if isinstance(node, ast.Call)]
        self.known, self.foreign = self._imports()
        self.used: set[int] = set()
        self.set_later = self._attributes()
        self.environment = self._environment()

    def _imports(self) -> tuple[dict[str, str], set[str]]:
        """Names that come from LMDeploy, and what they are called there; and names from elsewhere."""
        known: dict[str, str] = {}
        foreign: set[str] = set()
        for node in self.values.nodes:
            if isinstance(node, ast.ImportFrom):
                ours = (node.module or "").partition(".")[0] == "lmdeploy"
                for alias in node.names:
                    if ours:
                        known[alias.asname or alias.name] = alias.name
                    else:
                        foreign.add(alias.asname or alias.name)
            elif isinstance(node, ast.Import):
                known |= {
                    alias.asname or alias.name.partition(".")[0]: "lmdeploy"
                    for alias in node.names
                    if alias.name.partition(".")[0] == "lmdeploy"
                }
        return known, foreign

    def _attributes(self) -> dict[str, list[tuple[str, ast.Assign]]]:
        """``config.tp = 2``: what is set on a name after it was made."""
        found: dict[str, list[tuple[str, ast.Assign]]] = {}
        for node in self.values.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
                target = node.targets[0]
                if isinstance(target.value, ast.Name):
                    found.setdefault(target.value.id, []).append((target.attr, node))
        return found

    # --- the environment

    def _environment(self) -> dict[str, Word]:
        found: dict[str, Word] = {}
        for name, value in self._variables():
            word = self.page.word(self.values.field(value))
            if name in found and found[name].value != word.value:
                word = replace(word, value=None, written=None)
            found[name] = word
        return found

    def _variables(self) -> Iterator[tuple[str, ast.expr]]:
        for node in self.values.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Subscript) and called(target.value) == "environ":
                        yield from _named(target.slice, node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                whose, what = called(node.func.value), node.func.attr
                if (whose == "environ" and what == "setdefault") or (whose == "os" and what == "putenv"):
                    yield from _named(node.args[0], node.args[1]) if len(node.args) == 2 else ()
                elif whose == "environ" and what == "update":
                    yield from _dictionary(node.args[0]) if node.args else ()
                    yield from ((each.arg, each.value) for each in node.keywords if each.arg)

    # --- launches

    def launches(self) -> Iterator[Launch]:
        """Pipelines, engines without one, and processes."""
        pipelines = [self._pipeline(node) for node in self.calls if self._is_pipeline(node)]
        generations = [node for node in self.calls if self._class(node) == "GenerationConfig"]
        for each in pipelines:
            given = any(option.name.startswith("GenerationConfig.") for option in each.options)
            if len(pipelines) == 1 == len(generations) and not given:
                each = replace(each, options=(*each.options, *self._keywords(generations[0], "GenerationConfig.")))
            yield each
        for node in self.calls:
            if self._class(node) in ENGINES and id(node) not in self.used:
                parts = _Parts(unsure=True)
                self._configuration(node, parts)
                yield self._made(node, None, parts)
        for node in self.calls:
            yield from self._process(node)

    def _class(self, node: ast.Call) -> str:
        """The configuration that a call makes, by its name in LMDeploy."""
        name = called(node.func)
        name = self.known.get(name, name) if isinstance(node.func, ast.Name) else name
        return (
            name if name in CONFIGS and not (isinstance(node.func, ast.Name) and node.func.id in self.foreign) else ""
        )

    def _is_pipeline(self, node: ast.Call) -> bool:
        if isinstance(node.func, ast.Attribute):
            whose = node.func.value
            return (
                node.func.attr in ("pipeline", "serve")
                and isinstance(whose, ast.Name)
                and (self.known.get(whose.id) == "lmdeploy" or whose.id == "lmdeploy")
            )
        name = called(node.func)
        if name in self.known:
            return self.known[name] in ("pipeline", "serve")
        if name != "pipeline" or name in self.foreign:
            return False
        # A piece of a file without its imports: only LMDeploy's pipeline takes such configurations.
        given = {each.arg for each in node.keywords}
        return "*" in self.known or bool(given & {"backend_config", "vision_config", "chat_template_config"})

    def _pipeline(self, node: ast.Call) -> Launch:
        parts = _Parts()
        given: dict[str, tuple[ast.expr, ast.keyword | None]] = {}
        for name, value in zip(PARAMETERS, node.args, strict=False):
            if isinstance(value, ast.Starred):
                parts.unsure = True
                break
            given[name] = (value, None)
        given |= {each.arg: (each.value, each) for each in node.keywords if each.arg}
        parts.unsure = parts.unsure or any(each.arg is None for each in node.keywords)
        model = given.pop("model_path", (None, None))[0]
        for name, (value, keyword) in given.items():
            if name.endswith("_config"):
                self._resolved(name, value, parts)
            else:
                parts.options.append(self._option(name, value, keyword, "pipeline"))
        return self._made(node, model, parts)

    def _made(self, node: ast.Call, model: ast.expr | None, parts: _Parts) -> Launch:
        return Launch(
            starts="pipeline",
            place=self.page.place(*self.values.span(node)),
            model=self.page.word(self.values.field(model)) if model is not None else None,
            options=tuple(parts.options),
            environment=self.environment,
            extra=tuple(self.page.word(self.values.field(each)) for each in node.args[len(PARAMETERS) :]),
            unsure=parts.unsure,
            engine=parts.engine,
        )

    def _resolved(self, name: str, value: ast.expr, parts: _Parts) -> None:
        """A configuration as it is given: made in place, or a name that it was given."""
        whose = ""
        for _ in range(5):
            if isinstance(value, ast.Name) and value.id in self.values.names:
                whose, value = value.id, self.values.names[value.id]
        if isinstance(value, ast.Call) and self._class(value):
            self._configuration(value, parts, whose)
        elif not (isinstance(value, ast.Constant) and value.value is None):
            parts.unsure = True

    def _configuration(self, node: ast.Call, parts: _Parts, whose: str = "") -> None:
        """The keywords of a configuration; those of an engine keep their bare names."""
        name = self._class(node)
        self.used.add(id(node))
        prefix = "" if name in ENGINES else f"{name}."
        parts.engine = name if name in ENGINES else parts.engine
        parts.unsure = parts.unsure or bool(node.args) or any(each.arg is None for each in node.keywords)
        later = dict(self.set_later.get(whose, ()))
        parts.options += [each for each in self._keywords(node, prefix) if each.name.removeprefix(prefix) not in later]
        for attribute, assignment in later.items():
            start, end = self.values.span(assignment.targets[0])
            place = self.page.place(end - len(attribute), end)
            words = tuple(self.page.word(each) for each in self.values.fields(assignment.value))
            whole = self.page.place(start, self.values.span(assignment)[1])
            parts.options.append(Option(prefix + attribute, words, place, whole, name))

    def _keywords(self, node: ast.Call, prefix: str) -> list[Option]:
        of = self._class(node)
        return [self._option(prefix + each.arg, each.value, each, of) for each in node.keywords if each.arg]

    def _option(self, name: str, value: ast.expr, keyword: ast.keyword | None, of: str) -> Option:
        words = tuple(self.page.word(each) for each in self.values.fields(value))
        whole = self.values.span(keyword if keyword is not None else value)
        length = len(keyword.arg or "") if keyword is not None else 0
        place = self.page.place(whole[0], whole[0] + length if length else whole[1])
        return Option(name, words, place, self.page.place(*whole), of)

    # --- processes

    def _process(self, node: ast.Call) -> Iterator[Launch]:
        """``subprocess.run(["lmdeploy", "serve", …])`` and ``os.system("lmdeploy serve …")``."""
        name = called(node.func)
        if name == "create_subprocess_exec":
            yield from self._started([each for item in node.args for each in self.values._item(item, 0)], node)
        elif node.args and name in PROCESSES | SHELLED:
            first = node.args[1] if name in ("execvp", "execv") and len(node.args) > 1 else node.args[0]
            fields = self.values.command(first)
            if fields is not None:
                yield from self._started(fields, node)
            elif not isinstance(first, ast.Starred):
                yield from self._shell(first, node)

    def _shell(self, first: ast.expr, node: ast.Call) -> Iterator[Launch]:
        whole = self.values.field(first)
        if "lmdeploy" not in "".join(piece.text or "" for piece in whole.pieces):
            return
        if len(whole.pieces) == 1 and whole.pieces[0].start >= 0:
            piece = whole.pieces[0]
            run = Run(self.page)
            walk(run, Mapped(piece.text or "", range(piece.start, piece.end)))
            yield from (replace(each, environment={**self.environment, **each.environment}) for each, _ in run.launches)
            return
        fields: list[Field] = []
        for each in self.values.text(first):
            if SHELL_SIGNS.search(each.known):
                break
            fields.append(each)
        yield from self._started(fields, node)

    def _started(self, fields: list[Field], node: ast.Call) -> Iterator[Launch]:
        environment = dict(self.environment)
        for keyword in node.keywords:
            for name, value in _dictionary(keyword.value) if keyword.arg == "env" else ():
                environment[name] = self.page.word(self.values.field(value))
        found = unwrap(self.page, fields, environment)
        if found.nested is not None and len(found.nested.pieces) == 1 and found.nested.pieces[0].start >= 0:
            piece: Piece = found.nested.pieces[0]
            run = Run(self.page)
            walk(run, Mapped(piece.text or "", range(piece.start, piece.end)))
            yield from (
                replace(each, environment={**found.environment, **each.environment}) for each, _ in run.launches
            )
        elif found.server:
            background = found.background or called(node.func) in ("Popen", "create_subprocess_exec")
            around = Surroundings(found.environment, found.container, background)
            made = launch(self.page, found.fields, around, found.starts)
            if made is not None:
                yield made


def _named(name: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value, value


def _dictionary(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The named values of a dictionary, whatever else it takes over."""
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if name is not None:
                yield from _named(name, value)
    elif isinstance(node, ast.Call) and called(node.func) == "dict":
        yield from ((each.arg, each.value) for each in node.keywords if each.arg)
