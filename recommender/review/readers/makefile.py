"""Follow what make knows at each line of a Makefile: included files, conditionals, and variables of targets."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from recommender.common.pattern import pattern
from recommender.review.readers.assignments import beside_values, value_of, word_of
from recommender.review.script.model import Word
from recommender.review.script.source_map import Mapped
from recommender.review.shell.state import Run

DEFINED = pattern(
    r"(?m)^define[ \t]+(?P<name>\w+)[ \t]*[:?]{0,3}=?[ \t]*\n(?P<value>(?:(?!endef\b)[^\n]*+\n){0,50}+)endef\b"
)
PREREQUISITES = pattern(r"(?P<targets>[^\s:=#;][^:=;\n]*)::?(?!=)[^;=]*", re.DOTALL)
"""A rule's line without a recipe: it has names, no commands."""
SPECIFIC = pattern(
    r"(?P<targets>[^\s:=#;][^:=;\n]*):[ \t]*(?:export[ \t]+)?"
    r"(?P<name>[A-Za-z_]\w*)[ \t]*(?P<more>\+?)[:?]{0,3}=[ \t]*(?P<value>.*)",
    re.DOTALL,
)
"""A variable of some targets."""
CONDITION = pattern(
    r" *(?:(?P<end>endif)\b[^\n]*|(?P<other>else)\b *(?:(?=if)|(?:#[^\n]*)?$)|(?=if))"
    r"(?:(?P<kind>ifn?def|ifn?eq)\b"
    r"(?: +(?P<name>\w+) *| *\( *\$[({](?P<left>\w+)[)}] *,(?P<right>[^$()\n]*)\) *)?[^\n]*)?"
)
"""A line of make's conditionals; one of another form is not evaluated."""
INCLUDED = pattern(r"[-s]?include[ \t]+(?P<name>[^\s$]+)[ \t]*")
FUNCTION = pattern(r"(?<!\$)\$\((?!shell\b)[a-z-]+[ \t]")
CHOICE = pattern(r"\$\(if[ \t]+\$[({](?P<name>\w+)[)}][ \t]*,(?P<then>[^,]*)\)")
"""Words that depend on whether a variable is empty."""
BRACKET = pattern(r"[()]")
MOST_LINES, MOST_BRANCHES = 100, 10
"""Included files and conditionals; conditionals within each other."""


class _Branch(NamedTuple):
    """A branch of make's conditionals."""

    holds: bool | None
    """Its condition, without a caller's variables; None if unknown."""
    active: bool
    """An earlier branch of the conditional holds."""
    before: dict[str, Word]
    """What was set before it, or before the branches that are skipped."""

    @property
    def skipped(self) -> bool:
        """Return whether make skips it unless the caller sets a variable."""
        return self.active or self.holds is False


class Makefile:
    """The variables of a Makefile as far as its lines were read."""

    def __init__(self, run: Run, variables: dict[str, Word]) -> None:
        """``variables``: by name; the lines change them."""
        self.run = run
        self.variables = variables
        self.branches: list[_Branch] = []
        self.own: dict[str, dict[str, Word]] = {}
        self.targets: list[dict[str, Word]] = []
        """The variables of each target of the current rule that has some."""
        self.left = MOST_LINES
        for text in DEFINED.finditer(run.page.text):
            value = text["value"].replace("\\\n", "  ").rstrip("\n")
            variables[text["name"]] = word_of(run.page, value, text.start("value"))

    def takes(self, line: str, start: int, end: int) -> bool:
        """Read an include, a conditional or a line of targets; return whether the line is one."""
        if self.left and (included := INCLUDED.fullmatch(line)):
            self.left -= 1
            self.variables |= beside_values(self.run.page, included["name"], start, end)
        elif self.left and (condition := CONDITION.fullmatch(line)):
            self.left -= 1
            self._branch(condition)
        elif rule := PREREQUISITES.fullmatch(line):
            self.run.followed.append((start, end))
            self.targets = [self.own[name] for name in rule["targets"].split() if name in self.own]
        elif given := SPECIFIC.fullmatch(line):
            for name in given["targets"].split():
                own = self.own.setdefault(name, {})
                own[given["name"]] = value_of(self.run.page, given, start, False, self.variables | own)
        else:
            return False
        return True

    def skips(self, assigned: re.Match[str], word: Word) -> bool:
        """Return whether make skips an assignment; what it would add is kept, if it is known."""
        skipped = next((branch for branch in self.branches if branch.skipped), None)
        return skipped is not None and (not assigned["more"] or word.value is None or skipped.active)

    def _branch(self, line: re.Match[str]) -> None:
        """Enter or leave a branch; one that make takes forgets what the skipped ones before it set."""
        last = self.branches.pop() if (line["end"] or line["other"]) and self.branches else None
        if line["end"] or len(self.branches) >= MOST_BRANCHES:
            return
        holds = _holds(line, self.variables) if line["kind"] else True
        taken = last is not None and (last.active or last.holds is True)
        before = dict(self.variables)
        if last is not None and last.skipped and not taken:
            before = last.before
            if holds is not False:
                self.variables.clear()
                self.variables.update(before)
        self.branches.append(_Branch(holds, taken, before))


def _holds(line: re.Match[str], variables: Mapping[str, Word]) -> bool | None:
    """Return whether a condition of make holds without a caller's variables; None if unknown."""
    name = line["name"] or line["left"]
    value = variables[name].value if name in variables else ""
    if not name or value is None:
        return None
    equal = value != "" if line["name"] else value == line["right"].strip()
    return equal != line["kind"].startswith("ifn")


def without_functions(text: Mapped) -> Mapped:
    """Return a command as the shell gets it: ``$(if $(X),--tp $(X))`` as an expansion, any other function unknown."""
    changes: list[tuple[int, int, str]] = []
    done = 0
    for call in FUNCTION.finditer(text.code):
        if call.start() < done:
            continue
        done = _closed(text.code, call.start() + 1)
        if choice := CHOICE.fullmatch(text.code, call.start(), done):
            changes += [(call.start(), choice.start("then"), f"${{{choice['name']}:+"), (done - 1, done, "}")]
        else:
            changes.append((call.start(), done, '"$@"'))
    return text.replaced(changes)


def _closed(code: str, start: int) -> int:
    """Return where the bracket that opens here is closed, or the end."""
    depth = 0
    for bracket in BRACKET.finditer(code, start):
        depth += 1 if bracket[0] == "(" else -1
        if not depth:
            return bracket.end()
    return len(code)
