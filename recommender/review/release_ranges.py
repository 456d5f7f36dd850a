"""Find the release that pip, conda or poetry installs of a range such as ``lmdeploy>=0.9,<0.11``: the newest in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from recommender.common.pattern import pattern
from recommender.knowledge.load import load

_NUMBER = r"\d{1,4}(?:\.\d{1,4}){0,3}(?:\.\*|\.?post\d{1,4})?"
_SIGN = r"(?:={1,3}|[~!<>]=|[<>^~])"
_MORE = rf"(?:\s*,\s*{_SIGN}\s*{_NUMBER})*(?![\w.*$\{{])"
RANGE = pattern(
    rf"(?<![\w./-])lmdeploy(?P<extras>\[[\w,-]*\])?\s*(?:\(\s*)?(?P<asked>{_SIGN}\s*{_NUMBER}{_MORE})"
    rf"|(?<![\w./-])lmdeploy[\"']?(?:\s*=\s*(?:\{{[^{{}}\n]{{0,200}}?\bversion\s*=\s*)?[\"']|@[\"']?)"
    rf"(?P<poetry>{_SIGN}?\s*{_NUMBER}{_MORE})"
)
"""A requirement of pip or conda, and one of poetry."""
ONE = pattern(rf"({_SIGN}?)({_NUMBER})")
COMPARED = pattern(r"[<>]")
ITEM = pattern(r"(?:^|\n)[ \t]*(?:-[ \t]+)?(?:name:[ \t]+)?$")
"""What precedes a requirement in a YAML list, or in an Ansible task."""


def ranges(text: str, quoted: bool, listed: bool = False) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the requirements of a text, each as written without blanks.

    ``quoted``: a shell reads it, to which an unquoted ``<`` is a redirection; ``listed``: unless in a list of YAML.
    """
    for match in RANGE.finditer(text):
        given = "".join((match["asked"] or match["poetry"]).split())
        before = text[max(match.start() - 1, 0) : match.start()]
        item = listed and ITEM.search(text, max(match.start() - 200, 0), match.start())
        if not (quoted and match["asked"] and COMPARED.search(given)) or before in ('"', "'") or item:
            yield match, f"lmdeploy{match['extras'] or ''}{given}"


@lru_cache(maxsize=256)
def newest(requirement: str) -> str | None:
    """Return the newest covered release of a range; None if newer ones are in it, the range itself if none is."""
    allowed = _allowed(requirement)
    if allowed is None:
        return None
    known = sorted(load().releases, key=Version)
    within = [name for name in known if allowed.contains(name)]
    if not within:
        return requirement
    return None if within[-1] == known[-1] else within[-1]


def contains(requirement: str, release: str) -> bool:
    """Return whether a release is in a range."""
    allowed = _allowed(requirement)
    return allowed is not None and allowed.contains(release.replace(".post", "post").replace("post", ".post"))


def older(requirement: str) -> bool:
    """Return whether a range without a covered release ends before the covered ones."""
    first = min(map(Version, load().releases))
    return all(Version(number.removesuffix(".*")) <= first for _, number in ONE.findall(_given(requirement)))


def _given(requirement: str) -> str:
    return (
        requirement.removeprefix("lmdeploy").partition("]")[2]
        if "]" in requirement
        else requirement.removeprefix("lmdeploy")
    )


def _allowed(requirement: str) -> SpecifierSet | None:
    """Return the releases of a range; None if it is none that pip would take."""
    try:
        return SpecifierSet(",".join(_of_pip(sign, number) for sign, number in ONE.findall(_given(requirement))))
    except InvalidSpecifier:
        return None


def _of_pip(sign: str, number: str) -> str:
    """Return a part of a range as pip writes it; ``^`` and ``~`` are of poetry, one ``=`` of conda."""
    parts = number.removesuffix(".*").split(".")
    if sign in ("", "==="):
        return f"=={number}"
    if sign == "=":
        return f"=={'.'.join(parts)}.*"
    if sign not in ("^", "~"):
        return f"{sign}{number}"
    digits = [int(re.sub(r"\D.*", "", part) or 0) for part in parts]
    kept = min(2, len(digits)) - 1
    if sign == "^":
        kept = next((at for at, digit in enumerate(digits) if digit), len(digits) - 1)
    end = [*digits[:kept], digits[kept] + 1]
    return f">={number.removesuffix('.*')},<{'.'.join(map(str, end))}"
