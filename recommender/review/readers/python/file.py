"""Read Python: ``pipeline(...)`` calls, and servers started as processes.

Only the syntax tree is read: nothing in the file is imported or run.
"""

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import replace

from recommender.common.parse import parse_python
from recommender.common.user_file import Unreadable
from recommender.review.readers.python.changes import dictionary, dotted, dumped, of_caller, unknown_parts
from recommender.review.readers.python.environment import Environment
from recommender.review.readers.python.imports import imports, modules
from recommender.review.readers.python.lists import ends_before, in_loop
from recommender.review.readers.python.parts import Later, Parts, alternatives, classes, merged, replaced, with_parts
from recommender.review.readers.python.processes import Processes
from recommender.review.readers.python.shared import names_of, root
from recommender.review.readers.python.tables import rows
from recommender.review.readers.python.values import Values
from recommender.review.script.model import (
    ENGINES,
    Comment,
    Container,
    GivenOption,
    Launch,
    ReadProblem,
    Script,
    Span,
    Word,
)
from recommender.review.script.python_uses import last_name
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText

CONFIGS = frozenset({*ENGINES, "VisionConfig", "ChatTemplateConfig", "GenerationConfig", "SpeculativeConfig"})
# The positional parameters of ``lmdeploy.pipeline``.
PARAMETERS = ("model_path", "backend_config", "chat_template_config", "log_level", "max_log_len")
POSITIONAL = {"ChatTemplateConfig": ("model_name",)}
"""The first parameters of a configuration class, where they are the same in each release."""
STARTS = ("pipeline", "Pipeline", "serve", "AsyncEngine", "VLAsyncEngine")
"""Functions and classes of LMDeploy that load a model in some release."""
TAKEN = frozenset(
    {*PARAMETERS, "trust_remote_code", "speculative_config", "allowed_media_domains", "vision_config", "model_name"}
)
"""What ``pipeline`` and the engines below it read; they drop any other keyword."""


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
    file = _File(page, code, tree)
    started = sorted(file.launches(), key=lambda launch: launch.place)
    return replace(
        script,
        launches=tuple(launch for launch in started if launch.starts != "tool"),
        tools=tuple(launch for launch in started if launch.starts == "tool"),
        followed=(*file.values.followed, *file.processes.inert_ranges()),
        comments=_comments(page, code),
        assignments=file.environment.late(),
    )


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


class _File:
    """Find what a Python file starts."""

    def __init__(self, page: SourceText, code: str, tree: ast.Module) -> None:
        self.page = page
        self.values = Values(page, code, tree)
        self.calls = [node for node in self.values.nodes if isinstance(node, ast.Call)]
        self.known, self.foreign = imports(self.values)
        self.used: set[int] = set()
        self.use: ast.expr | None = None
        """Where a pipeline takes the configuration that is read."""
        self.chosen: dict[str, list[Span]] = {}
        """The pipelines that are known but for their configuration, by its name."""
        self.environment = Environment(page, self.values)
        self.processes = Processes(page, self.values, self.environment)

    # --- launches

    def launches(self) -> Iterator[Launch]:
        """Yield pipelines, engines without one, and processes."""
        pipelines = {launch.place: launch for launch in self._pipelines()}
        whole = dict(pipelines)
        for node in self.calls:
            if self._class(node) in ENGINES and id(node) not in self.used:
                places = self._choosing(node)
                parts = Parts(unsure=len(places) != 1)
                self._configuration(node, parts)
                if len(places) != 1:
                    yield self._launch_of(node, None, parts)
                    continue
                pipelines.pop(places[0], None)
                yield with_parts(whole[places[0]], parts)
        yield from pipelines.values()
        yield from self.processes.launches()
        yield from modules(self.page, self.values)

    def _pipelines(self) -> Iterator[Launch]:
        found = [self._of_table(node) or self._pipeline(node) for node in self.calls if self._is_pipeline(node)]
        generations = [node for node in self.calls if self._class(node) == "GenerationConfig"]
        for pipeline in found:
            given = any(option.name.startswith("GenerationConfig.") for option in pipeline.options)
            if len(found) == 1 == len(generations) and not given:
                parts = Parts()
                self._configuration(generations[0], parts)
                pipeline = pipeline._replace(options=(*pipeline.options, *parts.options))
            yield pipeline

    def _of_table(self, node: ast.Call) -> Launch | None:
        """Return what a call starts if its model stands in the rows of a table; None if it does not."""
        made: list[Launch] = []
        for turn in rows(self.values.scopes, node):
            self.values.bound = turn
            made.append(self._pipeline(node))
        self.values.bound = {}
        whole = bool(made) and all(each.model is not None and each.model.value for each in made)
        return made[0]._replace(alternatives=tuple(made[1:])) if whole else None

    def _choosing(self, node: ast.Call) -> list[Span]:
        """Return the pipelines whose configuration is a name that a branch assigns."""
        scopes = self.values.scopes
        scope = scopes.at.get(id(node))
        returned = f"{scope.function.name}()" if scope is not None and scope.function is not None else ""
        names = [dotted(each) for each in names_of(scopes, node)]
        return next((self.chosen[name] for name in (*names, returned) if name in self.chosen), [])

    def _class(self, node: ast.Call) -> str:
        """Return the configuration class that a call creates, by its LMDeploy name; the first of several."""
        name = last_name(node.func)
        name = self.known.get(name, name) if isinstance(node.func, ast.Name) else name
        if name in CONFIGS:
            return "" if isinstance(node.func, ast.Name) and node.func.id in self.foreign else name
        return next(iter(self._engines(node)), "")

    def _engines(self, node: ast.Call) -> list[str]:
        """Return the engines' classes among which a run chooses the one that a call creates."""
        chosen = classes(self.values, node.func)
        names = (self.known.get(each.id, "") if isinstance(each, ast.Name) else last_name(each) for each in chosen)
        return [name for name in dict.fromkeys(names) if name in ENGINES]

    def _is_pipeline(self, node: ast.Call) -> bool:
        if isinstance(node.func, ast.Attribute):
            whose = node.func.value
            return (
                node.func.attr in STARTS
                and isinstance(whose, ast.Name)
                and (self.known.get(whose.id) == "lmdeploy" or whose.id == "lmdeploy")
            )
        name = last_name(node.func)
        if name in self.known:
            return self.known[name] in STARTS
        if name != "pipeline" or name in self.foreign:
            return False
        # A snippet without imports: only LMDeploy's pipeline takes these configurations.
        given = {keyword.arg for keyword in node.keywords}
        return "*" in self.known or bool(given & {"backend_config", "vision_config", "chat_template_config"})

    def _pipeline(self, node: ast.Call) -> Launch:
        parts = Parts()
        given: dict[str, tuple[ast.expr, ast.keyword | None]] = {}
        called = last_name(node.func)
        engine = self.known.get(called, called).endswith("Engine")  # below a pipeline: it takes more
        for name, value in zip(PARAMETERS[:1] if engine else PARAMETERS, node.args, strict=False):
            if isinstance(value, ast.Starred):
                parts.unsure = True
                break
            given[name] = (value, None)
        for name, value, keyword in self._given(node, parts):
            given[name] = (value, keyword)
        model = given.pop("model_path", (None, None))[0]
        unknown: list[ast.expr] = []
        gone = self.known.get(called, called) == "serve"  # old releases: a function that starts a server
        for name, (value, keyword) in given.items():
            if name not in TAKEN and not (gone or engine):
                self._add_configuration(value, Parts())  # it is read, but has no effect
                lost = self._option(f"pipeline.{name}", value, keyword, "pipeline")
                parts.options.append(lost._replace(values=()))
            elif name.endswith("_config"):
                if not self._add_configuration(value, parts):
                    unknown.append(value)
            else:
                parts.options.append(self._option(name, value, keyword, "pipeline"))
        place = self.page.place(*self.values.span(node.func))
        if len(unknown) == 1 and not parts.unsure:
            called = f"{last_name(unknown[0].func)}()" if isinstance(unknown[0], ast.Call) else dotted(unknown[0])
            self.chosen.setdefault(called, []).append(self.page.place(*self.values.span(node)))
        parts.unsure = parts.unsure or bool(unknown)
        launch = self._launch_of(node, model, parts)
        return launch._replace(instead=Word("serve", "serve", place)) if gone else launch

    def _launch_of(self, node: ast.Call, model: ast.expr | None, parts: Parts) -> Launch:
        launch = Launch(
            starts="pipeline",
            place=self.page.place(*self.values.span(node)),
            model=self.page.model(self.values.field(model)) if model is not None else None,
            options=tuple(parts.options),
            environment=self.environment.at(node if self._is_pipeline(node) else None),
            extra=tuple(self.page.word(self.values.field(arg)) for arg in node.args[len(PARAMETERS) :]),
            unsure=parts.unsure,
            unread=tuple(parts.unread),
            container=self._actor(node),
            engine=parts.engine,
        )
        return launch._replace(alternatives=tuple(alternatives(launch, parts)))

    def _actor(self, node: ast.Call) -> Container | None:
        """Return the GPUs of the actor around a call: ``@ray.remote(num_gpus=1)`` limits what it sees."""
        around: ast.AST | None = node
        while around is not None:
            for decorator in around.decorator_list if isinstance(around, ast.ClassDef | ast.FunctionDef) else ():
                given = {word.arg: word.value for word in decorator.keywords} if isinstance(decorator, ast.Call) else {}
                options = given.get("ray_actor_options")
                cards = given.get("num_gpus") or (dict(dictionary(options)).get("num_gpus") if options else None)
                if isinstance(cards, ast.Constant) and isinstance(cards.value, int):
                    return Container(self.page.place(*self.values.span(decorator)), gpus=cards.value, shm_known=False)
            around = self.values.scopes.parents.get(id(around))
        return None

    def _add_configuration(self, value: ast.expr, parts: Parts) -> bool:
        """Follow a configuration, created in place or through a name; return whether that worked."""
        self.use, copies = value, list[ast.expr]()
        for _ in range(6):
            found = self.values.resolve(value) if isinstance(value, ast.Name | ast.Attribute) else None
            if found is not None:
                value = found
            elif (base := replaced(value)) is not None:
                copies.append(value)
                value = base
        if isinstance(value, ast.Call) and self._class(value):
            self._configuration(value, parts, copies)
            self.use = None
            return True
        return isinstance(value, ast.Constant) and value.value is None

    def _configuration(self, node: ast.Call, parts: Parts, copies: Sequence[ast.expr] = ()) -> None:
        """Add a configuration's keywords, and those of copies of it; an engine's keep their bare names."""
        name = self._class(node)
        self.used.add(id(node))
        prefix = "" if name in ENGINES else f"{name}."
        parts.engine = name if name in ENGINES else parts.engine
        parts.others += self._engines(node)[1:] if name in ENGINES else ()
        positional = POSITIONAL.get(name, ())
        parts.unsure = parts.unsure or len(node.args) > len(positional)
        placed = zip(positional, node.args, strict=False)
        given = {key: self._option(prefix + key, value, None, name) for key, value in placed}
        given |= {key: self._option(prefix + key, value, word, name) for key, value, word in self._given(node, parts)}
        scopes = self.values.scopes
        whole = [node, *(root(scopes, word.value) or word.value for word in node.keywords if word.arg is None)]
        later = self._later(
            node, [dotted(name) for argument in whole for name in names_of(scopes, argument)], prefix, parts
        )
        given = merged(given, later.pop(self.values.scopes.block(node), {}))
        for copy in reversed([call for call in copies if isinstance(call, ast.Call)]):
            changed = list(self._given(copy, parts))
            given |= {key: self._option(prefix + key, value, word, name) for key, value, word in changed}
        base, *others = sorted([given, *(merged(given, block) for block in later.values())], key=len, reverse=True)
        parts.options += base.values()
        parts.branches += [(list(base.values()), list(other.values())) for other in others]

    def _later(self, node: ast.Call, names: list[str], prefix: str, parts: Parts) -> Later:
        """Return what the function around a call changes in a configuration, or in its keywords, by block."""
        blocks: Later = {}
        scopes = self.values.scopes
        here = scopes.block(node)
        changes = self.processes.changes
        given = [(name, change) for name in dict.fromkeys(names) if name for change in changes.get(name, ())]
        given.sort(key=lambda pair: (pair[1].statement.lineno, pair[1].statement.col_offset))
        for name, change in given:
            if "." not in name and scopes.at[id(change.statement)] is not scopes.at[id(node)]:
                continue
            if self._is_late(change.statement):
                continue
            words = tuple(self.page.word(field) for field in self.values.fields(change.value))
            block = scopes.block(change.statement)
            if not change.name or (block != here and not change.gone and any(word.value is None for word in words)):
                parts.unsure = parts.unsure or not change.name
                if not change.name and not of_caller(self.values, change.value):
                    parts.unread.append(self.page.word(Field((Piece(None),), *change.whole)))
                continue  # what a branch sets to something unknown is left out
            place, whole = self.page.place(*change.place), self.page.place(*change.whole)
            option = GivenOption(prefix + change.name, words, place, whole, self._class(node))
            blocks.setdefault(block, {})[change.name] = None if change.gone else option
        return blocks

    def _is_late(self, statement: ast.stmt) -> bool:
        """Return whether a statement stands behind the pipeline that takes a configuration, in the same function."""
        scopes, use = self.values.scopes, self.use
        same = use is not None and scopes.at.get(id(use)) is scopes.at.get(id(statement))
        return use is not None and same and not ends_before(statement, use) and not in_loop(scopes, use)

    def _given(self, node: ast.Call, parts: Parts) -> Iterator[tuple[str, ast.expr, ast.keyword | None]]:
        """Yield a call's keywords, those of ``**options`` included; an unknown dictionary may hold any."""
        for keyword in node.keywords:
            if keyword.arg:
                yield keyword.arg, keyword.value, keyword
                continue
            whole = self.values.resolve(keyword.value) or keyword.value
            whole = dumped(self.values, whole) or whole
            pairs = list(dictionary(whole, self.values))
            empty = isinstance(whole, ast.Dict) and not whole.keys
            if not pairs and not empty:
                parts.unsure = True
                parts.unread.append(self.page.word(self.values.field(keyword.value)))
            for part in unknown_parts(whole, self.values):
                parts.unsure = True
                parts.unread += () if of_caller(self.values, part) else [self.page.word(self.values.field(part))]
            yield from ((name, value, None) for name, value in pairs)

    def _option(self, name: str, value: ast.expr, keyword: ast.keyword | None, callee: str) -> GivenOption:
        words = tuple(self.page.word(field) for field in self.values.fields(value))
        whole = self.values.span(keyword if keyword is not None else value)
        length = len(keyword.arg or "") if keyword is not None else 0
        place = self.page.place(whole[0], whole[0] + length if length else whole[1])
        return GivenOption(name, words, place, self.page.place(*whole), callee)
