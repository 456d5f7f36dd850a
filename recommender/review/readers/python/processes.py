"""Find the servers that a Python file starts as processes, and the commands that it builds."""

import ast
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate, takewhile

from recommender.common.pattern import pattern
from recommender.review.readers.python.branches import of_branch
from recommender.review.readers.python.changes import changes, dictionary, dotted
from recommender.review.readers.python.environment import Environment
from recommender.review.readers.python.shared import names_of, root
from recommender.review.readers.python.tables import rows
from recommender.review.readers.python.values import Values
from recommender.review.script.launches import Surroundings, launch
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import Launch, Word
from recommender.review.script.python_uses import last_name
from recommender.review.script.source_map import Field, Mapped, SourceText
from recommender.review.script.unwrap import unwrap
from recommender.review.shell.inner_scripts import script_text, walk
from recommender.review.shell.walker import new_run

PROCESSES = frozenset(
    {"run", "Popen", "call", "check_call", "check_output", "execvp", "execv", "spawn", "exec_command"}
)
SPREAD = {"create_subprocess_exec": 0, "execlp": 1, "execl": 1}
"""Calls whose arguments are a command's words, and how many arguments come before them."""
SHELLED = frozenset({"system", "system_raw", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"})
STARTERS = frozenset({"serve", "proxy", "api_server", "*"})
"""What of LMDeploy's modules starts a server once it is imported."""
SHOWS = frozenset(
    {"print", "info", "warning", "error", "debug", "exception", "critical", "log", "echo", "add_argument"}
    | {"ArgumentParser", "RuntimeError", "ValueError", "Exception", "success", "print_help", "ImportError", "secho"}
)
"""Calls whose texts are for people."""
COMMAND = pattern(r"\s*(?:[A-Z_]\w*=\S*\s+|nohup\s+|exec\s+|\S*python3?\s+-m\s+)*(?:\S*/)?lmdeploy\s")
AT_ONCE = frozenset({"Process", "Thread", "Popen", "create_subprocess_shell", "create_subprocess_exec"})
MOST_BUILT, MOST_SITES, MOST_TURNS = 20, 6, 300
SHELL_SIGNS = pattern(r"[|&;<>]")


class Processes:
    """Find the processes of one file."""

    def __init__(self, page: SourceText, values: Values, environment: Environment) -> None:
        """``environment`` is what the file sets for itself."""
        self.page = page
        self.values = values
        self.environment = environment
        self.changes = changes(values)
        self.turns_left = MOST_TURNS
        self.at_once = not AT_ONCE.isdisjoint(values.scopes.calls)
        """Something runs the commands of a list side by side."""

    def launches(self) -> Iterator[Launch]:
        """Yield what the file's calls start, then what it builds and nothing was seen to run."""
        for node in self.values.nodes:
            if isinstance(node, ast.Call):
                found = list(self._process(node))
                others = list(self._in_turn(node)) if len(found) == 1 else []
                if others and all(other.model is not None and other.model.value for other in others):
                    found = [others.pop(0)]
                yield from (each._replace(alternatives=(*each.alternatives, *others)) for each in found)
        yield from self._built()

    def _in_turn(self, node: ast.Call) -> Iterator[Launch]:
        """Yield what each turn of a loop over a table, or each call of the function around, starts."""
        turns = rows(self.values.scopes, node)[: self.turns_left]
        self.turns_left -= len(turns)
        for turn in turns:
            self.values.bound = turn
            yield from self._process(node)
        self.values.bound = {}
        if not turns:
            yield from self._at_sites(node)

    def _at_sites(self, node: ast.Call) -> Iterator[Launch]:
        """Yield what each call of the function around a process starts, if there are several."""
        scopes = self.values.scopes
        sites = scopes.sites(scopes.at[id(node)])
        for site in sites if 1 < len(sites) <= min(MOST_SITES, self.turns_left) else ():
            self.turns_left -= 1
            scopes.site = site
            yield from self._process(node)
        scopes.site = None

    def inert_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges that start nothing: docstrings, arguments of calls that print, imports of other names."""
        for node in self.values.nodes:
            if (
                (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
                or (isinstance(node, ast.Call) and last_name(node.func) in SHOWS)
                or (isinstance(node, ast.ImportFrom) and STARTERS.isdisjoint(name.name for name in node.names))
            ):
                yield self.values.span(node)

    def _built(self) -> Iterator[Launch]:
        """Yield the servers of command lists and texts that no call in the file was seen to run."""
        mentions = [match.start() for match in LAUNCH.finditer(self.page.text)]
        mentions = list(_outside(mentions, [*self.values.followed, *self.inert_ranges()]))[:MOST_BUILT]
        for node in self.values.nodes if mentions else ():
            if not isinstance(node, ast.List | ast.Tuple | ast.Constant | ast.JoinedStr):
                continue
            start, end = self.values.span(node)
            here = [at for at in mentions if start <= at < end]
            if here and not isinstance(self.values.scopes.parents.get(id(node)), ast.JoinedStr):
                launches = list(self._command(node))
                mentions = [at for at in mentions if at not in here] if launches else mentions
                parent = self.values.scopes.parents.get(id(node))
                whole = isinstance(parent, ast.keyword) and parent.arg == "command"  # a container's command
                side_by_side = isinstance(parent, ast.List | ast.Tuple) and self.at_once
                for launch in launches:
                    yield launch._replace(unsure=launch.unsure or not whole, background=side_by_side)

    def _command(self, node: ast.expr) -> Iterator[Launch]:
        """Yield what a list of words, or a text, would start if it were run."""
        if isinstance(node, ast.List | ast.Tuple):
            parent = self.values.scopes.parents.get(id(node))
            target = parent.targets[0] if isinstance(parent, ast.Assign) else None
            base = node if isinstance(target, ast.Attribute) else None
            words = self.values.command(target, base=base) if isinstance(target, ast.Name | ast.Attribute) else None
            yield from self._process_launches(words or self.values.command(node) or [], None)
            return
        field = self.values.field(node)
        if COMMAND.match(field.known_prefix):
            words = list(takewhile(lambda word: not SHELL_SIGNS.search(word.known_prefix), self.values.text(node)))
            yield from self._process_launches(words, None)
        elif (
            "\n" in field.known_prefix and (text := script_text(self.page, field)) is not None
        ):  # a script to be written
            yield from self._mapped(text, {})
            self._follow([field])

    def _process(self, node: ast.Call) -> Iterator[Launch]:
        """Read ``subprocess.run(["lmdeploy", …])`` and ``os.system("lmdeploy …")``."""
        name = last_name(node.func)
        if name in SPREAD:
            words = [word for item in node.args[SPREAD[name] :] for word in self.values.item(item)]
            yield from self._process_launches(words, node)
        elif len(node.args) > 1 and name == "run" and _is_word(node.args[0]):  # nox: session.run("python", ...)
            words = [word for item in node.args for word in self.values.item(item)]
            yield from self._process_launches(words, node)
        elif node.args and name in PROCESSES | SHELLED:
            first = node.args[1] if name in ("execvp", "execv") and len(node.args) > 1 else node.args[0]
            shelled = name in SHELLED or any(keyword.arg == "shell" for keyword in node.keywords)
            if shelled and isinstance(first, ast.List) and len(first.elts) == 1:
                first = first.elts[0]
            fields = self.values.command(first)
            if fields is not None:
                yield from self._process_launches(fields, node)
            elif not isinstance(first, ast.Starred):
                yield from self._shell(first, node)

    def _shell(self, first: ast.expr, node: ast.Call) -> Iterator[Launch]:
        first = of_branch(self.values.scopes, first) or first
        whole = self.values.field(first)
        if "lmdeploy" not in "".join(piece.text or "" for piece in whole.pieces):
            return
        self._follow([whole])
        if (text := script_text(self.page, whole)) is not None:
            yield from self._mapped(text, self.environment.at(node))
            return
        words = takewhile(lambda word: not SHELL_SIGNS.search(word.known_prefix), self.values.text(first))
        yield from self._process_launches(list(words), node)

    def _mapped(self, text: Mapped, environment: Mapping[str, Word], image: Word | None = None) -> Iterator[Launch]:
        """Yield the launches of a shell text."""
        run = new_run(self.page)
        run.image = image
        walk(run, text)
        yield from run.tools
        yield from (server._replace(environment={**environment, **server.environment}) for server, _ in run.launches)

    def _given_environment(self, expression: ast.expr) -> dict[str, Word]:
        """Return the variables of ``env=``: of a dictionary, and of what is added to it by its name."""
        if isinstance(expression, ast.Call) and isinstance(made := self.values.scopes.returned(expression), ast.Name):
            expression = made
        whole = self.values.resolve(expression) or expression
        parts = (
            [whole.left, whole.right] if isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.BitOr) else [whole]
        )
        words = {name: self.page.word(self.values.field(value)) for part in parts for name, value in dictionary(part)}
        for name, value, always in self._added(expression) if isinstance(expression, ast.Name) else ():
            word = self.page.word(self.values.field(value))
            sure = always and words.get(name, word).value == word.value
            words[name] = word if sure else word._replace(value=None, literal=None)
        return words

    def _added(self, variable: ast.Name) -> Iterator[tuple[str, ast.expr, bool]]:
        """Yield ``env["NAME"] = value`` and ``env.update(…)`` of the same function, and whether it always happens."""
        scopes = self.values.scopes
        made = root(scopes, variable)
        names = [dotted(each) for each in names_of(scopes, made)] if made is not None else []
        for change in (each for name in dict.fromkeys((variable.id, *names)) for each in self.changes.get(name, ())):
            if change.name and scopes.at[id(change.statement)] is scopes.at[id(variable)]:
                always = not isinstance(scopes.parents.get(id(change.statement)), ast.If)
                yield change.name, change.value, always

    def _follow(self, fields: list[Field]) -> None:
        """Note the places of words that were understood."""
        places = [(field.start, field.end) for field in fields]
        places += [(piece.start, piece.end) for field in fields for piece in field.pieces if piece.start >= 0]
        self.values.followed += places

    def _process_launches(self, fields: list[Field], node: ast.Call | None) -> Iterator[Launch]:
        environment = self.environment.at(node)
        for keyword in node.keywords if node else ():
            environment |= self._given_environment(keyword.value) if keyword.arg == "env" else {}
        unwrapped = unwrap(self.page, fields, environment)
        if (text := script_text(self.page, unwrapped.nested)) is not None:
            self._follow(fields)
            yield from self._mapped(text, unwrapped.environment, unwrapped.image)
        elif unwrapped.server:
            called = last_name(node.func) if node else ""
            background = unwrapped.background or called in ("Popen", "create_subprocess_exec")
            around = Surroundings(unwrapped.environment, unwrapped.container, background, image=unwrapped.image)
            self._follow(fields)
            yield launch(self.page, unwrapped.fields, around, unwrapped.starts)


def _is_word(node: ast.expr) -> bool:
    """Return whether an argument is the name of the program alone."""
    return isinstance(node, ast.Constant) and node.value in ("lmdeploy", "python", "docker")


def _outside(places: list[int], ranges: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the places that are in none of the ranges."""
    starts = sorted(first for first, _ in ranges)
    ends = list(accumulate((last for _, last in sorted(ranges)), max))
    for place in places:
        before = bisect_right(starts, place)
        if not before or ends[before - 1] <= place:
            yield place
