"""Fill a command as GNU parallel and xargs do: with the first word of each source, or with what only a run knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from recommender.common.pattern import pattern
from recommender.review.script.source_map import Field, Piece

FILLED = frozenset({"parallel", "xargs"})
"""Programs that put words of their input into a command."""
SOURCES = frozenset({":::", ":::+", "::::", "::::+"})
"""What precedes the words of a source, or its files."""
_VALUED = """
    -j --jobs -P --max-procs -n --max-args -N --max-replace-args -L --max-lines -I -J -R -a --arg-file -C --colsep -d
    --delimiter -E -s --max-chars -S --sshlogin --slf --sshloginfile --delay --joblog --results --res --tmpdir --workdir
    --wd --timeout --retries --load --memfree --memsuspend --tagstring --halt --halt-on-error --env --block --header
    --trim --rpl --nice --termseq --ctag --limit --basefile --return --shellquote --profile -J --tempdir --recstart
"""
VALUED = frozenset(_VALUED.split())
"""Options with a value in the next word."""
REPLACES = pattern(r"(?:-I|-J|-i|--replace=)(.*)|--replace")
NOTHING = pattern(r"--pipe(?:-?part)?|--sem(?:aphore)?|(?:-[nN]|--max-(?:replace-)?args=)0")
"""Options with which the input is not a word of the command."""
SEVERAL = pattern(
    r"-[nN](?!1$).*|-[LlCXm].*|--max-(?:replace-)?args.*|--max-lines.*|--(?:colsep|header|csv|xargs|context-replace"
    r"|trim|rpl|shuf|arg-file).*|-a.*"
)
"""Options with which the words are not the first of each source."""
BLANK = r"(?<!\$)\{(?:=.*?=|\+?(?P<number>-?\d{1,3})?(?P<part>//|/\.|\.\.?|/|#|%)?)\}"
PLAIN = pattern(r"[\w./:=,@%+-]+")
"""A text that means itself to a shell."""
UNKNOWN = Piece(None)
ALL = ' "$@"'
"""The arguments of a script."""


@dataclass
class Filling:
    """What parallel or xargs puts into a command."""

    command: list[Field] = field(default_factory=list)
    """The words of the command, with what is put into them and appended."""
    changed: bool = False
    """A word is not as it is written."""


def fill(fields: Sequence[Field], name: str) -> Filling:
    """Return the command of parallel or xargs, the first of those that they start; nothing if there is none."""
    end = next((at for at, word in enumerate(fields) if name == "parallel" and word.value in SOURCES), len(fields))
    at, given = _options(fields[:end])
    command = list(fields[at:end])
    sources = _sources(fields[end:])
    if name == "parallel" and not command and sources:  # each word is a command
        return Filling([sources[0]] if sources[0] is not None else [])
    replaced = next((match[1] or "{}" for option in given if (match := REPLACES.fullmatch(option))), "")
    first: list[Field | None] = [None if any(map(SEVERAL.fullmatch, given)) else source for source in sources]
    blank = re.compile(re.escape(replaced or "{}") if name == "xargs" else f"{re.escape(replaced or '{}')}|{BLANK}")
    filled = [_filled(word, blank, first) for word in command]
    changed = filled != command
    if not (changed or replaced or any(map(NOTHING.fullmatch, given))) or (name == "xargs" and not replaced):
        unknown = Field((UNKNOWN,), fields[0].start, fields[0].end, many=True)
        filled += [word or unknown for word in first] or [unknown]
    return Filling(filled, changed)


def _options(fields: Sequence[Field]) -> tuple[int, list[str]]:
    """Return where the command begins, and the options before it, each with its value."""
    given: list[str] = []
    at = 1
    while at < len(fields) and fields[at].known_prefix.startswith("-") and fields[at].known_prefix != "-":
        text = fields[at].known_prefix
        at += 1
        if text == "--":
            break
        if text in VALUED and at < len(fields):
            text += fields[at].known_prefix
            at += 1
        given.append(text)
    return at, given


def _sources(fields: Sequence[Field]) -> list[Field | None]:
    """Return the first word of each source; None if it is in a file, or unknown."""
    found: list[Field | None] = []
    for at, word in enumerate(fields):
        if word.value in SOURCES:
            following = fields[at + 1] if at + 1 < len(fields) else None
            known = following is not None and following.value is not None and following.value not in SOURCES
            found.append(following if known and word.value in (":::", ":::+") else None)
    return found


def _filled(word: Field, blank: re.Pattern[str], first: Sequence[Field | None]) -> Field:
    """Return a word with its blanks filled; in a script, what the shell could read otherwise is unknown."""
    together = list(_together(word.pieces))
    if not any(piece.text and blank.search(piece.text) for piece in together):
        return word
    pieces: list[Piece] = []
    for piece in together:
        at = 0
        for match in blank.finditer(piece.text or ""):
            pieces += [piece.cut(at, match.start()), *_pieces(match, first)]
            at = match.end()
        pieces.append(piece.cut(at, len(piece.text)) if at and piece.text else piece)
    inner = None
    if word.inner is not None and " " in word.known_prefix:
        mapped, start, end, escaped = word.inner
        text = mapped.part(start, end, escaped)
        text = text.replaced((*match.span(), _quoted(_pieces(match, first))) for match in blank.finditer(text.code))
        inner = (text, 0, len(text.code), False)
    kept = tuple(piece for piece in pieces if piece.text != "")
    return replace(word, pieces=kept or (Piece(""),), inner=inner)


def _together(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces of a word, as one where they follow each other as they are written, as the braces of ``{}``."""
    last: Piece | None = None
    for piece in pieces:
        if last is not None and _is_written(last) and _is_written(piece) and last.end == piece.start:
            last = Piece((last.text or "") + (piece.text or ""), last.start, piece.end)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _is_written(piece: Piece) -> bool:
    return piece.text is not None and piece.end - piece.start == len(piece.text) and not piece.optional


def _quoted(pieces: Sequence[Piece]) -> str:
    text = "".join(piece.text or " " for piece in pieces)
    return text if PLAIN.fullmatch(text) else "$?"


def _pieces(match: re.Match[str], first: Sequence[Field | None]) -> tuple[Piece, ...]:
    """Return what fills a blank."""
    groups = match.groupdict()
    number, part = groups.get("number"), groups.get("part") or ""
    if part in ("#", "%"):
        return (Piece("1"),) if first and None not in first else (UNKNOWN,)
    if "=" in match[0] or part == "..":
        return (UNKNOWN,)
    at = int(number) if number else 0
    index = at - 1 if at > 0 else len(first) + at if at else 0
    word = first[index] if 0 <= index < len(first) and (at or len(first) == 1) else None
    if word is None or word.value is None:
        return (UNKNOWN,)
    return (Piece(_part(word.value, part)),) if part else word.pieces


def _part(text: str, part: str) -> str:
    """Return a path without its ending, its name, or its folder."""
    if part == "//":
        return text.rpartition("/")[0] or "."
    text = text.rpartition("/")[2] if part.startswith("/") else text
    return re.sub(r"\.[^/.]*$", "", text) if part.endswith(".") else text


def with_arguments(script: Field) -> Field:
    """Return a script with all of its arguments behind its last command."""
    if script.inner is None:
        return replace(script, pieces=(*script.pieces, Piece(ALL)))
    mapped, start, end, escaped = script.inner
    text = mapped.part(start, end, escaped)
    text = text.replaced([(len(text.code), len(text.code), ALL)])
    return replace(script, inner=(text, 0, len(text.code), False))
