"""Read files whose lines are commands: Makefiles, justfiles, Procfiles, programs of supervisord."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from recommender.common.pattern import pattern
from recommender.review.readers.assignments import ASSIGNED, beside_values, value_of, word_of
from recommender.review.readers.makefile import Makefile, without_functions
from recommender.review.script.model import Comment, Embedded, Script, Word
from recommender.review.script.source_map import Mapped, SourceText
from recommender.review.script.variables import Variables
from recommender.review.shell.inner_scripts import walk
from recommender.review.shell.state import Run, Where, complete_script, export
from recommender.review.shell.walker import new_run

# A line of a crontab, a recipe's line, `name: command` of a Procfile, `command=` of supervisord or another ini file.
COMMAND = pattern(
    r"(?:@\w+|(?:[\d*][\w*,/-]*[ \t]+){4}[\d*][\w*,/-]*)[ \t]+(?P<cron>.*)|\t[@+-]*(?P<recipe>.*)"
    r"|[\w-]+:[ \t]+(?P<proc>.*)|(?:commands?|exec\w*|cmd)[ \t]*=[ \t]*(?P<ini>.*)",
    re.DOTALL,
)
TOGETHER = frozenset({"proc", "ini"})
"""Lines whose programs all run at the same time."""
ENVIRONMENT = pattern(r"environment[ \t]*=[ \t]*(?P<pairs>.*)", re.DOTALL)
PAIR = pattern(r"([A-Za-z_]\w*)=(?:\"([^\"\n]*)\"|([^,\n]*))")
ARGUMENTS = pattern(r"args[ \t]*=(?P<rest>[^\n]*)")
SECTION = pattern(r"\[[^\]\n]*\]")
SUPERVISORD = pattern(r"[ \t]*\[(?:program|fcgi-program|eventlistener):")
"""Sections of supervisord, which splits commands into words without a shell."""
SIGNS = pattern(r"(?P<quoted>'[^']*'|\\.|%\(\w+\)[sd])|(?P<double>\"(?:[^\"\\]|\\.)*\")|[$`()]|[<>]&?", re.DOTALL)
EXPANDED = pattern(r"\\.|[$`]", re.DOTALL)
# `$(NAME)` of make and `%(ENV_NAME)s` of supervisord are variables; `$$` is the shell's dollar.
VARIABLE = pattern(r"\$\{(\w+)\}")
POSITIONAL = pattern(r"\{posargs(?::(?P<default>[^{}\n]*))?\}")
"""tox: the caller's words, or their default."""
MACRO = pattern(r"\$\((?P<make>\w+)\)|\{\{[ \t]*(?P<just>\w+)[ \t]*\}\}|%\((?:ENV_)?(?P<super>\w+)\)[sd]|\$(?=\$)")
# A justfile: its recipes are indented with blanks too, and their parameters have defaults.
MAKEFILE = pattern(r"(?i)(?:.*[/\\])?(?:(?:[^/\\]*\.|gnu)?makefile(?:\.\w+)?|[^/\\]*\.mk)")
INLINE = pattern(r"[^\s:=#;][^:=;\n]*::?(?!=)[^;=\n]*;(?P<recipe>.*)", re.DOTALL)
PROGRAM = pattern(r"#![^\n]*python")
MOST_SCRIPTS, MOST_TARGETS = 100, 8
MOST_SHARED = 100
"""Most variables passed to every command; beyond them, a command gets those that it names."""
NAME = pattern(r"[A-Za-z_]\w*")
PROCFILE = pattern(r"(?i)(?:.*[/\\])?procfile(?:\..*)?")
JUSTFILE = pattern(r"(?i)(?:.*[/\\])?\.?justfile")
DOTENV = pattern(r"(?m)^set[ \t]+dotenv-(?:load|required)\b(?![ \t]*:=[ \t]*false)")
RECIPE = pattern(r"[ \t]+[@-]*(?P<recipe>.*)", re.DOTALL)
SCRIPT = pattern(
    r"(?m)^[^\s:#=][^\n:]*+:[^\n]*+\n(?P<body>[ \t]+#![^\n]*(?:sh|python3?)\b[^\n]*\n"
    r"(?:[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)*)"
)
PARAMETER = pattern(r"[ \t][+*$]?(?P<name>[A-Za-z_][\w-]*)=(?P<value>\"[^\"\n]*\"|'[^'\n]*')")


LINE = pattern(r"(?:[^\n\\]|\\.|\\\n)*", re.DOTALL)
# In a file with sections, an indented line continues the one before.
CONTINUED = pattern(r"(?:[^\n\\]|\\.|\\\n)*(?:\n[ \t]+[^\s\[#;][^\n]*)*", re.DOTALL)


def read(script: Script) -> Script:
    """Read a file line by line."""
    page, code = SourceText(script), Mapped.whole(script.text)
    run = new_run(page)
    comments: list[Comment] = []
    lines, just = list(_lines(code)), bool(JUSTFILE.fullmatch(script.path))
    dotenv = PROCFILE.fullmatch(script.path) or (just and DOTENV.search(script.text))
    variables = beside_values(page, ".env", 0, 0) if dotenv else {}
    make = Makefile(run, variables) if MAKEFILE.fullmatch(script.path) else None
    sections = not just and bool(_heads(code, lines))
    lines = list(_lines(code, CONTINUED)) if sections else lines
    heads = _heads(code, lines) if sections else []
    of_section = dict(_environments(page, code.code, lines, heads))
    lines = list(_with_scripts(code, lines)) if just else lines
    for at, (start, end) in enumerate(lines):
        line = code.code[start:end]
        if line.lstrip()[:1] in ("#", ";") and not (just and line.lstrip().startswith("#!")):
            first = start + len(line) - len(line.lstrip())
            comments.append(Comment(code.code[first:end], page.place(first, end)))
        elif make is not None and make.takes(line, start, end):
            pass
        elif not sections and (assigned := ASSIGNED.fullmatch(line)):
            word = value_of(page, assigned, start, just, variables)
            if make is None or not make.skips(assigned, word):
                variables[assigned["name"]] = word
        elif just and line[:1] not in (" ", "\t"):
            for given in PARAMETER.finditer(line):
                variables[given["name"]] = word_of(page, given["value"], start + given.start("value"))
        elif command := (INLINE.fullmatch(line) if make else None) or (RECIPE if just else COMMAND).fullmatch(line):
            group = command.lastgroup or "recipe"
            environment = variables | of_section.get(bisect_right(heads, at), {}) if group == "ini" else variables
            part, head = code.part(start + command.start(group), end), bisect_right(heads, at)
            part = _of_section(code, part, line, lines[at + 1 : at + 2]) if sections else part
            part = part.replaced(_literals(code.code, lines[heads[head - 1]][0], part.code)) if head else part
            if just and PROGRAM.match(part.code):
                run.embedded.append(Embedded("recipe.py", start, end, tuple(_filled(code.code, start, end, variables))))
            else:
                text = _plain(without_functions(part) if make else part)
                _start(run, text, environment, Where(group in TOGETHER), make.targets if make else ())
    return complete_script(replace(script, comments=tuple(comments)), run, [])


def _of_section(code: Mapped, part: Mapped, line: str, behind: list[tuple[int, int]]) -> Mapped:
    """Return the command of a section's line: its lines joined, and with the arguments in the line behind it."""
    if line.startswith("commands"):  # tox: one command a line
        return part
    for start, end in behind:
        if given := ARGUMENTS.fullmatch(code.code[start:end]):  # circus
            rest = code.part(start + given.start("rest"), end)
            part = Mapped(f"{part.code} {rest.code}", [*part.at, start, *rest.at])
    return Mapped(part.code.replace("\n", " "), part.at)


def _literals(text: str, head: int, code: str) -> Iterator[tuple[int, int, str]]:
    """Yield edits that escape the shell's signs in a command of supervisord, which runs no shell."""
    for sign in SIGNS.finditer(code) if SUPERVISORD.match(text, head) else ():
        if sign["quoted"]:
            continue
        for match in EXPANDED.finditer(code, *sign.span()) if sign["double"] else (sign,):
            if not match[0].startswith("\\"):
                yield *match.span(), "".join(f"\\{letter}" for letter in match[0])


def _with_scripts(code: Mapped, lines: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the lines of a justfile; a recipe that is a script of its own counts as one."""
    scripts = dict(match.span("body") for match in islice(SCRIPT.finditer(code.code), MOST_SCRIPTS))
    done = 0
    for start, end in lines:
        if start >= done:
            done = scripts.get(start, end)
            yield start, done


def _lines(code: Mapped, one: re.Pattern[str] = LINE) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines; a backslash at the end joins the next one."""
    for match in one.finditer(code.code):
        if match[0].strip():
            yield match.span()


def _heads(code: Mapped, lines: list[tuple[int, int]]) -> list[int]:
    """Return which lines begin a section."""
    return [at for at, (start, end) in enumerate(lines) if SECTION.fullmatch(code.code[start:end].strip())]


def _environments(
    page: SourceText, code: str, lines: list[tuple[int, int]], heads: list[int]
) -> Iterator[tuple[int, dict[str, Word]]]:
    """Yield the variables of each program's section, by the number of its head."""
    for number, (first, last) in enumerate(pairwise([0, *heads, len(lines)])):
        found: dict[str, Word] = {}
        for start, end in lines[first:last]:
            if given := ENVIRONMENT.fullmatch(code[start:end]):
                for pair in PAIR.finditer(code, start + given.start("pairs"), end):
                    group = 2 if pair[2] is not None else 3
                    found[pair[1]] = word_of(page, pair[group].strip(), pair.start(group))
        if found:
            yield number, found


def _plain(text: Mapped) -> Mapped:
    """Replace the tool's variables by those of the shell, at their places."""
    words = ((*match.span(), match["default"] or '"$@"') for match in POSITIONAL.finditer(text.code))
    text = text.replaced(words)
    named = ((match, match["make"] or match["just"] or match["super"]) for match in MACRO.finditer(text.code))
    return text.replaced((*match.span(), f"${{{name}}}" if name else "") for match, name in named)


def _filled(code: str, start: int, end: int, variables: Mapping[str, Word]) -> Iterator[tuple[int, int, str]]:
    """Yield a justfile's variables within a recipe that is a script of its own, with their values."""
    for match in MACRO.finditer(code, start, end):
        value = variables[match["just"]].value if match["just"] in variables else None
        if value is not None:
            yield *match.span(), value


def _start(
    run: Run, line: Mapped, environment: dict[str, Word], where: Where, targets: Sequence[dict[str, Word]] = ()
) -> None:
    """Follow one command, with variables of its own; the further targets that it makes give it others."""
    first, *others = targets or [{}]
    before = len(run.launches)
    _follow(run, line, environment | first, where)
    mine = run.launches[before:]
    for other in others[:MOST_TARGETS]:
        _follow(run, line, environment | other, where)
        launches = [launch for launch, _ in run.launches[before + len(mine) :]]
        del run.launches[before + len(mine) :]
        if len(launches) == len(mine):
            pairs = zip(mine, launches, strict=True)
            mine = [(one._replace(alternatives=(*one.alternatives, more)), frame) for (one, frame), more in pairs]
    run.launches[before:] = mine


def _follow(run: Run, line: Mapped, environment: dict[str, Word], where: Where) -> None:
    named = (environment[match[1]].value or "" for match in VARIABLE.finditer(line.code) if match[1] in environment)
    if not any("lmdeploy" in text or "serve" in text for text in (line.code, *named)):
        return
    run.state, run.functions = Variables(), {}
    used = (name for name in NAME.findall(line.code) if name in environment)
    export(run, dict(islice(environment.items(), MOST_SHARED)) | {name: environment[name] for name in used})
    walk(run, line, where)
