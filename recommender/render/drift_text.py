"""Write how files drifted as text of 80 columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from recommender.common.terminal import wrap
from recommender.common.text import one_line, printable
from recommender.render.drift import Difference, Drift, Kind
from recommender.render.seal import REQUEST

FORMAT = 1

TITLES: Mapping[Kind, str] = {
    "hand": "EDITED BY HAND",
    "newer": "NEWER ADVICE",
    "both": "EDITED BY HAND, AND NEWER ADVICE",
    "unknown": "EDITED BY HAND OR NEWER ADVICE",
}
OTHERS: Mapping[Kind, str] = {
    "hand": "Other lines were edited by hand too; see --diff.",
    "newer": "Other lines are newer too, such as reasons, predictions and checks; see --diff.",
    "unknown": "Other lines differ too, edited by hand or newer; see --diff.",
}


@dataclass(frozen=True)
class FileDrift(Drift):
    """The JSON form of one file's differences. ``drift``: it still differs, after an update if there was one."""

    drift: bool = False
    """It still differs, after an update if there was one."""


@dataclass(frozen=True)
class CheckJson:
    """The JSON form of a check."""

    format: int
    files: tuple[FileDrift, ...]
    """Each file that was checked."""
    errors: tuple[str, ...]
    """One line for each file that could not be checked."""


def json_form(drifts: Sequence[Drift], errors: Sequence[str]) -> CheckJson:
    """Return a check ready to be written."""
    files = (
        FileDrift(**{field.name: getattr(each, field.name) for field in fields(each)}, drift=each.still_differs)
        for each in drifts
    )
    return CheckJson(FORMAT, tuple(files), tuple(errors))


def summary(drift: Drift) -> str:
    """Return one line: how many values differ, by kind."""
    if not drift.differs:
        return printable(one_line(f"{drift.path}: no drift"))
    kinds = [setting.kind for setting in drift.settings]
    counts = {
        "edited by hand": kinds.count("hand") + kinds.count("both"),
        "with newer advice": kinds.count("newer") + kinds.count("both"),
        "by hand or newer advice": kinds.count("unknown"),
    }
    parts = [f"{number} {'value' if number == 1 else 'values'} {what}" for what, number in counts.items() if number]
    differs = "; ".join(parts) or drift.nothing or "other lines only"
    return printable(one_line(f"{drift.path}: drift: {differs}"))


def lines(drift: Drift) -> Iterator[str]:
    """Yield the summary, each value that differs with today's reason, and what an update did."""
    yield summary(drift)
    for kind, title in TITLES.items():
        settings = [setting for setting in drift.settings if setting.kind == kind]
        if settings:
            yield title
        for setting in settings:
            yield from _setting(setting)
    for kind in drift.others:
        yield from wrap(OTHERS[kind], "  ", "  ")
    if drift.updated or drift.kept:
        kept = f"; kept as edited: {', '.join(drift.kept)}" if drift.kept else ""
        yield from wrap(f"{'updated' if drift.updated else 'nothing to update'}{kept}", "  ", "  ")
    if drift.refused:
        yield from wrap(f"not updated: {drift.refused}", "  ", "  ")


def _setting(setting: Difference) -> Iterator[str]:
    file, today = (value or "(not set)" for value in (setting.file, setting.today))
    advice = "" if setting.name == REQUEST else f", today's advice: {today}"
    yield from wrap(f"{setting.name} {file}{advice}", "  ", "    ")
    if setting.reason:
        yield from wrap(setting.reason, "    ", "    ")
        yield from wrap(f"[{setting.source}]", "    ", "    ")
