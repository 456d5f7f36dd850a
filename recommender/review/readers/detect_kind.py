"""Detect a file's kind and read it. Never run, import or raise anything from it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import islice
from types import MappingProxyType
from typing import cast, get_args

from recommender.common.pattern import pattern
from recommender.review.readers.manifest_words import default_of
from recommender.review.script import mentions
from recommender.review.script.model import HOSTS, Kind, ReadProblem, Script, Span
from recommender.review.script.relocation import relocate
from recommender.review.script.sibling_files import ENVIRONMENT_FILE
from recommender.review.script.source_map import Mapped, line_starts

MOST_CHARACTERS = 2**20
NOTHING: Mapping[str, str] = MappingProxyType({})
READERS = {
    "command": "shell.walker",
    "bash": "shell.walker",
    "python": "readers.python.file",
    "docker": "shell.walker",
    "compose": "readers.manifest",
    "kubernetes": "readers.manifest",
    "systemd": "readers.unit_file",
    "steps": "readers.steps",
    "hcl": "readers.hcl_file",
    "markdown": "readers.markdown",
    "lines": "readers.lines",
    "program": "readers.programs.file",
}
ENDINGS: dict[Kind, str] = {
    "bash": ".sh .bash .zsh .ksh .fish .slurm .sbatch .job .ps1 .bat .cmd",
    "python": ".py .pyw .ipynb .star .bzl",
    "systemd": ".service .container",
    "steps": ".yml .yaml .json .jsonc .toml",
    "lines": ".mk .conf .ini",
    "hcl": ".tf .tfvars .hcl .nomad",
    "markdown": ".md .markdown .rst",
    "program": ".js .ts .mjs .cjs .jsx .tsx .mts .go .rs .java .kt .kts .groovy .scala .cs .nix",
    "other": ".rb .lua .php .xml .cfg .env",
}
SUFFIXES: dict[str, Kind] = {ending: kind for kind, endings in ENDINGS.items() for ending in endings.split()}
PROGRAM_NAMES = pattern(r"(?i)jenkinsfile(?:\..*)?")
OTHER_NAMES = pattern(r"(?:vagrant|rake|brew|gem)file")
STARLARK = "tiltfile"
"""Files in Starlark, a subset of Python."""
LINES = pattern(r"(?i)(?:.*\.|gnu)?makefile(?:\..*)?|procfile(?:\..*)?|\.?justfile|crontab")
STEPS = pattern(r"(?m)^[ \t]*(?:-[ \t]+)?(?:steps|stages|script|before_script)[ \t]*:")
"""Keys of a workflow, whose services are not compose's."""
PROCESSES = pattern(r"(?m)^[\"']?processes[\"']?[ \t]*:")
"""What process-compose starts: programs of the host, no containers."""
MOST_EMBEDDED = 40
DOCKERFILE = pattern(r"(?i)^(?:.*[._-])?(?:docker|container|earth)file(?:[._-].*)?$")
JINJA = pattern(r"(?i)\.(?:j2|jinja2?)$")
EXPRESSION = pattern(r"\{\{-?[ \t]*(?P<name>[A-Za-z_]\w*)?[^{}\n]*\}\}|\{[%#][^{}\n]*[%#]\}")
IMPORTS = pattern(
    r"(?m)^(?:import|from)[ \t]+[\w.]+(?:[ \t]+(?:import|as)\b|[ \t]*$|,)|^\w+[ \t]*=[ \t]*(?:\w+\.)*[A-Za-z]\w*\($"
)
COMMAND = pattern(r"\s*(?:\S*/)?(?:lmdeploy|docker|podman|sudo|nohup|exec|env|export|[A-Z_]+=\S*)\s")
UNIT = pattern(r"(?:[ \t]*(?:[#;][^\n]*)?\n)*\[[A-Z]\w*\][ \t]*\n")
STARTS = pattern(r"(?m)^\[Service\][ \t]*$(?:\n(?!\[).*)*?\n[ \t]*ExecStart[ \t]*=")
PYTHON = pattern(r"\b(?:from|import)[ \t]+lmdeploy\b|\bpipeline\s*\(")
"""Marks a Python block that uses LMDeploy."""
CONFIGS = pattern(r"\b(?:TurbomindEngineConfig|PytorchEngineConfig|pipeline)\s*\(")


def read(path: str, text: str, kind: Kind | None = None, explicit: bool = True) -> Script:
    """Read what a file starts; without ``kind``, detect it from name and content.

    ``explicit``: the user named the file, so one that starts nothing is a problem.
    """
    script = _with_embedded(_read(path, text, kind))
    if len(text) > MOST_CHARACTERS:
        return script
    return replace(script, problems=tuple(dict.fromkeys((*script.problems, *mentions.unread(script, explicit)))))


def _with_embedded(script: Script) -> Script:
    """Read the files within a file, as of here-documents, at their places in it."""
    whole, environment_files = Mapped.whole(script.text), dict[str, str]()
    for name, start, end, changes, _ in script.embedded[:MOST_EMBEDDED]:
        if name.endswith(ENVIRONMENT_FILE):
            there = ((first - start, last - start, new) for first, last, new in changes)
            environment_files[name] = whole.part(start, end).replaced(there).code
    named = (text for text in script.embedded if mentions.NAME.search(script.text, text.start, text.end))
    for name, start, end, changes, container in islice(named, MOST_EMBEDDED):
        inner = script.text[start:end]
        if name in environment_files:
            continue
        blank = "".join(char if char == "\n" else " " for char in script.text[:start])
        path = f"{script.path.rpartition('/')[0]}/{name.rpartition('/')[2]}" if "/" in script.path else name
        kind = kind_of(name, inner)
        if script.kind == "markdown" and kind in ("bash", "command"):
            inner = mentions.PLACEHOLDER.sub(_as_variable, inner)
        blank = _indented(blank) if kind == "python" and inner[:1].isspace() else blank
        if changes:
            file = _expanded(replace(script, environment_files=environment_files), start, end, changes, path, kind)
        else:
            file = _read(path, blank + inner, kind, environment_files)
        script = replace(
            script,
            launches=(
                *script.launches,
                *(launch._replace(guarded=True, container=launch.container or container) for launch in file.launches),
            ),
            tools=(*script.tools, *file.tools),
            calls=(
                *script.calls,
                *(call for call in file.calls if call.words and call.words[0].raw.startswith("--")),
            ),
            comments=tuple(sorted({*script.comments, *file.comments}, key=lambda comment: comment.place)),
            followed=(*script.followed, *file.followed),
            problems=(*script.problems, *_of_commands(script, file, start, end)),
            repairable=script.repairable and not changes,
        )
    return script


def _of_commands(script: Script, embedded: Script, start: int, end: int) -> Iterator[ReadProblem]:
    """Yield the problems of an embedded file; of a document's block only those at its commands.

    A guide also shows output, sessions of a debugger and templates, which no shell would take.
    """
    if script.kind != "markdown" or kind_of(embedded.path, "") not in ("bash", "python"):
        yield from embedded.problems
        return
    starts = mentions.LAUNCH if embedded.kind != "python" else PYTHON
    places = [match.span() for match in starts.finditer(script.text, start, end)]
    places += [(launch.place.start, launch.place.end) for launch in (*embedded.launches, *embedded.tools)]
    if places:
        first, last = min(places)[0], max(end for _, end in places)
        first, last = script.text.rfind("\n", 0, first) + 1, script.text.find("\n", last)
        last = end if last < 0 or embedded.kind == "python" else last
        first = start if embedded.kind == "python" else first
        seen: set[str] = set()
        for problem in embedded.problems:
            if first <= problem.place.start <= last and problem.message not in seen:
                seen.add(problem.message)
                yield problem


def _expanded(
    script: Script, start: int, end: int, changes: Sequence[tuple[int, int, str]], path: str, kind: Kind
) -> Script:
    """Read a text as the shell writes it, at its places in the script."""
    there = ((first - start, last - start, new) for first, last, new in changes)
    text = Mapped.whole(script.text).part(start, end).replaced(there)
    if kind == "python" and (margin := len(text.code) - len(text.code.lstrip(" \t"))):
        lines = [0, *(match.end() for match in re.finditer("\n", text.code))]
        blanks = (re.compile(r"[ \t]*").match(text.code, at, at + margin) for at in lines)
        text = text.without({at for blank in blanks if blank for at in range(*blank.span())})
    inner = _read(path, text.code, kind, script.environment_files)

    def place(span: Span) -> Span:
        return script.place(*text.span(span.start, span.end))

    return replace(
        inner,
        launches=relocate(inner.launches, place),
        tools=relocate(inner.tools, place),
        calls=relocate(inner.calls, place),
        comments=relocate(inner.comments, place),
        problems=relocate(inner.problems, place),
        followed=tuple(text.span(*each) for each in inner.followed),
    )


def _as_variable(placeholder: re.Match[str]) -> str:
    """Return a variable as long as a placeholder, which a shell would read as two redirections."""
    return f"${re.sub(r'[^A-Za-z0-9_]', '_', placeholder[1])}_"


def _indented(blank: str) -> str:
    """Return the blanks before an indented block of Python with a line that such a block may follow."""
    end = len(blank)
    for _ in range(MOST_EMBEDDED):
        end = blank.rfind("\n", 0, end)
        start = blank.rfind("\n", 0, max(end, 0)) + 1
        if end - start >= len("if 1:"):
            return f"{blank[:start]}if 1:{blank[start + len('if 1:') :]}"
    return blank


def _read(path: str, text: str, kind: Kind | None, environment_files: Mapping[str, str] = NOTHING) -> Script:
    kind = kind if kind is not None and kind in get_args(Kind) else kind_of(path, text)
    script = Script(path, kind, text, lines=line_starts(text), environment_files=environment_files)
    if len(text) > MOST_CHARACTERS:
        return _unread(script, f"this file has {len(text)} characters; the limit is {MOST_CHARACTERS}")
    if kind == "other":
        return script
    if JINJA.search(path) and (changes := tuple(_of_jinja(text, kind))):
        plain = _expanded(script, 0, len(text), changes, JINJA.sub("", path), kind)
        return replace(plain, path=path, text=text, lines=script.lines, repairable=False)
    name = READERS[kind]
    if kind in ("kubernetes", "steps", "compose") and "{{" in text and ".Values." in text:
        name = "readers.helm.template"
    if kind == "docker" and is_dockerfile(path, text):
        name = "readers.dockerfile"
    elif kind == "bash" and path.lower().endswith((".ps1", ".bat", ".cmd")):
        name = "shell.windows"
    elif kind == "bash" and (path.lower().endswith(".fish") or re.match(r"#!.*\bfish\b", text)):
        name = "shell.fish"
    elif kind == "python" and path.lower().endswith(".ipynb"):
        name = "readers.python.notebook"
    elif kind == "steps" and path.lower().endswith(".toml"):
        name = "readers.toml_file"
    reader = cast(Callable[[Script], Script], import_module(f"recommender.review.{name}").read)
    try:
        return reader(script)
    except (RecursionError, MemoryError):
        return _unread(script, "this is nested too deeply to read")


def _of_jinja(text: str, kind: Kind) -> Iterator[tuple[int, int, str]]:
    """Yield what a template becomes: defaults, unknown words, and nothing where a statement is."""
    for match in EXPRESSION.finditer(text):
        unknown = HOSTS if kind == "systemd" else f"${{{match['name']}}}" if match["name"] else ""
        yield *match.span(), default_of(match[0]) or unknown


def _unread(script: Script, message: str) -> Script:
    return replace(script, problems=(ReadProblem(message, script.place(0, 0)),))


def kind_of(path: str, text: str) -> Kind:
    """Detect a file's kind by its name, its first line, or its content."""
    name = JINJA.sub("", path.replace("\\", "/").rpartition("/")[2].lower())
    suffix = name[name.rfind(".") :] if "." in name else ""
    if is_dockerfile(path, ""):
        return "docker"
    if LINES.fullmatch(name):
        return "lines"
    if PROGRAM_NAMES.fullmatch(name) or name == STARLARK:
        return "program" if name != STARLARK else "python"
    if OTHER_NAMES.fullmatch(name):
        return "other"
    if SUFFIXES.get(suffix) == "steps" and suffix != ".toml":
        return _manifest(text) or ("compose" if "compose" in name and not PROCESSES.search(text) else "steps")
    if suffix in SUFFIXES and not (SUFFIXES[suffix] == "lines" and UNIT.match(text) and STARTS.search(text)):
        return SUFFIXES[suffix]
    if text.startswith("#!"):
        return "python" if "python" in text[: text.find("\n") if "\n" in text else None] else "bash"
    return _by_content(text)


def is_named_kind(name: str) -> bool:
    """Return whether a file without a telling suffix is read by its name: Dockerfile, Makefile, Jenkinsfile…"""
    return any(named.fullmatch(name) for named in (LINES, DOCKERFILE, PROGRAM_NAMES))


def is_dockerfile(path: str, text: str) -> bool:
    """Return whether a name or a first instruction is a Dockerfile's."""
    name = path.replace("\\", "/").rpartition("/")[2]
    first = next((line for line in text.splitlines()[:50] if line.strip() and not line.lstrip().startswith("#")), "")
    return bool(DOCKERFILE.match(name)) or bool(re.match(r"\s*(?:FROM|ARG)\s+\S+", first))


def _manifest(text: str) -> Kind | None:
    head = text[:200_000]
    if re.search(r"(?m)^[^\S\n]*[\"']?apiVersion[\"']?\s*:", head):
        return "kubernetes"
    services = re.search(r"(?m)^[\"']?services[\"']?\s*:", head)
    return "compose" if services and not STEPS.search(head) else None


def _by_content(text: str) -> Kind:
    manifest = _manifest(text)
    if manifest is not None:
        return manifest
    if is_dockerfile("", text):
        return "docker"
    if UNIT.match(text) and STARTS.search(text):
        return "systemd"
    if text.lstrip()[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
        return "steps"
    # A command may quote Python or JSON, so its first word decides before later content.
    lines = [line for line in text.splitlines()[:2000] if line.strip() and not line.lstrip().startswith("#")]
    first = lines[0] if lines else ""
    if not COMMAND.match(f"{first} ") and (IMPORTS.search(text) or CONFIGS.search(text)):
        return "python"
    if re.match(r"\s*(?:sudo\s+)?(?:docker|podman|nerdctl)\s", first):
        return "docker"
    single = [line for line, before in zip(lines, ["", *lines], strict=False) if not before.rstrip().endswith("\\")]
    return "command" if len(single) == 1 else "bash"
