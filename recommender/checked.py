"""An artefact held against what is written today for its request: what differs, and whose doing that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from recommender.rendered import REQUEST, Key, Rendered

Kind = Literal["hand", "newer", "both", "unknown"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is another in the file than today. ``file`` or ``today`` is empty where it is not set."""

    name: str
    kind: Kind
    file: str
    today: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A file held against today's advice.

    ``others`` tells of lines beside the values. ``nothing`` is why nothing can be written for the request today.
    After an update ``updated`` is true or ``refused`` says why it was left alone, and ``kept`` are values kept.
    """

    path: str
    format: str
    sealed: bool
    settings: tuple[Difference, ...]
    others: tuple[Kind, ...]
    nothing: str = ""
    updated: bool = False
    kept: tuple[str, ...] = ()
    refused: str = ""

    @property
    def drift(self) -> bool:
        """Whether anything differs that counts."""
        return bool(self.settings or self.others or self.nothing)

    @property
    def left(self) -> bool:
        """The same of the file as it now stands."""
        return bool(self.kept) if self.updated else self.drift


def compared(path: str, file: Rendered, today: Rendered, reasons: Mapping[str, tuple[str, str]]) -> Checked:
    """A file against what is written today, each difference with whose it is."""
    settings = []
    for key, kind in kinds(file, today):
        shown = file.value(key), today.value(key)
        if shown[0] == shown[1]:  # the same value in another form, such as one that no variable overrides
            shown = file.lines.get(key, "").strip(), today.lines.get(key, "").strip()
        settings.append(Difference(key[0], kind, *shown, *reasons.get(key[0], ("", ""))))
    others: list[Kind] = []
    if file.rest != today.rest:
        if file.sealed is None:
            others = ["unknown"]
        else:
            others = ["hand"] if file.digest != file.sealed.text else []
            others += ["newer"] if today.digest != file.sealed.text else []
    return Checked(path, file.form, bool(file.sealed), tuple(settings), tuple(others))


def kinds(file: Rendered, today: Rendered) -> Iterator[tuple[Key, Kind]]:
    """The values that differ, and whose doing that is, by the digests of those that were written."""
    written = file.sealed.values if file.sealed else frozenset()
    for key in dict.fromkeys((*today.lines, *file.lines)):
        there, now = file.lines.get(key), today.lines.get(key)
        own = there is None or not file.sealed or file.digests[key] in written
        if there == now and (own or key[0] != REQUEST):
            continue
        same = today.digests.get(key) in written
        hand = not own or (there is None and same)
        newer = own if now is None else not same
        if not file.sealed:
            yield key, "unknown"
        elif key[0] == REQUEST:  # all that follows from an edited request is advice
            yield key, "newer" if own else "hand"
        else:
            yield key, "both" if hand and newer else "newer" if newer else "hand"
