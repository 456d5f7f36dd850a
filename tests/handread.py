"""A reader for tests of what stands behind the readers: one command, its options, assignments and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recommender.review.script import Assignment, Comment, Launch, Option, Place, Script, Trouble, Word

WORD = re.compile(r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'#\\]|\\(?!\n))+")
ASSIGNS = re.compile(r"(?m)^(?:export )?(\w+)=(\S*)")


def read(path: str, text: str) -> Script:
    """A script whose every line that begins with lmdeploy is a launch; !! is what cannot be read."""
    bare = Script(path, "bash", text, lines=(0, *(each.end() for each in re.finditer("\n", text))))
    comments = tuple(Comment(each[0], bare.place(*each.span())) for each in re.finditer(r"(?m)(?<!\S)#(?!!).*$", text))
    assigned = tuple(
        Assignment(each[1], _word(bare, *each.span(2)), bare.place(*each.span()), each[0].startswith("export"))
        for each in ASSIGNS.finditer(text)
    )
    values = {each.name: each.word for each in assigned}
    return Script(
        path,
        "bash",
        text,
        launches=tuple(_launches(bare, values)),
        comments=comments,
        assignments=assigned,
        troubles=tuple(Trouble("nobody can read this", bare.place(*each.span())) for each in re.finditer("!!", text)),
        lines=bare.lines,
    )


def _word(script: Script, start: int, end: int) -> Word:
    raw = script.text[start:end]
    quoted = raw[:1] in ("'", '"')
    written = script.place(start + quoted, end - quoted)
    return Word(raw, raw.strip("'\""), script.place(start, end), written, quoted=quoted)


def _used(script: Script, start: int, end: int, values: dict[str, Word]) -> Word:
    word = _word(script, start, end)
    name = word.raw.strip('"{}$')
    if not word.raw.strip('"').startswith("$"):
        return word
    known = values.get(name)
    return Word(word.raw, known and known.value, word.place, known and known.written, name, word.quoted)


def _launches(script: Script, values: dict[str, Word]) -> Iterator[Launch]:
    for command in re.finditer(r"(?m)^lmdeploy serve api_server((?:\\\n|[^\n#])*)", script.text):
        spans = [each.span() for each in WORD.finditer(script.text, command.start(1), command.end(1))]
        words = [_used(script, *span, values) for span in spans]
        options, model, unsure = list[Option](), None, False
        while words:
            word = words.pop(0)
            if word.raw.startswith("--"):
                name, equals, _ = word.raw.partition("=")
                start = word.place.start
                behind = [_used(script, start + len(name) + 1, word.place.end, values)] if equals else []
                while not equals and words and not words[0].raw.startswith("--") and words[0].raw != '"$@"':
                    behind.append(words.pop(0))
                end = (behind or [word])[-1].place.end
                place = script.place(start, start + len(name))
                options.append(Option(name, tuple(behind), place, script.place(start, end)))
            elif word.raw == '"$@"':
                unsure = True
            else:
                model = word
        place = script.place(command.start(), command.end())
        yield Launch("api_server", place, model, tuple(options), values, unsure=unsure)


def at(text: str, part: str) -> Place:
    """The place of a part of a text."""
    start = text.index(part)
    return read("x", text).place(start, start + len(part))
