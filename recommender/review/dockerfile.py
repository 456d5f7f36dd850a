"""Reads Dockerfiles: the command that their last stage runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recommender.review.following import Run, Where, export, finished, start, walk
from recommender.review.mapped import Field, Mapped, Page, Piece
from recommender.review.script import Comment, Container, Probe, Script, Word
from recommender.review.unwrap import probe_path

INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")
LIST = re.compile(r'\[\s*("(?:[^"\\\n]|\\.)*"\s*,?\s*)*\]\s*')


@dataclass
class _Stage:
    """What the last FROM is followed by."""

    environment: dict[str, Word] = field(default_factory=dict)
    entrypoint: Mapped | None = None
    command: Mapped | None = None
    image: Word | None = None
    probes: tuple[Probe, ...] = ()


def read(script: Script) -> Script:
    """Reads a Dockerfile."""
    page = Page(script)
    stage = _Stage()
    found: list[Comment] = []
    whole = Mapped.whole(script.text)
    for name, first, last in _instructions(whole.code, page, found):
        part = whole.part(first, last)
        if name == "FROM":
            word = re.search(r"(?<!\S)(?!--)\S+", part.code)
            span = part.span(*word.span()) if word else part.span(0, 0)
            stage = _Stage(image=page.word(Field((Piece(word[0] if word else "", *span),), *span)))
        elif name in ("ENTRYPOINT", "CMD"):
            setattr(stage, "entrypoint" if name == "ENTRYPOINT" else "command", part)
            stage.command = None if name == "ENTRYPOINT" else stage.command
        elif name == "ENV":
            _variables(page, part, stage)
        elif name == "HEALTHCHECK" and not part.code.strip().upper().startswith("NONE"):
            stage.probes = (Probe("healthcheck", page.place(*part.span(0, len(part.code))), probe_path(part.code)),)
    run = Run(page)
    _start(run, stage)
    return finished(replace(script, comments=tuple(found)), run, [])


def _instructions(code: str, page: Page, comments: list[Comment]) -> Iterator[tuple[str, int, int]]:
    """Name, and where what follows it begins and ends; a line that ends in a backslash goes on."""
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


def _variables(page: Page, part: Mapped, stage: _Stage) -> None:
    """``ENV A=b C=d`` and the old ``ENV A b``."""
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
    """The words of the JSON form; None of the other form."""
    if part is None:
        return []
    if not part.code.lstrip().startswith("["):
        return None
    made = []
    for match in STRING.finditer(part.code):
        span = part.span(*match.span(1))
        text = re.sub(r"\\(.)", r"\1", match[1])
        inner = (part, match.start(1), match.end(1), True)
        made.append(Field((Piece(text, *span),), *part.span(*match.span()), quoted=True, inner=inner))
    return made


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
