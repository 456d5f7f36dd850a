"""Compare a generated file with a fresh rendering: edits and newer advice."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from recommender.render.seal import REQUEST, Key, ParsedArtefact

Kind = Literal["hand", "newer", "both", "unknown"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A value of the file that differs from today's."""

    name: str
    """Name of the value."""
    kind: Kind
    """hand: your edit; newer: newer advice; both; unknown."""
    file: str
    """Value in the file; empty: not set there."""
    today: str
    """Value today; empty: not set."""
    reason: str
    """Why today's value was chosen."""
    source: str
    """What the reason rests on."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The differences between a file and today's advice."""

    path: str
    """The file, as given."""
    format: str
    """Its format, such as bash."""
    sealed: bool
    """Its digests were found."""
    settings: tuple[Difference, ...]
    """Values that differ."""
    others: tuple[Kind, ...]
    """Differences outside the values."""
    nothing: str = ""
    """Why nothing can be written for the request today; empty: it can."""
    updated: bool = False
    """The file was updated."""
    kept: tuple[str, ...] = ()
    """Names of the values that an update kept."""
    refused: str = ""
    """Why an update left the file alone; empty: it did not."""

    @property
    def differs(self) -> bool:
        """Whether anything differs that counts."""
        return bool(self.settings or self.others or self.nothing)

    @property
    def still_differs(self) -> bool:
        """Whether the file still differs, after an update if there was one."""
        return bool(self.kept) if self.updated else self.differs


def compare(path: str, file: ParsedArtefact, today: ParsedArtefact, reasons: Mapping[str, tuple[str, str]]) -> Drift:
    """Compare a file with today's rendering; ``reasons`` gives (reason, source) by value name."""
    settings = []
    for key, kind in classify(file, today):
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
    return Drift(path, file.form, bool(file.sealed), tuple(settings), tuple(others))


def classify(file: ParsedArtefact, today: ParsedArtefact) -> Iterator[tuple[Key, Kind]]:
    """Yield the values that differ, classified by the digests of the values first written."""
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
