"""Follow scripts that lie in here-documents and strings: run now, written to a file, or passed on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.script.docker_run import DOCKERS
from recommender.review.script.mentions import LAUNCH
from recommender.review.script.model import HOSTS, Embedded
from recommender.review.script.sibling_files import ENVIRONMENT_FILE
from recommender.review.script.source_map import Field, Mapped
from recommender.review.script.unwrap import PYTHON, QUIET, SHELLS, Unwrapped, program, unwrap
from recommender.review.shell import grammar
from recommender.review.shell.inner_scripts import read_nested
from recommender.review.shell.state import Run, Where

if TYPE_CHECKING:
    from tree_sitter import Node

    from recommender.review.shell.walker import Shell

RUNS_STDIN = SHELLS | {"ssh", "sbatch", "qsub", "bsub", "at", "batch", "su", "kubectl", "oc", *DOCKERS}
"""Programs that run the script on their standard input."""
PASSES_ON = frozenset({"cat", "sed", "awk", "tr", "envsubst"})
"""Programs that write their standard input, changed or not."""
SUDO_TAKES = ("-u", "-g", "-h", "-p", "--user", "--group")
SCRIPT = pattern(
    r"(?:^|/)(?:cron\.d/)?[\w@.-]*?"
    r"(?:\.(?:sh|bash|zsh|service|ya?ml|py|slurm|sbatch|conf|json)|file|run|start|(?<=cron\.d/)[\w-]+)$"
)
QUOTED = ("string", "raw_string", "heredoc_body", "translated_string")
PRINTED = pattern(r"(?P<escape>\\(?=\\\\n\\\n))?\\?(?P<end>\\n\\)(?=\n)")
MOST_MENTIONS = 20
EXPANDED = pattern(
    r"\\(?P<escaped>[$`\\])|\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>\w+)(?::?-(?P<default>[^{}\n]*))?\})"
)

PRINTS = frozenset({"echo", "printf", "cat", "tee", "sed", "awk", "head", "tail", "jq", "say", "Write-Output", "set"})
"""Programs whose output may be a command that is run later."""


def keeps(shell: Shell, nodes: list[Node]) -> bool:
    """Return whether a redirection writes a script, or a pipe leads to a program that runs one."""
    for node in nodes:
        if node.type == "file_redirect":
            target = node.child_by_field_name("destination")
            if target is not None and SCRIPT.search(shell.words.raw(target).strip("\"'")):
                return True
        elif node.type == "command":
            texts = shell.words.raw(node).split(None, 12)
            names = {text.rpartition("/")[2] for text in texts}
            if names & (RUNS_STDIN | {"xargs", "parallel"}) or ("tee" in names and any(map(SCRIPT.search, texts))):
                return True
    return False


def heredoc(shell: Shell, node: Node, body: Node, where: Where) -> bool:
    """Follow the text after ``<<``; return whether the whole statement is read with it."""
    redirect = next((child for child in node.children if child.type == "heredoc_redirect"), None)
    inner = next((child for child in redirect.children if child.type == "heredoc_body"), None) if redirect else None
    if redirect is None or inner is None or body.type != "command":
        return False
    run, piped = shell.run, _piped(redirect)
    taker = _taken_by(shell, body)
    if piped and taker is not None and program(taker.fields[0]) in PASSES_ON:
        taker = _taken_by(shell, piped[-1])
    if taker is None:
        return False
    name, arguments = program(taker.fields[0]), [word.value or "-" for word in taker.fields[1:]]
    text = Field((), 0, 0, inner=(shell.mapped, inner.start_byte, inner.end_byte, _expands(shell, redirect)))
    target = _read_as(name, arguments)
    behind = _behind(taker.fields) if name in SHELLS else None
    if name in RUNS_STDIN and not target and (name not in SHELLS or behind is not None):
        return read_nested(run, replace(taker, nested=text, arguments=behind), where)
    span = shell.mapped.span(inner.start_byte, inner.end_byte)
    target = target or _target(shell, [node, redirect, *piped], taker.fields)
    if target.endswith((".service", ".yml", ".yaml", ".json", ".py", "file", ".conf", ENVIRONMENT_FILE)):
        expands = _expands(shell, redirect)
        run.embedded.append(Embedded(target, *span, tuple(_expanded(run, target, *span)) if expands else ()))
    elif target and LAUNCH.search(shell.words.raw(inner)):
        return read_nested(run, Unwrapped([], taker.environment, nested=text, arguments=None), where)
    elif not where.output_may_run and name != "read":
        run.followed.append(span)  # printed, or data
    return bool(target)


def _taken_by(shell: Shell, body: Node) -> Unwrapped | None:
    """Return the command that takes the text; None if it is a server, or starts another."""
    run = shell.run
    fields = [field for child in grammar.children(body) for field in shell.words.fields(child, run.state)][:200]
    unwrapped = unwrap(run.page, fields, run.state.environment()) if fields else None
    if unwrapped is None or unwrapped.server or unwrapped.nested or not unwrapped.fields:
        return None
    if program(unwrapped.fields[0]) == "sudo":
        words = (at for at, field in enumerate(unwrapped.fields) if at and not (field.value or "").startswith("-"))
        first = next((at for at in words if unwrapped.fields[at - 1].value not in SUDO_TAKES), 0)
        unwrapped.fields = unwrapped.fields[first:]
    return unwrapped


def _behind(fields: list[Field]) -> list[Field] | None:
    """Return the arguments of a script that a shell reads from its standard input; None if it reads a file."""
    at, reads = 1, False
    while at < len(fields) and (fields[at].value or ("" if reads else "-")).startswith(("-", "+")):
        word = fields[at].value or "-"
        at += 1
        if word == "--":
            break
        if not word.startswith("--"):
            reads |= "s" in word
            at += word.endswith("o")
    return fields[at:] if reads or at >= len(fields) else None


def _piped(redirect: Node) -> list[Node]:
    """Return the last command of a pipe behind the ``<<``, after the nodes around it."""
    around = [child for child in redirect.children if child.type == "pipeline"]
    while around and around[-1].type in ("pipeline", "redirected_statement"):
        around += around[-1].named_children[-1:] if around[-1].type == "pipeline" else around[-1].named_children[:1]
    return around if around and around[-1].type == "command" else []


def _read_as(name: str, arguments: list[str]) -> str:
    """Return the name of the file that a program takes its standard input for; empty if it is no file or a script."""
    if PYTHON.fullmatch(name):
        return "stdin.py"
    if name in ("kubectl", "oc"):
        return "stdin.yaml" if {"apply", "create", "replace"} & set(arguments) else ""
    if name == "docker-compose" or (name in DOCKERS and "compose" in arguments[:1]):
        return "compose.yaml"
    return "Dockerfile" if name in DOCKERS and {"build", "buildx"} & set(arguments[:1]) else ""


def _expands(shell: Shell, redirect: Node) -> bool:
    start = next((child for child in redirect.children if child.type == "heredoc_start"), None)
    return start is not None and shell.words.raw(start).isalnum()


def _expanded(run: Run, target: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield what the shell replaces in a text that it writes; in a unit, what it does not know is the host's."""
    for match in EXPANDED.finditer(run.page.text, start, end):
        variable = run.state.get(match["name"] or match["braced"]) if match["escaped"] is None else None
        text = match["escaped"] or (variable.text if variable else None) or match["default"]
        if text is None and target.endswith(".service"):
            text = HOSTS
        if text is not None:
            yield *match.span(), text


def _target(shell: Shell, around: list[Node], fields: list[Field]) -> str:
    """Return the file that a here-document is written to; empty if none."""
    redirects = [child for parent in around for child in parent.children if child.type == "file_redirect"]
    for child in redirects:
        target = child.child_by_field_name("destination")
        if target is not None and shell.words.raw(target) != "/dev/null":
            return shell.words.raw(target).strip("\"'")
    names = [field.known_prefix for field in fields]
    at = next((at for at, name in enumerate(names) if name.rpartition("/")[2] == "tee"), len(names))
    return next((name for name in names[at + 1 :] if not name.startswith("-")), "")


def leftovers(shell: Shell, root: Node) -> None:
    """Read the strings that mention a server and that nothing has followed yet, as scripts of their own."""
    run, mapped = shell.run, shell.mapped
    for match in list(LAUNCH.finditer(mapped.code))[:MOST_MENTIONS]:
        at = mapped.at[match.start()]
        node = next(_quoted(root, match.start()), None)
        if node is None or match.end() > node.end_byte:
            continue
        done = chain(
            reversed(run.followed), ((embedded.start, embedded.end) for embedded in run.embedded)
        )  # mostly the last
        if any(start <= at < end for start, end in done):
            continue
        if _only_shown(shell, node) or _only_looked_for(shell, node):
            run.followed.append(mapped.span(node.start_byte, node.end_byte))
            continue
        inner = _plain_lines(mapped.part(node.start_byte + 1, node.end_byte - 1, node.type == "string"))
        text = Field((), 0, 0, inner=(inner, 0, len(inner.code), False))
        read_nested(run, Unwrapped([], {}, nested=text, arguments=None), Where())


def _plain_lines(text: Mapped) -> Mapped:
    """Return a script that echo prints: of a Dockerfile, its lines end with a backslash, an n, and a backslash."""
    spans = (match.span(group) for match in PRINTED.finditer(text.code) for group in ("escape", "end"))
    gone = {at for span in spans for at in range(*span)}
    return text.without(gone) if gone else text


def _quoted(root: Node, at: int) -> Iterator[Node]:
    """Yield the innermost string around an offset."""
    node: Node | None = root.descendant_for_byte_range(at, at + 1)
    while node is not None:
        if node.type in QUOTED:
            yield node
        node = node.parent


def _only_shown(shell: Shell, node: Node) -> bool:
    """Return whether a string is kept in a variable that only printing commands use."""
    parent = node.parent
    if parent is None or parent.type != "variable_assignment":
        return False
    named = parent.child_by_field_name("name")
    use = re.compile(rf"\$\{{?{re.escape(shell.words.raw(named))}\b") if named else None
    calls = (call for call, _ in shell.run.calls.values())
    return use is not None and not any(
        use.search(word.raw) for call in calls if not is_quiet(call.words[0].value) for word in call.words
    )


def _only_looked_for(shell: Shell, node: Node) -> bool:
    """Return whether a string is an argument of a program that neither starts nor prints it, as of ``pgrep``."""
    around = node.parent
    while around is not None and around.type not in ("command", "program"):
        around = around.parent
    named = around.child_by_field_name("name") if around is not None else None
    name = shell.words.raw(named).rpartition("/")[2] if named is not None else ""
    return is_quiet(name) and name not in PRINTS


def is_quiet(name: str | None) -> bool:
    """Return whether a program's arguments may name a server without starting it."""
    return (name or "").rpartition("/")[2] in QUIET


def quiet(run: Run, fields: list[Field], where: Where) -> None:
    """Note that a command was understood that starts nothing, unless it prints its words and they are kept."""
    if fields and is_quiet(fields[0].value) and not (where.output_may_run and program(fields[0]) in PRINTS):
        run.follow(fields)
