"""Follow the shell scripts that lie inside other commands."""

from recommender.common.pattern import pattern
from recommender.review.script.launches import Surroundings, launch
from recommender.review.script.model import Container, ReadProblem, Span, Word
from recommender.review.script.source_map import Field, Mapped, SourceText
from recommender.review.script.unwrap import SHELLS, WRAPPERS, Unwrapped, program, unwrap
from recommender.review.shell import grammar
from recommender.review.shell.state import MOST_DEPTH, Run, TooMuch, Where, export

OTHERS = SHELLS | (WRAPPERS - {"eval"})
"""Programs that give a script to a shell of its own."""
OPENRC, OPENRC_COMMAND = pattern(r"#![^\n]*/openrc-run\b"), "$command $command_args"


def walk(run: Run, mapped: Mapped, where: Where | None = None) -> list[ReadProblem]:
    """Read one text, and the functions that it defines and nothing calls."""
    place = run.page.place(*mapped.span(0, len(mapped.code)))
    line = run.page.text.find("\n", place.start)
    place = run.page.place(place.start, place.end if line < 0 else min(place.end, line))
    try:
        root, complete = grammar.parse(mapped.code)
    except grammar.Unparsed as problem:
        return [ReadProblem(str(problem), place)]
    shell = run.walker(run, mapped, root)
    run.surveys.append(shell.survey)
    problems = [] if complete else [ReadProblem("parsing takes too long; only the beginning was read", place)]
    try:
        shell.statements(root, where or Where())
        for name in list(run.functions) if where is None else ():
            if not run.called.get(name):
                run.state.arguments, run.site = None, None
                shell.call(name, None, Where())
        for name, (command, state) in list(run.aliases.items()) if where is None or not where.depth else ():
            if name not in run.expanded and "lmdeploy" in command.known_prefix:
                run.expanded.add(name)
                run.state = state
                read_nested(run, Unwrapped([], {}, nested=command), Where())
        shell.leftovers(root)
    except TooMuch:
        problems.append(ReadProblem("following this takes too long; only the beginning was followed", place))
    return problems


def start(
    run: Run,
    fields: list[Field],
    environment: dict[str, Word],
    container: Container | None = None,
    place: Span | None = None,
) -> None:
    """Record what the words of a container or a unit start; ``place`` is the command's."""
    unwrapped = unwrap(run.page, fields, environment)
    unwrapped.container = unwrapped.container or container
    if unwrapped.nested is not None:
        read_nested(run, unwrapped, Where())
    elif unwrapped.server:
        around = Surroundings(unwrapped.environment, unwrapped.container, place=place, image=unwrapped.image)
        run.start(launch(run.page, unwrapped.fields, around, unwrapped.starts), None)
        run.follow(fields)


def read_nested(run: Run, unwrapped: Unwrapped, where: Where) -> bool:
    """Read the script in a word, as of ``bash -c``; return whether that worked."""
    text = script_text(run.page, unwrapped.nested) if unwrapped.nested else None
    if text is None or where.depth > MOST_DEPTH // 2:
        return False
    run.spend(3)
    kept, outside, image, expands = run.state, run.container, run.image, run.outer_expands
    run.state, run.container, run.image = kept.copy(), unwrapped.container or outside, unwrapped.image or image
    run.outer_expands = expands or _is_expanded(unwrapped)
    export(run, unwrapped.environment)
    if not run.outer_expands and unwrapped.fields and program(unwrapped.fields[0]) in OTHERS:
        run.state.variables = {name: run.state.variables[name] for name in unwrapped.environment}
    if unwrapped.container is not None:
        run.state.variables = {
            name: variable._replace(exported=name in unwrapped.environment)
            for name, variable in run.state.variables.items()
        }
    run.state.arguments = None if unwrapped.arguments is None else tuple(unwrapped.arguments)
    walk(run, text, where.deeper(background=unwrapped.background))
    run.state, run.container, run.image, run.outer_expands = kept, outside, image, expands
    return True


def _is_expanded(unwrapped: Unwrapped) -> bool:
    """Return whether the shell around a script expands its variables, as between double quotes."""
    return unwrapped.nested is not None and unwrapped.nested.inner is not None and unwrapped.nested.inner[3]


def walk_file(run: Run, text: str) -> list[ReadProblem]:
    """Read a whole file; what the variables of a service of OpenRC name is started."""
    problems = walk(run, Mapped.whole(text))
    if OPENRC.match(text):
        at = max(text.find("command_args"), 0)
        walk(run, Mapped(OPENRC_COMMAND, [at] * len(OPENRC_COMMAND)))
    return problems


def script_text(page: SourceText, field: Field | None) -> Mapped | None:
    """Return the script within a word, with the place of each character; what is unknown stays unknown to the shell."""
    if field is None:
        return None
    if field.inner is not None:
        mapped, start, end, unescape = field.inner
        return mapped.part(start, end, unescape)
    parts: list[str] = []
    places: list[int] = []
    for piece in field.pieces:
        text = "$?" if piece.text is None else piece.text
        exact = piece.text is not None and page.text[piece.start : piece.end] == piece.text
        parts.append(text)
        if piece.text is None and piece.start >= 0:
            places += [piece.start, max(piece.start, piece.end - 1)]
        else:
            places += range(piece.start, piece.end) if exact else [max(piece.start, field.start)] * len(text)
    code = "".join(parts)
    unknown = any(piece.text is None for piece in field.pieces)
    return None if code == "" or code == "$?" or (unknown and "'" in code) else Mapped(code, places)
