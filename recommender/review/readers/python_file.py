"""Read Python: ``pipeline(...)`` calls, and servers started as processes.

Only the syntax tree is read: nothing in the file is imported or run.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

from recommender.common.parse import parse_python
from recommender.common.user_file import Unreadable
from recommender.review.readers.python_values import Values, last_name
from recommender.review.script.launches import Surroundings, launch
from recommender.review.script.model import ENGINES, Comment, GivenOption, Launch, ReadProblem, Script, Word
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText
from recommender.review.script.unwrap import unwrap
from recommender.review.shell.nested import walk
from recommender.review.shell.walker import new_run

CONFIGS = frozenset({*ENGINES, "VisionConfig", "ChatTemplateConfig", "GenerationConfig", "SpeculativeConfig"})
# The positional parameters of ``lmdeploy.pipeline``.
PARAMETERS = ("model_path", "backend_config", "chat_template_config", "log_level", "max_log_len")
PROCESSES = frozenset(
    {"run", "Popen", "call", "check_call", "check_output", "execvp", "execv", "spawn", "exec_command"}
)
SHELLED = frozenset({"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"})
SHELL_SIGNS = re.compile(r"[|&;<>]")


def read(script: Script) -> Script:
    """Read a Python file."""
    page = SourceText(script)
    code = Mapped.whole(script.text).code
    try:
        tree = parse_python(code)
    except SyntaxError as error:
        return replace(script, comments=_comments(page, code), problems=(_trouble(page, error),))
    except Unreadable as error:
        problem = ReadProblem(f"this is {error}", page.place(0, 0))
        return replace(script, problems=(problem,))
    launches = tuple(sorted(_File(page, code, tree).launches(), key=lambda launch: launch.place))
    return replace(script, launches=launches, comments=_comments(page, code))


def _trouble(page: SourceText, error: SyntaxError) -> ReadProblem:
    starts = page.script.lines
    line = min(max(error.lineno or 1, 1), len(starts))
    start = starts[line - 1] + max((error.offset or 1) - 1, 0)
    return ReadProblem(f"this is not valid Python: {str(error.msg)[:200]}", page.place(start, start))


def _comments(page: SourceText, code: str) -> tuple[Comment, ...]:
    """Return the comments up to the first token error."""
    comments = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline) if "#" in code else ():
            if token.type == tokenize.COMMENT:
                start = page.script.lines[token.start[0] - 1] + token.start[1]
                comments.append(Comment(token.string.rstrip(), page.place(start, start + len(token.string.rstrip()))))
    except (tokenize.TokenError, SyntaxError, ValueError, IndexError):
        pass  # keep the comments before the error
    return tuple(comments)


@dataclass
class _Parts:
    """The configurations passed to a call, as options."""

    options: list[GivenOption] = field(default_factory=list)
    engine: str = ""
    unsure: bool = False


class _File:
    """Find what a Python file starts."""

    def __init__(self, page: SourceText, code: str, tree: ast.Module) -> None:
        self.page = page
        self.values = Values(page, code, tree)
        self.calls = [node for node in self.values.nodes if isinstance(node, ast.Call)]
        self.known, self.foreign = self._imports()
        self.used: set[int] = set()
        self.set_later = self._attributes()
        self.environment = self._environment()

    def _imports(self) -> tuple[dict[str, str], set[str]]:
        """Return names imported from LMDeploy with their origin, and other imports."""
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
        """Return later assignments such as ``config.tp = 2``, by name."""
        attributes: dict[str, list[tuple[str, ast.Assign]]] = {}
        for node in self.values.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
                target = node.targets[0]
                if isinstance(target.value, ast.Name):
                    attributes.setdefault(target.value.id, []).append((target.attr, node))
        return attributes

    # --- the environment

    def _environment(self) -> dict[str, Word]:
        environment: dict[str, Word] = {}
        for name, value in self._variables():
            word = self.page.word(self.values.field(value))
            if name in environment and environment[name].value != word.value:
                word = replace(word, value=None, written=None)
            environment[name] = word
        return environment

    def _variables(self) -> Iterator[tuple[str, ast.expr]]:
        for node in self.values.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Subscript) and last_name(target.value) == "environ":
                        yield from _named(target.slice, node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                whose, what = last_name(node.func.value), node.func.attr
                if (whose == "environ" and what == "setdefault") or (whose == "os" and what == "putenv"):
                    yield from _named(node.args[0], node.args[1]) if len(node.args) == 2 else ()
                elif whose == "environ" and what == "update":
                    yield from _dictionary(node.args[0]) if node.args else ()
                    yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)

    # --- launches

    def launches(self) -> Iterator[Launch]:
        """Yield pipelines, engines without one, and processes."""
        pipelines = [self._pipeline(node) for node in self.calls if self._is_pipeline(node)]
        generations = [node for node in self.calls if self._class(node) == "GenerationConfig"]
        for pipeline in pipelines:
            given = any(option.name.startswith("GenerationConfig.") for option in pipeline.options)
            if len(pipelines) == 1 == len(generations) and not given:
                pipeline = replace(
                    pipeline, options=(*pipeline.options, *self._keywords(generations[0], "GenerationConfig."))
                )
            yield pipeline
        for node in self.calls:
            if self._class(node) in ENGINES and id(node) not in self.used:
                parts = _Parts(unsure=True)
                self._configuration(node, parts)
                yield self._launch_of(node, None, parts)
        for node in self.calls:
            yield from self._process(node)

    def _class(self, node: ast.Call) -> str:
        """Return the configuration class that a call creates, by its LMDeploy name."""
        name = last_name(node.func)
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
        name = last_name(node.func)
        if name in self.known:
            return self.known[name] in ("pipeline", "serve")
        if name != "pipeline" or name in self.foreign:
            return False
        # A snippet without imports: only LMDeploy's pipeline takes these configurations.
        given = {keyword.arg for keyword in node.keywords}
        return "*" in self.known or bool(given & {"backend_config", "vision_config", "chat_template_config"})

    def _pipeline(self, node: ast.Call) -> Launch:
        parts = _Parts()
        given: dict[str, tuple[ast.expr, ast.keyword | None]] = {}
        for name, value in zip(PARAMETERS, node.args, strict=False):
            if isinstance(value, ast.Starred):
                parts.unsure = True
                break
            given[name] = (value, None)
        given |= {keyword.arg: (keyword.value, keyword) for keyword in node.keywords if keyword.arg}
        parts.unsure = parts.unsure or any(keyword.arg is None for keyword in node.keywords)
        model = given.pop("model_path", (None, None))[0]
        for name, (value, keyword) in given.items():
            if name.endswith("_config"):
                self._add_configuration(name, value, parts)
            else:
                parts.options.append(self._option(name, value, keyword, "pipeline"))
        return self._launch_of(node, model, parts)

    def _launch_of(self, node: ast.Call, model: ast.expr | None, parts: _Parts) -> Launch:
        return Launch(
            starts="pipeline",
            place=self.page.place(*self.values.span(node)),
            model=self.page.word(self.values.field(model)) if model is not None else None,
            options=tuple(parts.options),
            environment=self.environment,
            extra=tuple(self.page.word(self.values.field(arg)) for arg in node.args[len(PARAMETERS) :]),
            unsure=parts.unsure,
            engine=parts.engine,
        )

    def _add_configuration(self, name: str, value: ast.expr, parts: _Parts) -> None:
        """Follow a configuration: created in place, or through a name."""
        whose = ""
        for _ in range(5):
            if isinstance(value, ast.Name) and value.id in self.values.names:
                whose, value = value.id, self.values.names[value.id]
        if isinstance(value, ast.Call) and self._class(value):
            self._configuration(value, parts, whose)
        elif not (isinstance(value, ast.Constant) and value.value is None):
            parts.unsure = True

    def _configuration(self, node: ast.Call, parts: _Parts, whose: str = "") -> None:
        """Add a configuration's keywords; an engine's keep their bare names."""
        name = self._class(node)
        self.used.add(id(node))
        prefix = "" if name in ENGINES else f"{name}."
        parts.engine = name if name in ENGINES else parts.engine
        parts.unsure = parts.unsure or bool(node.args) or any(keyword.arg is None for keyword in node.keywords)
        later = dict(self.set_later.get(whose, ()))
        parts.options += [
            keyword for keyword in self._keywords(node, prefix) if keyword.name.removeprefix(prefix) not in later
        ]
        for attribute, assignment in later.items():
            start, end = self.values.span(assignment.targets[0])
            place = self.page.place(end - len(attribute), end)
            words = tuple(self.page.word(field) for field in self.values.fields(assignment.value))
            whole = self.page.place(start, self.values.span(assignment)[1])
            parts.options.append(GivenOption(prefix + attribute, words, place, whole, name))

    def _keywords(self, node: ast.Call, prefix: str) -> list[GivenOption]:
        callee = self._class(node)
        named = ((keyword.arg, keyword) for keyword in node.keywords if keyword.arg)
        return [self._option(prefix + name, keyword.value, keyword, callee) for name, keyword in named]

    def _option(self, name: str, value: ast.expr, keyword: ast.keyword | None, callee: str) -> GivenOption:
        words = tuple(self.page.word(field) for field in self.values.fields(value))
        whole = self.values.span(keyword if keyword is not None else value)
        length = len(keyword.arg or "") if keyword is not None else 0
        place = self.page.place(whole[0], whole[0] + length if length else whole[1])
        return GivenOption(name, words, place, self.page.place(*whole), callee)

    # --- processes

    def _process(self, node: ast.Call) -> Iterator[Launch]:
        """Read ``subprocess.run(["lmdeploy", …])`` and ``os.system("lmdeploy …")``."""
        name = last_name(node.func)
        if name == "create_subprocess_exec":
            words = [word for item in node.args for word in self.values.item(item)]
            yield from self._process_launches(words, node)
        elif node.args and name in PROCESSES | SHELLED:
            first = node.args[1] if name in ("execvp", "execv") and len(node.args) > 1 else node.args[0]
            fields = self.values.command(first)
            if fields is not None:
                yield from self._process_launches(fields, node)
            elif not isinstance(first, ast.Starred):
                yield from self._shell(first, node)

    def _shell(self, first: ast.expr, node: ast.Call) -> Iterator[Launch]:
        whole = self.values.field(first)
        if "lmdeploy" not in "".join(piece.text or "" for piece in whole.pieces):
            return
        if len(whole.pieces) == 1 and whole.pieces[0].start >= 0:
            yield from self._script(whole.pieces[0], self.environment)
            return
        words = takewhile(lambda word: not SHELL_SIGNS.search(word.known), self.values.text(first))
        yield from self._process_launches(list(words), node)

    def _script(self, piece: Piece, environment: Mapping[str, Word]) -> Iterator[Launch]:
        """Yield the launches of a shell text."""
        run = new_run(self.page)
        walk(run, Mapped(piece.text or "", range(piece.start, piece.end)))
        yield from (replace(server, environment={**environment, **server.environment}) for server, _ in run.launches)

    def _process_launches(self, fields: list[Field], node: ast.Call) -> Iterator[Launch]:
        environment = dict(self.environment)
        for keyword in node.keywords:
            for name, value in _dictionary(keyword.value) if keyword.arg == "env" else ():
                environment[name] = self.page.word(self.values.field(value))
        unwrapped = unwrap(self.page, fields, environment)
        if unwrapped.nested is not None and len(unwrapped.nested.pieces) == 1 and unwrapped.nested.pieces[0].start >= 0:
            yield from self._script(unwrapped.nested.pieces[0], unwrapped.environment)
        elif unwrapped.server:
            background = unwrapped.background or last_name(node.func) in ("Popen", "create_subprocess_exec")
            around = Surroundings(unwrapped.environment, unwrapped.container, background)
            server = launch(self.page, unwrapped.fields, around, unwrapped.starts)
            if server is not None:
                yield server


def _named(name: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value, value


def _dictionary(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the named values of a dictionary; skip ``**`` entries."""
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if name is not None:
                yield from _named(name, value)
    elif isinstance(node, ast.Call) and last_name(node.func) == "dict":
        yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
