"""Find mentions of a server that a reader did not follow.

A review is never silent about them: a reader records the ranges that it followed, and each mention outside them is a
problem. So is each word of a launch whose value the file does not determine.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.script.model import ReadProblem
from recommender.review.script.sweeps import SWEPT, of_models, variables_of

if TYPE_CHECKING:
    from recommender.review.script.model import GivenOption, Launch, Script, Span, Word

# The words of a command, in a line or in a list of any language.
_GAP = r"(?:[\s\"',\\]|\\n)+"
LAUNCH = pattern(
    rf"\blmdeploy{_GAP}(?:serve{_GAP}|lite{_GAP}|chat\b|convert\b)|\bserve{_GAP}(?:api_server|proxy)\b"
    rf"|\blmdeploy\.serve\.(?:openai\.api_server|proxy\.proxy)\b|-m{_GAP}lmdeploy\.serve\.\w+"
)
NAME = pattern(r"lmdeploy", re.IGNORECASE)
INSTALLED_AS = pattern(r"\blmdeploy(?:\[[\w,-]*\])?(?:={2,3}|-|(?:\.git)?@v?)[\"']?\$(?:\{\{?[ \t]*(?:\w+\.)*)?(\w+)")
"""An installation whose release is a variable."""
# Options whose value no rule judges, or which must not stand in a file.
UNJUDGED = frozenset({"--api-keys", "--revision", "--model-name", "--download-dir", "--served-model-name"})
JUDGED_OF_ANSWERS = frozenset({"max_new_tokens", "response_format"})
"""Fields of a GenerationConfig that rules judge."""
UNFOLLOWED = "a server is mentioned here, but the review cannot follow how it is started"
UNREAD_KIND = "this kind of file is not read, so the server that is mentioned here was not reviewed"
LITERALS = ("{", "[", "dict(")
"""How dictionaries and lists of Python begin: known, though no single word.

In a command such a beginning is a placeholder: of an f-string, Ansible or Helm."""
JSON = '{"'
"""How JSON begins that a shell takes apart: LMD104 reports it."""
OF_PLATFORM = pattern(r"\$\{NOMAD_\w+\}|\bjson\.dumps\(|\$\{#\w+\[@\]\}")
"""What Nomad sets when it places a task, as the number of a port; JSON from a program; how many GPUs a list has."""
COUNT = pattern(r"\"?\$\{#\w+\[@\]\}\"?")
"""The number of elements of a shell's array."""
OF_INSTANCE = pattern(
    r"%[iI](?!\w)|(?<=\d)\{\}|\{\{-?\s*\.?[iI](?:tem|TEM)(?:\.\w+)?\s*-?\}\}|%\(process_num\)\d*d|\$\{?(?:SLURM_\w+|OMPI_\w+|(?:NODE_)?RANK|LWS_\w+|MASTER_ADDR)\b\}?"
)
"""What tells the servers of one file apart: of systemd, supervisord, xargs, loops of Taskfiles and
Ansible, and what starts jobs on several hosts."""
SWAPPER = pattern(r"(?m)^[ \t]+cmd:[ \t]")
"""A model of llama-swap, which gives each a port."""
GUARDED = pattern(r"-n\s+\"?\$\{?(\w+)(?::?-)?\}?\"?\s*\]\]?\s*(?:&&|;?\s*then\b)|\$\{(\w+):?\+")
"""A variable that a script uses only if its caller sets it."""
EMPTY = pattern(r"\"?\$\{\w+:?-\}\"?")
"""The value of a variable that is empty unless the caller sets it, as of further options."""
COMPUTED = pattern(r"\"?(?:\$\([^\n]*\)|`[^\n`]*`)\"?")
"""What a shell or a program computes, as the port of one of several servers, or a free one."""
BOUND = pattern(
    r"\bfor\b(?P<each>[^\n:]{1,200}?)\bin\b|\bdef[ \t]{1,8}\w{1,80}\((?P<given>[^()]{0,500})"
    r"|^[ \t]*(?P<called>\w{1,80})[ \t]*=(?![^\n]*\b(?:environ|getenv|argv|args|input)\b)"
    r"[ \t]*(?:await[ \t]+)?[\w.]{1,80}\(",
    re.MULTILINE,
)
"""What binds variables of Python: a loop, a function's parameters, and the result of a call, as of a free port.

A call that only passes on what the script's caller sets does not count."""
COUNTED = frozenset({"server-port", "node-rank", "dp-rank", "dist-init-addr"})
"""Options that differ between the servers of a script, so that it computes their values."""
PLACEHOLDER = pattern(r"(?<![<\w])<((?:--?)?[^\W\d_](?:[\w ./-]{0,40}[\w.])?)>")
"""What the reader of a page replaces, as ``<port>``."""
COMBINED = "its branches make more commands than are judged: each choice is judged, but not every combination"
MOST = 10
MOST_NAMED = 6
LONGEST = 60


def unread(script: Script, explicit: bool) -> Iterator[ReadProblem]:
    """Yield what was not followed. ``explicit``: the user named the file, so that it should start something."""
    unfollowed = list(_unfollowed(script))
    yield from unfollowed
    if script.generated:
        return
    optional = frozenset(name for match in GUARDED.finditer(script.text) for name in match.groups() if name)
    values = [(assignment.name, assignment.word.raw) for assignment in script.assignments]
    optional |= {name for name, raw in values if COUNT.fullmatch(raw)}
    computed = frozenset(name for name, raw in values if COMPUTED.fullmatch(raw)) | _bound(script)
    if script.kind == "steps" and SWAPPER.search(script.text):
        computed |= {"PORT"}
    swept = frozenset(SWEPT.findall(script.text))
    judged = {launch.place for launch in of_models(script)}
    yield from (ReadProblem(COMBINED, launch.place) for launch in script.launches if launch.more)
    for launch in (*script.launches, *script.tools):
        known = launch._replace(model=None) if launch.place in judged and not launch.unsure else launch
        yield from _unknown(script, known, optional, computed | swept, swept)
    if explicit and not (script.launches or script.tools or script.problems or unfollowed):
        yield from _nothing(script)


def _unfollowed(script: Script) -> Iterator[ReadProblem]:
    """Yield each mention of a server that nothing followed."""
    found = outside(script.text, LAUNCH, [*script.followed, *_comments(script)])
    message = UNREAD_KIND if script.kind == "other" else UNFOLLOWED
    yield from (ReadProblem(message, script.place(*span)) for span in islice(found, MOST))


def _comments(script: Script) -> list[tuple[int, int]]:
    return [(each.place.start, each.place.end) for each in script.comments]


def outside(
    text: str, regex: re.Pattern[str], ranges: Iterable[tuple[int, int]], group: str | int = 0
) -> Iterator[tuple[int, int]]:
    """Yield where a group of a pattern stands that begins in none of the ranges."""
    last, ends = 0, list[int]()
    ranges = sorted(ranges)
    for _, end in ranges:
        last = max(last, end)
        ends.append(last)
    for match in regex.finditer(text):
        start = match.start(group)
        before = bisect_right(ranges, (start, len(text) + 1))
        if not before or ends[before - 1] <= start:
            yield match.span(group)


def _unknown(
    script: Script, launch: Launch, optional: frozenset[str], computed: frozenset[str], swept: frozenset[str]
) -> Iterator[ReadProblem]:
    """Yield one problem for the words of a launch that the file does not determine."""
    left_out = (
        {assignment.name for assignment in script.assignments if EMPTY.fullmatch(assignment.word.raw)}
        if launch.unread
        else ()
    )
    words = [word for word in launch.unread if word.variable not in left_out]
    words += [launch.model] if launch.model and launch.model.value is None else []
    words += [
        word
        for option in launch.options
        for word in option.values
        if word.value is None and not is_unjudged(option.name) and not _is_counted(option, word, computed)
    ]
    words += [word for word in launch.extra if word.value is None]
    if launch.starts == "pipeline":
        words = [word for word in words if not word.raw.startswith(LITERALS)]
    words = [word for word in words if word.quoted or not word.raw.startswith(JSON)]
    words = [word for word in words if not OF_PLATFORM.search(word.raw) and word.variable not in optional]
    if script.kind == "markdown":
        words = [word for word in words if not PLACEHOLDER.search(script.text[word.place.start : word.place.end])]
    if words:
        reported = {problem.place for problem in script.problems}
        words = sorted((word for word in words if word.place not in reported), key=lambda word: word.place)
        yield from _undetermined(words, launch, swept) if words else ()
    elif (
        launch.unsure and launch.model is None and launch.starts not in ("proxy", "tool") and not _asks_for_help(launch)
    ):
        yield ReadProblem("this file does not say with which model, and with what else, this starts", launch.place)


def _undetermined(words: list[Word], launch: Launch, swept: frozenset[str]) -> Iterator[ReadProblem]:
    """Yield one problem that names these words of a launch."""
    names = list(dict.fromkeys(_shown(word) for word in words))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    shown = f"{', '.join(names[:MOST_NAMED])}{more}"
    turned = set.intersection(*(set(_known_places(turn)) for turn in launch.turns)) if launch.turns else ()
    listed = all(word.place in turned or swept.issuperset(variables_of(word)) for word in words)
    if listed:
        what = f"a loop lists the values of {shown}; rules report only errors of single values"
    else:
        what = f"not known from this file: {shown}; rules skip what depends on it"
    yield ReadProblem(what, _place(words, launch), listed)


def _known_places(launch: Launch) -> Iterator[Span]:
    """Yield the places of the words that a turn of a loop determines."""
    words = [word for option in launch.options for word in option.values]
    yield from (word.place for word in (*words, launch.model) if word is not None and word.value is not None)


def _is_counted(option: GivenOption, word: Word, computed: frozenset[str]) -> bool:
    """Return whether the script itself computes a port or a rank."""
    if option.name.lstrip("-").replace("_", "-") not in COUNTED:
        return False
    left = OF_INSTANCE.sub("", word.raw)
    if COMPUTED.fullmatch(word.raw) is not None or (left != word.raw and "$" not in left):
        return True
    used = re.findall(r"\$\{?(\w+)", left)
    return computed.issuperset(variables_of(word)) or (bool(used) and computed.issuperset(used))


def _bound(script: Script) -> frozenset[str]:
    """Return the variables that the script itself fills: a shell's arrays, loops and parameters of Python."""
    if script.kind == "python":
        heads = (match["each"] or match["given"] or match["called"] or "" for match in BOUND.finditer(script.text))
        return frozenset(name for head in heads for name in re.findall(r"[A-Za-z_]\w*", head))
    return frozenset(each.name for each in script.assignments if each.word.raw.startswith("("))


def _asks_for_help(launch: Launch) -> bool:
    return any(option.name in ("-h", "--help", "--version") for option in launch.options)


def _shown(word: Word) -> str:
    text = " ".join(word.raw.split()).strip("\"'") or word.variable
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} (cut)"


def is_unjudged(name: str) -> bool:
    """Return whether no rule judges the value of an option, or of a keyword of Python."""
    whose, _, keyword = name.rpartition(".")
    if whose == "GenerationConfig":
        return keyword not in JUDGED_OF_ANSWERS
    plain = keyword.replace("_", "-").lstrip("-")
    return len(plain) > 2 and any(option.startswith(f"--{plain}") for option in UNJUDGED)


def _place(words: list[Word], launch: Launch) -> Span:
    inside = (word.place for word in words if launch.place.start <= word.place.start)
    return next(inside, words[0].place)


def _nothing(script: Script) -> Iterator[ReadProblem]:
    """Yield a problem for a file that mentions LMDeploy in its code and starts nothing."""
    what = "LMDeploy is mentioned, but this file starts no server that the review can follow"
    prose = script.followed if script.kind == "markdown" else ()
    places = outside(script.text, NAME, [*_comments(script), *prose])
    yield from (ReadProblem(what, script.place(*span)) for span in islice(places, 1))
