"""The files that run the recommender in a browser: Python, this package, and a parser of bash.

A worker (``site/assets/worker.js``) reads them from one folder. Its name holds their digest, so browsers keep them
until one changes.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from recommender.knowledge.load import data_root, read_index
from recommender.site.browser import npm

FOLDER = "assets/runtime"
WITHOUT = "SITE_WITHOUT_RUNTIME"
"""The variable that builds a site of stored answers only, where npm's registry cannot be reached."""
LIBRARIES = ("click", "jinja2", "markupsafe", "packaging", "yaml")
"""Libraries that the recommender imports in a browser; their Python files suffice."""
LEFT_OUT = ("maintenance", "site", "smoke", "commands/mcp")
"""Folders of this package that a browser never runs."""
BROWSER = "site/browser"
STAND_INS = "stand_ins"
"""The folder of the modules that are in place of compiled ones."""
UNUSED = (
    *("_pydatetime", "_pyio", "_pyrepl", "bdb", "ctypes", "curses", "dbm", "doctest", "ensurepip", "ftplib"),
    *("idlelib", "imaplib", "mailbox", "multiprocessing", "optparse", "pdb", "pickletools", "plistlib", "poplib"),
    *("profile", "pstats", "pydoc", "smtplib", "socketserver", "sqlite3", "test", "tkinter", "trace", "turtle"),
    *("unittest", "venv", "webbrowser", "wsgiref", "xmlrpc"),
)
"""Modules of the standard library that nothing here imports: a quarter of its size."""
NOT_READ = re.compile(
    r"xml/(dom|etree)/|http/(server|cookiejar)\.py|asyncio/windows_"
    r"|encodings/(cp(?!437|1252)|iso8859_(?!1\b)|mac_|koi8|euc_|big5|gb|hz|iso2022|johab|kz|ptcp|shift|tis|hp_|palm)"
)
"""Parts of others: among them, tables of encodings that neither UTF-8, zip files nor names of hosts need."""
LEVEL = 6
"""Of compression: 9 takes two and a half times as long and saves half a percent."""
START = ("pyodide.asm.wasm.bin", "stdlib.zip.bin", "app.zip.bin", "pyodide.asm.mjs.bin")
"""Files that a worker loads at its start; it loads those of the parser with the first script."""
LARGE = (".wasm", ".zip", "pyodide.asm.mjs", "web-tree-sitter.js")
"""Endings of the files that are compressed here: not every server does it."""


@cache
def files() -> Mapping[str, bytes]:
    """Return every file by its name in the folder. Raises NotFetched."""
    names = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "python_stdlib.zip")
    pyodide = npm.read_members(npm.PYODIDE, names)
    parser = npm.read_members(npm.TREE_SITTER, ("web-tree-sitter.js", "web-tree-sitter.wasm"))
    parser |= npm.read_members(npm.BASH_GRAMMAR, ("tree-sitter-bash.wasm",))
    whole = pyodide | parser
    # Pyodide asks for the list of its packages; of these, nothing is hosted here.
    lock = json.loads(whole["pyodide-lock.json"])
    whole["pyodide-lock.json"] = json.dumps({"info": lock["info"], "packages": {}}).encode()
    standard = zipfile.ZipFile(io.BytesIO(whole.pop("python_stdlib.zip")))
    library = {
        name: lean(standard.read(name)) if name.endswith(".py") else standard.read(name)
        for name in standard.namelist()
        if name.split("/")[0].split(".")[0] not in UNUSED and not NOT_READ.match(name)
    }
    archives = {"stdlib.zip": _archive(library), "app.zip": archive_of_app()}
    packed = {name: content for name, content in (whole | archives).items() if name.endswith(LARGE)}
    plain = {name: content for name, content in whole.items() if name not in packed}
    # Not .gz: some servers would send it as a compressed answer, which a browser unpacks by itself.
    return plain | {f"{name}.bin": gzip.compress(content, LEVEL, mtime=0) for name, content in packed.items()}


@cache
def folder() -> str:
    """Return the path of the files below the site's root."""
    state = hashlib.sha256()
    for name, content in sorted(files().items()):
        state.update(f"\0{name}\0".encode())
        state.update(content)
    return f"{FOLDER}/{state.hexdigest()[:12]}"


def archive_of_app() -> bytes:
    """Return the recommender and its libraries as a zip file."""
    return _archive(dict(_modules()))


def _archive(members: Mapping[str, bytes]) -> bytes:
    """Return a zip file, the same for the same members. Not compressed: gzip of the whole takes a third less."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def _modules() -> Iterator[tuple[str, bytes]]:
    """Yield the Python files and the data by their path below a folder of ``sys.path``."""
    package = Path(__file__).parents[2]
    for path in package.rglob("*.py"):
        inside = path.relative_to(package).as_posix()
        if STAND_INS in path.parts:
            yield path.relative_to(Path(__file__).parent / STAND_INS).as_posix(), lean(path.read_bytes())
        elif inside == "site/__init__.py" or not inside.startswith(LEFT_OUT) or inside.startswith(BROWSER):
            yield f"recommender/{inside}", lean(path.read_bytes(), path.stem.startswith("lmd"))
    for name in LIBRARIES:
        spec = importlib.util.find_spec(name)
        where = Path(spec.origin).parent if spec and spec.origin else Path()
        for path in where.rglob("*.py"):
            yield f"{name}/{path.relative_to(where).as_posix()}", lean(path.read_bytes())
    index = read_index()
    yield "recommender/_data/index.json", index.encode() if isinstance(index, str) else index
    root = data_root()
    for path in (*(root / "templates").rglob("*"), *(root / "knowledge" / "extracted").glob("*.json")):
        if path.is_file():
            yield f"recommender/_data/{path.relative_to(root).as_posix()}", path.read_bytes()


def lean(code: bytes, has_page: bool = False) -> bytes:
    """Return a module's code without comments and docstrings, a quarter of its size; a rule's page stays.

    Code that is newer than the Python of this build stays as it is.
    """
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return code
    page = tree.body[:1] if has_page else []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
        if isinstance(node, ast.ClassDef):
            # A dataclass without a docstring makes one at its import, which takes longer than all else of it.
            node.body.insert(0, ast.Expr(ast.Constant(".")))
    tree.body[:0] = page
    return ast.unparse(tree).encode()


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def describe() -> dict[str, Any] | None:
    """Return the folder, and the bytes of each file of the start, for the page; None if the site is built without."""
    if os.environ.get(WITHOUT):
        return None
    return {"folder": folder().removeprefix("assets/") + "/", "files": {name: len(files()[name]) for name in START}}
