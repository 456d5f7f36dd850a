"""Group runs of the evidence that differ in one option only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from recommender.common.units import read_number
from recommender.knowledge.conditions import version
from recommender.knowledge.eras import options_of
from recommender.knowledge.load import load
from recommender.site.site_data import SiteData

if TYPE_CHECKING:
    from recommender.knowledge import records

ANY = frozenset({"server-name", "server-port", "trust-remote-code", "proxy-url", "disable-fastapi-docs", "server-gap"})
"""Options without effect on memory or speed: runs of a series may differ in them."""
Where = tuple[object, ...]
Settings = tuple[tuple[str, str], ...]
TILES = "max-dynamic-patch"
COPIES = "copies"


@dataclass(frozen=True)
class ChartValue:
    """A run's value of its series' option. ``is_set``: set on the command line, not the default."""

    text: str
    is_set: bool


@dataclass(frozen=True)
class Series:
    """Runs by value of one option, and the options common to all."""

    name: str
    same: tuple[str, ...]
    runs: tuple[tuple[ChartValue, records.SmokeRun], ...]

    @property
    def values(self) -> list[ChartValue]:
        """Return each value once, in order."""
        return list(dict.fromkeys(value for value, _ in self.runs))

    def phases(self, run: records.SmokeRun) -> Iterator[records.Phase]:
        """Yield the run's phases whose request lengths are the series' most common ones."""
        for phase in run.phases:
            sizes = Counter(
                (same_load.images, same_load.output_tokens)
                for _, any_run in self.runs
                for same_load in any_run.phases
                if (same_load.image, same_load.concurrency) == (phase.image, phase.concurrency)
            )
            if (phase.images, phase.output_tokens) == sizes.most_common(1)[0][0]:
                yield phase


def series_of(data: SiteData, option: records.Option) -> list[Series]:
    """Return the series of an option, largest first."""
    name = getattr(option, "option", None) or str(getattr(option, "name", option.id))
    return _series(data, option.id, name)


def copies_of(data: SiteData) -> list[Series]:
    """Return the series of the number of servers on one GPU."""
    return _series(data, COPIES, COPIES)


def _series(data: SiteData, option: str, name: str) -> list[Series]:
    groups: dict[tuple[Where, Settings], list[tuple[ChartValue, records.SmokeRun]]] = {}
    for run in data.runs.values():
        if run.outcome != "ok":
            continue
        settings = dict(_settings(run))
        value_text = settings.pop(option, "")
        value = ChartValue(value_text or _default(run.lmdeploy, option), bool(value_text))
        group = _where(run), tuple(sorted(settings.items()))
        groups.setdefault(group, []).append((value, run))
    by_settings = [
        Series(name, tuple(map(_command_text, settings)), _ordered(runs))
        for (_, settings), runs in groups.items()
        if len({value.text for value, _ in runs}) > 1
    ]
    return sorted(by_settings, key=lambda series: (-len(series.runs), series.runs[0][1].id))


def _where(run: records.SmokeRun) -> Where:
    host = (run.gpu, run.gpu_count, run.cpus, run.pinned)
    return (*host, run.model, run.checkpoint, run.lmdeploy, run.kind, run.servers, run.share)


def _settings(run: records.SmokeRun) -> Iterator[tuple[str, str]]:
    """Yield the options of a run that differ from the default, with values."""
    last = ""
    words: dict[str, list[str]] = {}
    for word in run.command:
        if word.startswith("--"):
            last = word.removeprefix("--")
            words[last] = []
        else:
            words[last].append(word)
    for name, values in words.items():
        value = " ".join(values) or "true"
        if name not in ANY and value != _default(run.lmdeploy, name):
            yield name, value
    for variable in run.environment:
        name, _, value = variable.partition("=")
        yield name.lower().replace("_", "-"), value
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
def _eras(release: str) -> Mapping[str, records.Era]:
    return options_of(load(), version(release))


def _ordered(runs: list[tuple[ChartValue, records.SmokeRun]]) -> tuple[tuple[ChartValue, records.SmokeRun], ...]:
    """Sort runs by value: numbers first, no value last; a value counts as given if any run gave it."""
    set_values = {value.text for value, _ in runs if value.is_set}

    def place(entry: tuple[ChartValue, records.SmokeRun]) -> tuple[bool, bool, float, str, str]:
        value, run = entry
        number = read_number(value.text)
        return not value.text, number is None, number or 0.0, value.text, run.id

    values = [(ChartValue(value.text, True) if value.text in set_values else value, run) for value, run in runs]
    return tuple(sorted(values, key=place))


def _command_text(setting: tuple[str, str]) -> str:
    name, value = setting
    if name in load().environment:
        return f"{load().environment[name].name}={value}"
    if name in load().flags:
        return load().flags[name].option + ("" if value == "true" else f" {value}")
    return f"{name}={value}"
