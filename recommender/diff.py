"""``recommend diff``: what another LMDeploy release means for a launch script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from recommender.changes import diff as differ

if TYPE_CHECKING:
    from recommender.changes import Change, Diff, Moved, Told

FORMAT = 1
COMMA = re.compile(r",\s*")
"""Between the parts of a version range; with a blank behind it a line may break there."""
HELP = """\b
Examples:
  recommend diff 0.9.2 0.18.0
  recommend diff 0.18.0 0.12.3        going back to an older release
  recommend diff 0.9.2 0.18.0 --json
"""


def _releases(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """For completion by the Tab key."""
    from recommender.store import load

    return [each for each in load().releases if each.startswith(begun)]


@click.command(epilog=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.argument("old", shell_complete=_releases)
@click.argument("new", shell_complete=_releases)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, complete.")
def diff(old: str, new: str, as_json: bool) -> None:
    """Tell what changed for a launch script between two LMDeploy releases.

    OLD is the release that the script was written for, NEW the one it shall run on.
    """
    from recommender import terminal
    from recommender.facts import resolve_release
    from recommender.store import load

    store = load()
    found = differ(store, resolve_release(store, old), resolve_release(store, new))
    if as_json:
        terminal.show_json(published(found))
    else:
        terminal.show(lines(found))


def published(found: Diff) -> dict[str, object]:
    """The JSON form: ``format``, which rises when a field changes its meaning, and the fields of ``Diff``.

    ``removed`` and ``added`` are options (option, name, summary, release, read_by, see, sources), ``changed``
    has (option, name, changes of what, before, after; sources), ``needs`` (name, before, after). The pairs
    ``rules``, ``claims`` and ``threads`` list what holds in the old (``_gone``) or the new release (``_new``)
    only, as (id, text, more, options): more is the remedy, the verdict, or the address.
    """
    from recommender.terminal import plain

    made: dict[str, object] = {"format": FORMAT} | plain(found)
    return made


def lines(found: Diff) -> Iterator[str]:
    """The text of 80 columns."""
    from recommender.terminal import labelled, wrap

    way = "back to the older" if found.back else "on to"
    yield from wrap(
        f"From LMDeploy {found.old} ({found.old_published}) {way} {found.new} ({found.new_published}), "
        "for a script that was written for the first."
    )
    if found.old == found.new:
        yield "It is the same release: nothing changes."
        return
    yield from _moved(
        found.removed, "GONE", f"{found.new} does not know these; a server started with one ends at once.", "last in"
    )
    if found.changed:
        yield ""
        yield "CHANGED"
    for each in found.changed:
        yield f"  {each.name}"
        for change in each.changes:
            yield from _change(change)
    yield from _moved(found.added, "NEW", "", "in" if found.back else "since")
    if found.needs:
        yield ""
        yield "NEEDS"
        for need in found.needs:
            before, after = (COMMA.sub(", ", each) or "not read" for each in (need.before, need.after))
            yield from labelled(need.name, f"was {before}", width=15)
            yield from labelled("", f"now {after}", width=15)
    yield from _told("RULES THAT HOLD NO MORE", found.rules_gone)
    yield from _told("RULES THAT HOLD NOW", found.rules_new)
    yield from _threads("TROUBLE THAT IS OVER", found.threads_gone)
    yield from _threads("TROUBLE TO EXPECT", found.threads_new)
    yield from _claims("ADVICE JUDGED OTHERWISE BEFORE", found.claims_gone)
    yield from _claims("ADVICE JUDGED SO NOW", found.claims_new)


def _moved(options: Iterable[Moved], title: str, says: str, when: str) -> Iterator[str]:
    from recommender.terminal import wrap

    if not options:
        return
    yield ""
    yield title
    if says:
        yield from wrap(says, "  ", "  ")
    for each in options:
        engine = "" if {"turbomind", "server"} & set(each.read_by) else f", read by {' and '.join(each.read_by)} only"
        yield f"  {each.name}  ({when} {each.release}{engine})"
        yield from wrap(each.summary, "    ", "    ")
        if each.see:
            yield from wrap(f"see {', '.join(each.see)}", "    ", "    ")


def _change(change: Change) -> Iterator[str]:
    from recommender.terminal import labelled

    before, after = (", ".join(each.split()) or "none" for each in (change.before, change.after))
    if change.what == "choices":
        gone = [each for each in change.before.split() if each not in change.after.split()]
        more = [each for each in change.after.split() if each not in change.before.split()]
        kept = (("no longer " + ", ".join(gone)) if gone else "", ("now also " + ", ".join(more)) if more else "")
        yield from labelled(change.what, "; ".join(each for each in kept if each), indent="    ")
    elif change.what == "meaning":
        if change.before:
            yield from labelled("was", change.before, indent="    ")
        yield from labelled("now", change.after or "This is over.", indent="    ")
    else:
        yield from labelled(change.what, f"{before} -> {after}", indent="    ")


def _told(title: str, rules: Iterable[Told]) -> Iterator[str]:
    from recommender.terminal import wrap

    if rules:
        yield ""
        yield title
    for rule in rules:
        yield from wrap(holes(rule.text), "  ", "    ")
        yield from wrap(f"mend: {holes(rule.more)}", "    ", "    ")


def holes(text: str) -> str:
    """A rule's message with what it fills in from the case named: <compute capability>."""
    return re.sub(r"\{(?:\w+\.)?(\w+)\}", lambda match: f"<{match[1].replace('_', ' ')}>", text)


def _threads(title: str, threads: Iterable[Told]) -> Iterator[str]:
    from recommender.terminal import wrap

    if threads:
        yield ""
        yield title
    for each in threads:
        yield from wrap(each.text, "  ", "    ")
        yield f"    {each.more}"


def _claims(title: str, claims: Iterable[Told]) -> Iterator[str]:
    from recommender.terminal import wrap

    if claims:
        yield ""
        yield title
    for each in claims:
        yield from wrap(f"{each.more}: {each.text}", "  ", "    ")
