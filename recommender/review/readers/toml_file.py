"""Read commands in TOML: scripts of pyproject.toml, tasks of pixi, mise and others.

As in YAML, no key is required: a text or list that starts a server is a command, unless its key holds prose. tomllib
gives values without their places, which findings and repairs need.
"""

import re
from dataclasses import replace

from recommender.common.pattern import pattern
from recommender.review.readers.steps import PROSE
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import Comment, Script, Word
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText
from recommender.review.script.variables import Variables
from recommender.review.shell.inner_scripts import start, walk
from recommender.review.shell.state import Run, Where, complete_script, export
from recommender.review.shell.walker import new_run

# Each may lack its end, so that a broken file is read once.
_LONG = r"\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*+(?:\"\"\")?|'''(?:[^']|'(?!''))*+(?:''')?"
_TEXT = rf"(?:{_LONG}|\"(?:[^\"\\\n]|\\.)*+\"?|'[^'\n]*+'?)"
TEXT = pattern(rf"(?P<note>\#[^\n]*)|(?P<text>{_TEXT})", re.DOTALL)
VALUE = pattern(
    rf"(?P<note>\#[^\n]*)|(?P<key>[\w-]+)[\"']?[ \t]*=[ \t]*"
    rf"(?P<value>{_TEXT}|\[(?:{_TEXT}|\#[^\n]*|[\s,])*+\])|{_TEXT}",
    re.DOTALL,
)
MARKS = ('"""', "'''", '"', "'")
TABLE = pattern(r"(?m)^[ \t]*\[\[?[ \t]*(?P<name>[\w.\"' -]+?)[ \t]*\]\]?[ \t]*(?:#[^\n]*)?$")
ENVIRONMENTS = ("env", "environment", "variables", "vars", "activation.env")
"""The last names of tables that set variables of the commands."""
MOST_COMMANDS = 300


def read(script: Script) -> Script:
    """Read a TOML file. It is not repaired: what is written would need TOML's quotes."""
    run, code = new_run(SourceText(script)), Mapped.whole(script.text)
    run.elsewhere = True
    comments: list[Comment] = []
    left = MOST_COMMANDS
    environment = _environment(run.page)
    for match in VALUE.finditer(script.text):
        if match["note"]:
            comments.append(Comment(match[0], script.place(*match.span())))
        elif match["value"] and left and LAUNCH.search(match["value"]):
            left -= 1
            if match["key"] in PROSE:
                run.followed.append(match.span())
            else:
                _start(run, code, environment, *match.span("value"))
    return complete_script(replace(script, comments=tuple(comments)), run, [])


def _environment(page: SourceText) -> dict[str, Word]:
    """Return the variables of the file's tables, as `[env]` of mise; unknown where tables differ."""
    words: dict[str, Word] = {}
    heads = list(TABLE.finditer(page.text))
    ends = [*(head.start() for head in heads[1:]), len(page.text)]
    for head, end in zip(heads, ends, strict=False):
        if head["name"].rpartition(".")[2] not in ENVIRONMENTS:
            continue
        for match in VALUE.finditer(page.text, head.end(), end):
            if match["value"] and match["value"][0] in "\"'":
                first, last, _ = _inner(*match.span("value"), page.text)
                text, place = page.text[first:last], page.place(first, last)
                known = not any(sign in text for sign in ("{{", "$", "\\"))
                word = Word(text, text if known else None, place, place if known else None, variable=match["key"])
                before = words.setdefault(match["key"], word)
                words[match["key"]] = word if before.value == word.value else word._replace(value=None, literal=None)
    return words


def _start(run: Run, code: Mapped, environment: dict[str, Word], first: int, last: int) -> None:
    """Follow a text, or a list of words or texts."""
    texts = [_inner(*match.span("text"), code.code) for match in TEXT.finditer(code.code, first, last) if match["text"]]
    run.state, run.functions, run.container = Variables(), {}, None
    export(run, environment)
    parts = [code.part(begin, end, escaped) for begin, end, escaped in texts]
    if code.code[first] == "[" and any(part.code.rpartition("/")[2] == "lmdeploy" for part in parts):
        fields = [
            Field((Piece(part.code, begin, end),), begin, end)
            for part, (begin, end, _) in zip(parts, texts, strict=True)
        ]
        start(run, fields, dict(environment))
        return
    for part in parts:
        walk(run, part, Where())


def _inner(first: int, last: int, text: str) -> tuple[int, int, bool]:
    """Return the range within the quotes of a text, and whether backslashes escape in it."""
    mark = next(mark for mark in MARKS if text.startswith(mark, first))
    begin = first + len(mark)
    closed = text.startswith(mark, last - len(mark)) and last - len(mark) >= begin
    return begin, last - len(mark) * closed, mark[0] == '"'
