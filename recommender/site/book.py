"""What the pages are written from: the store, and the evidence whole, which the store keeps only in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from recommender import records as r
from recommender.compiling import read_record
from recommender.conditions import version
from recommender.site.translation import ENGLISH, translated, with_figures
from recommender.store import data_root

if TYPE_CHECKING:
    from recommender.store import Store


@dataclass(frozen=True)
class Page:
    """A page: its path below the site's root, its title and its Markdown. ``wide``: nothing stands beside it."""

    path: str
    title: str
    body: str
    wide: bool = False

    @property
    def markdown(self) -> str:
        """The whole file."""
        head = "---\nhide: [navigation, toc]\n---\n\n" if self.wide else ""
        return f"{head}# {self.title}\n\n{self.body}\n"


@dataclass(frozen=True)
class Book:
    """The store, and what pages need beside it. ``language``: that of the pages; the records are in English."""

    store: Store
    language: str = ENGLISH

    @property
    def english(self) -> bool:
        """Whether the pages are in the language of the records."""
        return self.language == ENGLISH

    def t(self, words: str) -> str:
        """A text of ours or of a record in the pages' language; marked where nobody has translated it."""
        return words if self.english else translated(self.language, words)

    def filled(self, words: str) -> str:
        """``t`` of a text with figures that the recommender worked out: its translation has places for them."""
        return words if self.english else with_figures(words, self.t)

    @property
    def say(self) -> Callable[[str], str]:
        """``t`` for what knows no book; in English ``str``, by which it can tell that nothing is translated."""
        return str if self.english else self.t

    @cached_property
    def releases(self) -> tuple[r.Release, ...]:
        """The covered releases, oldest first."""
        return tuple(sorted(self.store.releases.values(), key=lambda each: version(each.id)))

    @property
    def newest(self) -> r.Release:
        """The release that pages speak of where they name none."""
        return self.releases[-1]

    @property
    def runs(self) -> Mapping[str, r.SmokeRun]:
        """Every smoke run, whole."""
        return _runs()

    @property
    def probes(self) -> Mapping[str, r.Measurement]:
        """What was measured before there was a smoke run."""
        return _probes()


# Books in all languages have the same evidence: it is read once.
@cache
def _runs() -> Mapping[str, r.SmokeRun]:
    folder = data_root() / "knowledge" / "evidence"
    return {path.stem: read_record(path, r.SmokeRun) for path in sorted(folder.glob("*.yaml"))}


@cache
def _probes() -> Mapping[str, r.Measurement]:
    folder = data_root() / "knowledge" / "evidence" / "earlier"
    return {path.stem: read_record(path, r.Measurement) for path in sorted(folder.glob("*.yaml"))}


def page(path: str, title: str, lines: Iterator[str], *, wide: bool = False) -> Page:
    """A page of lines."""
    return Page(path, title, "\n".join(lines), wide)
