"""Find the image among the words before a command, as of Apptainer and of Slurm, and the release in its name."""

from __future__ import annotations

from collections.abc import Sequence

from recommender.common.pattern import pattern
from recommender.review.script.model import Word
from recommender.review.script.source_map import Field, SourceText, join_pieces

VERSION = r"([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(?:\.?post[0-9]{1,4})?)"
RELEASED = pattern(
    rf"(?:^|[/#:])lmdeploy:v?{VERSION}(?!\d|\.\d)"
    rf"|(?:^|[/+_#-])lmdeploy[-_+]v?{VERSION}(?!\d|\.\d)[^/\s]*\.(?:sif|simg|img|sqsh|sqfs|squashfs)$"
)
"""The tag of an image, and the name of a file that Apptainer or enroot makes of one."""
NAMED = pattern(r"--(?:container-)?image(?:=|$)")
"""Options of Slurm, kubectl and Shifter that name the image."""
UNKNOWN = "?"
"""Stands for the part of an image's name that only a run knows."""
PUBLISHED = pattern(r"(?:^|[/\"'])openmmlab/lmdeploy(?=$|[:@\"'])")
"""LMDeploy's own image, of whatever tag: no file here builds it."""


def release_in(image: str) -> str:
    """Return the release of LMDeploy in an image's name; empty if there is none."""
    match = RELEASED.search(image)
    return match[match.lastindex or 1] if match else ""


def image_word(page: SourceText, field: Field) -> Word:
    """Return the word of an image; where only a run knows a part of the name, what stands around that part counts."""
    word = page.word(field)
    if word.value is not None or field.many or not field.pieces:
        return word
    unknown = max(at for at, piece in enumerate(field.pieces) if piece.text is None)
    name = join_pieces(field.pieces[unknown + 1 :])
    return word._replace(value=f"{field.known_prefix}{UNKNOWN}{name}") if name or field.known_prefix else word


def is_published(image: Word) -> bool:
    """Return whether an image is LMDeploy's own."""
    return PUBLISHED.search(image.value or image.raw) is not None


def image_before(page: SourceText, fields: Sequence[Field]) -> Word | None:
    """Return the image that words before a command name, by an option or by its release; None if they do not."""
    found: Word | None = None
    named = False
    for field in fields:
        option = NAMED.match(field.known_prefix)
        if option and option[0].endswith("="):
            found = image_word(page, field.after(option.end(), page.text))
        elif named or (not field.known_prefix.startswith("-") and release_in(image_word(page, field).value or "")):
            found = image_word(page, field)
        named = option is not None and not option[0].endswith("=")
    return found
