"""Read Dockerfiles: the command that the last stage runs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from recommender.common.pattern import pattern
from recommender.review.readers.container_command import port_asked
from recommender.review.readers.manifest_words import COMPOSE, expand
from recommender.review.script.docker_run import probe_path
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import Comment, Container, Probe, Script, Word
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText, line_starts
from recommender.review.script.variables import Variables
from recommender.review.shell.inner_scripts import start, walk
from recommender.review.shell.source_command import run_script
from recommender.review.shell.state import Run, Where, complete_script, export
from recommender.review.shell.walker import new_run

INSTRUCTION = pattern(r"[ \t]*([A-Za-z]+)[ \t]+")
STRING = pattern(r'"((?:[^"\\\n]|\\.)*+)("?)')
HEREDOC = pattern(r"<<-?[\"']?(?P<word>\w+)[\"']?(?P<rest>[^\n]*)")
PAIR = pattern(r"\b([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")


STAGE = pattern(r"(?i)\sas\s+([\w.-]+)\s*$")
"""The name of a stage, which a later one may continue."""
MOST_NAMES = 20
OF_INTEREST = pattern(r"install|\b(?:curl|wget)\b")
"""In a RUN: what the build installs, or downloads and may execute."""
COPIED = "COPY "
"""Prefix of an entry for a file that the Dockerfile writes; other entries begin with an instruction."""


@dataclass
class _Stage:
    """The instructions after the last FROM, and those of the stage that it continues."""

    environment: dict[str, Word] = field(default_factory=dict)
    entrypoint: Mapped | None = None
    command: Mapped | None = None
    image: Word | None = None
    probes: tuple[Probe, ...] = ()
    arguments: dict[str, Word] = field(default_factory=dict)
    """What ARG sets for the build."""
    files: dict[str, Mapped] = field(default_factory=dict)
    """The files that here-documents write, by the last part of their path."""


def read(script: Script) -> Script:
    """Read a Dockerfile."""
    page = SourceText(script)
    stage, stages = _Stage(), dict[str, _Stage]()
    comments: list[Comment] = []
    built: list[Mapped] = []
    whole = Mapped.whole(script.text)
    for name, first, last in _instructions(whole.code, page, comments):
        part = whole.part(first, last)
        if name == "FROM":
            stage, alias = _from(page, part, stage, stages), STAGE.search(part.code)
            stages |= {alias[1].lower(): stage} if alias else {}
        elif name in ("ENTRYPOINT", "CMD"):
            setattr(stage, "entrypoint" if name == "ENTRYPOINT" else "command", part)
            stage.command = None if name == "ENTRYPOINT" else stage.command
        elif name == "RUN":
            built.append(part)
        elif name.startswith(COPIED):
            stage.files[name.removeprefix(COPIED)] = part
        elif name in ("ENV", "ARG"):
            values = _variables(page, part, stage.arguments | stage.environment)
            stage.arguments |= values if name == "ARG" else {}
            stage.environment |= values if name == "ENV" else {}
        elif name == "HEALTHCHECK" and not part.code.strip().upper().startswith("NONE"):
            place = page.place(*part.span(0, len(part.code)))
            port = port_asked(page, place, part.code)
            stage.probes = (Probe("healthcheck", place, probe_path(part.code), port),)
    run = new_run(page)
    export(run, stage.environment)
    exported = run.state.variables
    for part in built:  # what is installed, and scripts that are written
        if LAUNCH.search(part.code) or OF_INTEREST.search(part.code):
            run.state, run.functions = Variables(dict(exported)), {}
            walk(run, part, Where())
    run.state, run.functions = Variables(), {}
    _start(run, stage)
    return complete_script(replace(script, comments=tuple(comments)), run, [])


def _from(page: SourceText, part: Mapped, stage: _Stage, stages: Mapping[str, _Stage]) -> _Stage:
    """Return what a FROM begins: a stage before it, or an image; ARGs stay."""
    word = re.search(r"(?<!\S)(?!--)\S+", part.code)
    span = part.span(*word.span()) if word else part.span(0, 0)
    image = page.word(expand(Field((Piece(word[0] if word else "", *span),), *span), COMPOSE, stage.arguments))
    base = stages.get((image.value or "").lower(), _Stage(image=image))
    return replace(base, arguments=stage.arguments, environment=dict(base.environment), files=dict(base.files))


def base_image(text: str) -> str | None:
    """Return the image from which a Dockerfile builds its last stage; None if it is unknown."""
    page = SourceText(Script("Dockerfile", "docker", text, lines=line_starts(text)))
    stage, stages, whole = _Stage(), dict[str, _Stage](), Mapped.whole(text)
    for name, first, last in _instructions(whole.code, page, []):
        part = whole.part(first, last)
        if name == "FROM":
            stage, alias = _from(page, part, stage, stages), STAGE.search(part.code)
            stages |= {alias[1].lower(): stage} if alias else {}
        elif name == "ARG":
            stage.arguments |= _variables(page, part, stage.arguments)
    return stage.image.value if stage.image else None


def entry_words(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a Dockerfile's ENTRYPOINT and of its CMD; none of another form than JSON."""
    script = Script("Dockerfile", "docker", text)
    found: dict[str, Mapped] = {}
    whole = Mapped.whole(text)
    for name, first, last in _instructions(whole.code, SourceText(script), []):
        found |= {name: whole.part(first, last)} if name in ("ENTRYPOINT", "CMD") else {}
        found = {} if name == "FROM" else found
    entrypoint, command = (_list(found.get(name)) or [] for name in ("ENTRYPOINT", "CMD"))
    return [field.known_prefix for field in entrypoint], [field.known_prefix for field in command]


def _instructions(code: str, page: SourceText, comments: list[Comment]) -> Iterator[tuple[str, int, int]]:
    """Yield each instruction's name and range; a trailing backslash continues it."""
    at, name, start = 0, "", 0
    document, body = "", 0
    for line in code.splitlines(keepends=True):
        end = at + len(line)
        bare = line.strip()
        if document:
            if bare == document:
                yield name, body, at
                document = name = ""
        elif bare.startswith("#"):
            first = at + line.index("#")
            comments.append(
                Comment(page.text[first : at + len(line.rstrip())], page.place(first, at + len(line.rstrip())))
            )
        elif bare or not name:
            match = INSTRUCTION.match(line) if not name else None
            if match:
                name, start = match[1].upper(), at + match.end()
            written = HEREDOC.search(line) if name in ("RUN", "COPY", "ADD") else None
            if written:
                last = written["rest"].split()[-1:] or [""]
                document, body = written["word"], end
                name = name if name == "RUN" else f"{COPIED}{last[0].rpartition('/')[2]}"
            elif name and not bare.endswith("\\"):
                yield name, start, at + len(line.rstrip())
                name = ""
        at = end


def _variables(page: SourceText, part: Mapped, earlier: dict[str, Word]) -> dict[str, Word]:
    """Return what ``ENV A=b C=d`` sets, and the old ``ENV A b``; ``earlier`` is what was set before."""
    words: dict[str, Word] = {}
    pairs = list(PAIR.finditer(part.code))
    if not pairs or not PAIR.match(part.code.lstrip()):
        old = re.match(r"\s*([A-Za-z_]\w*)\s+(.*\S)", part.code)
        if old:
            span = part.span(*old.span(2))
            words[old[1]] = page.word(Field((Piece(old[2], *span),), *span))
        return words
    for match in pairs:
        raw, quoted = match[2], match[2][:1] in ("'", '"') and len(match[2]) > 1
        inner = part.span(match.start(2) + quoted, match.end(2) - quoted)
        text = raw[1:-1] if quoted else raw
        field = Field((Piece(text, *inner),), *part.span(*match.span(2)), quoted=quoted)
        words[match[1]] = page.word(expand(field, COMPOSE, earlier))
    return words


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
    container = Container(place, image=stage.image, shm_known=False, probes=stage.probes)
    entrypoint, command = _list(stage.entrypoint), _list(stage.command)
    for name in re.findall(r"[\w.-]+", last.code)[:MOST_NAMES]:
        if name in stage.files:
            run.container = container
            export(run, stage.environment)
            walk(run, stage.files[name], Where())
            return
        if name.endswith(".sh") and run_script(run, name, stage.environment, container, place):
            return
    if entrypoint is None or (command is None and not entrypoint):
        run.container = container
        export(run, stage.environment)
        walk(run, (stage.entrypoint if entrypoint is None else stage.command) or last, Where())
        return
    start(run, [*entrypoint, *(command or ())], stage.environment, container)
