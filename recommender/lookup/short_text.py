"""Write one option, a comparison or a difference of releases in short: what to decide by, with sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from recommender.choose.reasons import range_text
from recommender.common.terminal import block, labelled, wrap
from recommender.common.text import count
from recommender.lookup.comparison import ComparedSetting, Comparison
from recommender.lookup.comparison_text import head, reasons_against, rows
from recommender.lookup.option import OptionInfo
from recommender.lookup.option_text import heading
from recommender.lookup.release_diff import ChangedOption, Diff, MovedOption
from recommender.lookup.release_diff_text import difference, opening, requirements
from recommender.render.summary import cite

VERDICTS = 4
ISSUES = 2
CHANGES = 8
REASONS = 4
LONGEST = 160
"""Most verdicts, known issues, changes and reasons, and most characters of a sentence."""


def explain(option: OptionInfo, vi: bool = False) -> Iterator[str]:
    """Yield the option in this release, its effects, what was advised, and the verdicts most about it."""
    yield from heading(option, vi)
    yield from ("", "EFFECT")
    for name in ("memory", "latency", "throughput", "accuracy", "choose"):
        yield from labelled(name, getattr(option, name))
    said = [f"{advice.adviser} {range_text(advice.value, advice.up_to)}" for advice in option.said if advice.final]
    yield from labelled("advised", ", ".join(said))
    held = [verdict for verdict in option.judged if verdict.holds]
    yield from block("VERDICTS", (
        line for each in held[:VERDICTS]
        for line in _item(f"{each.verdict}: {each.statement}", cite(each.sources, each.caveat, 1))
    ))  # fmt: skip
    met = [issue for issue in option.met if issue.possible]
    yield from block(
        "KNOWN ISSUES", (line for each in met[:ISSUES] for line in _item(first_sentence(each.symptom), each.url))
    )
    era = next((era for era in option.lives if era.now), None)
    sources = era.sources if era and (era.sources.code or era.sources.pages) else option.sources
    yield from ("", *wrap(f"[{cite(sources, option.caveat, 3)}]", "", ""))
    left = {
        "more verdict": len(option.judged) - len(held[:VERDICTS]),
        "more known issue": len(option.met) - len(met[:ISSUES]),
    }
    yield from _left([count(number, name) for name, number in left.items() if number])


def compare(comparison: Comparison) -> Iterator[str]:
    """Yield each configuration's prediction, why advisers do not fit, and the values of what we set."""
    yield from head(comparison)
    yield from ("", *rows(comparison))
    yield from wrap(f"Predicted ({comparison.advised[0].speed.basis}), also for what does not fit.", "  ", "  ")
    against = sorted(reasons_against(comparison).items(), key=lambda item: -len(item[1]))
    yield from block(
        "WHY ADVISERS DO NOT FIT",
        (
            line
            for (message, remedy), names in against[:REASONS]
            for line in wrap(f"{', '.join(names)}: {first_sentence(message)}. {first_sentence(remedy)}", "  ", "    ")
        ),
    )
    shown = [setting for setting in comparison.settings if _differs(setting)]
    yield from block("WHERE THEY DIFFER FROM OURS", (line for setting in shown for line in _values(setting)))
    if comparison.nothing:
        yield from ("", *wrap(f"ours: nothing fits: {comparison.nothing}"))
    more = len(against) - REASONS
    settings = f"{len(comparison.settings) - len(shown)} settings where nobody differs or we set nothing"
    yield from _left([*([f"{count(more, 'more reason')} why advisers do not fit"] if more > 0 else []), settings])


def _differs(setting: ComparedSetting) -> bool:
    """Return whether we set the option and somebody gives another value."""
    ours = setting.ours
    given = [each for each in setting.given if not each.left]
    return bool(ours.value) and not ours.left and any((each.value, each.up_to) != (ours.value, "") for each in given)


def _values(setting: ComparedSetting) -> Iterator[str]:
    """Yield an option's values, each with who gave it, and its source."""
    givers: dict[str, list[str]] = {}
    for each in (setting.ours, *setting.given):
        if each.value and not each.left:
            givers.setdefault(range_text(each.value, each.up_to), []).append(each.adviser)
    text = "; ".join(f"{value} {', '.join(names)}" for value, names in givers.items())
    yield from _item(f"{setting.name}: {text}", cite(setting.sources, "", 1))


def diff(release_diff: Diff) -> Iterator[str]:
    """Yield what may stop or change a launch script: options gone and changed, and requirements."""
    yield from opening(release_diff)
    yield from block("REMOVED: a server started with one exits at once", _moved(release_diff.removed))
    served = sorted(release_diff.changed, key=lambda option: all(change.what == "meaning" for change in option.changes))
    yield from block("CHANGED", (line for option in served[:CHANGES] for line in _changed(option)))
    if served[CHANGES:]:
        yield from wrap(f"also {', '.join(option.name for option in served[CHANGES:])}", "  ", "    ")
    yield from block("REQUIREMENTS", requirements(release_diff))
    left = (
        ("new option", "", release_diff.added),
        ("rule that applies now", "rules that apply now", release_diff.rules_new),
        ("rule gone", "rules gone", release_diff.rules_gone),
        ("known issue", "", (*release_diff.threads_new, *release_diff.threads_gone)),
        ("verdict", "", (*release_diff.claims_new, *release_diff.claims_gone)),
    )
    yield from _left([count(len(changes), noun, plural) for noun, plural, changes in left if changes])


def _moved(options: Iterable[MovedOption]) -> Iterator[str]:
    for option in options:
        see = f" (see {', '.join(option.see)})" if option.see else ""
        yield from _item(f"{option.name}{see}: {first_sentence(option.summary)}", cite(option.sources, "", 1))


def _changed(option: ChangedOption) -> Iterator[str]:
    changes = [
        first_sentence(change.after or "an earlier warning no longer applies.")
        if change.what == "meaning"
        else f"{change.what} {difference(change)}"
        for change in option.changes
    ]
    yield from _item(f"{option.name}: {'; '.join(changes)}", cite(option.sources, "", 1))


def first_sentence(text: str) -> str:
    """Return a text's first sentence, cut where it is long."""
    first = text.partition(". ")[0].rstrip(".")
    return first if len(first) <= LONGEST else first[:LONGEST].rpartition(" ")[0] + "..."


def _item(text: str, source: str) -> list[str]:
    return wrap(f"{text} [{source}]", "  ", "    ")


def _left(parts: Sequence[str]) -> Iterator[str]:
    if parts:
        yield from ("", *wrap(f"Not shown: {'; '.join(parts)}."))
