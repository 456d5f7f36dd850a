"""Write what changed between two releases as JSON or as text of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from recommender.common.terminal import block, labelled, wrap
from recommender.lookup.release_diff import ChangedOption, Diff, MovedOption, ReleaseChange, ReleaseRecord

FORMAT = 1
"""Version of the JSON form; it rises when a field changes its meaning."""
COMMA = re.compile(r",\s*")
"""Between the parts of a version range; with a blank behind it a line may break there."""


def lines(diff: Diff) -> Iterator[str]:
    """Yield the text of 80 columns."""
    yield from opening(diff)
    gone = wrap(f"{diff.new} rejects these; a server started with one exits at once.", "  ", "  ")
    yield from block("REMOVED", [*gone, *_options(diff.removed, "last in")] if diff.removed else [])
    yield from block("CHANGED", (line for option in diff.changed for line in (f"  {option.name}", *_changes(option))))
    yield from block("ADDED", _options(diff.added, "in" if diff.back else "since"))
    yield from block("REQUIREMENTS", requirements(diff))
    for title, rules in (("RULES THAT NO LONGER APPLY", diff.rules_gone), ("RULES THAT APPLY NOW", diff.rules_new)):
        yield from block(title, (line for rule in rules for line in _rule(rule)))
    for title, threads in (("KNOWN ISSUES GONE", diff.threads_gone), ("NEW KNOWN ISSUES", diff.threads_new)):
        yield from block(title, (line for thread in threads for line in (*_item(thread.text), f"    {thread.more}")))
    for title, claims in (
        ("VERDICTS THAT NO LONGER APPLY", diff.claims_gone),
        ("VERDICTS THAT APPLY NOW", diff.claims_new),
    ):
        yield from block(title, (line for claim in claims for line in _item(f"{claim.more}: {claim.text}")))


def opening(diff: Diff) -> Iterator[str]:
    """Yield which releases these are."""
    way = "back to the older" if diff.back else "to"
    yield from wrap(
        f"From LMDeploy {diff.old} ({diff.old_published}) {way} {diff.new} ({diff.new_published}), "
        f"for a script written for {diff.old}."
    )
    if diff.old == diff.new:
        yield "Same release: nothing changes."


def _item(text: str) -> list[str]:
    return wrap(text, "  ", "    ")


def _options(options: Iterable[MovedOption], when: str) -> Iterator[str]:
    for option in options:
        served = {"turbomind", "server"} & set(option.read_by)
        engine = "" if served else f", read by {' and '.join(option.read_by)} only"
        yield f"  {option.name}  ({when} {option.release}{engine})"
        yield from wrap(option.summary, "    ", "    ")
        if option.see:
            yield from wrap(f"see {', '.join(option.see)}", "    ", "    ")


def _changes(option: ChangedOption) -> Iterator[str]:
    for change in option.changes:
        if change.what == "meaning":
            if change.before:
                yield from labelled("was", change.before, indent="    ")
            yield from labelled("now", change.after or "This no longer applies.", indent="    ")
        else:
            yield from labelled(change.what, difference(change), indent="    ")


def difference(change: ReleaseChange) -> str:
    """Return what changed of a field with values, such as ``8 -> 16``."""
    before, after = change.before.split(), change.after.split()
    if change.what != "choices":
        return f"{', '.join(before) or 'none'} -> {', '.join(after) or 'none'}"
    parts = {
        "no longer": [choice for choice in before if choice not in after],
        "now also": [choice for choice in after if choice not in before],
    }
    return "; ".join(f"{what} {', '.join(choices)}" for what, choices in parts.items() if choices)


def requirements(diff: Diff) -> Iterator[str]:
    """Yield each requirement on the machine that changed, before and after."""
    for need in diff.needs:
        before, after = (COMMA.sub(", ", versions) or "not read" for versions in (need.before, need.after))
        yield from labelled(need.name, f"was {before}", width=15)
        yield from labelled("", f"now {after}", width=15)


def _rule(rule: ReleaseRecord) -> Iterator[str]:
    yield from _item(name_holes(rule.text))
    yield from wrap(f"fix: {name_holes(rule.more)}", "    ", "    ")


def name_holes(text: str) -> str:
    """Return a rule's message with each ``{name}`` that a case would fill in as words: <compute capability>."""
    text = text.replace("{lmdeploy}", "<release>").replace("{model.hub}", "<model>")
    return re.sub(r"\{(?:\w+\.)?(\w+)\}", lambda match: f"<{match[1].replace('_', ' ')}>", text)
