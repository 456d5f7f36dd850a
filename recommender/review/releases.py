"""Find the LMDeploy release of a launch: its image, an installation in the script, a pin in the files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from packaging.version import Version

from recommender.common.pattern import pattern
from recommender.knowledge.store import Store
from recommender.review.script import beside
from recommender.review.script.mentions import INSTALLED_AS
from recommender.review.script.model import Launch, Script, Span

VERSION = r"([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(?:\.?post[0-9]{1,4})?)"
IMAGE_TAG = pattern(rf"(?:^|/)lmdeploy:v?{VERSION}(?![\d.])")
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
"""Files that pin what is installed, the surest first."""
GETS = frozenset({"install", "pull", "import", "add", "create", "clone"})
"""Words of commands that fetch what is run later, of pip, conda, docker, apptainer, enroot and git."""
RUNS = pattern(r"\b(?:uvx?|pipx)\b[^;&|#]*$")
"""What installs a release to run it, in the line before it."""
CODE = ("python", "steps", "docker", "program")
"""Kinds whose installations are no shell calls."""


class Pinned(NamedTuple):
    """A release, and where it is named: a place of the script, or a file beside it."""

    release: str
    place: Span | None = None
    file: str = ""


def covered(store: Store, release: str) -> str:
    """Return the record of a release; a post-release without one belongs to its release. Empty if none covers it."""
    name = release.replace(".post", "post").replace("post", ".post")
    plain = str(Version(name).base_version)
    return next((known for known in (name, plain) if known in store.releases), "")


def release_of(script: Script, launch: Launch | None) -> Pinned | None:
    """Return the release that the script, or else a file beside it, names; None if none or several."""
    for source in (_image(launch), _of_matrix(launch), _installed(script), _beside(script.path)):
        pinned = {found.release: found for found in source}
        if pinned:
            return next(iter(pinned.values())) if len(pinned) == 1 else None
    return None


def _image(launch: Launch | None) -> Iterator[Pinned]:
    image = launch.container.image if launch and launch.container else None
    tag = IMAGE_TAG.search(image.value) if image and image.value else None
    if image and tag:
        yield Pinned(tag[1], image.written or image.place)


def _of_matrix(launch: Launch | None) -> Iterator[Pinned]:
    word = launch.installed if launch else None
    if word is not None and re.fullmatch(VERSION, word.value or ""):
        yield Pinned(word.value or "", word.written or word.place)


@lru_cache(maxsize=8)
def _installed(script: Script) -> tuple[Pinned, ...]:
    return tuple(_installations(script))


def _of_variables(script: Script) -> Iterator[re.Match[str]]:
    """Yield where the file sets the variables whose release it installs, each to one release."""
    for name in dict.fromkeys(match[1] for match in INSTALLED_AS.finditer(script.text)):
        found = list(re.finditer(rf"\b{name}[\"']?[ \t]*[:=?]+-?[ \t]*[\"']?v?{VERSION}(?![\d.*])", script.text))
        yield from found if len({match[1] for match in found}) == 1 else ()


def _installations(script: Script) -> Iterator[Pinned]:
    """Yield the installations of the script that are no comments, and the images that a program names or pulls."""
    image = PULLED_IMAGE if script.kind == "bash" else NAMED_IMAGE
    named = image.finditer(script.text) if script.kind in ("python", "program", "bash") else ()
    metadata = METADATA.search(script.text) if script.kind == "python" else None
    yield from (Pinned(match[1], script.place(*match.span(1))) for match in _of_variables(script))
    for match in (*INSTALLED.finditer(script.text), *named):
        shown = any(comment.place.start <= match.start() < comment.place.end for comment in script.comments)
        shown = shown and not (metadata and metadata.start() <= match.start() < metadata.end())
        calls = (call for call in script.calls if call.place.start <= match.start() < call.place.end)
        before = script.text[: match.start()].replace("\\\n", " ")
        line = before[before.rfind("\n") + 1 :]
        alone = (script.kind == "markdown" and "install" in line) or RUNS.search(line)
        if not shown and (
            alone or script.kind in CODE or any(GETS & {word.value for word in call.words} for call in calls)
        ):
            yield Pinned(match[match.lastindex or 1], script.place(*match.span()))


@lru_cache(maxsize=64)
def _beside(script: str) -> tuple[Pinned, ...]:
    """Return the pins of the first file beside a script that has any."""
    for name in BESIDE:
        source = beside.read(script, name)
        if source is not None and "lmdeploy" in source.text:
            text = re.sub(r"(?m)(?:^|(?<=\s))#.*", "", source.text)
            matches = [*INSTALLED.finditer(text), *LOCKED.finditer(text)]
            if name == "Dockerfile" and not matches:
                matches = [*re.finditer(rf"(?m)^FROM\s+\S*lmdeploy:v?{VERSION}", text)]
            if matches:
                return tuple(Pinned(match[match.lastindex or 1], file=name) for match in matches)
    return ()
