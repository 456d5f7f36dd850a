"""Reads bash and sh: follows the script as far as its text tells, and looks at every branch.

Nothing is run. The tree is that of a real grammar; loops and functions are walked with the values that the
variables have there, and what depends on a run is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.review import grammar
from recommender.review.following import MOST_DEPTH, SHEBANG_EXIT, Frame, Run, Where, finished, walk
from recommender.review.mapped import Field, Mapped, Page
from recommender.review.script import Place, Script
from recommender.review.simple import assign, command, declaration, heredoc
from recommender.review.survey import survey
from recommender.review.variables import State, Variable, merged
from recommender.review.words import Words

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_CALLS_OF_ONE = 12
LONGEST_CONDITION = 500
ENDLESS = re.compile(r"(?:true|:|1|\[+\s*(?:1|true|\"1\"|1\s*-eq\s*1|1\s*==?\s*1)\s*\]+|\(\(\s*1\s*\)\)|test\s+1)\s*;?")
NEVER = re.compile(r"(?:false|\[\s*\]|!\s*true)\s*;?")
EMPTY = re.compile(r"-z\s+\"?\$\{?(\w+)")
FILLED = re.compile(r"(?:-n\s+|\[+\s+|test\s+)\"?\$\{?(\w+)")


def read(script: Script) -> Script:
    """Reads a shell script or a command line."""
    page = Page(script)
    run = Run(page)
    troubles = walk(run, Mapped.whole(script.text))
    if SHEBANG_EXIT.match(script.text) and run.error_exit is None:
        run.error_exit = page.place(0, (script.text + "\n").index("\n"))
    made = finished(script, run, troubles)
    return made if made.launches or not made.troubles or "lmdeploy" not in script.text else _open_quote(made)


def _open_quote(made: Script) -> Script:
    """A quote that nothing closes swallows the rest of the file: its servers are looked for without it."""
    text = made.text
    for trouble in made.troubles:
        at = trouble.place.start
        if text[at : at + 1] in ("'", '"'):
            mapped = Mapped.whole(f"{text[:at]} {text[at + 1 :]}")
            run = Run(Page(made))
            walk(run, mapped)
            found = finished(replace(made, launches=(), troubles=()), run, [])
            if found.launches and not found.troubles:
                unsure = tuple(replace(each, unsure=True) for each in found.launches)
                return replace(found, launches=unsure, troubles=made.troubles)
    return made


class Shell:
    """Walks the statements of one text."""

    def __init__(self, run: Run, mapped: Mapped, root: Node) -> None:
        """``root`` is the text's tree."""
        self.run = run
        self.mapped = mapped
        self.words = Words(run.page, mapped)
        self.survey = survey(run.page, mapped, root)

    def place(self, node: Node) -> Place:
        """Where a node stands in the file."""
        return self.run.page.place(*self.mapped.span(node.start_byte, node.end_byte))

    # --- statements

    def statements(self, node: Node, where: Where) -> None:
        """All statements of a block, in order."""
        if where.depth > MOST_DEPTH:
            return
        nodes = node.children
        for at, child in enumerate(nodes):
            if child.is_named and child.type != "comment":
                background = at + 1 < len(nodes) and nodes[at + 1].type == "&"
                self.statement(child, where.deeper(background))

    def statement(self, node: Node, where: Where) -> None:
        """One statement of any kind. What is none, such as a comment, holds none either."""
        self.run.spend()
        if where.depth > MOST_DEPTH:
            return
        visit = getattr(self, f"_{node.type}", None)
        if visit is not None:
            visit(node, where)

    def _program(self, node: Node, where: Where) -> None:
        self.statements(node, where)

    _do_group = _ERROR = _else_clause = _program

    def _compound_statement(self, node: Node, where: Where) -> None:
        if node.children and node.children[0].type == "((":
            self.run.state.forget(self.survey.set_within(node.start_byte, node.end_byte))
        else:
            self.statements(node, where)

    def _subshell(self, node: Node, where: Where) -> None:
        kept = self._copy()
        self.statements(node, where)
        self.run.state = kept

    def _redirected_statement(self, node: Node, where: Where) -> None:
        body = node.child_by_field_name("body")
        if body is None or heredoc(self, node, body, where):
            return
        if body.type != "command":
            self.statement(body, where)
            return
        # `server > log --tp 2`: the grammar takes the words behind a redirection for more of its files.
        redirects = node.children_by_field_name("redirect")
        behind = [each for child in redirects for each in child.children_by_field_name("destination")[1:]]
        command(self, body, where, behind)

    def _negated_command(self, node: Node, where: Where) -> None:
        for child in grammar.children(node):
            self.statement(child, where.deeper(guarded=True))

    def _pipeline(self, node: Node, where: Where) -> None:
        parts = grammar.children(node)
        for child in parts:
            masked = child is not parts[-1] and not self.run.pipefail
            kept = self._copy()
            self.statement(child, where.deeper(guarded=masked))
            self.run.state = kept

    def _list(self, node: Node, where: Where) -> None:
        """``a && b || c``. A long one is as deep as it is long, so it is laid flat first."""
        parts: list[tuple[str, Node]] = []
        operator = ""
        while node.type == "list":
            first, last = node.children[0], node.children[-1]
            sign = next((child.type for child in node.children[1:-1] if child.type in ("&&", "||")), "")
            parts.append((sign, last))
            node = first
        parts.append((operator, node))
        parts.reverse()
        for at, (sign, child) in enumerate(parts):
            inner = where.deeper(guarded=at + 1 < len(parts))
            if at == 0:
                self.statement(child, inner)
                continue
            before = self._copy()
            self.statement(child, inner)
            pattern = EMPTY if sign == "&&" else FILLED
            defaults = frozenset(pattern.findall(self.words.raw(parts[at - 1][1])[:LONGEST_CONDITION]))
            self.run.state = self._merged([before, self.run.state], defaults)

    def _if_statement(self, node: Node, where: Where) -> None:
        ends: list[State] = []
        complete = False
        defaults = frozenset(EMPTY.findall(self._condition(node)))
        body = self._after_condition(node, where)
        before = self._copy()
        self._run_all(body, where)
        ends.append(self.run.state)
        self.run.state = before
        for child in node.children:
            if child.type == "elif_clause":
                body = self._after_condition(child, where)
                before = self._copy()
                self._run_all(body, where)
                ends.append(self.run.state)
                self.run.state = before
            elif child.type == "else_clause":
                self.statements(child, where.deeper())
                complete = True
        ends.append(self.run.state)
        self.run.state = self._merged(ends, frozenset() if complete else defaults)

    def _condition(self, node: Node) -> str:
        found = node.children_by_field_name("condition")
        return self.mapped.code[found[0].start_byte : found[-1].end_byte][:LONGEST_CONDITION] if found else ""

    def _after_condition(self, node: Node, where: Where) -> list[tuple[Node, bool]]:
        """Runs the condition; gives what stands behind it, each with whether it runs beside the script."""
        rest: list[tuple[Node, bool]] = []
        nodes = node.children
        then = next((at for at, child in enumerate(nodes) if child.type == "then"), len(nodes))
        for at, child in enumerate(nodes):
            if not child.is_named or child.type in ("comment", "elif_clause", "else_clause"):
                continue
            if at < then:
                self.statement(child, where.deeper(guarded=True))
            else:
                rest.append((child, at + 1 < len(nodes) and nodes[at + 1].type == "&"))
        return rest

    def _run_all(self, body: list[tuple[Node, bool]], where: Where) -> None:
        for child, background in body:
            self.statement(child, where.deeper(background))

    def _case_statement(self, node: Node, where: Where) -> None:
        before = self.run.state
        ends: list[State] = []
        complete = False
        for item in node.children:
            if item.type != "case_item":
                continue
            self.run.state = before
            self.run.state = self._copy()
            complete = complete or self.words.raw(item).lstrip("(").startswith("*)")
            values = {child.start_byte for child in item.children_by_field_name("value")}
            nodes = item.children
            for at, child in enumerate(nodes):
                if child.is_named and child.start_byte not in values:
                    self.statement(child, where.deeper(at + 1 < len(nodes) and nodes[at + 1].type == "&"))
            ends.append(self.run.state)
        self.run.state = self._merged(ends if complete else [*ends, before])

    # --- loops

    def _while_statement(self, node: Node, where: Where) -> None:
        condition = self._condition(node).strip()
        until = node.children[0].type == "until"
        frame = self._frame(node, bool((NEVER if until else ENDLESS).fullmatch(condition)))
        with_loop = self._loop(node, frame)
        next(with_loop)
        before = len(self.run.launches)
        for child in node.children_by_field_name("condition"):
            if child.is_named:
                self.statement(child, where.deeper(guarded=True))
        # A server as the condition, until it ends well: a crash starts it again, without an end.
        if len(self.run.launches) > before and (until or condition.startswith("!")):
            frame.endless = True
            self.run.launches[before:] = [(launch, frame) for launch, _ in self.run.launches[before:]]
        self._body(node, where)
        next(with_loop, None)

    def _for_statement(self, node: Node, where: Where) -> None:
        values = [each for child in node.children_by_field_name("value") for each in self._fields(child)]
        loop = self._loop(node, self._frame(node, False))
        next(loop)
        name = node.child_by_field_name("variable")
        if name is not None:
            known = len(values) == 1 and values[0].value is not None
            self.run.state.variables[self.words.raw(name)] = Variable(values[0].pieces if known else None)
        self._body(node, where)
        next(loop, None)

    _select_statement = _for_statement

    def _c_style_for_statement(self, node: Node, where: Where) -> None:
        head = self.mapped.code[node.start_byte : node.start_byte + 60]
        loop = self._loop(node, self._frame(node, bool(re.match(r"for\s*\(\([^;]*;\s*;", head))))
        next(loop)
        self._body(node, where)
        next(loop, None)

    def _body(self, node: Node, where: Where) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self.statements(body, where.deeper())

    def _frame(self, node: Node, endless: bool) -> Frame:
        """The loop's frame; one that is walked again, in a function, is the same loop."""
        return self.run.loops.setdefault((self.place(node).start, node.end_byte), Frame(self.place(node), endless))

    def _loop(self, node: Node, frame: Frame) -> Iterator[None]:
        """Around a loop's body: what it sets is unknown when it comes round, and may not be set at all."""
        before = self._copy()
        self.run.state.forget(self.survey.set_within(node.start_byte, node.end_byte))
        self.run.frames.append(frame)
        yield
        self.run.frames.pop()
        self.run.state = self._merged([before, self.run.state])

    # --- functions and simple commands

    def _function_definition(self, node: Node, where: Where) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.run.functions[self.words.raw(name)] = (self, body)

    def call(self, name: str, arguments: tuple[Field, ...] | None, where: Where) -> None:
        """Walks a function's body where it is called."""
        run = self.run
        done = run.called[name] = run.called.get(name, 0) + 1
        if name in run.inside or done > MOST_CALLS_OF_ONE:
            return
        shell, body = run.functions[name]
        kept, run.state.arguments = run.state.arguments, arguments
        run.inside.append(name)
        run.locals.append({})
        shell.statement(body, where.deeper())
        run.inside.pop()
        for each, before in run.locals.pop().items():
            run.state.variables.pop(each, None)
            if before is not None:
                run.state.variables[each] = before
        run.state.arguments = kept

    def _command(self, node: Node, where: Where) -> None:
        command(self, node, where, [])

    def _declaration_command(self, node: Node, where: Where) -> None:
        declaration(self, node)

    def _variable_assignment(self, node: Node, where: Where) -> None:
        assign(self, node, self.run.export_all)

    def _variable_assignments(self, node: Node, where: Where) -> None:
        for child in grammar.children(node):
            self.statement(child, where)

    def _unset_command(self, node: Node, where: Where) -> None:
        for child in grammar.children(node):
            self.run.state.variables.pop(self.words.raw(child), None)

    # --- small things

    def _fields(self, node: Node) -> list[Field]:
        found = self.words.fields(node, self.run.state)
        self.run.spend(1 + len(found))
        return found

    def _copy(self) -> State:
        self.run.spend(len(self.run.state.variables) // 20)
        return self.run.state.copy()

    def _merged(self, states: list[State], defaults: frozenset[str] = frozenset()) -> State:
        self.run.spend(sum(len(each.variables) for each in states) // 20)
        return merged(states, defaults)
