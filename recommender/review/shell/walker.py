"""Follow bash and sh scripts through every branch.

Nothing is run. A real grammar parses the text. Loops and functions are followed with the variables' values at that
point; what depends on a run is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.script.model import Script, Span
from recommender.review.script.source_map import Field, Mapped, SourceText
from recommender.review.script.variables import Variable, Variables, merge_states
from recommender.review.shell import grammar, help_guards
from recommender.review.shell.commands import assign, command, declaration, leaves
from recommender.review.shell.heredocs import heredoc, keeps, leftovers
from recommender.review.shell.inner_scripts import walk, walk_file
from recommender.review.shell.state import MOST_DEPTH, Frame, Run, Where, complete_script
from recommender.review.shell.survey import survey
from recommender.review.shell.turns import counted, each_turn, listed
from recommender.review.shell.words import Words

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_CALLS_OF_ONE = 12
LONGEST_CONDITION = 500
ENDLESS = pattern(r"(?:true|:|1|\[+\s*(?:1|true|\"1\"|1\s*-eq\s*1|1\s*==?\s*1)\s*\]+|\(\(\s*1\s*\)\)|test\s+1)\s*;?")
NEVER = pattern(r"(?:false|\[\s*\]|!\s*true)\s*;?")
EMPTY = pattern(r"-z\s+\"?\$\{?(\w+)")
SHEBANG_EXIT = pattern(r"#![^\n]*\bb?a?sh\s+-[a-z]*e")
FILLED = pattern(r"(?:-n\s+|\[+\s+|test\s+)\"?\$\{?(\w+)")


def read(script: Script) -> Script:
    """Read a shell script or a command line."""
    page = SourceText(script)
    run = new_run(page)
    problems = walk_file(run, script.text)
    if SHEBANG_EXIT.match(script.text) and run.error_exit is None:
        run.error_exit = page.place(0, (script.text + "\n").index("\n"))
    result = complete_script(script, run, problems)
    return result if result.launches or not result.problems or "lmdeploy" not in script.text else _open_quote(result)


def new_run(page: SourceText) -> Run:
    """Return the initial state for a file's first text."""
    return Run(page, Shell)


def _open_quote(script: Script) -> Script:
    """Retry without an unclosed quote, which hides the servers after it."""
    text = script.text
    for problem in script.problems:
        at = problem.place.start
        if text[at : at + 1] in ("'", '"'):
            mapped = Mapped.whole(f"{text[:at]} {text[at + 1 :]}")
            run = new_run(SourceText(script))
            walk(run, mapped)
            without_quote = complete_script(replace(script, launches=(), problems=()), run, [])
            if without_quote.launches and not without_quote.problems:
                unsure = tuple(launch._replace(unsure=True) for launch in without_quote.launches)
                return replace(without_quote, launches=unsure, problems=script.problems)
    return script


class Shell:
    """Follow the statements of one text."""

    def __init__(self, run: Run, mapped: Mapped, root: Node) -> None:
        """``root`` is the text's tree."""
        self.run = run
        self.mapped = mapped
        self.words = Words(run.page, mapped)
        self.survey = survey(run.page, mapped, root)
        self.asks_help = help_guards.asks(mapped.code)

    def span(self, node: Node) -> tuple[int, int]:
        """Return a node's range in the file."""
        return self.mapped.span(node.start_byte, node.end_byte)

    def place(self, node: Node) -> Span:
        """Return where a node is in the file."""
        return self.run.page.place(*self.span(node))

    def leftovers(self, root: Node) -> None:
        """Read what the statements did not lead to."""
        leftovers(self, root)

    # --- statements

    def statements(self, node: Node, where: Where) -> None:
        """Follow all statements of a block, in order."""
        if where.depth > MOST_DEPTH:
            return
        nodes = node.children
        for at, child in enumerate(nodes):
            if child.is_named and child.type != "comment":
                background = at + 1 < len(nodes) and nodes[at + 1].type == "&"
                self.statement(child, where.deeper(background))

    def statement(self, node: Node, where: Where) -> None:
        """Follow one statement of any kind; skip anything else, such as a comment."""
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
            self.survey.forget_within(self.run.state, node.start_byte, node.end_byte)
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
        where = where.deeper(output_may_run=keeps(self, node.children))
        if body.type != "command":
            self.statement(body, where)
            return
        # `server > log --tp 2`: the grammar takes words after a redirection for further target files.
        redirects = node.children_by_field_name("redirect")
        behind = [word for child in redirects for word in child.children_by_field_name("destination")[1:]]
        command(self, body, where, behind)

    def _negated_command(self, node: Node, where: Where) -> None:
        for child in grammar.children(node):
            self.statement(child, where.deeper(guarded=True))

    def _pipeline(self, node: Node, where: Where) -> None:
        parts = grammar.children(node)
        for child in parts:
            last = child is parts[-1]
            kept = self._copy()
            runs = not last and keeps(self, parts[parts.index(child) + 1 :])
            self.statement(child, where.deeper(guarded=not last and not self.run.pipefail, output_may_run=runs))
            self.run.state = kept

    def _list(self, node: Node, where: Where) -> None:
        """Follow ``a && b || c``."""
        parts = grammar.flat_list(node)
        help_guards.note(self, node, self.mapped.code[node.start_byte : parts[-1][1].start_byte])
        for at, (sign, child) in enumerate(parts):
            inner = where.deeper(guarded=at + 1 < len(parts))
            if at == 0:
                self.statement(child, inner)
                continue
            before = self._copy()
            self.statement(child, inner)
            pattern = EMPTY if sign == "&&" else FILLED
            defaults = frozenset(pattern.findall(self.words.raw(parts[at - 1][1])[:LONGEST_CONDITION]))
            self.run.state = self._merge([before, self.run.state], defaults)

    def _if_statement(self, node: Node, where: Where) -> None:
        ends: list[Variables] = []
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
        self.run.state = self._merge(ends, frozenset() if complete else defaults)

    def _condition(self, node: Node) -> str:
        parts = node.children_by_field_name("condition")
        return self.mapped.code[parts[0].start_byte : parts[-1].end_byte][:LONGEST_CONDITION] if parts else ""

    def _after_condition(self, node: Node, where: Where) -> list[tuple[Node, bool]]:
        """Run the condition; return the statements after it.

        Each statement comes with whether it runs in the background.
        """
        rest: list[tuple[Node, bool]] = []
        nodes = node.children
        then = next((at for at, child in enumerate(nodes) if child.type == "then"), len(nodes))
        help_guards.note(self, node, self.mapped.code[node.start_byte : nodes[then - 1].end_byte])
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
        help_guards.note(self, node, self.words.raw(node.children[1]))
        before = self.run.state
        ends: list[Variables] = []
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
            ends += [] if leaves(self, item) else [self.run.state]
        self.run.state = self._merge(ends if complete and ends else [*ends, before])

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
        # A server as the condition restarts after each crash, without a limit.
        if len(self.run.launches) > before and (until or condition.startswith("!")):
            frame.endless = True
            self.run.launches[before:] = [(launch, frame) for launch, _ in self.run.launches[before:]]
        self._body(node, where)
        next(with_loop, None)

    def _for_statement(self, node: Node, where: Where) -> None:
        values = [field for child in node.children_by_field_name("value") for field in self._fields(child)]
        self._turn(node, where, False, *listed(self, node, values))

    _select_statement = _for_statement

    def _c_style_for_statement(self, node: Node, where: Where) -> None:
        head = self.mapped.code[node.start_byte : node.start_byte + LONGEST_CONDITION]
        self._turn(node, where, bool(re.match(r"for\s*\(\([^;]*;\s*;", head)), *counted(head, self.run.state))

    def _turn(self, node: Node, where: Where, endless: bool, name: str, turns: list[Variable]) -> None:
        """Follow a loop for any turn, then for each that is known."""
        before, first = self._copy() if len(turns) > 1 else self.run.state, len(self.run.launches)
        loop = self._loop(node, self._frame(node, endless))
        next(loop)
        if name:
            self.run.state.variables[name] = turns[0] if len(turns) == 1 else Variable()
        self._body(node, where)
        next(loop, None)
        each_turn(self.run, first, before, lambda: self._body(node, where), name, turns)

    def _body(self, node: Node, where: Where) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self.statements(body, where.deeper())

    def _frame(self, node: Node, endless: bool) -> Frame:
        """Return the loop's frame; the same one when a function is followed again."""
        return self.run.loops.setdefault((self.place(node).start, node.end_byte), Frame(self.place(node), endless))

    def _loop(self, node: Node, frame: Frame) -> Iterator[None]:
        """Forget before the body what it sets; merge after it, as it may not run."""
        before = self._copy()
        self.survey.forget_within(self.run.state, node.start_byte, node.end_byte)
        self.run.frames.append(frame)
        yield
        self.run.frames.pop()
        self.run.state = self._merge([before, self.run.state])

    # --- functions and simple commands

    def _function_definition(self, node: Node, where: Where) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.run.functions[self.words.raw(name)] = (self, body)

    def call(self, name: str, arguments: tuple[Field, ...] | None, where: Where) -> None:
        """Follow a function's body where it is called."""
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
        for variable, before in run.locals.pop().items():
            run.state.variables.pop(variable, None)
            if before is not None:
                run.state.variables[variable] = before
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

    def _fields(self, node: Node) -> list[Field]:
        fields = self.words.fields(node, self.run.state)
        self.run.spend(1 + len(fields))
        return fields

    def _copy(self) -> Variables:
        self.run.spend(len(self.run.state.variables) // 20)
        return self.run.state.copy()

    def _merge(self, states: list[Variables], defaults: frozenset[str] = frozenset()) -> Variables:
        self.run.spend(sum(len(state.variables) for state in states) // 20)
        return merge_states(states, defaults)
