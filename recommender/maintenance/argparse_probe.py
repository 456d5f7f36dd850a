"""Read the argparse parser of an unpacked LMDeploy without its dependencies.

Run by a bare interpreter: ``python -I -S argparse_probe.py FOLDER OUTPUT``. Every module
that is neither LMDeploy's nor the standard library's is replaced by a stand-in; then the
options of ``lmdeploy serve api_server``, and of the other commands, are written to OUTPUT as
JSON. It runs in its own process to keep the caller's modules clean, and uses the standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import importlib.abc
import importlib.machinery
import io
import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

PLAIN = {None: "str", str: "str", int: "int", float: "float", json.loads: "json"}
PROBED_NUMBERS = range(-1, 1025)
OWN_GROUPS = {"positional arguments", "options", "optional arguments"}


class Standin:
    """Replaces any third-party object: it can be called, subclassed and compared."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a decorated class or function unchanged; else another stand-in."""
        if len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType)):
            return args[0]
        return Standin()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Standin()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __or__(self, other: object) -> Any:
        return Standin()

    __getitem__ = __ror__ = __add__ = __radd__ = __sub__ = __mul__ = __truediv__ = __and__ = __or__

    def __lt__(self, other: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class StandinModule(types.ModuleType):
    """A module with every name, each a stand-in."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__all__: list[str] = []
        self.__version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Standin()


class StandinFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds, last of all finders, what is neither the standard library's nor LMDeploy's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Give a stand-in's specification, or None for the standard library and LMDeploy."""
        top = fullname.partition(".")[0]
        if top == "lmdeploy" or top in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make the stand-in."""
        return StandinModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: a stand-in has no code."""


def text_of(value: object, convert: object) -> str:
    """Write a default or a choice as the text that argparse would parse; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(int(value.value)) if convert is int else value.name
    if isinstance(value, (list, tuple)):
        return " ".join(text_of(item, convert) for item in value)
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, Standin):
        raise TypeError("a default or choice comes from a third-party module")
    return str(value)


def accepts(convert: Callable[[str], object], text: str) -> bool:
    """Return whether a type callable accepts this text."""
    try:
        convert(text)
    except (ValueError, TypeError, KeyError, argparse.ArgumentTypeError):
        return False
    return True


def words_near(convert: Callable[..., object]) -> set[str]:
    """Return the words in a callable's closure, defaults and enumerations: what it may accept besides numbers."""
    cells = [cell.cell_contents for cell in getattr(convert, "__closure__", None) or ()]
    near: set[str] = set()
    for value in [*cells, *(getattr(convert, "__defaults__", None) or ()), convert]:
        if isinstance(value, type) and issubclass(value, enum.Enum):
            near.update(form for item in value for form in (item.name, item.name.lower(), str(item.value)))
        elif isinstance(value, (dict, list, tuple, set, frozenset)):
            near.update(item for item in value if isinstance(item, str))
    return near


def probe(convert: Callable[[str], object]) -> tuple[str, list[str]]:
    """Return the nearest plain type of a custom callable, and all it accepts where that is a closed set."""
    if accepts(convert, "no such word"):
        return "str", []
    numbers = [str(number) for number in PROBED_NUMBERS if accepts(convert, str(number))]
    words = sorted(word for word in words_near(convert) if accepts(convert, word) and not word.isdigit())
    if len(numbers) == len(PROBED_NUMBERS):
        return ("int" if not accepts(convert, "0.5") else "float"), words
    if any(word != word.lower() and word.lower() in words for word in words):
        words = sorted({word.lower() for word in words})
    return ("int" if numbers else "str"), numbers + words


def in_order(choices: Iterable[str]) -> list[str]:
    """Return choices in a fixed order: numbers by size, then words by letter."""
    return sorted(set(choices), key=lambda text: (not text.isdigit(), int(text) if text.isdigit() else 0, text))


def describe(action: argparse.Action, groups: list[str]) -> dict[str, object]:
    """Return one option as plain data."""
    kind = {"_StoreAction": "store", "_StoreTrueAction": "store_true", "_StoreFalseAction": "store_false"}.get(
        type(action).__name__, type(action).__name__
    )
    choices = [text_of(choice, action.type) for choice in action.choices or () if choice is not None]
    if action.nargs == 0:
        plain = "bool"
    elif action.type in PLAIN:
        plain = PLAIN[action.type]
    else:
        plain, accepted = probe(action.type)  # type: ignore[arg-type]
        choices = [choice for choice in choices if choice in accepted] if choices and accepted else choices or accepted
    return {
        "options": sorted(action.option_strings),
        "dest": action.dest,
        "action": kind,
        "type": plain,
        "nargs": "" if action.nargs in (None, 0) else str(action.nargs),
        "default": text_of(action.default, int if plain == "int" else action.type),
        "choices": in_order(choices),
        "required": bool(action.required),
        "groups": sorted(groups),
    }


def walk(parser: argparse.ArgumentParser) -> list[dict[str, object]]:
    """Return all options and positionals of a parser, with the titles of their groups."""
    titles: dict[int, list[str]] = {}
    for group in parser._action_groups:
        for action in group._group_actions:
            if group.title and group.title not in OWN_GROUPS:
                titles.setdefault(id(action), []).append(group.title)
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    return [describe(action, titles.get(id(action), [])) for action in actions]


def commands(parser: argparse.ArgumentParser, names: tuple[str, ...] = ()) -> dict[str, list[dict[str, object]]]:
    """Return the options of every command below a parser, by its words, such as ``lite auto_awq``."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        return {" ".join(names): walk(parser)}
    found: dict[str, list[dict[str, object]]] = {}
    for action in below:
        for name, inner in action.choices.items():
            found |= commands(inner, (*names, name))
    return found


def is_flexible(kind: type[argparse.ArgumentParser]) -> bool:
    """Return whether a parser class accepts ``--a_b`` for ``--a-b`` and ``--a.b 1`` for a JSON object."""
    parser = kind(exit_on_error=False)
    parser.add_argument("--some-name")
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return bool(parser.parse_args(["--some_name", "x"]).some_name == "x")
    except (SystemExit, argparse.ArgumentError):
        return False


def without_help(add: Callable[..., argparse.Action]) -> Callable[..., argparse.Action]:
    """Wrap ``add_argument`` to drop help texts: they are not needed, and newer Pythons reject some."""

    def add_argument(container: Any, *args: Any, **kwargs: Any) -> argparse.Action:
        kwargs.pop("help", None)
        return add(container, *args, **kwargs)

    return add_argument


def main(folder: str, output: str) -> None:
    """Import ``lmdeploy.cli`` from FOLDER and write its commands' options to OUTPUT."""
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    sys.meta_path.append(StandinFinder())
    argparse._ActionsContainer.add_argument = without_help(  # type: ignore[method-assign]
        argparse._ActionsContainer.add_argument
    )
    from lmdeploy.cli.cli import CLI  # type: ignore[import-not-found]
    from lmdeploy.cli.serve import SubCliServe  # type: ignore[import-not-found]

    SubCliServe.add_parsers()
    parser = SubCliServe.subparsers.choices["api_server"]
    parsed = {"options": walk(parser), "flexible": is_flexible(type(CLI.parser))}
    with contextlib.suppress(ImportError):
        from lmdeploy.cli.lite import SubCliLite  # type: ignore[import-not-found]

        SubCliLite.add_parsers()
    getattr(CLI, "add_parsers", lambda: None)()
    parsed["commands"] = commands(CLI.parser)
    Path(output).write_text(json.dumps(parsed), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
