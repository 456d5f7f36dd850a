"""The data of the pages: the store, and the complete evidence, of which the store keeps a part."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from recommender.choose.reasons import NEEDED
from recommender.knowledge import records
from recommender.knowledge.conditions import version
from recommender.knowledge.index import read_record
from recommender.knowledge.load import data_root, load
from recommender.render import artefact
from recommender.site.i18n.translation import ENGLISH, by_template, single, translated, with_figures
from recommender.smoke.report import ReportRow, phase_rows

if TYPE_CHECKING:
    from recommender.choose.recommend import Setup
    from recommender.knowledge.store import Store

RecordType = TypeVar("RecordType", bound=records.Record)


@dataclass(frozen=True)
class SitePage:
    """A page: path below the site's root, title, Markdown.

    ``tags``: words that the search finds it by first.
    ``wide``: no navigation beside it. ``scripts``: those that it needs, below the root.
    """

    path: str
    title: str
    body: str
    tags: tuple[str, ...] = ()
    wide: bool = False
    scripts: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        """Return the whole file."""
        head = {
            "hide": ["navigation", "toc"] * self.wide,
            "tags": [*self.tags],
            "scripts": [*self.scripts],
        }
        shown = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in head.items() if value)
        return f"{f'---{chr(10)}{shown}---{chr(10)}{chr(10)}' if shown else ''}# {self.title}\n\n{self.body}\n"


@dataclass(frozen=True)
class SiteData:
    """The store and the evidence. ``language``: of the pages; the records are in English."""

    store: Store
    language: str = ENGLISH

    @property
    def english(self) -> bool:
        """Return whether the pages are in English."""
        return self.language == ENGLISH

    def t(self, words: str) -> str:
        """Translate a text into the pages' language; mark it if the catalogue lacks it."""
        return words if self.english else translated(self.language, words)

    def brief(self, option: records.Option, words: str) -> str:
        """Translate an option's reason in a few words."""
        return words if self.english else by_template(words, briefs(option), self.t)

    def reason(self, option: records.Option, words: str) -> str:
        """Translate an option's reason."""
        texts = [single(reason.text) for reason in option.reasons]
        return words if self.english else by_template(words, texts, self.t)

    def own(self, english: str, vietnamese: str) -> str:
        """Return a record's own Vietnamese text if the pages need it, else the translation."""
        return vietnamese if vietnamese and self.language == "vi" else self.t(english)

    def gpu(self, gpu: records.Gpu) -> str:
        """Return a GPU's name; of a card with several GPUs it says in words that it is one of them."""
        name = gpu.name.removeprefix("NVIDIA ")
        return self.t(name) if ", one of " in name else name

    def labels(self, *texts: str) -> list[str]:
        """Translate several texts."""
        return [self.t(text) for text in texts]

    def html(self, words: str) -> str:
        """Translate a text and escape it for HTML."""
        return html.escape(self.t(words))

    def filled(self, words: str) -> str:
        """Translate a text with computed figures; its translation has placeholders for them."""
        return words if self.english else with_figures(words, self.t)

    def verbatim(self, words: str) -> str:
        """Mark a quote as English on a page in another language. ``words``: Markdown."""
        return words if self.english else f'<span lang="en">{words}</span>'

    @property
    def say(self) -> Callable[[str], str]:
        """Return ``t`` for functions of ``markup``; ``str`` in English, which they test for."""
        return str if self.english else self.t

    def span(self, values: Sequence[float], digits: int | str) -> str:
        """Return "LOW to HIGH", one figure if both read the same, or "" without values.

        ``digits``: decimals, or a format specification.
        """
        form = f",.{digits}f" if isinstance(digits, int) else digits
        ends = [format(end, form) for end in (min(values), max(values))] if values else [""]
        return ends[0] if ends[0] == ends[-1] else self.t("{0} to {1}").format(*ends)

    @cached_property
    def releases(self) -> tuple[records.Release, ...]:
        """Return the covered releases, oldest first."""
        return tuple(sorted(self.store.releases.values(), key=lambda each: version(each.id)))

    @property
    def newest(self) -> records.Release:
        """Return the newest release, the one pages refer to by default."""
        return self.releases[-1]

    @property
    def runs(self) -> Mapping[str, records.SmokeRun]:
        """Return every smoke run, complete."""
        return _read_folder("evidence", records.SmokeRun)

    @property
    def probes(self) -> Mapping[str, records.Measurement]:
        """Return the measurements older than `recommend smoke`."""
        return _read_folder("evidence/earlier", records.Measurement)

    @property
    def published(self) -> Mapping[str, records.Benchmark]:
        """Return the published benchmarks, complete."""
        return _read_folder("published", records.Benchmark)


def briefs(option: records.Option) -> list[str]:
    """Return the reasons in a few words that an option may have, with their ``{names}``."""
    own = (option.brief, *(reason.brief for reason in option.reasons), NEEDED)
    return [text for text in dict.fromkeys(own) if text]


@cache
def site_data(language: str = ENGLISH) -> SiteData:
    """Return the data of a language, read once per process."""
    return SiteData(load(), language)


@cache
def rebuild_setup(run: records.SmokeRun, store: Store) -> Setup:
    """Return the configuration of a run, made once per process: several pages show it."""
    return artefact.rebuild_setup(run, store)


@cache
def report_rows(run: records.SmokeRun, phase: records.Phase, store: Store) -> Sequence[ReportRow]:
    """Return what a load measured and what is predicted of it, simulated once per process."""
    return phase_rows(rebuild_setup(run, store), run, phase)


# All languages share the evidence, so it is read once.
@cache
def _read_folder(folder: str, record_type: type[RecordType]) -> Mapping[str, RecordType]:
    paths = sorted((data_root() / "knowledge" / folder).glob("*.yaml"))
    return {path.stem: read_record(path, record_type) for path in paths}


def page(path: str, title: str, lines: Iterator[str], **more: Any) -> SitePage:
    """Return a page made of lines; ``more`` are further fields of it."""
    return SitePage(path, title, "\n".join(lines), **more)
