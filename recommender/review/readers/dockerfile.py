"""Read Dockerfiles: the command that the last stage runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recommender.common.pattern import pattern
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import Comment, Container, Probe, Script, Word
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText
from recommender.review.script.unwrap import probe_path
from recommender.review.script.variables import Variables
from recommender.review.shell.nested import start, walk
from recommender.review.shell.state import Run, Where, complete_script, export
from recommender.review.shell.walker import new_run

INSTRUCTION = pattern(r"[ \t]*([A-Za-z]+)[ \t]+")
STRING = pattern(r'"((?:[^"\\\n]|\\.)*+)("?)')
PAIR = pattern(r"\b([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")


@dataclass
class _Stage:
    """The instructions after the last FROM."""

    environment: dict[str, Word] = field(default_factory=dict)
    entrypoint: Mapped | None = None
    command: Mapped | None = None
    image: Word | None = None
    probes: tuple[Probe, ...] = ()


def read(script: Script) -> Script:
    """Read a Dockerfile."""
    page = SourceText(script)
    stage = _Stage()
    comments: list[Comment] = []
    built: list[Mapped] = []
    whole = Mapped.whole(script.text)
    for name, first, last in _instructions(whole.code, page, comments):
        part = whole.part(first, last)
        if name == "FROM":
            word = re.search(r"(?<!\S)(?!--)\S+", part.code)
            span = part.span(*word.span()) if word else part.span(0, 0)
            stage = _Stage(image=page.word(Field((Piece(word[0] if word else "", *span),), *span)))
        elif name in ("ENTRYPOINT", "CMD"):
            setattr(stage, "entrypoint" if name == "ENTRYPOINT" else "command", part)
            stage.command = None if name == "ENTRYPOINT" else stage.command
        elif name == "RUN":
            built.append(part)
        elif name == "ENV":
            _variables(page, part, stage)
        elif name == "HEALTHCHECK" and not part.code.strip().upper().startswith("NONE"):
            stage.probes = (Probe("healthcheck", page.place(*part.span(0, len(part.code))), probe_path(part.code)),)
    run = new_run(page)
    for part in built:  # what is installed, and scripts that are written
        if LAUNCH.search(part.code) or "install" in part.code:
            run.state, run.functions = Variables(), {}
            export(run, stage.environment)
            walk(run, part, Where())
    run.state, run.functions = Variables(), {}
    _start(run, stage)
    return complete_script(replace(script, comments=tuple(comments)), run, [])


def _instructions(code: str, page: SourceText, comments: list[Comment]) -> Iterator[tuple[str, int, int]]:
    """Yield each instruction's name and range; a trailing backslash continues it."""
    at, name, start = 0, "", 0
    for line in code.splitlines(keepends=True):
        end = at + len(line)
        bare = line.strip()
        if bare.startswith("#"):
            first = at + line.index("#")
            comments.append(
                Comment(page.text[first : at + len(line.rstrip())], page.place(first, at + len(line.rstrip())))
            )
        elif bare or not name:
            match = INSTRUCTION.match(line) if not name else None
            if match:
                name, start = match[1].upper(), at + match.end()
            if name and not bare.endswith("\\"):
                yield name, start, at + len(line.rstrip())
                name = ""
        at = end


def _variables(page: SourceText, part: Mapped, stage: _Stage) -> None:
    """Read ``ENV A=b C=d`` and the old ``ENV A b``."""
    pairs = list(PAIR.finditer(part.code))
    if not pairs or not PAIR.match(part.code.lstrip()):
        old = re.match(r"\s*([A-Za-z_]\w*)\s+(.*\S)", part.code)
        if old:
            span = part.span(*old.span(2))
            stage.environment[old[1]] = page.word(Field((Piece(old[2], *span),), *span))
        return
    for match in pairs:
        raw, quoted = match[2], match[2][:1] in ("'", '"') and len(match[2]) > 1
        inner = part.span(match.start(2) + quoted, match.end(2) - quoted)
        text = raw[1:-1] if quoted else raw
        piece = Piece(None if "$" in text else text, *inner)
        stage.environment[match[1]] = page.word(Field((piece,), *part.span(*match.span(2)), quoted=quoted))


def _list(part: Mapped | None) -> list[Field] | None:
    """Return the words of the JSON form; None for the shell form."""
    if part is None:
        return []
    if not part.code.lstrip().startswith("["):
        return None
    fields = []
    for match in STRING.finditer(part.code):
        if not match[2]:  # not closed
            continue
        span = part.span(*match.span(1))
        text = re.sub(r"\\(.)", r"\1", match[1])
        inner = (part, match.start(1), match.end(1), True)
        fields.append(Field((Piece(text, *span),), *part.span(*match.span()), quoted=True, inner=inner))
    return fields


def _start(run: Run, stage: _Stage) -> None:
    last = stage.command or stage.entrypoint
    if last is None:
        return
    place = run.page.place(*last.span(0, len(last.code)))
    container = Container(place, image=stage.image, probes=stage.probes)
    entrypoint, command = _list(stage.entrypoint), _list(stage.command)
    if entrypoint is None or (command is None and not entrypoint):
        run.container = container
        export(run, stage.environment)
        walk(run, (stage.entrypoint if entrypoint is None else stage.command) or last, Where())
        return
    start(run, [*entrypoint, *(command or ())], stage.environment, container)
