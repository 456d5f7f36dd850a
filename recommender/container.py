"""Artefacts for other launchers: which container image a release has, and what a plain file of variables can hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.conditions import version
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.pipeline import Recommendation
    from recommender.store import Store

REPOSITORY = "openmmlab/lmdeploy"
WORKFLOWS = "workflows/"
SERVES_IMAGES = "0.11.1"
"""From here docker/install.sh of the release installs requirements/serve.txt: timm and others of vision models."""

# What systemd's EnvironmentFile, docker's --env-file and a shell all read as the same text, unquoted.
BARE = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")


@dataclass(frozen=True, slots=True)
class Image:
    """The container image of a release; unverified where nobody could read that its tag is pushed."""

    name: str
    others: tuple[str, ...]
    sources: tuple[r.CodeSource, ...]
    serves_images: bool

    @property
    def source(self) -> str:
        """Where it was read; empty where nobody could."""
        return "; ".join(f"{each.release} {each.path}:{each.line}" for each in self.sources)


def image(release: r.Release, store: Store) -> Image:
    """The image of a release. Tags are v<release>-<ending>, as the release's own workflow pushes them.

    A release whose workflow nobody read gets the endings of the one before it, unverified.
    """
    at = version(release.id)
    read = sorted((each for each in store.releases.values() if each.images), key=lambda each: version(each.id))
    of = (
        release
        if release.images
        else max((each for each in read if version(each.id) <= at), key=lambda each: version(each.id), default=read[-1])
    )
    sources = tuple(each for each in of.sources.code if WORKFLOWS in each.path) if of is release else ()
    return Image(
        name=f"{REPOSITORY}:v{release.id}-{of.images[0]}",
        others=tuple(f"{REPOSITORY}:v{release.id}-{each}" for each in of.images[1:]),
        sources=sources,
        serves_images=at >= version(SERVES_IMAGES),
    )


def one_server(found: Recommendation) -> None:
    """Raises RequestError where one ``docker run`` cannot carry a configuration."""
    if found.config.servers > 1:
        raise RequestError(
            f"--format docker: {found.config.servers} servers behind a proxy are more than one docker run; "
            "take --format bash, which starts them all"
        )


def bare(text: str, name: str) -> str:
    """A value that needs no quotes anywhere. Raises RequestError for any other."""
    if BARE.fullmatch(text):
        return text
    shown = "".join(each if each.isprintable() else "?" for each in text[:60])
    raise RequestError(
        f"--format env: {name} is {shown!r}, and such a file holds no blanks, quotes or other signs of a shell; "
        "take --format bash"
    )
