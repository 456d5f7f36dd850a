"""Read the files that a shell script sources: environment files and other scripts beside it."""

from __future__ import annotations

from collections.abc import Mapping

from recommender.common.pattern import pattern
from recommender.review.script import sibling_files
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import Container, ReadProblem, Script, Span, Word
from recommender.review.script.relocation import relocate
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText, line_starts
from recommender.review.script.variables import Variable
from recommender.review.shell.inner_scripts import walk
from recommender.review.shell.state import Run, Where, export

# Sourced scripts that set up a shell but leave the script's variables alone.
HARMLESS = pattern(
    r"(?:^|/)(?:activate|\.?bashrc|\.?profile|\.?bash_profile|conda\.sh|mamba\.sh|nvm\.sh|setvars\.sh|set_env\.sh"
    r"|modules?\.sh|module|bash|\.cargo/env|\.local/bin/env|etc/profile\.d/[\w.-]+)$"
)
# ``export $(grep -v '^#' .env | xargs)``
EXPORTED_FILE = pattern(r"\$\([^()]*?([\w./-]*\.env(?:\.\w+)?)\b[^()]*\)")
MOST_VARIABLES = 500


def source(run: Run, fields: list[Field], where: Where) -> None:
    """Take over what a sourced file sets; what cannot be read may set anything."""
    if not fields or HARMLESS.search(_name(fields[0])) or (len(fields) > 1 and fields[0].value is None):
        return  # with an argument, an unknown path is that of a virtual environment
    place = run.page.place(fields[0].start, fields[0].end)
    file = sibling_files.read(run.page.script.path, _name(fields[0])) if len(run.inside) < 3 else None
    if file is None:
        run.state.forget(list(run.state.variables))
        run.unread.append(ReadProblem(f"{_shown(run, fields[0])} is not beside the script and was not read", place))
        return
    page = SourceText(Script(file.path, "bash", file.text, lines=line_starts(file.text)))
    inner = Run(page, run.walker)
    inner.inside = [*run.inside, file.path]
    inner.state.variables = {name: variable._replace() for name, variable in run.state.variables.items()}
    inner.steps, inner.export_all = run.steps, run.export_all
    walk(inner, Mapped.whole(file.text), Where(depth=where.depth + 1))
    run.spend(inner.steps - run.steps)
    for name, variable in list(inner.state.variables.items())[:MOST_VARIABLES]:
        if variable != run.state.variables.get(name):
            run.state.variables[name] = _moved(variable, fields[0], Word(fields[0].known_prefix, None, place))


def run_script(run: Run, path: str, environment: Mapping[str, Word], container: Container | None, place: Span) -> bool:
    """Follow a script beside the file, whose servers start at ``place``; return whether it starts any."""
    found = sibling_files.read(run.page.script.path, path)
    if found is None or not LAUNCH.search(found.text):
        return False
    inner = Run(SourceText(Script(found.path, "bash", found.text, lines=line_starts(found.text))), run.walker)
    inner.container = container
    export(inner, environment)
    walk(inner, Mapped.whole(found.text))
    run.launches += [(relocate(launch, lambda _: place), None) for launch, _ in inner.launches]
    run.tools += [relocate(tool, lambda _: place) for tool in inner.tools]
    run.elsewhere = True
    run.unread += [ReadProblem(f"{path}: {problem.message}", place) for problem in inner.problems()]
    return bool(inner.launches or inner.tools)


def _name(field: Field) -> str:
    """Return the path; of one that begins with something unknown, the file's name."""
    text = "".join(piece.text if piece.text is not None else "/" for piece in field.pieces)
    return text if field.value is not None else text.rpartition("/")[2]


def _shown(run: Run, field: Field) -> str:
    return run.page.text[field.start : field.end].strip("\"'")


def _moved(variable: Variable, field: Field, word: Word) -> Variable:
    """Return a variable of another file: its value has no place in this one but that of the statement."""
    text = variable.text
    words = variable.words
    if words is not None:
        words = tuple(
            Field(
                tuple(Piece(piece.text) for piece in part.pieces),
                field.start,
                field.end,
                part.variable,
                many=part.many,
            )
            for part in words
        )
    pieces = None if variable.pieces is None else tuple(Piece(piece.text) for piece in variable.pieces)
    return Variable(pieces, words, word._replace(value=text), variable.exported)


def exported_file(run: Run, raw: str, start: int, end: int, where: Where) -> bool:
    """Read the environment file of ``export $(cat .env | xargs)``; return whether this is one."""
    match = EXPORTED_FILE.fullmatch(raw.strip('"'))
    if match is None:
        return False
    kept, run.export_all = run.export_all, True
    source(run, [Field((Piece(match[1]),), start, end)], where)
    run.export_all = kept
    return True
