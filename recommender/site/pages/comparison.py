"""Render the Compare page: all settings of the advisers and ours, with verdicts, claims and scenarios."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from recommender.lookup.comparison import (
    ComparedSetting,
    ComparedValue,
    ComparedVerdict,
    Comparison,
    compare,
    final_setting,
    rejections,
    unknown_options,
)
from recommender.request.request import Request
from recommender.site import controls, markup
from recommender.site.pages import claimed_figures, outcomes
from recommender.site.pages.advisers import adviser_link
from recommender.site.pages.measured_table import GPU, OURS, measured_table
from recommender.site.site_data import SiteData, SitePage, page

STATES = {"gone": "removed: the server exits if it is set", "unread": "has no effect here", "read": ""}
SHOWN = tuple(OURS)[:2]
"""The table's columns of our recommendations."""
TOPICS = {"environment": "environment variables", "client": "request fields"}
"""The topic shown for settings that are not flags."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the Compare page."""
    yield page("compare.md", data.t("Compare"), _compare(data), wide=True)


def answers(data: SiteData) -> dict[str, Comparison]:
    """Return our recommendation compared with the advisers', for each request of the table."""
    return {name: compare(Request(**OURS[name]), data.store) for name in SHOWN}  # type: ignore[arg-type]


def _compare(data: SiteData) -> Iterator[str]:
    comparisons = answers(data)
    first = comparisons[SHOWN[0]]
    yield from outcomes.outcomes(data, first)
    yield markup.heading(2, data.t("Scenarios"), "scenarios")
    yield from outcomes.scenarios(data)
    yield markup.heading(2, data.t("Critical settings"), "critical")
    yield from outcomes.critical_settings(data, first)
    yield markup.heading(2, data.t("All settings"), "settings")
    yield data.t(
        "For {model} on one {card} with LMDeploy {release}. Marked: it differs from LMDeploy's default. Grey: not set, "
        "so the default applies. The symbol after a value is the verdict on the adviser's claim about that setting."
    ).format(model=markup.text(first.resolved.model.hub), card=GPU, release=first.resolved.release.id)
    marks = " · ".join(
        f"{markup.verdict(name, data.say)}: {data.t(meaning)}" for name, (_, meaning) in markup.VERDICTS.items()
    )
    yield f"\n{marks}\n"
    yield _table(data, comparisons)
    yield f"\n{data.t('For your own GPU, model and load:')} `recommend compare --gpu L4 --load 16`.\n"
    yield markup.heading(2, data.t("Claimed and measured figures"), "measured")
    yield from claimed_figures.table(data)
    yield markup.heading(3, data.t("Memory and speed of each configuration"), "configurations")
    yield from measured_table(data)
    yield markup.heading(2, data.t("Which configurations start"), "starts")
    yield from _starts(data, first)


@dataclass(frozen=True)
class Column:
    """One column: an adviser's configuration or ours."""

    id: str
    name: str
    adviser: str


def columns(data: SiteData) -> list[Column]:
    """Return the advisers' columns, then ours."""
    ours = [Column(f"ours-{number}", data.t(name), "") for number, name in enumerate(SHOWN, 1)]
    return ours + [Column(adviser.id, data.t(adviser.name), adviser.id) for adviser in data.store.advisers.values()]


def _table(data: SiteData, comparisons: Mapping[str, Comparison]) -> str:
    heads = "".join(
        f'<th scope="col" role="columnheader" data-column="{column.id}">{html.escape(column.name)}</th>'
        for column in columns(data)
    )
    settings = (setting.option for comparison in comparisons.values() for setting in comparison.settings)
    rows = "".join(_rows(data, name, comparisons) for name in dict.fromkeys(settings))
    # The roles repeat the elements' own: the narrow layout changes their display, which drops the implicit roles.
    return (
        f'{_controls(data)}\n<div class="compare" role="region" aria-label="{data.html("All settings")}">'
        f'<table class="settings" role="table">\n<thead role="rowgroup"><tr role="row">'
        f'<th scope="col" role="columnheader">{data.html("Setting")}</th>'
        f'<th scope="col" role="columnheader">{data.html("Default")}</th>'
        f"{heads}</tr></thead>\n{rows}</table></div>\n"
    )


def _controls(data: SiteData) -> str:
    only = (
        controls.button("only", "differs", data.html("differs from the default"), pressed=False),
        controls.button("only", "refuted", data.html("a claim was refuted"), pressed=False),
    )
    parts = (
        controls.field(data, "compare", "Find in the table"),
        controls.group(data.t("Show only"), only),
        controls.count("compare", data.t("{0} of {1} settings")),
    )
    return controls.form("compare", parts, label=data.t("What the table shows"))


def _setting(comparison: Comparison, option: str) -> ComparedSetting | None:
    return next((setting for setting in comparison.settings if setting.option == option), None)


def topic(data: SiteData, option: str) -> str:
    """Return a flag's topic, or the kind of another setting."""
    if option in data.store.flags:
        return data.store.flags[option].topic
    return TOPICS["environment" if option in data.store.environment else "client"]


def _rows(data: SiteData, option: str, comparisons: Mapping[str, Comparison]) -> str:
    ours = [_setting(comparison, option) for comparison in comparisons.values()]
    setting = next(setting for setting in ours if setting)
    values: list[ComparedValue | None] = [*(own.ours if own else None for own in ours), *setting.given]
    placed = list(zip(columns(data), values, strict=True))
    state = f'<small class="state">{data.html(STATES[setting.state])}</small>' * (setting.state != "read")
    about = f'<small class="topic">{data.html(topic(data, option))}</small>'
    default = html.escape(setting.default) or data.html("none")
    link = f'<a href="md:flags/{option}.md"><code>{html.escape(setting.name)}</code></a>'
    cells = "".join(_cell(data, column, value, setting) for column, value in placed)
    why = f'{data.html("Why")} <span class="unseen">{html.escape(setting.name)}</span>'
    return (
        f'<tbody role="rowgroup" data-only="{_kinds(setting, placed)}">'
        f'<tr id="{option}" role="row" class="{setting.state}"><th scope="row" role="rowheader">{link}{about}{state}'
        f'</th><td role="cell" data-who="{data.html("Default")}">{default}</td>{cells}</tr>\n'
        f'<tr class="why" role="row"><td role="cell" colspan="{len(placed) + 2}"><details>'
        f"<summary>{why}</summary>{_why(data, setting, placed)}</details></td></tr></tbody>\n"
    )


def _kinds(setting: ComparedSetting, placed: Sequence[tuple[Column, ComparedValue | None]]) -> str:
    """Return what the buttons above the table show only."""
    differs = any(value and _differs(value, setting) for _, value in placed)
    refuted = any(claim.verdict == "refuted" for claim in setting.verdicts)
    return " ".join(["differs"] * differs + ["refuted"] * refuted)


def _verdicts(setting: ComparedSetting, column: Column) -> list[ComparedVerdict]:
    return [claim for claim in setting.verdicts if column.adviser and column.adviser in claim.advisers]


def _differs(value: ComparedValue, setting: ComparedSetting) -> bool:
    return not value.left and (value.value, value.up_to) != (setting.default, "")


def _value(data: SiteData, value: ComparedValue) -> str:
    if value.up_to:
        return data.t("{0} to {1}").format(value.value, value.up_to)
    return value.value or data.t("none")


def _cell(data: SiteData, column: Column, value: ComparedValue | None, setting: ComparedSetting) -> str:
    place = f'data-who="{html.escape(column.name)}" data-column="{column.id}" role="cell"'
    if value is None:
        return f'<td class="" {place}>–</td>'
    kinds = ["left"] * value.left + ["differs"] * _differs(value, setting)
    marks = "".join(
        f'<a class="verdict {claim.verdict}" href="md:claims.md#{claim.claim}" aria-label="{data.html(claim.verdict)}" '
        f'title="{data.html(claim.verdict)}: {data.html(claim.statement)}">{markup.VERDICTS[claim.verdict][0]}</a>'
        for claim in _verdicts(setting, column)
    )
    reason = _reason(data, value, setting.option)
    title = f' title="{html.escape(reason)}"' if reason else ""
    default = f" <small>({data.html('default')})</small>" if value.left else ""
    spoken = f'<span class="unseen">, {data.html("differs")}</span>' if _differs(value, setting) else ""
    # A long file name may wrap, but only after an underscore.
    written = html.escape(_value(data, value)).replace("_", "_<wbr>")
    return f'<td class="{" ".join(kinds)}" {place}{title}><span>{written}{default}</span>{spoken}{marks}</td>'


def _reason(data: SiteData, value: ComparedValue, option: str) -> str:
    adviser = data.store.advisers.get(value.adviser)
    if not adviser:
        return data.filled(value.reason)
    advice = final_setting(adviser, option)
    return data.own(value.reason, advice.reason_vi if advice else "")


def _why(data: SiteData, setting: ComparedSetting, placed: Sequence[tuple[Column, ComparedValue | None]]) -> str:
    reasons = "".join(
        f"<dt>{html.escape(column.name)}</dt><dd>{html.escape(_reason(data, value, setting.option))}</dd>"
        for column, value in placed
        if value and value.reason
    )
    judged = "".join(
        f'<li>{markup.verdict(claim.verdict, data.say)} <a href="md:claims.md#{claim.claim}">'
        f"{data.html(claim.statement)}</a> {data.html(claim.because)}</li>"
        for claim in setting.verdicts
    )
    parts = (f"<dl>{reasons}</dl>" if reasons else "") + (f"<ul>{judged}</ul>" if judged else "")
    return parts or f"<p>{data.html('No reason given.')}</p>"


def _starts(data: SiteData, comparison: Comparison) -> Iterator[str]:
    yield data.t("Each configuration as given, on LMDeploy {0}, with its problems for one request at a time.").format(
        comparison.resolved.release.id
    )
    for configuration in comparison.advised:
        against = [data.filled(finding.message) for finding in rejections(configuration)]
        unknown = unknown_options(configuration)
        if unknown:
            against.insert(0, data.t("This release does not have {0}.").format(", ".join(unknown)))
        outcome = "does not start, or does not meet the request:" if against else "starts and meets the request."
        yield f"\n**{adviser_link(data, configuration.adviser)}** {data.t(outcome)}\n"
        yield from (f"- {markup.prose(data.store, message)}" for message in against)
