"""Read Jupyter notebooks: Python cells, cells of bash, and lines for the shell."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from recommender.common.parse import parse_python
from recommender.common.pattern import pattern
from recommender.common.user_file import Unreadable
from recommender.review.readers.python import file as python_file
from recommender.review.readers.yaml_nodes import Node, UnreadableYaml, documents, map_scalar
from recommender.review.script.model import ReadProblem, Script, Span, Word
from recommender.review.script.relocation import relocate
from recommender.review.script.source_map import Mapped, SourceText, line_starts
from recommender.review.script.variables import Variables
from recommender.review.shell.inner_scripts import walk
from recommender.review.shell.state import Run, Where, complete_script, export
from recommender.review.shell.walker import new_run

BASH = pattern(r"\s*%%(?:bash|sh|script[ \t]+(?:ba)?sh)\b[^\n]*\n")
OTHER_CELL = pattern(r"\s*%%(?!time|capture)\w+")
# IPython's special lines: a shell command (!), a magic (%) or a help request (?).
SPECIAL = pattern(
    r"(?m)^[ \t]*+(?P<all>(?:\w[\w, ]*+=[ \t]*)?(?:(?P<shell>!+(?:[^\n\\]|\\.|\\\n)*)|%{1,2}[A-Za-z][^\n]*|\?[^\n]*))"
)
FILLED = pattern(r"(?<![$\\{])\{(?P<name>[A-Za-z_]\w*)(?P<more>[^{},;\n]*)\}")
SET = pattern(r"[ \t]*%(?:set_)?env[ \t]+(?P<name>\w+)[= ](?P<value>[^\n]*)")


def read(script: Script) -> Script:
    """Read a notebook. Its cells are one program, in the order of the file."""
    page = SourceText(script)
    try:
        roots = documents(script.text)
    except UnreadableYaml as problem:
        return problem.unread(page)
    run, problems = new_run(page), list[ReadProblem]()
    sources = [source for root in roots for source in _sources(root)]
    cells = [_join([map_scalar(script.text, node) for node in source]) for source in sources]
    environment: dict[str, Word] = {}
    known: dict[str, Word] = {}
    python = _join([_python(run, cell, environment, known, problems) for cell in cells])
    inner = Script(script.path, "python", python.code, lines=line_starts(python.code))
    inner_script = python_file.read(inner)

    def place(span: Span) -> Span:
        return page.place(*python.span(span.start, span.end))

    done = complete_script(replace(script, repairable=False), run, problems)
    return replace(
        done,
        launches=(
            *done.launches,
            *(
                launch._replace(environment={**environment, **launch.environment})
                for launch in relocate(inner_script.launches, place)
            ),
        ),
        tools=(*done.tools, *relocate(inner_script.tools, place)),
        comments=(*done.comments, *relocate(inner_script.comments, place)),
        problems=(*done.problems, *relocate(inner_script.problems, place)),
        followed=(
            *done.followed,
            *(python.span(*span) for span in inner_script.followed),
            *_others(script, sources),
        ),
    )


def _sources(root: Node) -> Iterator[list[Node]]:
    """Yield the lines of each code cell."""
    cells = root.get("cells") if root.kind == "map" else None
    for cell in cells.items if cells else ():
        kind, source = cell.get("cell_type"), cell.get("source")
        if kind is not None and kind.text == "code" and source is not None:
            yield [node for node in (source.items or [source]) if node.kind == "scalar"]


def _others(script: Script, sources: list[list[Node]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges outside the code: texts for people, and what was printed."""
    at = 0
    for node in (node for source in sources for node in source):
        yield at, node.start
        at = node.end
    yield at, len(script.text)


def _join(texts: list[Mapped]) -> Mapped:
    """Return texts as one; a cell ends its line."""
    code, places = [], list[int]()
    for text in texts:
        end = "" if not text.code or text.code.endswith("\n") else "\n"
        code += [text.code, end]
        places += [*text.at, *([text.at[-1]] if end else [])]
    return Mapped("".join(code), places)


def _python(
    run: Run, cell: Mapped, environment: dict[str, Word], known: dict[str, Word], problems: list[ReadProblem]
) -> Mapped:
    """Follow what a cell gives to the shell; return the rest, which is Python."""
    bash = BASH.match(cell.code)
    if bash:
        _walk(run, cell.part(bash.end(), len(cell.code)), environment, {})
    if bash or OTHER_CELL.match(cell.code):
        return Mapped("", ())
    plain = cell.replaced((*match.span("all"), "pass") for match in SPECIAL.finditer(cell.code))
    try:
        known.update(_bound(run, parse_python(plain.code), cell))
    except (SyntaxError, Unreadable):
        if "lmdeploy" in plain.code:
            problems.append(ReadProblem("this cell is not valid Python", run.page.place(*cell.span(0, 1))))
        plain = Mapped("", ())
    for match in SPECIAL.finditer(cell.code):
        if match["shell"] is not None:
            line = cell.part(match.start("shell") + 1, match.end("shell"))
            filled = (
                (*each.span(), f"${each['name']}{'_' * len(each['more'])}") for each in FILLED.finditer(line.code)
            )
            _walk(run, line.replaced(filled), environment, known)
        elif given := SET.fullmatch(match[0]):
            place = run.page.place(*cell.span(*match.span()))
            environment[given["name"]] = Word(given["value"], given["value"].strip("\"' "), place)
    return plain


def _bound(run: Run, tree: ast.Module, cell: Mapped) -> Iterator[tuple[str, Word]]:
    """Yield the names that a cell binds, with what IPython puts for them into a line for the shell."""
    place = run.page.place(*cell.span(0, len(cell.code)))
    plain = {
        statement.targets[0].id: str(statement.value.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Constant)
    }
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    for name in names:
        yield name, Word(name, plain.get(name) if names.count(name) == 1 else None, place)


def _walk(run: Run, text: Mapped, environment: dict[str, Word], known: dict[str, Word]) -> None:
    """Follow one shell text; each runs in a shell of its own."""
    if "lmdeploy" in text.code:
        run.state, run.functions = Variables(), {}
        export(run, known)
        for name, variable in run.state.variables.items():
            run.state.variables[name] = variable._replace(exported=False)
        export(run, environment)
        walk(run, text, Where())
