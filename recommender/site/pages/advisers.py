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
    yield page("advisers/index.md", data.t("Advisers"), _index(data))
    for adviser in data.store.advisers.values():
        yield page(f"advisers/{adviser.id}.md", markup.text(data.t(adviser.name)), _adviser(data, adviser))
    yield page("claims.md", data.t("Claims and verdicts"), _claims(data))


def adviser_link(data: SiteData, name: str) -> str:
    """Return a link to an adviser's page."""
    return f"[{markup.text(data.t(data.store.advisers[name].name))}](/advisers/{name}.md)"


def _index(data: SiteData) -> Iterator[str]:
    yield data.t(
        "Advisers on serving a vision model with LMDeploy. [Compare](/compare.md) shows their settings side by side."
    )
    rows = (
        (adviser_link(data, adviser.id), *(own_prose(data, adviser, field) for field in ("approach", "best_for")))
        for adviser in data.store.advisers.values()
    )
    yield from markup.table(data.labels("Adviser", "Approach", "Best for"), rows)
    yield markup.heading(2, data.t("Scenarios"), "scenarios")
    yield data.t("Their own picks for each use case, with their reasons.")
    for scenario in data.store.scenarios.values():
        yield markup.heading(3, data.t(scenario.title), f"scenario-{scenario.id}")
        yield f"{data.t('Picks')}: {', '.join(adviser_link(data, pick) for pick in scenario.picks)}\n"
        yield from (f"- {_said(data, reason)}" for reason in scenario.reasons)


def _said(data: SiteData, english: str) -> str:
    return markup.prose(data.store, data.t(english))


def own_prose(data: SiteData, record: records.Adviser | records.Setting, field: str) -> str:
    """Return a field of a record that may have it in Vietnamese too."""
    return markup.prose(data.store, data.own(getattr(record, field), getattr(record, f"{field}_vi")))


def _adviser(data: SiteData, adviser: records.Adviser) -> Iterator[str]:
    store = data.store
    approach, best_for, trade_off = (own_prose(data, adviser, field) for field in ("approach", "best_for", "trade_off"))
    yield f"{markup.text(data.t(adviser.name))}: {approach}\n"
    yield from markup.resolved(
        (
            (data.t("Kind"), data.t(adviser.kind)),
            (data.t("Approach"), approach),
            (data.t("Best for"), best_for),
            (data.t("Gives up"), trade_off),
            (data.t("Model"), markup.code(adviser.model) if adviser.model else ""),
        )
    )
    yield markup.heading(2, data.t("Settings"), "settings")
    head = data.labels("Setting", "Value", "Reason")
    yield from markup.table(head, (_setting(data, setting) for setting in adviser.settings))
    yield data.t("Get it as a script with warnings:") + "\n"
    yield markup.shell(f"recommend --gpu A100-80G --follow {adviser.id}")
    yield from _figures(data, adviser)
    yield from _measured(data, adviser)
    claims = [claim for claim in store.claims.values() if adviser.id in claim.advisers]
    if claims:
        yield markup.heading(2, data.t("Claims"), "claims")
        yield from (f"- {markup.claim(claim.verdict, claim.statement, claim.id, data.say)}" for claim in claims)
    yield from _disagreements(data, adviser)


def _setting(data: SiteData, setting: records.Setting) -> tuple[str, ...]:
    value = markup.code(setting.value)
    if setting.up_to:
        value = data.t("{0} to {1}").format(value, markup.code(setting.up_to))
    passing = "" if setting.final else f" ({data.t('mentioned only')})"
    return markup.named_option(data.store, setting.option), value + passing, own_prose(data, setting, "reason")


def claimed(data: SiteData, figure: records.Figure) -> str:
    """Return a claimed figure as its adviser gives it."""
    if figure.unit == "words":
        return markup.text(data.t(figure.words))
    unit = "" if figure.unit == "count" else f" {figure.unit}"
    low, high = f"{figure.low:,.6g}", f"{figure.high:,.6g}"
    return (low if low == high else data.t("{0} to {1}").format(low, high)) + unit


def _figures(data: SiteData, adviser: records.Adviser) -> Iterator[str]:
    if adviser.figures:
        yield markup.heading(2, data.t("Claimed figures"), "figures")
        rows = ((data.t(figure.kind), claimed(data, figure), _said(data, figure.about)) for figure in adviser.figures)
        yield from markup.table(data.labels("Figure", "Claimed", "About"), rows)


def _measured(data: SiteData, adviser: records.Adviser) -> Iterator[str]:
    runs = followers(data, adviser.id)
    if runs:
        yield markup.heading(2, data.t("Measured"), "measured")
        yield data.t("Runs of this configuration. Each record lists options that were added or removed.") + "\n"
        ended = data.t("ended: {0}")
        yield from (f"- [{run.id}](/runs.md#{run.id}), {ended.format(run.outcome)}" for run in runs)


def _disagreements(data: SiteData, adviser: records.Adviser) -> Iterator[str]:
    store = data.store
    rows = [
        (
            markup.named_option(store, disagreement.option),
            _said(data, disagreement.table_says),
            _said(data, disagreement.answer_says or "nothing"),
            _said(data, disagreement.note),
        )
        for disagreement in store.disagreements.values()
        if disagreement.adviser == adviser.id
    ]
    if rows:
        yield markup.heading(2, data.t("Differences from the comparison's tables"), "disagreements")
        yield from markup.table(data.labels("Setting", "Table", "Answer", "Note"), rows)


def _claims(data: SiteData) -> Iterator[str]:
    known = data.store.claims.values()
    about = data.t("{0} claims, each with a verdict, the releases it holds for, and the reason.")
    yield about.format(len(known))
    yield from markup.table(
        data.labels("Verdict", "Meaning", "Claims"),
        (
            (
                f"[{markup.verdict(name, data.say)}](#{name})",
                data.t(meaning),
                str(sum(claim.verdict == name for claim in known)),
            )
            for name, (_, meaning) in markup.VERDICTS.items()
        ),
    )
    yield _controls(data)
    for name in markup.VERDICTS:
        yield markup.heading(2, data.t(name).capitalize(), name)
        yield "".join(_claim(data, claim) for claim in known if claim.verdict == name) or data.t("None.")


def _controls(data: SiteData) -> str:
    known = data.store.claims.values()
    verdicts = {name: f"{data.t(name)} ({sum(claim.verdict == name for claim in known)})" for name in markup.VERDICTS}
    names = {adviser.id: data.t(adviser.name) for adviser in data.store.advisers.values()}
    parts = (
        controls.field(data, "claims", "Search claims"),
        controls.choice("claims-verdict", data.t("Verdict"), {"": data.t("any")} | verdicts, field="verdict"),
        controls.choice("claims-adviser", data.t("Claimed by"), {"": data.t("anyone")} | names, field="advisers"),
        controls.count("claims", data.t("{0} of {1} claims")),
    )
    return controls.form("claims", parts, label=data.t("Claim filters"))


def _compared(data: SiteData, claim: records.Claim) -> Iterator[str]:
    """Yield all starts of both sides of each comparison, and the loads that only one side measured."""
    for comparison in getattr(data.store.measured.get(claim.id), "comparisons", ()):
        sides = (", ".join(f"[{run}](/runs.md#{run})" for run in side) for side in (comparison.of, comparison.than))
        yield f"- {_said(data, comparison.change)}: {next(sides)}. {data.t('Compared with')}: {next(sides)}."
        if comparison.alone:
            loads = markup.text("; ".join(map(data.filled, comparison.alone)))
            yield f"    {data.t('Loads of one side only')}: {loads}."


def _claim(data: SiteData, claim: records.Claim) -> str:
    attributes = f'data-verdict="{claim.verdict}" data-advisers="{" ".join(claim.advisers)}"'
    lines = [
        f'\n<section class="claim" markdown="1" {attributes}>\n',
        markup.heading(3, data.t(claim.statement), claim.id),
    ]
    who = ", ".join(adviser_link(data, adviser) for adviser in claim.advisers) or data.t("no adviser")
    about = ", ".join(markup.named_option(data.store, option) for option in claim.options)
    judged = data.t("{0} for {1}").format(
        markup.verdict(claim.verdict, data.say), markup.span(claim.since, claim.until, data.say)
    )
    lines.append(f"{judged}. {data.t('Claimed by')}: {who}.")
    lines.append(f"{data.t('About {0}').format(about)}.\n" if about else "")
    lines.append(_said(data, claim.because))
    lines += (f"\n{markup.prose(data.store, line)}" for line in measured_lines(data.store, claim.id, data.say))
    lines += markup.details(data.t("Runs compared"), _compared(data, claim))
    release = newest_about(data.store, claim)
    lines.append("\n" + "\n".join(markup.sources(data.store, claim.sources, data.say, release)) + "\n\n</section>\n")
    return "\n".join(lines)
