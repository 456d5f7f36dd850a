"""Write PowerShell scripts and batch files as bash reads them, each character at its place.

Only what launch scripts have: continued lines, variables, lists, comments. Anything else stays and is not valid
shell, which is reported.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from recommender.common.pattern import pattern
from recommender.review.script.model import Script
from recommender.review.script.source_map import Mapped, SourceText
from recommender.review.shell.inner_scripts import walk
from recommender.review.shell.state import complete_script
from recommender.review.shell.walker import new_run

Change = tuple[int, int, str]
_QUOTED = r"\"[^\"\n]*\"|'[^'\n]*'"
POWERSHELL = pattern(
    r"""(?P<inline>(?im:^[ \t]*(?:if|elseif)[ \t]*\([^\n{}]*\)[ \t]*\{)(?=[^\n{}]*\}[ \t]*(?:\n|\Z)))
    |(?P<note><\#(?:.*?\#>|.*)|(?<![^\s;])\#[^\n]*
        |(?im:^[ \t]*(?:\}[ \t]*)?(?:(?:if|else\w*|foreach|for|while|do|try|catch|finally|function|switch)\b
            (?![^\n]*\blmdeploy\b)[^\n]*|[{}][ \t]*$)))
    |(?P<join>`[ \t]*\n)
    |(?P<head>(?im:^[ \t]*param[ \t]*\())
    |(?P<process>(?m:^[ \t]*)(?:\$\w+[ \t]*=[ \t]*)?Start-Process[ \t]+
        (?:-(?:NoNewWindow|Wait|PassThru|WindowStyle[ \t]+\w+)[ \t]+)*
        (?:-FilePath[ \t]+)?(?P<program>[\w.:/\\-]+|\"[^\"\n$]*\")[ \t]+(?:-ArgumentList|-Args)[ \t]+
        (?:\$(?P<words>\w+)|(?:@\([ \t]*)?
            (?P<texts>(?:\"[^\"\n]*\"|'[^'\n]*')(?:[ \t]*,[ \t]*(?:\"[^\"\n]*\"|'[^'\n]*'|\$\w+))*)
        )[^\n]*)
    |(?P<piped>(?m:^[ \t]*)\$(?P<text>\w+)(?:[ \t]+-[ci]?replace[ \t]+[^|\n]*)?[ \t]*\|[ \t]*
        (?=(?:wsl|bash|sh|ssh|docker|podman|kubectl)(?:\.exe)?[ \t]))
    |(?P<set>(?m:^|(?<=[;{]))[ \t]*(?:\[[^\]\n]*\][ \t]*)*\$(?P<env>[Ee]nv:)?(?P<name>\w+)[ \t]*(?P<equals>\+?=)[ \t]*)
    |(?P<pause>(?i:\bStart-Sleep\b(?:[ \t]+-s\w*)?))
    |(?P<list>@\()
    |(?P<splat>(?<=\s)@(?P<array>[A-Za-z]\w*))
    |(?P<call>(?m:^[ \t]*&[ \t]+))
    |(?P<used>\$\{?[Ee]nv:(?P<variable>\w+)\}?)
    |(?P<slash>\\)""",
    re.VERBOSE | re.DOTALL,
)
ARRAY = pattern(r"\$(\w+)[ \t]*=[ \t]*@\(")
GROWS = pattern(r"\$(\w+)[ \t]*\+=")
ENDS = pattern(r"[;\n}]|\Z")
"""What ends a statement that adds to an array."""
BATCH = pattern(
    r"""(?P<note>(?im:^[ \t]*@?(?:rem\b|::?|echo\b|goto\b|exit\b|(?:(?:for|if)\b|[()])(?!.*\b(?:lmdeploy|set)\b)).*))
    |(?P<join>\^[ \t]*\n)
    |(?P<set>(?im:
        (?:^|(?<=[&(\"]))[ \t]*@?
        (?:if[ \t]+(?:not[ \t]+defined[ \t]+(?P<undefined>\w+)|\"%(?P<empty>\w+)%\"==\"\")[ \t]+)?
        set[ \t]+(?P<quote>\"?)(?P<name>\w+)=(?P<value>[^\n&\"]*)(?P=quote)
    ))
    |(?P<pause>(?im:^[ \t]*timeout[ \t]+/t))
    |(?P<head>(?im:^[ \t]*@?(?:call[ \t]+|@
        |(?P<aside>start[ \t]+(?:\"[^\"\n]*\"[ \t]+)?(?:/(?!wait\b)\w+[ \t]+)*)|start[ \t]+(?:/\w+[ \t]+)+)))
    |(?P<shell>(?i:\bcmd(?:\.exe)?[ \t]+/[ck]\b))
    |(?P<used>%(?P<variable>[A-Za-z_]\w*)%)
    |(?P<argument>%(?P<number>[1-9]))
    |(?P<then>(?<![&>])&(?!&))
    |(?P<slash>\\)""",
    re.VERBOSE,
)
WHOLE = pattern(r"(?:[^\n^]|\^[ \t]*\n|\^.)*")
"""A line with those that continue it."""
USED = pattern(r"%([A-Za-z_]\w*)%")
PARAMETER = pattern(r"\s*(?:\[(?:[^\[\]\"']|\"[^\"\n]*\")*\]\s*)*\$(?P<name>\w+)\s*(?P<equals>=\s*)?")
WITHIN = pattern(rf"(?P<quoted>{_QUOTED})|(?P<opens>[(\[{{])|(?P<closes>[)\]}}])|(?P<comma>,)")
MOST_LISTS, MOST_CHANGES = 10, 20_000
KEPT = frozenset({"note", "join", "used", "slash"})
"""Kinds of match that are replaced in a script's parameters too."""


def read(script: Script) -> Script:
    """Read a batch or PowerShell script. Offer no fixes: Windows continues lines differently from bash."""
    run = new_run(SourceText(script))
    run.elsewhere = True
    changes = _powershell if script.path.lower().endswith(".ps1") else _batch
    problems = walk(run, Mapped.whole(script.text).replaced(sorted(islice(changes(script.text), MOST_CHANGES))))
    return _without_foreign(complete_script(script, run, problems))


def _without_foreign(script: Script) -> Script:
    """Return a script without the problems outside its launches: what bash would refuse there is Windows' own syntax.

    A server in text that was not followed is reported by its mention.
    """
    if not script.launches:
        return script
    places = [launch.place for launch in script.launches]
    kept = (each for each in script.problems if any(p.start <= each.place.start <= p.end for p in places))
    return replace(script, problems=tuple(kept))


def _powershell(text: str) -> Iterator[Change]:
    inside, lists = range(0), 0
    arrays = frozenset(ARRAY.findall(text))
    lost: set[str] = set()
    for match in POWERSHELL.finditer(text):
        kind, (start, end) = match.lastgroup or "", match.span()
        lost |= set(GROWS.findall(match[0])) if kind == "note" and not match[0].lstrip().startswith("#") else set()
        if kind == "inline":
            close = text.index("}", end)
            yield start, end, "if true; then "
            yield close, close + 1, "; fi"
        elif kind == "head" and not inside:
            commas, close = _commas(text, end)
            inside = range(start, close)
            yield start, end, ""
            for first, last in zip([end, *(at + 1 for at in commas)], [*commas, close], strict=True):
                yield from _parameter(text, first, last)
        elif start in inside and kind not in KEPT:
            continue
        elif kind == "list" and lists < MOST_LISTS:
            lists += 1
            yield start, start + 1, ""
            yield from ((at, at + 1, " ") for at in _commas(text, end)[0])
        elif kind == "process":
            yield from _process(match)
        elif kind == "set" and match["equals"] == "+=" and match["name"] in arrays and text[end : end + 1] != "@":
            close = ENDS.search(text, end).start()  # type: ignore[union-attr]
            yield start, end, f"{match['name']}+=("
            yield from ((at, at + 1, " ") for at in _commas(text, end)[0] if at < close)
            yield close, close, ")"
        elif kind == "splat" and match["array"] in lost:
            yield start, end, f'"${{{match["array"]}[@]}}" "${{{match["array"]}_of_branches[@]}}"'
        elif kind in NEW:
            yield start, end, NEW[kind](match)


def _commas(text: str, start: int) -> tuple[list[int], int]:
    """Return the commas up to the bracket that closes here, and the place of that bracket."""
    depth, commas = 0, list[int]()
    for match in WITHIN.finditer(text, start):
        depth += (match["opens"] is not None) - (match["closes"] is not None)
        if depth < 0:
            return commas, match.start()
        commas += [match.start()] if match["comma"] and depth == 0 else []
    return commas, len(text)


def _process(match: re.Match[str]) -> Iterator[Change]:
    """Yield what makes Start-Process a command: its program, and its words in an array, a list or one text."""
    group = "words" if match["words"] else "texts"
    first, last = match.span(group)
    commas = [first + at for at in _commas(match[group], 0)[0]] if group == "texts" else []
    bare = int(group == "texts" and not commas)  # the program splits the one text into words
    before, behind = (' "${', '[@]}"') if group == "words" else (" ", "")
    yield match.start(), match.start("program"), ""
    yield match.end("program"), first + bare, before
    yield from ((at, at + 1, " ") for at in commas)
    yield last - bare, match.end(), behind


def _parameter(text: str, start: int, end: int) -> Iterator[Change]:
    """Yield what makes a parameter with a default an assignment; one without is left out, so it is unknown."""
    match = PARAMETER.match(text, start, end)
    if match and match["equals"]:
        yield start, match.end(), f"\n{match['name']}="
        yield end, min(end + 1, len(text)), ""
    else:
        yield start, min(end + 1, len(text)), ""


def _batch(text: str) -> Iterator[Change]:
    for match in BATCH.finditer(text):
        kind, value = match.lastgroup or "", match.span("value")
        if kind == "set":
            asked = match["undefined"] or match["empty"]
            before = f'[ -z "${asked}" ] && ' if asked else ""
            yield match.start(), value[0], f'{before}export {match["name"]}="'
            yield from ((at, at + 1, "/") for at in range(*value) if text[at] == "\\")
            yield from ((*used.span(), f"${{{used[1]}}}") for used in USED.finditer(text, *value))
            yield value[1], match.end(), '"'
        else:
            yield *match.span(), NEW[kind](match)
            if kind == "head" and match["aside"]:
                close = WHOLE.match(text, match.end()).end()  # type: ignore[union-attr]
                yield close, close, " &"


NEW: Mapping[str, Callable[[re.Match[str]], str]] = {
    "note": lambda match: "# " + match[0].replace("\n", " "),
    "join": lambda _: "\\\n",
    "set": lambda match: f"{'export ' if match['env'] else ''}{match['name']}{match['equals']}",
    "splat": lambda match: f'"${{{match["array"]}[@]}}"',
    "head": lambda _: "",
    "pause": lambda _: "sleep",
    "piped": lambda match: f'echo "${match["text"]}" | ',
    "call": lambda _: "",
    "used": lambda match: f"${{{match['variable']}}}",
    "shell": lambda _: "bash -c",
    "argument": lambda match: f"${match['number']}",
    "then": lambda _: ";",
    "slash": lambda _: "/",
}
