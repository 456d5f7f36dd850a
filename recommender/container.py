"""Artefacts for other launchers: which container image a release has, and what a plain file of variables can hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.conditions import version
from recommender.facts import within
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.pipeline import Recommendation

REPOSITORY = "openmmlab/lmdeploy"
WORKFLOW = ".github/workflows/docker.yml"

# Releases since, until; CUDA suffixes whose image the release's workflow pushes at its tag, the usual one first;
# line of the suffixes and line of the tag in that workflow at the tag of the first release.
PUSHED = (
    ("0.7.0", "0.10.0", ("cu12", "cu11"), 40, 93),
    ("0.10.0", "0.12.1", ("cu12.8", "cu12", "cu11"), 41, 94),
    ("0.12.1", "0.16.0", ("cu12.8", "cu12"), 41, 94),
    ("0.16.0", "0.17.0", ("cu12.8", "cu13.0"), 46, 100),
)
SERVES_IMAGES = "0.11.1"
"""From here docker/install.sh of the release installs requirements/serve.txt: timm and others of vision models."""

# What systemd's EnvironmentFile, docker's --env-file and a shell all read as the same text, unquoted.
BARE = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")


@dataclass(frozen=True, slots=True)
class Image:
    """The container image of a release. ``source`` is empty where nobody could read that its tag is pushed."""

    name: str
    others: tuple[str, ...]
    source: str
    serves_images: bool


def image(release: str) -> Image:
    """The image of a release. Tags are v<release>-<suffix>, as the release's own workflow pushes them.

    A release later than those whose workflow was read gets the latest known suffixes, unverified.
    """
    at = version(release)
    found = next((row for row in PUSHED if within(row[0], row[1], at)), None)
    suffixes = (found or PUSHED[-1])[2]
    source = f"{found[0]} {WORKFLOW}:{found[3]} and {found[4]}" if found else ""
    return Image(
        name=f"{REPOSITORY}:v{release}-{suffixes[0]}",
        others=tuple(f"{REPOSITORY}:v{release}-{each}" for each in suffixes[1:]),
        source=source,
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
