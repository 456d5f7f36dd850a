"""The container image of a release, and values that a plain file of variables can hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.common.text import masked
from recommender.knowledge.conditions import version

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.knowledge import records
    from recommender.knowledge.store import Store

REPOSITORY = "openmmlab/lmdeploy"
WORKFLOWS = "workflows/"
SERVES_IMAGES = "0.11.1"
"""From here docker/install.sh of the release installs requirements/serve.txt: timm and others of vision models."""

# What systemd's EnvironmentFile, docker's --env-file and a shell all read as the same text, unquoted.
BARE = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")


@dataclass(frozen=True, slots=True)
class Image:
    """The container image of a release; without sources, its tag is unverified."""

    name: str
    others: tuple[str, ...]
    sources: tuple[records.CodeSource, ...]
    serves_images: bool

    @property
    def source(self) -> str:
        """Where the tag was read; empty if it is unverified."""
        return "; ".join(f"{code.release} {code.path}:{code.line}" for code in self.sources)


def image(release: records.Release, store: Store) -> Image:
    """Return the image of a release. Tags are v<release>-<ending>, as the release's own workflow pushes them.

    A release without a recorded workflow gets the endings of the release before it, unverified.
    """
    own = version(release.id)
    recorded = sorted((known for known in store.releases.values() if known.images), key=lambda known: version(known.id))
    before = [known for known in recorded if version(known.id) <= own]
    source = release if release.images else before[-1] if before else recorded[-1]
    names = tuple(f"{REPOSITORY}:v{release.id}-{ending}" for ending in source.images)
    return Image(
        name=names[0],
        others=names[1:],
        sources=tuple(code for code in release.sources.code if WORKFLOWS in code.path) if release.images else (),
        serves_images=own >= version(SERVES_IMAGES),
    )


def one_server(recommendation: Recommendation, form: str = "docker") -> None:
    """Raise RequestError if one ``docker run`` or one command line cannot carry a configuration."""
    if recommendation.config.servers > 1:
        what = "docker run" if form == "docker" else "command"
        raise RequestError(
            f"--format {form}: one {what} cannot start {recommendation.config.servers} servers and a proxy; "
            "use --format bash, which starts them all"
        )


def bare(text: str, name: str) -> str:
    """Return a value that needs no quotes anywhere. Raises RequestError for any other."""
    if BARE.fullmatch(text):
        return text
    shown = masked(text[:60])
    raise RequestError(
        f"--format env: {name} is {shown!r}; an environment file cannot hold blanks, quotes or shell characters; "
        "use --format bash"
    )
