"""Follow simple shell commands: assignments, built-ins, and server starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.script.docker_run import ASSIGNED
from recommender.review.script.launches import Surroundings, is_sentence, launch
from recommender.review.script.model import Assignment, Call, Word
from recommender.review.script.source_map import Field, Piece, limited
from recommender.review.script.unwrap import Unwrapped, program, unwrap
from recommender.review.script.variables import Variable
from recommender.review.shell import aliases, grammar
from recommender.review.shell.heredocs import quiet
from recommender.review.shell.inner_scripts import read_nested
from recommender.review.shell.source_command import exported_file, source
from recommender.review.shell.state import Run, Where
from recommender.review.shell.survey import GIVEN, LET

if TYPE_CHECKING:
    from tree_sitter import Node

    from recommender.review.shell.walker import Shell

REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect", "comment"})
PAUSES = frozenset({"sleep", "usleep", "inotifywait"})
BRANCHES = frozenset({"if_statement", "elif_clause", "else_clause", "case_item", "list"})
DEEPEST_BRANCH = 12
LEAVES = pattern(r"(?:exit|return)(?:\s+\S+)?")
MOST_WORDS = 5000
# More pieces than this come from a text built to grow without limit.
MOST_PIECES = 300


def _pieces(word: Word) -> tuple[Piece, ...] | None:
    if word.value is None:
        return None
    return (Piece(word.value, word.literal.start, word.literal.end) if word.literal else Piece(word.value),)


# --- assignments


def assign(shell: Shell, node: Node, exported: bool = False, prefix: bool = False) -> tuple[str, Variable] | None:
    """Apply ``NAME=value``; ``prefix``: for one command only, without side effects."""
    run, name = shell.run, node.child_by_field_name("name")
    if name is None:
        return None
    if name.type == "subscript":
        run.state.forget([shell.words.raw(name).partition("[")[0]])
        return None
    text = shell.words.raw(name)
    before = run.state.variables.get(text)
    appended = any(child.type == "+=" for child in node.children)
    variable = _value(shell, node, text, before if appended else None, before)
    if exported or run.export_all or text in run.exported or (before is not None and before.exported):
        variable = variable._replace(exported=True)
    if prefix:
        return text, variable
    run.state.variables[text] = variable
    if variable.word is not None:
        _record(run, Assignment(text, variable.word, shell.place(node), variable.exported))
    return text, variable


def _normalises(raw: str, name: str) -> bool:
    """Return whether a value is the variable itself, cut or changed in case, such as ``${MODEL%/}``."""
    return re.match(rf"\"?\$\{{{re.escape(name)}(?:[%#^,@]|//?|:-?\d)", raw) is not None


def leaves(shell: Shell, branch: Node) -> bool:
    """Return whether a branch ends with ``exit`` or ``return``, so that its values are not those behind it."""
    last = grammar.children(branch)[-1:]
    return bool(last) and last[0].type == "command" and LEAVES.fullmatch(shell.words.raw(last[0])) is not None


def _keeps_default(shell: Shell, node: Node) -> bool:
    """Return whether a branch sets a variable to what the caller gives: then the value before is its default."""
    value, above = node.child_by_field_name("value"), node.parent
    if value is None or not GIVEN.fullmatch(shell.words.raw(value)):
        return False
    for _ in range(DEEPEST_BRANCH):
        if above is None or above.type in ("function_definition", "program"):
            return False
        if above.type in BRANCHES:
            return True
        above = above.parent
    return False


def _value(shell: Shell, node: Node, name: str, before: Variable | None, old: Variable | None) -> Variable:
    """Return an assignment's value, appended to the old one for ``+=``."""
    page, state, value = shell.run.page, shell.run.state, node.child_by_field_name("value")
    if value is None:
        end = shell.mapped.span(node.start_byte, node.end_byte)[1]
        return Variable((Piece("", end, end),), None, page.word(Field((Piece("", end, end),), end, end)))
    if value.type == "array":
        words = _fields(shell, value)
        shell.run.spend(len(words))
        kept = before.words if before is not None and before.is_known else None
        unknown = before is not None and not before.is_known
        place = shell.mapped.span(value.start_byte, value.end_byte)
        word = page.word(Field((Piece(None),), *place))
        return Variable(None, None if unknown else (*(kept or ()), *words)[:MOST_WORDS], word)
    field = shell.words.one(value, state)
    word = page.word(field)
    pieces: tuple[Piece, ...] | None = field.pieces
    if before is not None:
        pieces = (*before.pieces, *field.pieces) if before.pieces is not None else None
        if pieces is not None and limited(pieces) is None:
            pieces = None
        word = word._replace(value=None, literal=None) if pieces is None else page.word(replace(field, pieces=pieces))
    shell.run.spend(len(pieces or ()) // 3)
    if field.value is None and old is not None and old.text is not None and _keeps_default(shell, node):
        return old
    if pieces is not None and old is not None and _normalises(shell.words.raw(value), name):
        return old
    if pieces is not None and (len(pieces) > MOST_PIECES or (len(pieces) == 1 and pieces[0].text is None)):
        pieces = None
    return Variable(pieces, None, word)


def _fields(shell: Shell, node: Node) -> list[Field]:
    """Return the words below a node, at most MOST_WORDS."""
    words = (field for child in grammar.children(node) for field in shell.words.fields(child, shell.run.state))
    return list(islice(words, MOST_WORDS))


def _record(run: Run, assignment: Assignment) -> None:
    """Record an assignment; its value is unknown if a later walk gives another."""
    known = run.assignments.get(assignment.place.start)
    if known is not None and known.word != assignment.word:
        assignment = assignment._replace(word=assignment.word._replace(value=None, literal=None))
    run.assignments[assignment.place.start] = assignment


def declaration(shell: Shell, node: Node) -> None:
    """Apply ``export``, ``declare``, ``local`` and ``readonly``."""
    run, children = shell.run, node.children
    keyword = children[0].type
    flags = [shell.words.raw(child) for child in children if child.type == "word"]
    exported = (keyword == "export" and "-n" not in flags) or any(re.fullmatch(r"-\w*x\w*", flag) for flag in flags)
    for child in children[1:]:
        named = child.child_by_field_name("name") if child.type == "variable_assignment" else child
        name = shell.words.raw(named) if named is not None else ""
        if run.locals and keyword in ("local", "declare", "typeset") and child.type.startswith("variable_"):
            run.locals[-1].setdefault(name, run.state.variables.get(name))
        if child.type == "variable_assignment":
            assign(shell, child, exported)
        elif child.type == "variable_name":
            _declare(run, name, exported, keyword)
        elif child.type in ("string", "command_substitution") and exported_file(run, name, *shell.span(child), Where()):
            continue
        elif child.type in ("string", "concatenation") and exported:
            for field in shell.words.fields(child, run.state):
                match = ASSIGNED.match(field.known_prefix)
                if match:
                    word = run.page.word(field.after(match.end(), run.page.text))
                    run.state.variables[match[1]] = Variable(_pieces(word), None, word, True)


def _declare(run: Run, name: str, exported: bool, keyword: str) -> None:
    known = run.state.variables.get(name)
    if exported:
        run.exported.add(name)
        if known is not None:
            run.state.variables[name] = known._replace(exported=True)
    elif keyword == "local":
        run.state.variables[name] = Variable(pieces=())


# --- commands


def command(shell: Shell, node: Node, where: Where, behind: list[Node]) -> None:
    """Follow a simple command: function call, built-in, server, or anything else.

    ``behind`` are its words after a redirection.
    """
    run = shell.run
    prefixes: dict[str, Variable] = {}
    fields: list[Field] = []
    start = node.start_byte
    for child in (*node.children, *behind):
        if child.type == "variable_assignment" and not fields:
            assigned = assign(shell, child, True, prefix=True)
            prefixes |= dict([assigned]) if assigned else {}
        elif child.type not in REDIRECTS and (child.is_named or child.type in ("==", "=~", "$")):
            start = start if fields else child.start_byte
            fields += shell.words.fields(child, run.state) if len(fields) < MOST_WORDS else []
    run.spend(1 + len(fields) // 2 + sum(len(field.pieces) for field in fields) // 8)
    if not fields:
        return
    name = fields[0].value
    if name is not None and _defined(shell, node, fields, prefixes, where):
        return
    if len(fields) > 1 and fields[1].value == "=" and (name or "").isidentifier():
        run.state.variables[name or ""] = Variable((Piece(""),))  # NAME = value is a command, so NAME stays unset
    if (builtin := BUILTINS.get(name or "")) is not None:
        builtin(run, fields[1:], where)
    words = run.state.environment() | {name: prefix.word for name, prefix in prefixes.items() if prefix.word}
    span = shell.mapped.span(start, behind[-1].end_byte if behind else node.end_byte)
    _start(run, fields, words, span, where, node.has_error)


def _defined(shell: Shell, node: Node, fields: list[Field], prefixes: dict[str, Variable], where: Where) -> bool:
    """Follow a command that the script defines, as a function or an alias; return whether it is one."""
    run, name = shell.run, fields[0].value or ""
    if name not in run.functions and name not in run.aliases:
        return False
    kept = dict(run.state.variables)
    run.state.variables |= prefixes
    expanded = aliases.expand(shell, node, name, where)
    if not expanded and name in run.functions:
        if not run.inside:
            run.site = shell.place(node)
        shell.call(name, tuple(fields[1:]), where)
    for prefix_name in prefixes:
        if prefix_name in kept:
            run.state.variables[prefix_name] = kept[prefix_name]
        else:
            run.state.variables.pop(prefix_name, None)
    if expanded or name in run.functions:
        run.follow(fields[1:])
        return True
    return False


def _start(
    run: Run, fields: list[Field], words: dict[str, Word], span: tuple[int, int], where: Where, broken: bool
) -> None:
    """Record a server, a nested script, or a call."""
    unwrapped = unwrap(run.page, fields, words)
    run.unread, run.elsewhere = [*run.unread, *unwrapped.unread], run.elsewhere or unwrapped.filled
    frame = run.frames[-1] if run.frames else None
    place = run.page.place(*span)
    unwrapped.container = run.contained(unwrapped, place)
    if unwrapped.nested is not None and read_nested(run, unwrapped, where):
        return
    name = unwrapped.fields[0].value if unwrapped.fields else None
    if name in run.functions and name is not None:
        run.functions[name][0].call(name, tuple(unwrapped.fields[1:]), where)
        return
    if unwrapped.server and is_sentence(unwrapped.fields):
        run.follow(fields)
        return
    if unwrapped.server:
        around = Surroundings(
            environment=unwrapped.environment,
            container=unwrapped.container or run.container,
            background=where.background or unwrapped.background,
            guarded=where.guarded,
            place=place,
            image=unwrapped.image or run.image,
        )
        server = launch(run.page, unwrapped.fields, around, unwrapped.starts)
        endless = next((frame for frame in reversed(run.frames) if frame.endless), None)
        run.start(server._replace(unsure=True) if broken else server, endless or frame)
        run.follow(fields)
        return
    quiet(run, fields, where)
    if program(unwrapped.fields[0]) in PAUSES and not (len(unwrapped.fields) > 1 and unwrapped.fields[1].value == "0"):
        for loop in run.frames:
            loop.pauses = True
    if fields[0].value == "eval":
        run.state.forget(list(run.state.variables))
    run.calls[place.start, place.end] = (Call(tuple(run.page.word(field) for field in fields), place), frame)


# --- built-ins that change what the script knows


def _set(run: Run, fields: list[Field], where: Where) -> None:
    for at, field in enumerate(fields):
        text = field.value or ""
        if text in ("--", "-"):
            run.state.arguments = tuple(fields[at + 1 :])
            return
        if not re.fullmatch(r"[-+]\w+", text):
            if not text.isidentifier():
                return
            continue
        following = fields[at + 1].value if at + 1 < len(fields) else None
        option = following if text.endswith("o") else ""
        turned_on = text.startswith("-")
        if "e" in text[1:] or option == "errexit":
            if turned_on and run.error_exit is None:
                run.error_exit = run.page.place(fields[0].start, fields[-1].end)
            elif not turned_on and not run.launches:
                run.error_exit = None
        run.pipefail = turned_on if option == "pipefail" else run.pipefail
        run.export_all = turned_on if "a" in text[1:] or option == "allexport" else run.export_all


def _shift(run: Run, fields: list[Field], where: Where) -> None:
    count = fields[0].value if fields else "1"
    if run.state.arguments is not None:
        known = count is not None and re.fullmatch("[0-9]+", count) is not None
        run.state.arguments = run.state.arguments[int(count[:4]) :] if known and count is not None else None


def _read_into(run: Run, fields: list[Field], where: Where) -> None:
    for field in fields:
        if (field.value or "").isidentifier():
            run.state.variables[field.value or ""] = Variable()


def _let(run: Run, fields: list[Field], where: Where) -> None:
    for field in fields:
        run.state.forget(LET.findall(field.known_prefix))


def _printf(run: Run, fields: list[Field], where: Where) -> None:
    if len(fields) > 1 and fields[0].value == "-v":
        _read_into(run, fields[1:2], where)


def _trap(run: Run, fields: list[Field], where: Where) -> None:
    """Follow a trap's command where it is set."""
    name = fields[0].value if fields else None
    if name in run.functions and name is not None:
        shell, _ = run.functions[name]
        kept = run.state.copy()
        shell.call(name, (), where)
        run.state = kept
    elif fields and name and name != "-":
        read_nested(run, Unwrapped(fields, {}, nested=fields[0]), where)


BUILTINS: dict[str, Callable[[Run, list[Field], Where], None]] = {
    "set": _set,
    "shift": _shift,
    "source": source,
    ".": source,
    "read": _read_into,
    "mapfile": _read_into,
    "readarray": _read_into,
    "getopts": _read_into,
    "let": _let,
    "printf": _printf,
    "trap": _trap,
    "alias": aliases.define,
}
