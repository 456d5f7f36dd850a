"""Read files whose lines are commands: Makefiles, justfiles, Procfiles, programs of supervisord."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, pairwise

from recommender.common.pattern import pattern
from recommender.review.script import beside
from recommender.review.script.model import Comment, Script, Word
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText
from recommender.review.script.variables import Variables
from recommender.review.shell.nested import walk
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
# `NAME = value` of make, with its operators.
ASSIGNED = pattern(
    r"(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*(?P<more>\+?)[:?]{0,3}=[ \t]*(?P<value>.*)", re.DOTALL
)
DEFINED = pattern(
    r"(?m)^define[ \t]+(?P<name>\w+)[ \t]*[:?]{0,3}=?[ \t]*\n(?P<value>(?:(?!endef\b)[^\n]*+\n){0,50}+)endef\b"
)
MADE = pattern(r"\$[({](\w+)[)}]")
ENVIRONMENT = pattern(r"environment[ \t]*=[ \t]*(?P<pairs>.*)", re.DOTALL)
PAIR = pattern(r"([A-Za-z_]\w*)=(?:\"([^\"\n]*)\"|([^,\n]*))")
ARGUMENTS = pattern(r"args[ \t]*=(?P<rest>[^\n]*)")
SECTION = pattern(r"\[[^\]\n]*\]")
# `$(NAME)` of make and `%(ENV_NAME)s` of supervisord are variables; `$$` is the shell's dollar.
VARIABLE = pattern(r"\$\{(\w+)\}")
POSITIONAL = pattern(r"\{posargs(?::(?P<default>[^{}\n]*))?\}")
"""Of tox: the words of the caller, or their default."""
MACRO = pattern(r"\$\((?P<make>\w+)\)|\{\{[ \t]*(?P<just>\w+)[ \t]*\}\}|%\((?:ENV_)?(?P<super>\w+)\)[sd]|\$(?=\$)")
# A justfile: its recipes are indented with blanks too, and their parameters have defaults.
MAKEFILE = pattern(r"(?i)(?:.*[/\\])?(?:(?:gnu)?makefile(?:\.\w+)?|[^/\\]*\.mk)")
PREREQUISITES = pattern(r"[^\s:=#;][^:=;\n]*::?(?!=)[^;=]*", re.DOTALL)
"""A rule's line without a recipe: it has names, no commands."""
INLINE = pattern(r"[^\s:=#;][^:=;\n]*::?(?!=)[^;=\n]*;(?P<recipe>.*)", re.DOTALL)
INCLUDED = pattern(r"[-s]?include[ \t]+(?P<name>[^\s$]+)[ \t]*")
MOST_INCLUDED, MOST_SCRIPTS = 20, 100
MOST_SHARED = 100
"""Variables that every command gets; of further ones, those that it names."""
NAME = pattern(r"[A-Za-z_]\w*")
PROCFILE = pattern(r"(?i)(?:.*[/\\])?procfile(?:\..*)?")
JUSTFILE = pattern(r"(?i)(?:.*[/\\])?\.?justfile")
DOTENV = pattern(r"(?m)^set[ \t]+dotenv-(?:load|required)\b(?![ \t]*:=[ \t]*false)")
RECIPE = pattern(r"[ \t]+[@-]*(?P<recipe>.*)", re.DOTALL)
SCRIPT = pattern(
    r"(?m)^[^\s:#=][^\n:]*+:[^\n]*+\n(?P<body>[ \t]+#![^\n]*sh\b[^\n]*\n(?:[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)*)"
)
JUST_VALUE = pattern(
    r"(?:env(?:_var_or_default)?\([ \t]*[\"'][^\"'\n]*[\"'][ \t]*,[ \t]*)?(?P<value>\"[^\"\n]*\"|'[^'\n]*')[ \t]*\)?"
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
    make, left = bool(MAKEFILE.fullmatch(script.path)), MOST_INCLUDED
    made = _known(page, code, just, make)
    sections = not just and any(SECTION.fullmatch(code.code[start:end].strip()) for start, end in lines)
    lines = list(_lines(code, CONTINUED)) if sections else lines
    heads = [
        at for at, (start, end) in enumerate(lines) if sections and SECTION.fullmatch(code.code[start:end].strip())
    ]
    of_section = dict(_environments(page, code.code, lines, heads))
    lines = list(_with_scripts(code, lines)) if just else lines
    for at, (start, end) in enumerate(lines):
        line = code.code[start:end]
        if line.lstrip()[:1] in ("#", ";") and not (just and line.lstrip().startswith("#!")):
            first = start + len(line) - len(line.lstrip())
            comments.append(Comment(code.code[first:end], page.place(first, end)))
        elif make and left and (included := INCLUDED.fullmatch(line)):
            left -= 1
            made |= _beside(page, included["name"], start, end)
        elif make and PREREQUISITES.fullmatch(line):
            run.followed.append((start, end))
        elif not sections and (assigned := ASSIGNED.fullmatch(line)):
            made[assigned["name"]] = _assigned(page, assigned, start, just, made)
        elif just and line[:1] not in (" ", "\t"):
            for given in PARAMETER.finditer(line):
                made[given["name"]] = _word(page, given["value"], start + given.start("value"))
        elif command := (make and INLINE.fullmatch(line)) or (RECIPE if just else COMMAND).fullmatch(line):
            group = command.lastgroup or "recipe"
            environment = made | of_section.get(bisect_right(heads, at), {}) if group == "ini" else made
            part = code.part(start + command.start(group), end)
            part = _of_section(code, part, line, lines[at + 1 : at + 2]) if sections else part
            _start(run, _plain(part), environment, Where(background=group in TOGETHER))
    return complete_script(replace(script, comments=tuple(comments)), run, [])


def _of_section(code: Mapped, part: Mapped, line: str, behind: list[tuple[int, int]]) -> Mapped:
    """Return the command of a section's line: its lines joined, and with the arguments in the line behind it."""
    if line.startswith("commands"):  # of tox: one a line
        return part
    for start, end in behind:
        if given := ARGUMENTS.fullmatch(code.code[start:end]):  # of circus
            rest = code.part(start + given.start("rest"), end)
            part = Mapped(f"{part.code} {rest.code}", [*part.at, start, *rest.at])
    return Mapped(part.code.replace("\n", " "), part.at)


def _known(page: SourceText, code: Mapped, just: bool, make: bool) -> dict[str, Word]:
    """Return what a .env beside the file sets, and the texts that a Makefile defines."""
    dotenv = PROCFILE.fullmatch(page.script.path) or (just and DOTENV.search(page.text))
    made = _beside(page, ".env", 0, 0) if dotenv else {}
    for text in DEFINED.finditer(code.code) if make else ():
        made[text["name"]] = _word(page, text["value"].replace("\\\n", "  ").rstrip("\n"), text.start("value"))
    return made


def _with_scripts(code: Mapped, lines: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the lines of a justfile; a recipe that is a script of its own counts as one."""
    scripts = dict(match.span("body") for match in islice(SCRIPT.finditer(code.code), MOST_SCRIPTS))
    done = 0
    for start, end in lines:
        if start >= done:
            done = scripts.get(start, end)
            yield start, done


def _beside(page: SourceText, name: str, start: int, end: int) -> dict[str, Word]:
    """Return what a file beside this one assigns: foreman's .env, what a Makefile includes."""
    source = beside.read(page.script.path, name)
    place = page.place(start, end)
    assigned = (ASSIGNED.fullmatch(line) for line in (source.text.splitlines() if source else ()))
    pairs = ((match["name"], match["value"].strip().strip("\"'")) for match in assigned if match)
    return {name: Word(text, None if "$" in text else text, place, variable=name) for name, text in pairs}


def _lines(code: Mapped, one: re.Pattern[str] = LINE) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines; a backslash at the end joins the next one."""
    for match in one.finditer(code.code):
        if match[0].strip():
            yield match.span()


def _assigned(page: SourceText, match: re.Match[str], start: int, just: bool, made: Mapping[str, Word]) -> Word:
    """Return the value of an assignment, with the variables that the lines before it set."""
    text, at = match["value"].strip(), start + match.start("value")
    if just:  # an expression: only a text, or the default of an environment variable, is known
        given = JUST_VALUE.fullmatch(text)
        return _word(page, given["value"], at + given.start("value")) if given else _word(page, "$", at)
    before = made.get(match["name"]) if match["more"] else None
    names = MADE.findall(text)
    if before is None and not names:
        return _word(page, text, at)
    word = page.word(Field((Piece(None),), at, at + len(text), match["name"]))
    known = [made[name].value if name in made else None for name in names]
    if None in known or "$" in MADE.sub("", text) or (before is not None and before.value is None):
        return word
    added = MADE.sub(lambda macro: made[macro[1]].value or "", text)
    return word._replace(value=f"{before.value} {added}" if before is not None else added)


def _word(page: SourceText, text: str, start: int) -> Word:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text, start = text[1:-1], start + 1
    known = not any(sign in text for sign in ("$", "%(", "{{"))
    return page.word(Field((Piece(text if known else None, start, start + len(text)),), start, start + len(text)))


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
                    found[pair[1]] = _word(page, pair[group].strip(), pair.start(group))
        if found:
            yield number, found


def _plain(text: Mapped) -> Mapped:
    """Replace the tool's variables by those of the shell, at their places."""
    words = ((*match.span(), match["default"] or '"$@"') for match in POSITIONAL.finditer(text.code))
    text = text.replaced(words)
    named = ((match, match["make"] or match["just"] or match["super"]) for match in MACRO.finditer(text.code))
    return text.replaced((*match.span(), f"${{{name}}}" if name else "") for match, name in named)


def _start(run: Run, line: Mapped, environment: dict[str, Word], where: Where) -> None:
    """Follow one command, with variables of its own."""
    named = (environment[match[1]].value or "" for match in VARIABLE.finditer(line.code) if match[1] in environment)
    if not any("lmdeploy" in text or "serve" in text for text in (line.code, *named)):
        return
    run.state, run.functions = Variables(), {}
    used = (name for name in NAME.findall(line.code) if name in environment)
    export(run, dict(islice(environment.items(), MOST_SHARED)) | {name: environment[name] for name in used})
    walk(run, line, where)
