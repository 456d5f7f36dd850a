"""Resolve the names of a Python file: by function, with parameters, argparse defaults and lists that grow."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from recommender.review.readers.python.growth import Growth, grown_by, key_of
from recommender.review.script.python_uses import last_name

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
REMOTE = frozenset({"remote", "bind"})
STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Expr, ast.For, ast.Return)
SEVERAL = (ast.Tuple, ast.List)
DEEPEST = 5
NAMED = (*FUNCTIONS, ast.ClassDef)
DECLARES = frozenset({"add_argument", "option"})
"""Calls that declare an option: of argparse, and of click, where a function takes it as a parameter."""
PARSED = frozenset({"parse_args", "parse_known_args", "parse_args_into_dataclasses"})
DECLARED = frozenset({"Field", "field", "ib", "attrib", "Option", "Argument"})
"""Calls that set the default of a field (pydantic, dataclasses, attrs) or of a parameter (typer)."""
USUAL = frozenset({"args", "opt", "opts", "options", "arguments", "cli_args", "flags", "ns", "namespace"})
"""Names of parsed arguments, where a function takes them as a parameter."""


@dataclass
class Scope:
    """The names that a function, or the module, binds."""

    parent: "Scope | None"
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    owner: str = ""
    """The class of a method."""
    times: Counter[str] = field(default_factory=Counter)
    values: dict[str, tuple[ast.expr, int]] = field(default_factory=dict)
    """The expression that a name is set to last, and the block of the statement."""
    earlier: dict[str, list[tuple[ast.expr, int]]] = field(default_factory=dict)
    """All expressions that a name is set to, in order, each with its block."""


class Scopes:
    """The scopes of one file, and what its parsers and attributes default to."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = []
        self.at: dict[int, Scope] = {}
        self.attributes: dict[str, list[ast.expr]] = {}
        self.assigned: list[tuple[ast.expr, ast.expr]] = []
        """The names and attributes that are set, each with its value."""
        self.arguments: dict[str, list[ast.expr | None]] = {}
        self.calls: dict[str, list[ast.Call]] = {}
        self.functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self.parents: dict[int, ast.AST] = {}
        self.growth: dict[str, list[tuple[Growth, Scope]]] = {}
        """What changes a name or an attribute after it was set, and where."""
        self.blocks: dict[int, int] = {}
        """The block of each assignment or call, and of each name's use."""
        self.results: dict[str, ast.expr | None] = {}
        self.fields: dict[str, dict[str, ast.expr]] = {}
        """The values that classes give to their fields."""
        self.site: ast.Call | None = None
        """The call of a function that is looked at, where there are several."""
        self._visit(tree)

    def _visit(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, Scope, int, str]] = [(tree, Scope(None), 0, "")]
        while stack:
            node, scope, block, owner = stack.pop()
            self.nodes.append(node)
            self.at[id(node)] = scope
            if isinstance(node, (ast.Name, *STATEMENTS)):
                self.blocks[id(node)] = block
            self._bind(node, scope, block)
            inner = Scope(scope, node, owner) if isinstance(node, FUNCTIONS) else scope
            owner = node.name if isinstance(node, ast.ClassDef) else owner
            children: list[tuple[ast.AST, Scope, int, str]] = []
            for name, value in ast.iter_fields(node):
                below = inner if isinstance(node, FUNCTIONS) and name in ("body", "args") else scope
                here = id(value) if isinstance(value, list) and name in ("body", "orelse", "finalbody") else block
                for child in value if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST):
                        self.parents[id(child)] = node
                        children.append((child, below, here, owner))
            stack += reversed(children)

    def _bind(self, node: ast.AST, scope: Scope, block: int) -> None:
        if isinstance(node, ast.stmt) and (target := grown_by(node)) is not None:
            self.growth.setdefault(key_of(target), []).append((Growth(node, target, block), scope))
            if isinstance(target, ast.Name) and not isinstance(target.ctx, ast.Load):
                scope.times[target.id] -= 1
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None:
                for target in targets:
                    self._assign(target, node.value, scope, block)
        elif isinstance(node, FUNCTIONS):
            self.functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            given = (statement for statement in node.body if isinstance(statement, ast.Assign | ast.AnnAssign))
            named = (
                (statement.targets[0] if isinstance(statement, ast.Assign) else statement.target, statement.value)
                for statement in given
            )
            self.fields[node.name] = {name.id: value for name, value in named if isinstance(name, ast.Name) and value}
        if isinstance(node, ast.Call):
            self._call(node)
        scope.times.update(_binds(node))

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope, block: int) -> None:
        if isinstance(target, ast.Name | ast.Attribute):
            self.assigned.append((target, value))
        if isinstance(target, ast.Name):
            scope.values[target.id] = value, block
            scope.earlier.setdefault(target.id, []).append((value, block))
        elif isinstance(target, SEVERAL) and isinstance(value, SEVERAL) and _pair(target, value):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, its, scope, block)
        elif isinstance(target, ast.Tuple) and target.elts and isinstance(target.elts[0], ast.Name):
            if isinstance(value, ast.Call) and last_name(value.func) == "parse_known_args":
                scope.values[target.elts[0].id] = value, block
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            self.attributes.setdefault(target.attr, []).append(value)

    def _call(self, node: ast.Call) -> None:
        name = last_name(node.func)
        self.calls.setdefault(name, []).append(node)
        if name in REMOTE and isinstance(node.func, ast.Attribute):  # Ray: Class.remote() creates an object
            self.calls.setdefault(last_name(node.func.value), []).append(node)
        if name in DECLARES:
            given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            long = next((text for text in texts if text.startswith("--")), texts[0] if texts else "")
            named = given.get("dest")
            name = str(named.value) if isinstance(named, ast.Constant) else long.lstrip("-").replace("-", "_")
            self.arguments.setdefault(name, []).append(given.get("default"))

    # --- look-up

    def find(self, name: ast.Name) -> ast.expr | None:
        """Return the one expression that a name stands for; None if there is none."""
        scope: Scope | None = self.at.get(id(name))
        while scope is not None:
            if name.id in scope.values and scope.times[name.id] == 1:
                return scope.values[name.id][0]
            if scope.times[name.id]:
                return self._before(scope, name)
            if scope.function is not None and any(arg.arg == name.id for arg in parameters(scope.function)):
                return self._argument(scope, name.id)
            if scope.function is not None and scope.function.args.kwarg and scope.function.args.kwarg.arg == name.id:
                return self._other_arguments(scope)
            scope = scope.parent
        return None

    def _other_arguments(self, scope: Scope) -> ast.expr | None:
        """Return what ``**options`` of a function holds, as a dictionary: of its only call."""
        function, calls = scope.function, self.sites(scope)
        if function is None or len(calls) != 1 or len(self.functions[function.name]) > 1:
            return None
        names = {each.arg for each in parameters(function)}
        given = [word for word in calls[0].keywords if word.arg not in names]
        keys = [ast.Constant(word.arg) if word.arg else None for word in given]
        return ast.copy_location(ast.Dict(list(keys), [word.value for word in given]), calls[0])

    def _before(self, scope: Scope, name: ast.Name) -> ast.expr | None:
        """Return the last of several values, if the block of a use sets it and nothing else may set the name."""
        given = scope.earlier.get(name.id, [])
        if len(given) != scope.times[name.id]:  # a loop or an import sets it too
            return None
        before = [each for each in given if _end(each[0]) <= (name.lineno, name.col_offset)]
        here = self.at.get(id(name)) is scope and before and before[-1][1] == self.blocks.get(id(name))
        return before[-1][0] if here else None

    def block(self, node: ast.AST) -> int:
        """Return the block of the assignment or call around a node; 0 if there is none."""
        around: ast.AST | None = node
        while around is not None and not isinstance(around, STATEMENTS):
            around = self.parents.get(id(around))
        return self.blocks.get(id(around), 0)

    def sites(self, scope: Scope) -> list[ast.Call]:
        """Return the calls of a scope's function; of ``__init__``, those of its class."""
        name = scope.function.name if scope.function else ""
        return self.calls.get(scope.owner if name == "__init__" else name, [])

    def _argument(self, scope: Scope, name: str) -> ast.expr | None:
        """Return what a parameter stands for: the argument of the only call, else its default."""
        function = scope.function
        assert function is not None
        calls = self.sites(scope)
        calls = [self.site] if self.site in calls else calls
        if len(calls) > 1 or (len(self.functions[function.name]) > 1 and function.name != "__init__"):
            return None
        parameters = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        at = parameters.index(name) if name in parameters else -1
        if calls:
            given = next((keyword.value for keyword in calls[0].keywords if keyword.arg == name), None)
            at -= bool(scope.owner and parameters[:1] in (["self"], ["cls"])) if at >= 0 else 0
            positional = calls[0].args[at] if 0 <= at < len(calls[0].args) else None
            spread = [arg.value for arg in calls[0].args if isinstance(arg, ast.Starred)]
            starred = any("argv" not in ast.unparse(value) for value in spread)  # a program's own words may be missing
            positional = None if spread else positional
            hidden = any(keyword.arg is None for keyword in calls[0].keywords)
            if given is not None or (positional is not None and not starred):
                return given if given is not None else positional
            if starred or hidden:
                return None
        defaults = dict(zip(reversed(parameters), reversed(function.args.defaults), strict=False))
        defaults |= {
            arg.arg: value
            for arg, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
            if value is not None
        }
        declared = self.arguments.get(name, []) if function.decorator_list else []
        return _declared(defaults.get(name)) or (declared[0] if len(declared) == 1 and name in parameters else None)

    def attribute(self, node: ast.Attribute) -> ast.expr | None:
        """Return what ``args.x`` or ``self.x`` stands for."""
        whose = node.value
        values = self.attributes.get(node.attr, [])
        if isinstance(whose, ast.Name) and whose.id == "self" and len(values) == 1:
            return values[0]
        if (owner := self._class_of(whose)) in self.fields:
            return self._field(owner, node.attr)
        defaults = self.arguments.get(node.attr, [])
        parsed = isinstance(whose, ast.Name) and len(defaults) == 1 and self._is_parsed(whose)
        return defaults[0] if parsed else None

    def _class_of(self, name: ast.expr) -> str:
        """Return the class of an object: of ``self``, of a parameter by its annotation, or as it was created."""
        scope: Scope | None = self.at.get(id(name))
        if isinstance(name, ast.Name) and name.id == "self":
            return scope.owner if scope else ""
        if isinstance(name, ast.Attribute) and (class_name := self._made_in(name)):
            return class_name
        value: ast.expr | None = name
        for _ in range(DEEPEST):
            if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
                value = value.values[-1]
            elif isinstance(value, ast.Attribute):
                held = self.attributes.get(value.attr, [])
                value = held[0] if len(held) == 1 and isinstance(value.value, ast.Name) else None
            elif isinstance(value, ast.Name) and (found := self.find(value)) is not None:
                value = found
        if isinstance(value, ast.Call):
            given = [*value.args, *(keyword.value for keyword in value.keywords)]  # tyro.cli(Settings)
            classes = [called for argument in given if (called := last_name(argument)) in self.fields]
            class_name = last_name(value.func)
            return classes[0] if class_name not in self.fields and len(classes) == 1 else class_name
        name = value if isinstance(value, ast.Name) else name
        if not isinstance(name, ast.Name):
            return ""
        scope = self.at.get(id(name))
        while scope is not None:
            for parameter in parameters(scope.function) if scope.function else ():
                if parameter.arg == name.id and parameter.annotation is not None:
                    return last_name(parameter.annotation)
            scope = scope.parent
        return ""

    def _made_in(self, name: ast.Attribute) -> str:
        """Return the class of a field that another class of the file creates: ``field(default_factory=Engine)``."""
        made = self.fields.get(self._class_of(name.value), {}).get(name.attr)
        if not isinstance(made, ast.Call):
            return ""
        factory = next((keyword.value for keyword in made.keywords if keyword.arg == "default_factory"), made.func)
        return last_name(factory) if last_name(factory) in self.fields else ""

    def _field(self, owner: str, name: str) -> ast.expr | None:
        """Return the value of a class's field; None if an object is created with another."""
        calls = self.calls.get(owner, [])
        given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == name]
        unknown = any(call.args for call in calls)  # what ``**options`` may hold is up to the caller, as a default is
        if unknown or name in self.attributes or len(given) > 1 or (given and len(calls) > 1):
            return None
        return given[0] if given else _declared(self.fields[owner].get(name))

    def fields_of(self, node: ast.expr) -> dict[str, ast.expr]:
        """Return the values of an object's fields that are known."""
        owner = self._class_of(node)
        found = {name: self._field(owner, name) for name in self.fields.get(owner, ()) if name != "model_config"}
        return {name: value for name, value in found.items() if value is not None}

    def _is_parsed(self, name: ast.Name) -> bool:
        value = self.find(name)
        for _ in range(3):
            if isinstance(value, ast.Call) and last_name(value.func) in PARSED:
                return True
            value = self.returned(value) if isinstance(value, ast.Call) else None
        return name.id in USUAL

    def returned(self, call: ast.Call) -> ast.expr | None:
        """Return the expression that a call of one of the file's functions returns; None if there are several."""
        name = last_name(call.func)
        functions = self.functions.get(name, [])
        if name not in self.results:
            returns = (node for function in functions for node in ast.walk(function) if isinstance(node, ast.Return))
            values = [node.value for node in returns if node.value is not None]
            self.results[name] = values[0] if len(values) == 1 == len(functions) else None
        return self.results[name]

    def binding(self, name: ast.Name) -> Scope | None:
        """Return the scope whose value, or whose parameter, a name is."""
        scope = self.at.get(id(name))
        while scope is not None and name.id not in scope.values:
            if scope.function is not None and any(arg.arg == name.id for arg in parameters(scope.function)):
                return scope
            scope = scope.parent
        return scope


def _declared(value: ast.expr | None) -> ast.expr | None:
    """Return the default within ``Field(8192, ge=1)`` and its like; any other value as it is."""
    if not isinstance(value, ast.Call) or last_name(value.func) not in DECLARED:
        return value
    default = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
    if default is None and value.args:
        default = value.args[0]
    required = isinstance(default, ast.Constant) and default.value is ...
    return value if default is None or required else default


def _pair(target: ast.Tuple | ast.List, value: ast.Tuple | ast.List) -> bool:
    """Return whether each target gets one of the values."""
    starred = any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts))
    return len(target.elts) == len(value.elts) and not starred


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.arg]:
    """Yield the parameters of a function, ``*args`` and ``**options`` aside."""
    yield from (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)


def _binds(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds, parameters aside."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, NAMED):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from (name for name in node.names for _ in range(2))


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
