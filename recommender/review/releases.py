"""Find the LMDeploy release of a launch: its image, an installation in the script, a pin in the files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from packaging.version import Version

from recommender.common.pattern import pattern
from recommender.knowledge.store import Store
from recommender.review.release_ranges import contains, newest, older, ranges
from recommender.review.script import batch_job, sibling_files
from recommender.review.script.images import VERSION, is_published, release_in
from recommender.review.script.mentions import INSTALLED_AS
from recommender.review.script.model import Call, Launch, Script, Span, Word
from recommender.review.script.virtual_environments import environment, is_same

NAMED_IMAGE = pattern(rf"[\"'](?:[\w.:-]+/)+lmdeploy:v?{VERSION}(?![\d.])")
PULLED_IMAGE = pattern(rf"(?:[\"'\s]|//)(?:[\w.:#-]+/)+lmdeploy:v?{VERSION}(?![\d.])")
METADATA = pattern(r"(?m)^# /// script[ \t]*\n(?:#[^\n]*\n)*?# ///[ \t]*$")
"""The requirements in the comments of a Python script, which uv and pipx install."""
INSTALLED = pattern(
    rf"\blmdeploy(?:\[[\w,-]*\])?\s*(?:={{1,3}}|@)\s*[\"']?{VERSION}(?![\d.*])"
    rf"|\blmdeploy-{VERSION}(?=(?:\+\w+)?-(?:cp|py)\d)"  # a wheel
    rf"|/lmdeploy(?:\.git@|@|/archive/(?:refs/tags/)?)v?{VERSION}(?![\d*]|\.\d)"  # a tag
    rf"|\bgit clone\b(?=[^\n;&|]*/lmdeploy(?:\.git)?[\"']?(?:\s|$))[^\n;&|]*?\s(?:-b|--branch)[ =]v?{VERSION}(?![\d.])"
)
"""A release that is installed: its number, that of a wheel, a tag of the source."""
# In uv.lock, poetry.lock and pixi.lock; in Pipfile.lock.
LOCKED = pattern(
    rf"name[\"']?\s*[=:]\s*[\"']lmdeploy[\"'],?\s*version[\"']?\s*[=:]\s*[\"']{VERSION}"
    rf"|\"lmdeploy\"\s*:\s*\{{[^{{}}]*?\"version\"\s*:\s*\"=={VERSION}"
)
BESIDE = (
    *("requirements.txt", "requirements.in", "constraints.txt", "pyproject.toml", "uv.lock", "poetry.lock"),
    *("Pipfile.lock", "pixi.lock", "environment.yml", "environment.yaml", "conda.yaml", "conda.yml", "Dockerfile"),
)
"""Neighbouring files that pin what is installed, the most reliable first."""
GETS = frozenset({"install", "pull", "import", "add", "create", "clone", "instance", "update", "upgrade"})
"""Words of commands (pip, conda, docker, apptainer, enroot, git) that fetch what is run later."""
BUILDS = frozenset({"apptainer", "singularity"})
"""Programs whose build command fetches an image; other programs' only names one."""
RUNS = pattern(r"\b(?:uvx?|pipx)\b[^;&|#]*$")
"""Text before a release, in its line, that shows that it is installed to run."""
EPHEMERAL = pattern(r"\b(?:uvx|uv\b[^;&|#]*?\brun|pipx\b[^;&|#]*?\brun)\b[^;&|#]*$")
"""The same, of a command whose installation serves no other command."""
OWN = pattern(r"\b(?:uvx|uv\b[^;&|#]*?\btool\s+run|pipx\b[^;&|#]*?\brun)\b[^;&|#]*$")
"""The same, of a command that sees no installation but its own and those of tools."""
TOOL = pattern(r"\b(?:uv\b[^;&|#]*?\btool|pipx)\s+install\b[^;&|#]*$")
BUILT = pattern(r"[ \t]*RUN[ \t]")
"""An instruction of a Dockerfile within a compose file."""
CODE = ("python", "steps", "docker", "program")
"""Kinds whose installations are no shell calls."""
LONGEST_COMMAND = 2000
"""Most characters between the beginning of a command and the release in it."""
UPGRADED = pattern(
    r"\binstall\b(?=[^\n;&|#]{0,400}[\s\"'](?:-[A-Za-z]*[UI][A-Za-z]*|--upgrade|--force-reinstall|--ignore-installed)(?![\w-]))"
    r"(?![^\n;&|#]{0,400}[\s\"'](?:-c|--constraint)(?![\w-]))[^\n;&|#]{0,400}?(?<![\w./-])lmdeploy(?:\[[\w,-]*\])?"
    r"(?![\w./-])(?![\"']?\s*[~=!<>@(])"
    r"|\b(?:conda|mamba|micromamba)\s+(?:update|upgrade)\b[^\n;&|#]{0,400}?(?<![\w./-])lmdeploy(?![\w./=<>!~-])"
    r"|\binstall\b[^\n;&|#]{0,400}?\bgit\+[^\s\"']+/lmdeploy(?:\.git)?(?:@(?:main|master|HEAD))?(?=[\"'\s#]|$)"
)
"""An installation of the newest release, or of the main branch, over what was installed."""


class Pinned(NamedTuple):
    """A release, and where it is named: a place of the script, or a file beside it.

    ``requirement``: the range of which it is the newest; the release is the range itself if no covered one is in it,
    and empty if the newest of all is installed.
    """

    release: str
    place: Span | None = None
    file: str = ""
    requirement: str = ""
    used: int = -1
    """Where the command names it, if elsewhere than the script: a variable."""
    environment: str = ""
    """The conda or virtual environment that it is installed into; empty if unknown."""

    @property
    def at(self) -> int:
        """Return where the command that installs it names it."""
        return self.used if self.used >= 0 or self.place is None else self.place.start


def covered(store: Store, release: str) -> str:
    """Return the record of a release; a post-release without one belongs to its release. Empty if none covers it."""
    if not release or release.startswith("lmdeploy"):
        return ""
    name = release.replace(".post", "post").replace("post", ".post")
    plain = str(Version(name).base_version)
    return next((known for known in (name, plain) if known in store.releases), "")


def is_older(pinned: Pinned, first: str) -> bool:
    """Return whether a release, or a range of them, is older than the first covered one."""
    return older(pinned.requirement) if pinned.requirement else Version(pinned.release) < Version(first)


def release_of(script: Script, launch: Launch | None) -> Pinned | None:
    """Return the release that the script, or else a file beside it, names; None if none or several."""
    image = _image_of(launch)
    runs = OWN.search(_line_before(script, launch.place.start)) if launch else None
    near = () if runs or (image is not None and is_published(image)) else _beside(script.path)
    for source in (
        _image(script, launch),
        _of_matrix(launch),
        _of_command(script, launch),
        _of_environment(script, launch),
        near,
    ):
        pinned = {found.release: found for found in source}
        if pinned:
            only = next(iter(pinned.values()))
            return only if len(pinned) == 1 and only.release else None
    return None


def _image_of(launch: Launch | None) -> Word | None:
    """Return the image in which a launch runs: its container's, or that of Slurm and the like."""
    return (launch.container.image if launch.container else launch.image) if launch else None


def _image(script: Script, launch: Launch | None) -> Iterator[Pinned]:
    """Yield the release of the image in which a launch runs: a container's, a step's, or that of the batch job."""
    image = _image_of(launch)
    if image is not None:
        release = release_in(image.value or "")
        yield from [Pinned(release, image.literal or image.place)] if release else ()
    elif launch is not None and launch.container is None and (job := batch_job.image(script)) is not None:
        yield from [Pinned(release_in(job[0]), job[1])] if release_in(job[0]) else ()


def _of_matrix(launch: Launch | None) -> Iterator[Pinned]:
    word = launch.installed if launch else None
    if word is not None and re.fullmatch(VERSION, word.value or ""):
        yield Pinned(word.value or "", word.literal or word.place)


def _of_command(script: Script, launch: Launch | None) -> Iterator[Pinned]:
    """Yield the release that the launch's own command installs to run (uvx, uv run, pipx run)."""
    start = launch.place.start if launch else 0
    line = _line_before(script, start)
    runs = RUNS.search(line)
    if runs is not None:
        places = range(start - len(line) + runs.start(), start + 2)  # uvx lmdeploy@0.12.3, perhaps quoted
        yield from (pin for pin in _installed(script) if pin.at in places)


def _kept(script: Script, launch: Launch | None) -> Iterator[Pinned]:
    """Yield what is installed for a launch by other commands: not what these install to run, nor for uvx all else."""
    own = launch is not None and OWN.search(_line_before(script, launch.place.start))
    for pin in _installed(script):
        line = _line_before(script, pin.at) if pin.place is not None else ""
        if launch is None or (TOOL.search(line) if own else not EPHEMERAL.search(line)):
            yield pin


def _of_environment(script: Script, launch: Launch | None) -> list[Pinned]:
    """Return what is kept in the launch's conda or virtual environment, else what may be in it."""
    kept = list(_kept(script, launch))
    if launch is None or not kept:
        return kept
    mine = _environment(script, launch.place.start)
    same = {name for name in {pin.environment for pin in kept} if is_same(name, mine)}
    own = {name for name in same if bool(name) == bool(mine)}
    return [pin for pin in kept if pin.environment in (own or same)]


def _environment(script: Script, at: int) -> str:
    return environment(script, _line_before(script, at), at)


def _line_before(script: Script, at: int) -> str:
    """Return the text of a line before a place, joined with the lines before that a backslash continues."""
    before = script.text[max(at - LONGEST_COMMAND, 0) : at].replace("\\\n", "  ")
    return before[before.rfind("\n") + 1 :]


@lru_cache(maxsize=8)
def _installed(script: Script) -> tuple[Pinned, ...]:
    pins = _installations(script)
    return tuple(pin._replace(environment=_environment(script, pin.at)) if pin.at >= 0 else pin for pin in pins)


def _of_variables(script: Script) -> Iterator[Pinned]:
    """Yield each release that a variable has where it is installed, with the place that sets it to this one only."""
    for use in INSTALLED_AS.finditer(script.text):
        sets = rf"\b{use[1]}[\"']?[ \t]*[:=?]+-?[ \t]*[\"']?v?{VERSION}(?![\d.*])"
        found = list(re.finditer(sets, script.text))
        if len({match[1] for match in found}) == 1:
            yield from (Pinned(match[1], script.place(*match.span(1)), used=use.start()) for match in found)


def _installations(script: Script) -> Iterator[Pinned]:
    """Yield the installations of the script that are no comments, and the images that a program names or pulls."""
    text = script.text.replace("\\\n", "  ")
    matches = [match for match in _matches(script) if _is_installed(script, match)]
    exact = [Pinned(match[match.lastindex or 1], script.place(*match.span())) for match in matches]
    exact += _of_variables(script)
    got = (word for call in script.calls if _gets(call) for word in call.words if "$" in word.raw and word.value)
    exact += [Pinned(release, word.place) for word in got if (release := release_in(word.value or ""))]
    yield from exact
    last = max((match.start() for match in (*matches, *INSTALLED_AS.finditer(script.text))), default=-1)
    for match, asked in ranges(script.text, quoted=True, listed=script.kind == "steps"):
        if INSTALLED.match(script.text, match.start()) or not _is_installed(script, match):
            continue
        last = max(last, match.start())
        if (latest := newest(asked)) is not None and not any(contains(asked, pin.release) for pin in exact):
            yield Pinned(latest, script.place(*match.span()), requirement=asked)
    if any(match.start() > last and _is_installed(script, match) for match in UPGRADED.finditer(text)):
        yield Pinned("")


def _matches(script: Script) -> Iterator[re.Match[str]]:
    image = PULLED_IMAGE if script.kind == "bash" else NAMED_IMAGE
    yield from INSTALLED.finditer(script.text)
    yield from image.finditer(script.text) if script.kind in ("python", "program", "bash") else ()


def _is_installed(script: Script, match: re.Match[str]) -> bool:
    """Return whether a command or a page installs what is named here, not a comment or a text that is printed."""
    metadata = METADATA.search(script.text) if script.kind == "python" else None
    shown = any(comment.place.start <= match.start() < comment.place.end for comment in script.comments)
    if shown and not (metadata and metadata.start() <= match.start() < metadata.end()):
        return False
    line = _line_before(script, match.start())
    if (
        script.kind in CODE
        or RUNS.search(line)
        or (script.kind == "compose" and BUILT.match(line))
        or (script.kind == "markdown" and re.search("install", line + match[0]))
    ):
        return True
    calls = (call for call in script.calls if call.place.start <= match.start() < call.place.end)
    return any(map(_gets, calls))


def _gets(call: Call) -> bool:
    """Return whether a command fetches what is run later; the tag of Docker's build is a name that it gives."""
    words = {word.value for word in call.words}
    return bool(GETS & words or ("build" in words and BUILDS & words))


@lru_cache(maxsize=64)
def _beside(script: str) -> tuple[Pinned, ...]:
    """Return the pins of the first file beside a script that has any; a range counts if no file pins one release."""
    texts = {}
    for name in BESIDE:
        source = sibling_files.read(script, name)
        if source is not None and "lmdeploy" in source.text:
            texts[name] = text = re.sub(r"(?m)(?:^|(?<=\s))#.*", "", source.text)
            matches = [*INSTALLED.finditer(text), *LOCKED.finditer(text)]
            if name == "Dockerfile" and not matches:
                matches = [*re.finditer(rf"(?m)^FROM\s+\S*lmdeploy:v?{VERSION}", text)]
            if matches:
                return tuple(Pinned(match[match.lastindex or 1], file=name) for match in matches)
    for name, text in texts.items():
        requirements = (asked for _, asked in ranges(text, quoted=name == "Dockerfile"))
        pinned = [Pinned(release, file=name, requirement=asked) for asked in requirements if (release := newest(asked))]
        if pinned:
            return tuple(pinned)
    return ()
