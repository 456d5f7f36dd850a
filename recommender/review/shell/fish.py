"""Write scripts of fish as bash reads them, each character at its place: blocks, ``set``, ``$argv``, substitutions."""

import re
from collections.abc import Iterator
from itertools import islice

from recommender.common.pattern import pattern
from recommender.review.script.model import Script
from recommender.review.script.source_map import Mapped, SourceText
from recommender.review.shell.inner_scripts import walk
from recommender.review.shell.state import complete_script
from recommender.review.shell.walker import new_run

MOST_CHANGES, LONGEST = 20_000, 1000
WORDS = pattern(
    r"""(?P<note>(?<![^\s;])\#[^\n]*)
    |(?P<quoted>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\\(?:.|\n))
    |(?P<list>\$(?P<listed>[A-Za-z_]\w*)(?!\[)\b)
    |(?P<argument>\$argv\[(?P<number>[1-9])\])|(?P<arguments>\$argv\b)
    |(?P<open>(?<=[\s=])\((?=\w))
    |(?:(?m:^)|(?<=[;\s]))(?P<word>
        (?:function|if|else[ \t]+if|else|for|while|switch|case|begin|end|or|and)\b(?!=)
        |set(?P<flags>(?:[ \t]+-[\w-]+)*)[ \t]+(?P<name>\w+)(?P<blank>[ \t]*)
    )""",
    re.VERBOSE | re.DOTALL,
)
LISTS = pattern(
    r"\bset[ \t]+(?:-[\w-]+[ \t]+){0,4}(?:-\w*a\w*[ \t]+(?:-[\w-]+[ \t]+){0,4}(\w+)"
    r"|(?!-)(\w+)[ \t]+[^\s;(\"'#][^\s;]*[ \t]+[^\s;#])"
)
"""What makes a variable a list: several values, or one that is added."""
BEGINS = pattern(r"(?:^|[\n;]|\b(?:or|and|else|not|begin))[ \t]*\Z")
STATEMENT = pattern(r"(?:[^\n;\"'\\]|\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\(?:.|\n))*", re.DOTALL)
ENDS = {"function": "}", "begin": "}", "if": "fi", "for": "done", "while": "done", "switch": ";; esac"}
OPENS = {"if": "; then", "else if": "; then", "for": "; do", "while": "; do", "switch": " in"}


def read(script: Script) -> Script:
    """Read a script of fish. It is not repaired: bash's words are not its own."""
    run = new_run(SourceText(script))
    run.elsewhere = True
    changes = sorted(islice(_changes(script.text), MOST_CHANGES))
    problems = walk(run, Mapped.whole(script.text).replaced(changes))
    return complete_script(script, run, problems)


def _changes(text: str) -> Iterator[tuple[int, int, str]]:
    blocks: list[str] = []
    cases = 0
    lists = {match[1] or match[2] for match in LISTS.finditer(text)}
    for match in WORDS.finditer(text):
        start, end = match.span()
        new = _replaced(match, lists)
        if new:
            yield start, end, new
        if match["word"] is None or not BEGINS.search(text, max(0, start - 40), start):
            continue
        word = " ".join(match["word"].split()) if match["name"] is None else "set"
        closes = STATEMENT.match(text, end, end + LONGEST).end()  # type: ignore[union-attr]
        if word == "set":
            yield from _set(match, text, closes)
        elif word in ("or", "and"):
            yield _before(text, start), end, "||" if word == "or" else "&&"
        elif word == "end":
            yield start, end, ENDS[blocks.pop()] if blocks else "true"
        elif word == "function":
            blocks.append(word)
            name = text[end:closes].split()[:1]
            yield start, closes, f"{name[0] if name else '_'}() {{"
        elif word == "case":
            yield start, closes, f"{';; ' if cases else ''}{'|'.join(text[end:closes].split())})"
            cases += 1
        else:
            blocks += [word] if word in ENDS else []
            cases = 0 if word == "switch" else cases
            yield start, end, {"else if": "elif", "switch": "case", "begin": "{"}.get(word, word)
            if word in OPENS:
                yield closes, closes, OPENS[word]


def _replaced(match: re.Match[str], lists: set[str]) -> str:
    """Return what a variable or the beginning of a substitution is in bash; nothing for the rest."""
    if match["listed"] in lists:
        return f'"${{{match["listed"]}[@]}}"'
    signs = {"argument": f"${match['number']}", "arguments": '"$@"', "open": "$("}
    return signs.get(match.lastgroup or "", "")


def _before(text: str, start: int) -> int:
    """Return the end of the statement that ``or`` and ``and`` go on from."""
    before = text[max(0, start - LONGEST) : start]
    return start - len(before) + len(before.rstrip("; \t\n"))


def _set(match: re.Match[str], text: str, closes: int) -> Iterator[tuple[int, int, str]]:
    start, end, flags = match.start(), match.end(), match["flags"]
    if "-q" in flags.split() or "--query" in flags:
        yield start, end, f'[ -n "${match["name"]}" ]'
        return
    value = text[end:closes].rstrip()
    exported = "export " if re.search(r"-\w*x|--export", flags) else ""
    several = not exported and LISTS.match(text, start) is not None
    sign = "+=" if re.search(r"-\w*a|--append", flags) else "="
    yield start, end, f"{exported}{match['name']}{sign}{'(' if several else ''}"
    yield end + len(value), end + len(value), ")" if several else ""
