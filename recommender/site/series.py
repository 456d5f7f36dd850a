"""Runs of the evidence that differ in one option and in nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from recommender.conditions import version
from recommender.facts import options_of
from recommender.site.book import Book
from recommender.store import load

if TYPE_CHECKING:
    from recommender import records as r

ANY = frozenset({"server-name", "server-port", "trust-remote-code", "proxy-url", "disable-fastapi-docs", "server-gap"})
"""Options that change nothing about memory or speed, in which runs of a series may differ."""
TILES = "max-dynamic-patch"
COPIES = "copies"


@dataclass(frozen=True)
class Value:
    """What a run had at the option of its series. ``given``: it was on the command line; else the default."""

    text: str
    given: bool


@dataclass(frozen=True)
class Series:
    """Runs value by value, and what all of them were started with."""

    name: str
    same: tuple[str, ...]
    runs: tuple[tuple[Value, r.SmokeRun], ...]

    @property
    def values(self) -> list[Value]:
        """Each value once, in order."""
        return list(dict.fromkeys(value for value, _ in self.runs))

    def phases(self, run: r.SmokeRun) -> Iterator[r.Phase]:
        """The phases of a run whose requests are as long as those of most runs of the series."""
        for phase in run.phases:
            sizes = Counter(
                (each.images, each.output_tokens)
                for _, other in self.runs
                for each in other.phases
                if (each.image, each.concurrency) == (phase.image, phase.concurrency)
            )
            if (phase.images, phase.output_tokens) == sizes.most_common(1)[0][0]:
                yield phase


def series_of(book: Book, option: r.Option) -> list[Series]:
    """The series of an option, that with the most runs first."""
    name = getattr(option, "option", None) or str(getattr(option, "name", option.id))
    return _series(book, option.id, name)


def copies_of(book: Book) -> list[Series]:
    """The series of how often the artefact was started on its card."""
    return _series(book, COPIES, COPIES)


def _series(book: Book, option: str, name: str) -> list[Series]:
    groups: dict[tuple[object, ...], list[tuple[Value, r.SmokeRun]]] = {}
    for run in book.runs.values():
        if run.outcome != "ok":
            continue
        settings = dict(_settings(run))
        given = settings.pop(option, "")
        value = Value(given or _default(run.lmdeploy, option), bool(given))
        groups.setdefault((_where(run), tuple(sorted(settings.items()))), []).append((value, run))
    found = [
        Series(name, tuple(_written(dict(key[1]))), _ordered(runs))  # type: ignore[call-overload]
        for key, runs in groups.items()
        if len({value.text for value, _ in runs}) > 1
    ]
    return sorted(found, key=lambda each: (-len(each.runs), each.runs[0][1].id))


def _where(run: r.SmokeRun) -> tuple[object, ...]:
    """What is no option of the launch: where it ran, and with which weights."""
    host = (run.gpu, run.gpu_count, run.cpus, run.pinned)
    return (*host, run.model, run.checkpoint, run.lmdeploy, run.kind, run.servers, run.share)


def _settings(run: r.SmokeRun) -> Iterator[tuple[str, str]]:
    """What a run was started with, by option, without what is the default anyway."""
    last = ""
    words: dict[str, list[str]] = {}
    for word in run.command:
        if word.startswith("--"):
            last = word.removeprefix("--")
            words[last] = []
        else:
            words[last].append(word)
    for name, values in words.items():
        said = " ".join(values) or "true"
        if name not in ANY and said != _default(run.lmdeploy, name):
            yield name, said
    for variable in run.environment:
        name, _, said = variable.partition("=")
        yield name.lower().replace("_", "-"), said
    if run.max_tiles:
        yield TILES, str(run.max_tiles)
    if run.copies > 1:
        yield COPIES, str(run.copies)
    if run.mps:
        yield "mps", "true"


def _default(release: str, option: str) -> str:
    if option == COPIES:
        return "1"
    era = _eras(release).get(option)
    return era.default if era else ""


@cache
def _eras(release: str) -> Mapping[str, r.Era]:
    return options_of(load(), version(release))


def _ordered(runs: list[tuple[Value, r.SmokeRun]]) -> tuple[tuple[Value, r.SmokeRun], ...]:
    """By value, numbers as numbers and what has no value last. The same value is one, given or not."""
    given = {value.text for value, _ in runs if value.given}

    def place(each: tuple[Value, r.SmokeRun]) -> tuple[bool, bool, float, str, str]:
        value, run = each
        number = _number(value.text)
        return not value.text, number is None, number or 0.0, value.text, run.id

    made = [(Value(value.text, True) if value.text in given else value, run) for value, run in runs]
    return tuple(sorted(made, key=place))


def _number(words: str) -> float | None:
    try:
        return float(words)
    except ValueError:
        return None


def _written(settings: dict[str, str]) -> Iterator[str]:
    """Settings as people write them."""
    for name, value in settings.items():
        if name in load().environment:
            yield f"{load().environment[name].name}={value}"
        elif name in load().flags:
            yield load().flags[name].option + ("" if value == "true" else f" {value}")
        else:
            yield f"{name}={value}"
