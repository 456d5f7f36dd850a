"""Read LMDeploy's tables of model architectures from a wheel's source, as syntax trees."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from recommender.common.errors import MaintenanceError
from recommender.maintenance.wheel_facts import Listed

# A table may move between releases: the first path that exists is read.
ARCHITECTURES = ("turbomind/supported_models.py",)
CONVERTERS = ("turbomind/deploy/converter.py", "turbomind/converter.py")
READERS = "turbomind/deploy/source_model/internvl.py"
"""Up to 0.13.0: the language parts inside InternVL. Later releases take every architecture of their table."""
MODULES = ("pytorch/models/module_map.py",)


def read_tables(package: Path) -> tuple[Listed, ...]:
    """Return the entries of all tables in an unpacked ``lmdeploy`` folder.

    Raises MaintenanceError if a table is not where a release had it.
    """
    turbomind = set(_keys(_parse(package, ARCHITECTURES), "SUPPORTED_ARCHS"))
    converter = _parse(package, CONVERTERS)
    tables = {
        "turbomind": turbomind,
        "inside": set(_readers(package)) if (package / READERS).exists() else turbomind,
        "format": set(_compared(converter, "quant_method")),
        "pytorch": set(_keys(_parse(package, MODULES), "MODULE_MAP")),
    }
    for table, names in tables.items():
        if not names:
            raise MaintenanceError(f"the table {table!r} of models was not found; see {Path(__file__).name}")
    return tuple(Listed(table, name) for table in sorted(tables) for name in sorted(tables[table]))


def _parse(package: Path, names: Iterable[str]) -> ast.Module:
    for name in names:
        if (package / name).exists():
            return ast.parse((package / name).read_text(encoding="utf-8"))
    raise MaintenanceError(f"none of lmdeploy/{{{','.join(names)}}} exists; see {Path(__file__).name}")


def _keys(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield the keys that a module gives a dictionary: ``X = {…}``, ``X = dict(…)`` or ``X.update({…})``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            yield from _dictionary(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.update":
            yield from _dictionary(node.args[0])


def _dictionary(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Dict):
        yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))
    elif isinstance(node, ast.Call):
        yield from (keyword.arg for keyword in node.keywords if keyword.arg)


def _readers(package: Path) -> Iterator[str]:
    """Yield the language parts for which InternVL has a reader of its own; others read another layout of weights."""
    for node in ast.walk(_parse(package, (READERS,))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            yield from (
                keyword.arg for keyword in node.keywords if keyword.arg and "InternVL" in ast.unparse(keyword.value)
            )


def _compared(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield the texts that a module compares a variable with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and ast.unparse(node.left) == name and isinstance(node.ops[0], ast.Eq):
            yield from (str(item.value) for item in node.comparators if isinstance(item, ast.Constant))
