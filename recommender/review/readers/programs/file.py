"""Read the servers that programs in JavaScript, Go, Rust, Java, Groovy and the like start.

A list of texts is read as a command: in a call, in a variable that grows, or after `args`. So is a text that contains
a command. Whatever else a program computes stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from recommender.common.pattern import pattern
from recommender.review.readers.programs.tokens import (
    CLOSES,
    OPENS,
    Token,
    assigned,
    blank_separated,
    constants,
    field,
    last_name,
    parts_of,
    shell_text,
    tokens,
)
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import Comment, Script, Word
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText
from recommender.review.script.variables import Variable, Variables
from recommender.review.shell.inner_scripts import start, walk
from recommender.review.shell.state import Where, complete_script
from recommender.review.shell.walker import new_run

ENVIRONMENT = pattern(
    r"\b(?P<name>CUDA_VISIBLE_DEVICES|[A-Z]+_NUM_THREADS|LMDEPLOY_\w+|TM_\w+|NCCL_\w+)[\"']?"
    r"(?:[ \t]*[:=][ \t]*[\"'](?P<value>[^\"'\n]*)[\"']|,[ \t]*\"(?P<put>[^\"\n]*)\"|=(?P<listed>[^\"'\n]*)[\"'])"
)
SHOWS = pattern(r"(?i)(?:console|log\w*|slog)\.\w+|print\w*|echo|\w*error\w*|panic|throw|fmt\.\w*print\w*")
"""Calls whose texts are for people."""
GROWS = frozenset({"push", "add", "append", "extend", "addAll", "arg", "args", "concat"})
CONVERTS = frozenset(
    {"String", "toString", "valueOf", "strconv", "Itoa", "fmt", "Sprint", "to_string", "Integer", "str"}
)
LISTED = pattern(r"[\w.:]+|[&!<>()\[\]{}?,]")
"""What may stand between a variable's equals sign and the first text of its list."""
LISTS = {
    "[": [[], ["&"], ["vec", "!"], ["&", "vec", "!"]],
    "{": [[], ["[", "]", "string"]],
    "(": [["List.of"], ["Arrays.asList"], ["listOf"], ["arrayOf"], ["Stream.of"]],
}
"""What is before a bracket that opens a list of words."""
LONGEST_LIST = 4
MOST_BEFORE = 12
MOST_WORDS = 400
MOST_COMMANDS = 200
MOST_WALKED = 3000
"""Most tokens read in a list, or before a word in it."""
MOST_STEPS = 200_000
LONGEST_TEXT = 100_000
PROGRAM = "lmdeploy"


def read(script: Script) -> Script:
    """Read a program. It is not repaired: what is written would need its language's quotes."""
    reader = _ProgramReader(script)
    reader.lists()
    reader.calls()
    reader.texts()
    comments = tuple(Comment(script.text[first:last], script.place(first, last)) for first, last in reader.notes)
    return complete_script(replace(script, comments=comments), reader.run, [])


class _ProgramReader:
    """Follow one program's tokens."""

    def __init__(self, script: Script) -> None:
        self.page = SourceText(script)
        self.run = new_run(self.page)
        self.run.elsewhere = True
        self.tokens, self.notes = tokens(script.text)
        self.known = constants(self.tokens)
        self.grown: dict[str, list[Field]] = {}
        self.left = MOST_STEPS
        self.done: set[int] = set()
        """The tokens that were read as words."""
        self.environment = self._environment(script.text)

    def _environment(self, text: str) -> dict[str, Word]:
        """Return the variables of the server that the program sets, each to one value."""
        found: dict[str, Word] = {}
        for match in ENVIRONMENT.finditer(text):
            group = next(name for name in ("value", "put", "listed") if match[name] is not None)
            place = self.page.place(*match.span(group))
            word = Word(match[group], match[group], place, place)
            before = found.setdefault(match["name"], word)
            if before.value != word.value:
                found[match["name"]] = word._replace(value=None, literal=None)
        return found

    # --- lists in variables

    def lists(self) -> None:
        """Read the lists that variables hold, with what is added to them."""
        before: dict[str, Token] = {}
        for at, token in enumerate(self.tokens[:-1]):
            name = last_name(token.text)
            if token.text in ("=", ":="):
                self._begin(at)
            elif token.kind == "name" and self.tokens[at + 1].text == "(":
                owner = token.text[: -len(name)].rstrip(".")
                if name in GROWS and owner in self.grown:
                    self._grow(owner, at + 2)
                elif token.text == "append" and at + 2 < len(self.tokens):
                    self._grow(self.tokens[at + 2].text, at + 4)
            elif token.kind == "name" and token.text in self.grown and self.tokens[at - 1].text in (",", "["):
                program = self.tokens[at - 2]
                if program.kind == "text":
                    before.setdefault(token.text, program)
        for name, fields in self.grown.items():
            named = before.get(name)
            self._start([field(named, self.known), *fields] if named else fields)

    def _grow(self, name: str, at: int) -> None:
        """Add the words at a place to a list."""
        if name in self.grown and len(self.grown[name]) < MOST_WORDS:
            self.grown[name] += self._words(at)[0][:MOST_WORDS]

    def _begin(self, at: int) -> None:
        """Note a variable whose value is a list of texts."""
        for place in range(at + 1, min(at + MOST_BEFORE, len(self.tokens))):
            token = self.tokens[place]
            if token.kind == "text":
                opened = self.tokens[place - 1].text in OPENS
                name = assigned(self.tokens, at)
                if opened and name:
                    words, end = self._words(place)
                    before = self.grown.pop(name, [])
                    if not any(word in words for word in before):  # another branch's command
                        self._start(before)
                    self.grown[name] = [*words, *self._chain(end)]
                return
            if token.text == ";" or not LISTED.fullmatch(token.text):
                return

    # --- calls and objects

    def calls(self) -> None:
        """Read the lists and calls that name the program, or begin with its command."""
        left = MOST_COMMANDS
        for at, token in enumerate(self.tokens):
            if at in self.done or token.kind != "text" or not left:
                continue
            named = token.value.rpartition("/")[2] == PROGRAM
            begun = token.value == "serve" and self._text_behind(at) in ("api_server", "proxy")
            if named or begun:
                left -= 1
                self._sequence(at, named)

    def _text_behind(self, at: int) -> str:
        return next((token.value for token in self.tokens[at + 1 : at + 3] if token.kind == "text"), "")

    def _sequence(self, at: int, named: bool) -> None:
        """Read the call or the list around a word."""
        opening = self._opening(at)
        key = self.tokens[at - 1].text == ":" and named
        if key:  # script: "lmdeploy", args: [...]
            words = self._behind_args(opening)
            self._start([field(self.tokens[at], self.known), *words])
            return
        first = opening + 1
        if self.tokens[opening].text in ("[", "{") and self.tokens[opening - 1].text == ",":
            first = opening - 2 if self.tokens[opening - 2].kind == "text" else first
        words, end = self._words(first)
        self._start([*words, *self._chain(end)])

    def _opening(self, at: int) -> int:
        """Return the bracket around a token."""
        depth = 0
        for place in range(at - 1, max(-1, at - MOST_WALKED), -1):
            text = self.tokens[place].text
            depth += (text in CLOSES) - (text in OPENS)
            if depth < 0:
                return place
        return -1

    def _behind_args(self, opening: int) -> list[Field]:
        """Return the words behind the key `args` of an object."""
        for at in range(opening + 1, min(opening + MOST_WORDS, len(self.tokens) - 2)):
            if self.tokens[at].value == "args" and self.tokens[at + 1].text == ":":
                value = self.tokens[at + 2]
                if value.kind == "text":
                    self.done.add(at + 2)
                    return list(blank_separated(field(value, self.known)))
                return self._words(at + 3)[0]
        return []

    def _chain(self, end: int) -> Iterator[Field]:
        """Yield the words of calls behind a call: `.args([…]).arg(…)`."""
        at = end + 1
        while at + 2 < len(self.tokens) and self.tokens[at].text == "." and self.tokens[at + 2].text == "(":
            words, end = self._words(at + 3)
            if self.tokens[at + 1].text in GROWS:
                yield from words
            at = end + 1

    # --- words

    def _words(self, at: int) -> tuple[list[Field], int]:
        """Return the words up to the bracket that closes here, brackets within flattened, and its place."""
        fields: list[Field] = []
        depth, begin = 0, at
        last = min(len(self.tokens), at + MOST_WALKED)
        while at < last and len(fields) < MOST_WORDS and self.left > 0:
            self.left -= 1
            text = self.tokens[at].text
            depth += (text in OPENS) - (text in CLOSES)
            if depth < 0:
                break
            inside = text in OPENS and depth == 1 and self._is_list(begin, at)
            if inside or text == ",":
                depth -= inside
                if inside:
                    inner, at = self._words(at + 1)
                    fields += inner
                else:
                    fields += self._word(begin, at)
                begin = at + 1
            at += 1
        return [*fields, *self._word(begin, at)], at

    def _is_list(self, first: int, last: int) -> bool:
        """Return whether a list opens here: `[`, `&[`, `List.of(`."""
        before = [token.text for token in self.tokens[first:last]]
        return before in LISTS[self.tokens[last].text] if len(before) < LONGEST_LIST else False

    def _word(self, first: int, last: int) -> list[Field]:
        """Return the word that an expression is; unknown unless it is a text, a number or a constant."""
        part = self.tokens[first:last]
        if not part or (len(part) > 1 and part[1].text in (":", "=>")):
            return []
        if len(part) == 1 and part[0].kind in ("text", "number"):
            self.done.add(first)
            return [field(part[0], self.known)]
        names = [token for token in part if token.kind == "name"]
        begin, end = part[0].start, part[-1].end
        spread = "..." in (part[0].text, part[-1].text)
        grown = next((self.grown[token.text] for token in names if token.text in self.grown), None)
        if grown is not None and len(names) == 1:
            return list(grown)
        left = [token for token in names if not set(token.text.replace("::", ".").split(".")) <= CONVERTS]
        value = self.known.get(left[0].text.removesuffix(".toString").removesuffix(".to_string")) if left else None
        if value is not None and len(left) == 1 and not spread:
            return [replace(field(value, self.known), start=begin, end=end, variable=left[0].text)]
        return [Field((Piece(None, begin, end),), begin, end, variable=left[0].text if left else "", many=spread)]

    def _start(self, fields: Sequence[Field]) -> None:
        """Record what words start; without the program, they are the words behind it."""
        if fields and fields[0].value == "serve":
            at = fields[0].start
            fields = [Field((Piece(PROGRAM, at, at),), at, at), *fields]
        if any(" " in word.known_prefix and LAUNCH.search(word.known_prefix) for word in fields):
            fields = [part for word in fields for part in parts_of(word)]  # parts of one text
        start(self.run, list(fields), dict(self.environment))

    # --- texts

    def texts(self) -> None:
        """Follow the texts that hold commands of a shell; those for people start nothing."""
        at, left = 0, MOST_COMMANDS
        read = {first for first, _ in self.run.followed}
        while at < len(self.tokens) and left:
            if not self._may_serve(at) or self.tokens[at].inner[0] in read:
                at += 1
                continue
            joined, end = self._joined(at)
            if joined is not None and LAUNCH.search(joined.code):
                left -= 1
                caller = next((t.text for t in reversed(self.tokens[max(0, at - 2) : at]) if t.kind == "name"), "")
                if SHOWS.fullmatch(caller):
                    self.run.followed.append((self.tokens[at].start, self.tokens[end - 1].end))
                else:
                    self._walk(joined)
            at = max(end, at + 1)

    def _may_serve(self, at: int) -> bool:
        """Return whether a text, or one that it is added to, may hold a command."""
        token = self.tokens[at]
        added = at + 1 < len(self.tokens) and self.tokens[at + 1].text == "+"
        return (
            token.kind == "text"
            and len(token.text) <= LONGEST_TEXT
            and (added or "lmdeploy" in token.text or "serve" in token.text)
        )

    def _joined(self, at: int) -> tuple[Mapped | None, int]:
        """Return a text with those that a plus adds to it, and the place behind them."""
        parts: list[str] = []
        places: list[int] = []
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.kind == "text":
                part = shell_text(token)
                parts.append(part.code)
                places += part.at
            elif token.kind == "name" and parts:
                parts.append(f"${{{last_name(token.text)}}}")
                places += [token.start] * (len(last_name(token.text)) + 3)
            else:
                break
            at += 1
            if at >= len(self.tokens) or self.tokens[at].text != "+":
                break
            at += 1
        return (Mapped("".join(parts), places) if parts else None), at

    def _walk(self, text: Mapped) -> None:
        run = self.run
        run.state, run.functions, run.container = Variables(dict(self.variables)), {}, None
        walk(run, text, Where())

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Return the constants as the variables of a shell."""
        found: dict[str, Variable] = {}
        for name, token in self.known.items():
            if token is not None:
                word = self.page.word(field(token, {}))
                found[name] = Variable((Piece(token.value, *token.inner),), None, word, name.isupper())
        for name, word in self.environment.items():
            pieces = None if word.value is None else (Piece(word.value, *word.place[:2]),)
            found[name] = Variable(pieces, None, word, True)
        return found
