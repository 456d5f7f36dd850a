"""Find what a Python file imports: names of LMDeploy, other names, and LMDeploy's modules as commands that may fail."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from recommender.review.readers.python.values import Values
from recommender.review.script.launches import Surroundings, launch
from recommender.review.script.model import Launch
from recommender.review.script.source_map import Field, Piece, SourceText

SERVING = "lmdeploy.serve."
"""Modules below it move from release to release."""
SERVER = "lmdeploy.serve.openai.api_server"
"""Its ``serve`` starts a server in each release; that of LMDeploy's package does not."""


class Imports(NamedTuple):
    """The names that LMDeploy defines, with their origin, and those of other packages."""

    origins: dict[str, str]
    foreign: set[str]


def imports(values: Values) -> Imports:
    """Return the names that a file imports."""
    found = Imports({}, set())
    for node in values.nodes:
        if isinstance(node, ast.ImportFrom):
            ours = (node.module or "").partition(".")[0] == "lmdeploy"
            for alias in node.names:
                if ours:
                    origin = f"{node.module}.{alias.name}" if node.module == SERVER else alias.name
                    found.origins[alias.asname or alias.name] = origin
                else:
                    found.foreign.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            ours_too = (alias for alias in node.names if alias.name.partition(".")[0] == "lmdeploy")
            found.origins.update({alias.asname or "lmdeploy": "lmdeploy" for alias in ours_too})
    return found


def modules(page: SourceText, values: Values) -> Iterator[Launch]:
    """Yield each module of LMDeploy's servers that the file imports without handling a failed import."""
    for node in values.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SERVING):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith(SERVING)]
        else:
            continue
        start, end = values.span(node)
        if _is_handled(values.scopes.parents.get(id(node))):
            continue
        for name in names:
            at = max(page.text.find(name, start, end), start)
            words = [Field((Piece(text),), at, at + len(name)) for text in ("lmdeploy", "import", name)]
            yield launch(page, words, Surroundings({}))


def _is_handled(around: ast.AST | None) -> bool:
    """Return whether an import may fail, or depends on the release."""
    if isinstance(around, ast.If):
        test = ast.unparse(around.test).lower()
        return "version" in test or "type_checking" in test
    return isinstance(around, ast.Try | ast.ExceptHandler)
