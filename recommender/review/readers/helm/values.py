"""Evaluate the expressions of Helm's templates: paths of values, pipelines, and the functions that charts use most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recommender.common.pattern import pattern

TOKEN = pattern(
    r"\s*(?:(?P<text>\"(?:[^\"\\]|\\.)*\"|`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?)(?![\w.])"
    r"|(?P<path>\$?\.[\w.]*|\$\w*(?:\.[\w.]+)?)|(?P<name>\w+)|(?P<sign>[()|,]|:?=))"
)
UNKNOWN = object()
"""What the chart's values do not say."""
DEEPEST = 20
LONGEST, LONGEST_VALUE = 2000, 20_000
"""Most characters of an expression, and of its value."""
VERB = pattern(r"%[svdq%]")
Scope = Mapping[str, Any]
"""The variables of a template; the empty name is the dot."""


class Unfollowed(Exception):
    """An expression in a form that is not read."""


def evaluate(text: str, scope: Scope) -> Any:
    """Return an expression's value; UNKNOWN if the values do not determine it."""
    if len(text) > LONGEST:
        return UNKNOWN
    try:
        reader = _Expression(text, scope)
        value = reader.pipeline(0)
        return value if reader.at == len(reader.tokens) else UNKNOWN
    except (Unfollowed, ArithmeticError, TypeError, ValueError, IndexError, StopIteration):
        return UNKNOWN


def printed(value: Any) -> str | None:
    """Return a value as a template prints it; None if it is unknown or no single one."""
    if value is UNKNOWN or isinstance(value, dict | list):
        return None
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else ""
    return str(value)


class _Expression:
    """Read the tokens of one expression."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.scope = scope
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        place = 0
        while text[place:].strip():
            match = TOKEN.match(text, place)
            if match is None:
                raise Unfollowed
            self.tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            place = match.end()

    def pipeline(self, depth: int) -> Any:
        """Return the value of commands that a bar joins."""
        value = self._command([], depth)
        while self._sign("|"):
            value = self._command([value], depth)
        return value

    def _sign(self, sign: str) -> bool:
        found = self.at < len(self.tokens) and self.tokens[self.at] == ("sign", sign)
        self.at += found
        return found

    def _command(self, last: list[Any], depth: int) -> Any:
        if depth > DEEPEST or self.at >= len(self.tokens):
            raise Unfollowed
        kind, text = self.tokens[self.at]
        function = FUNCTIONS.get(text) if kind == "name" else None
        if kind == "name" and text not in CONSTANTS:
            self.at += 1
        arguments: list[Any] = []
        while self.at < len(self.tokens) and (kind_ := self.tokens[self.at])[1] not in ("|", ")"):
            if kind_[0] == "sign" and kind_[1] != "(":
                raise Unfollowed
            arguments.append(self._operand(depth))
        arguments += last
        if kind != "name" or text in CONSTANTS:
            return arguments[0] if len(arguments) == 1 else UNKNOWN
        if function is None or (UNKNOWN in arguments and text not in ("default", "coalesce")):
            return UNKNOWN
        value = function(arguments)
        return UNKNOWN if isinstance(value, str) and len(value) > LONGEST_VALUE else value

    def _operand(self, depth: int) -> Any:
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "text":
            return text[1:-1].replace('\\"', '"') if text[0] == '"' else text[1:-1]
        if kind == "number":
            return float(text) if "." in text else int(text)
        if kind == "path":
            return self._path(text)
        if kind == "name":
            return CONSTANTS.get(text, UNKNOWN)
        value = self.pipeline(depth + 1)  # in brackets
        if not self._sign(")"):
            raise Unfollowed
        return value

    def _path(self, text: str) -> Any:
        name, _, rest = text.partition(".")
        value = self.scope.get(name, UNKNOWN)
        for part in filter(None, rest.split(".")):
            if value is UNKNOWN or not isinstance(value, Mapping):
                return UNKNOWN if value is UNKNOWN else None
            value = value.get(part)
        return value


CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "nil": None}


def _default(args: Sequence[Any]) -> Any:
    return args[0] if args[-1] is UNKNOWN else args[-1] or args[0]


def _dumped(args: Sequence[Any]) -> str:
    import yaml

    return yaml.safe_dump(args[0], sort_keys=False, width=10_000).removesuffix("...\n").rstrip("\n")


def _indented(args: Sequence[Any], before: str = "") -> str:
    blank = " " * min(int(args[0]), 100)
    return before + "\n".join(f"{blank}{line}" if line else line for line in str(args[1]).split("\n"))


def _printed(args: Sequence[Any]) -> str:
    values = iter(args[1:])

    def format_verb(verb: str) -> str:
        if verb == "%%":
            return "%"
        return _quoted([next(values)]) if verb == "%q" else printed(next(values)) or ""

    return VERB.sub(lambda match: format_verb(match[0]), str(args[0]))


def _quoted(args: Sequence[Any]) -> str:
    text = (printed(args[0]) or "").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


FUNCTIONS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "default": _default,
    "coalesce": lambda args: next((value for value in args if value), None),
    "quote": _quoted,
    "squote": lambda args: f"'{printed(args[0])}'",
    "toString": lambda args: printed(args[0]),
    "int": lambda args: int(args[0] or 0),
    "int64": lambda args: int(args[0] or 0),
    "toYaml": _dumped,
    "indent": _indented,
    "nindent": lambda args: _indented(args, "\n"),
    "trim": lambda args: str(args[0]).strip(),
    "lower": lambda args: str(args[0]).lower(),
    "upper": lambda args: str(args[0]).upper(),
    "join": lambda args: str(args[0]).join(map(str, args[1])),
    "printf": _printed,
    "print": lambda args: "".join(map(str, args)),
    "not": lambda args: not args[0],
    "and": lambda args: next((value for value in args if not value), args[-1]),
    "or": lambda args: next((value for value in args if value), args[-1]),
    "eq": lambda args: args[0] in args[1:],
    "ne": lambda args: args[0] != args[1],
    "gt": lambda args: args[0] > args[1],
    "ge": lambda args: args[0] >= args[1],
    "lt": lambda args: args[0] < args[1],
    "le": lambda args: args[0] <= args[1],
    "required": lambda args: args[1],
    "hasKey": lambda args: args[1] in args[0],
    "ternary": lambda args: args[0] if args[2] else args[1],
}
