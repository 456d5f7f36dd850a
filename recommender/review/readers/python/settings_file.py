"""Look up what a program takes from outside: from a YAML, JSON or TOML file next to it, and from its environment."""

from __future__ import annotations

import ast
from collections.abc import Collection
from json import dumps
from types import EllipsisType
from typing import TYPE_CHECKING

from recommender.common.parse import parse_toml
from recommender.common.pattern import pattern
from recommender.common.user_file import Unreadable
from recommender.review.readers.python.scopes import FUNCTIONS
from recommender.review.readers.yaml_nodes import Node, UnreadableYaml, documents
from recommender.review.script import sibling_files
from recommender.review.script.python_uses import last_name
from recommender.review.script.source_map import join_pieces

if TYPE_CHECKING:
    from recommender.review.readers.python.values import Values

LOADERS = frozenset({"safe_load", "full_load", "unsafe_load", "load"})
SAME = frozenset({"to_container", "to_object", "dict", "DictConfig", "EasyDict", "Box", "Munch", "create"})
"""Functions that return the settings that they are given."""
OPENS = frozenset({"open", "read_text", "read", "read_bytes"})
FILE = pattern(r"[^\s\0]+\.(?:ya?ml|json|toml)")
NUMBER = pattern(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
DEEPEST = 8
MOST_VALUES = 400


class SettingsFile:
    """The settings of one program."""

    def __init__(self, values: Values) -> None:
        """``values`` evaluates the paths and names of the program."""
        self.values = values
        self.roots: dict[str, Node | None] = {}
        self.files: dict[int, str] = {}
        self.taken: dict[str, set[str]] | None = None
        self.busy = not any(
            last_name(node.func) in LOADERS or last_name(node.func) == "main"
            for node in values.nodes
            if isinstance(node, ast.Call)
        )

    def value(self, node: ast.expr) -> ast.expr | None:
        """Return what an expression takes from the file, at the expression's place; None for any other."""
        if self.busy:
            return None
        self.busy = True  # a path may itself be looked up
        try:
            found = self._node(node, 0)
        finally:
            self.busy = False
        return _expression(found, node, [MOST_VALUES], self._taken(node)) if found is not None else None

    def _taken(self, node: ast.expr) -> set[str]:
        """Return the keys that the program takes out of a map: ``settings.pop("model")``, ``del settings["model"]``."""
        if self.taken is None:
            self.taken = {}
            for statement in self.values.nodes:
                match statement:
                    case ast.Call(ast.Attribute(whose, "pop"), [ast.Constant(str() as key), *_]):
                        self.taken.setdefault(ast.unparse(whose), set()).add(key)
                    case ast.Delete([ast.Subscript(whose, ast.Constant(str() as key))]):
                        self.taken.setdefault(ast.unparse(whose), set()).add(key)
        return self.taken.get(ast.unparse(node), set()) if self.taken else set()

    def _node(self, node: ast.expr, depth: int) -> Node | None:
        if depth > DEEPEST:
            return None
        scopes, below = self.values.scopes, depth + 1
        match node:
            case ast.Name():
                value = scopes.find(node)
                return self._node(value, below) if value is not None else self._of_hydra(node)
            case ast.Subscript(whose, ast.Constant(str() as key)):
                return self._entry(self._node(whose, below), key)
            case ast.Call(ast.Attribute(whose, "get" | "pop"), [ast.Constant(str() as key), *_]):
                return self._entry(self._node(whose, below), key)
            case ast.Attribute(whose, key):
                held = scopes.attribute(node)
                return self._node(held, below) if held is not None else self._entry(self._node(whose, below), key)
            case ast.Call(called, [first, *_]) if last_name(called) in LOADERS:
                return self._file(self._path(first, depth))
            case ast.Call(called, [first, *_]) if last_name(called) in SAME:
                return self._node(first, below)
            case ast.Call() if (returned := scopes.returned(node)) is not None:
                return self._node(returned, below)
        return None

    def _path(self, node: ast.expr, depth: int) -> str:
        """Return the path of the file that an expression opens or reads; empty if unknown."""
        if depth > DEEPEST:
            return ""
        match node:
            case ast.Name(name):
                around: ast.AST | None = node
                while (around := self.values.scopes.parents.get(id(around))) is not None:
                    for item in around.items if isinstance(around, ast.With) else ():
                        if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == name:
                            return self._path(item.context_expr, depth + 1)
            case ast.Call(ast.Name("open"), [first, *_]):
                return self._path(first, depth + 1)
            case ast.Call(ast.Attribute(whose, called)) if called in OPENS:
                return self._path(whose, depth + 1)
            case ast.Call(ast.Attribute(_, "with_name"), [first]):
                return self._path(first, depth + 1)
        pieces = list(self.values.pieces(node))
        unknown = max((at for at, piece in enumerate(pieces) if piece.text is None), default=-1)
        path = (join_pieces(pieces[unknown + 1 :]) or "").lstrip("/" if unknown >= 0 else "")
        return path if FILE.fullmatch(path) else ""

    def _of_hydra(self, name: ast.Name) -> Node | None:
        """Return the settings that ``@hydra.main(config_path=…, config_name=…)`` passes to a function."""
        scope = self.values.scopes.at.get(id(name))
        function = scope.function if scope is not None else None
        if not isinstance(function, FUNCTIONS) or name.id not in [argument.arg for argument in function.args.args[:1]]:
            return None
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and last_name(decorator.func) == "main":
                given = {
                    word.arg: word.value.value
                    for word in decorator.keywords
                    if isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
                }
                file = given.get("config_name", "").removesuffix(".yaml")
                return self._file(f"{given.get('config_path', '.')}/{file}.yaml") if file else None
        return None

    def _file(self, path: str) -> Node | None:
        """Return the root of a file beside the program."""
        if path and path not in self.roots:
            source = sibling_files.read(self.values.page.script.path, path)
            try:
                text = source.text if source is not None else ""
                # JSON is YAML.
                text = dumps(parse_toml(text), default=str) if path.endswith(".toml") else text
                roots = documents(text)
            except (UnreadableYaml, Unreadable):
                roots = []
            self.roots[path] = roots[0] if len(roots) == 1 else None
            self.files |= {id(root): path for root in roots}
        return self.roots.get(path)

    def _entry(self, node: Node | None, key: str) -> Node | None:
        """Return what a map holds under a key: itself, or the file of a group that Hydra's defaults name."""
        if node is None or node.kind != "map":
            return None
        listed = node.get("defaults") if id(node) in self.files else None
        groups = {name.text: value.text for item in (listed.items if listed else ()) for name, value in item.pairs}
        if (own := node.get(key)) is not None or key not in groups:
            return own
        folder = self.files[id(node)].rpartition("/")[0]
        return self._file(f"{folder or '.'}/{key}/{groups[key].removesuffix('.yaml')}.yaml")


def _expression(node: Node, at: ast.expr, budget: list[int], skipped_keys: Collection[str] = ()) -> ast.expr:
    """Return a node as an expression of Python with the place of another one, without the keys that are taken."""
    budget[0] -= 1
    expression: ast.expr
    if budget[0] < 0:
        expression = ast.Constant(...)
    elif node.kind == "map":
        pairs = [(name, value) for layer in reversed(list(node.layers())) for name, value in layer.pairs]
        known = {name.text: value for name, value in pairs if name.value not in (None, "<<", *skipped_keys)}
        keys = [ast.copy_location(ast.Constant(name), at) for name in known]
        expression = ast.Dict(list(keys), [_expression(value, at, budget) for value in known.values()])
    elif node.kind == "list":
        expression = ast.List([_expression(item, at, budget) for item in node.items], ast.Load())
    else:
        expression = ast.Constant(_scalar(node))
    return ast.copy_location(expression, at)


def _scalar(node: Node) -> str | int | float | EllipsisType | None:
    """Return a scalar as YAML means it; one with a reference to another is unknown."""
    text = node.text
    if "${" in text:
        return ...
    if node.style in ("'", '"', "|", ">"):
        return text
    if text.casefold() in WORDS:
        return WORDS[text.casefold()]
    if NUMBER.fullmatch(text):
        plain = text.replace("_", "")
        return int(plain) if plain.lstrip("+-").isdecimal() else float(plain)
    return text


def environment_name(node: ast.expr) -> str:
    """Return the variable that ``os.environ.get`` or ``os.getenv`` reads."""
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
        return ""
    name = node.args[0].value
    asks = last_name(node.func) == "getenv" or (
        isinstance(node.func, ast.Attribute) and node.func.attr == "get" and last_name(node.func.value) == "environ"
    )
    return name if asks and isinstance(name, str) else ""
