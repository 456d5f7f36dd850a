"""Render the pages of the advisers and of the claims with their verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.knowledge.provenance import measured_lines, newest_about
from recommender.site import controls, markup
from recommender.site.pages.runs import followers
from recommender.site.site_data import SiteData, SitePage, page

if TYPE_CHECKING:
    from recommender.knowledge import records


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the index, a page per adviser, and the claims."""
    yield page("advisers/index.md", "Advisers", _index(data))
    for adviser in data.store.advisers.values():
        yield page(f"advisers/{adviser.id}.md", markup.text(adviser.name), _adviser(data, adviser))
    yield page("claims.md", "Claims and verdicts", _claims(data))


def adviser_link(data: SiteData, name: str) -> str:
    """Return a link to an adviser's page."""
    return f"[{markup.text(data.t(data.store.advisers[name].name))}](/advisers/{name}.md)"


def _index(data: SiteData) -> Iterator[str]:
    yield "Advisers on serving a vision model with LMDeploy. [Compare](/compare.md) shows their settings side by side."
    rows = (
        (
            adviser_link(data, adviser.id),
            markup.prose(data.store, adviser.approach),
            markup.prose(data.store, adviser.best_for),
        )
        for adviser in data.store.advisers.values()
    )
    yield from markup.table(("Adviser", "Approach", "Best for"), rows)
    yield markup.heading(2, "Scenarios", "scenarios")
    yield "Their own picks for each use case, with their reasons."
    for scenario in data.store.scenarios.values():
        yield markup.heading(3, scenario.title, f"scenario-{scenario.id}")
        yield f"Picks: {', '.join(adviser_link(data, pick) for pick in scenario.picks)}\n"
        yield from (f"- {markup.prose(data.store, reason)}" for reason in scenario.reasons)


def _adviser(data: SiteData, adviser: records.Adviser) -> Iterator[str]:
    store = data.store
    yield f"{markup.text(adviser.name)}: {markup.prose(store, adviser.approach)}\n"
    yield from markup.resolved(
        (
            ("Kind", adviser.kind),
            ("Approach", markup.prose(store, adviser.approach)),
            ("Best for", markup.prose(store, adviser.best_for)),
            ("Gives up", markup.prose(store, adviser.trade_off)),
            ("Model", markup.code(adviser.model) if adviser.model else ""),
        )
    )
    vietnamese = " ".join((adviser.approach_vi, adviser.best_for_vi, adviser.trade_off_vi)).strip()
    if vietnamese:
        yield f'\nIn Vietnamese: <em lang="vi">{markup.text(vietnamese)}</em>'
    yield markup.heading(2, "Settings", "settings")
    yield from markup.table(("Setting", "Value", "Reason"), (_setting(data, setting) for setting in adviser.settings))
    yield "Get it as a script with warnings:\n"
    yield markup.shell(f"recommend --gpu A100-80G --follow {adviser.id}")
    yield from _figures(data, adviser)
    yield from _measured(data, adviser)
    claims = [claim for claim in store.claims.values() if adviser.id in claim.advisers]
    if claims:
        yield markup.heading(2, "Claims", "claims")
        yield from (f"- {markup.claim(claim.verdict, claim.statement, claim.id)}" for claim in claims)
    yield from _disagreements(data, adviser)


def _setting(data: SiteData, setting: records.Setting) -> tuple[str, ...]:
    value = markup.code(setting.value) + (f" to {markup.code(setting.up_to)}" if setting.up_to else "")
    passing = "" if setting.final else " (mentioned only)"
    vietnamese = f'<br><em lang="vi">{markup.text(setting.reason_vi)}</em>' if setting.reason_vi else ""
    return (
        markup.named_option(data.store, setting.option),
        value + passing,
        markup.prose(data.store, setting.reason) + vietnamese,
    )


def claimed(figure: records.Figure) -> str:
    """Return a claimed figure as its adviser gives it."""
    if figure.unit == "words":
        return markup.text(figure.words)
    unit = "" if figure.unit == "count" else f" {figure.unit}"
    low, high = f"{figure.low:,.6g}", f"{figure.high:,.6g}"
    return (low if low == high else f"{low} to {high}") + unit


def _figures(data: SiteData, adviser: records.Adviser) -> Iterator[str]:
    if adviser.figures:
        yield markup.heading(2, "Claimed figures", "figures")
        rows = ((figure.kind, claimed(figure), markup.prose(data.store, figure.about)) for figure in adviser.figures)
        yield from markup.table(("Figure", "Claimed", "About"), rows)


def _measured(data: SiteData, adviser: records.Adviser) -> Iterator[str]:
    runs = followers(data, adviser.id)
    if runs:
        yield markup.heading(2, "Measured", "measured")
        yield "Runs of this configuration. Each record lists options that were added or removed.\n"
        yield from (f"- [{run.id}](/runs.md#{run.id}), ended: {run.outcome}" for run in runs)


def _disagreements(data: SiteData, adviser: records.Adviser) -> Iterator[str]:
    store = data.store
    rows = [
        (
            markup.named_option(store, disagreement.option),
            markup.prose(store, disagreement.table_says),
            markup.prose(store, disagreement.answer_says) or "nothing",
            markup.prose(store, disagreement.note),
        )
        for disagreement in store.disagreements.values()
        if disagreement.adviser == adviser.id
    ]
    if rows:
        yield markup.heading(2, "Differences from the comparison's tables", "disagreements")
        yield from markup.table(("Setting", "Table", "Answer", "Note"), rows)


def _claims(data: SiteData) -> Iterator[str]:
    known = data.store.claims.values()
    yield f"{len(known)} claims, each with a verdict, the releases it holds for, and the reason."
    yield from markup.table(
        ("Verdict", "Meaning", "Claims"),
        (
            (f"[{markup.verdict(name)}](#{name})", meaning, str(sum(claim.verdict == name for claim in known)))
            for name, (_, meaning) in markup.VERDICTS.items()
        ),
    )
    yield _controls(data)
    for name in markup.VERDICTS:
        yield markup.heading(2, name.capitalize(), name)
        yield "".join(_claim(data, claim) for claim in known if claim.verdict == name) or "None."


def _controls(data: SiteData) -> str:
    known = data.store.claims.values()
    verdicts = {name: f"{name} ({sum(claim.verdict == name for claim in known)})" for name in markup.VERDICTS}
    names = {adviser.id: adviser.name for adviser in data.store.advisers.values()}
    parts = (
        controls.field(data, "claims", "Search claims"),
        controls.choice("claims-verdict", "Verdict", {"": "any"} | verdicts, field="verdict"),
        controls.choice("claims-adviser", "Claimed by", {"": "anyone"} | names, field="advisers"),
        controls.count("claims", "{0} of {1} claims"),
    )
    return controls.form("claims", parts, label="Claim filters")


def _compared(data: SiteData, claim: records.Claim) -> Iterator[str]:
    """Yield all starts of both sides of each comparison, and the loads that only one side measured."""
    for comparison in getattr(data.store.measured.get(claim.id), "comparisons", ()):
        sides = (", ".join(f"[{run}](/runs.md#{run})" for run in side) for side in (comparison.of, comparison.than))
        yield f"- {markup.prose(data.store, comparison.change)}: {next(sides)}. Compared with: {next(sides)}."
        if comparison.alone:
            yield f"    Loads of one side only: {markup.text('; '.join(comparison.alone))}."


def _claim(data: SiteData, claim: records.Claim) -> str:
    attributes = f'data-verdict="{claim.verdict}" data-advisers="{" ".join(claim.advisers)}"'
    lines = [f'\n<section class="claim" markdown="1" {attributes}>\n', markup.heading(3, claim.statement, claim.id)]
    who = ", ".join(adviser_link(data, adviser) for adviser in claim.advisers) or "no adviser"
    about = ", ".join(markup.named_option(data.store, option) for option in claim.options)
    lines.append(f"{markup.verdict(claim.verdict)} for {markup.span(claim.since, claim.until)}. Claimed by: {who}.")
    lines.append(f"About {about}.\n" if about else "")
    lines.append(markup.prose(data.store, claim.because))
    lines += (f"\n{markup.prose(data.store, line)}" for line in measured_lines(data.store, claim.id))
    lines += markup.details("Runs compared", _compared(data, claim))
    release = newest_about(data.store, claim)
    lines.append("\n" + "\n".join(markup.sources(data.store, claim.sources, release=release)) + "\n\n</section>\n")
    return "\n".join(lines)
