"""Render the pages of the options: server flags, environment variables, request fields."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from recommender.choose.reasons import has_source
from recommender.cli import root
from recommender.lookup import option_text
from recommender.lookup.option import OptionAdvice, OptionEra, OptionInfo, OptionVerdict, option_info
from recommender.options import build_recommendation
from recommender.review import engine
from recommender.review.output.rule_list import title
from recommender.site import markup
from recommender.site.charts import option_charts
from recommender.site.charts.timeline import timeline
from recommender.site.pages.advisers import adviser_link
from recommender.site.site_data import SiteData, SitePage, page

if TYPE_CHECKING:
    from recommender.choose.reasons import Explanation
    from recommender.knowledge import records

READERS = option_text.READERS | {"nobody": "nobody"}
TYPES = {"bool": "switch", "str": "text", "int": "integer", "float": "number", "json": "JSON"}
CASES = {
    "one image at a time, H100": {"model": "internvl3-8b-awq", "gpu": "h100-sxm-80g", "load": "1"},
    "16 images at a time, H100": {"model": "internvl3-8b-awq", "gpu": "h100-sxm-80g", "load": "16"},
    "chat, 64 at a time, A100": {
        "model": "qwen2.5-7b-instruct",
        "gpu": "a100-sxm-80g",
        "load": "64",
        "workload": "chat",
    },
    "RAG, 16 at a time, 1000 shared tokens, A100": {
        "model": "qwen2.5-7b-instruct",
        "gpu": "a100-sxm-80g",
        "load": "16",
        "workload": "rag",
        "prefix-tokens": "1000",
    },
    "16 images at a time, RTX 4090": {"model": "internvl3-8b-awq", "gpu": "rtx-4090", "load": "16"},
}
"""Usual questions, whose answers an option's page shows."""
ESSENTIAL = 12
GUIDE = "guide"
"""The adviser whose advice comes first on pages in its language."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the index and a page per option."""
    yield page("flags/index.md", data.t("Options"), _index(data))
    for option in data.store.options():
        info = option_info(data.store, option, data.newest)
        setting = (option.setting.replace("_", " "),) if option.setting else ()
        values = tuple(f"{choice} {info.topic}" for era in info.lives[-1:] for choice in era.choices)
        yield page(f"flags/{option.id}.md", info.name, _option(data, option, info), tags=setting + values)


def _index(data: SiteData) -> Iterator[str]:
    store = data.store
    yield data.t(
        "{flags} options of `lmdeploy serve api_server` in {releases} releases ({first} to {last}), {variables}"
        " environment variables and {fields} request fields. Defaults and readers are those of {last}, or of "
        "the last release that has the option."
    ).format(
        flags=len(store.flags),
        releases=len(data.releases),
        first=data.releases[0].id,
        last=data.newest.id,
        variables=len(store.environment),
        fields=len(store.client),
    )
    yield markup.heading(2, data.t("The twelve essential"), "essential")
    first = (
        (markup.named_option(store, option.id), _short(data, info.default), markup.prose(store, data.t(info.choose)))
        for option in essential(data)
        if (info := option_info(store, option, data.newest))
    )
    yield from markup.table(data.labels("Option", "Default", "What to set"), first)
    for topic in sorted({flag.topic for flag in store.flags.values()}):
        yield markup.heading(2, data.t(topic.capitalize()), topic)
        chosen = [flag for flag in store.flags.values() if flag.topic == topic]
        head = data.labels("Option", "Default", "Read by", "Description")
        yield from markup.table(head, (_row(data, flag) for flag in chosen))
    for name, kind in (("Environment variables", store.environment), ("Request fields", store.client)):
        yield markup.heading(2, data.t(name), name.lower().replace(" ", "-"))
        rows = (
            (markup.option_link(record.id, record.name), markup.prose(store, data.t(record.summary)))
            for record in kind.values()
        )
        yield from markup.table(data.labels("Name", "Description"), rows)


def _row(data: SiteData, flag: records.Flag) -> tuple[str, ...]:
    era = flag.eras[-1]
    gone = f" ({data.t('removed in {0}').format(era.until)})" if era.until else ""
    summary = _own(data, flag.summary, flag.summary_vi)
    return markup.option_link(flag.id, flag.option) + gone, _default(data, era.default), _readers(data, era), summary


def _own(data: SiteData, english: str, vietnamese: str) -> str:
    return markup.prose(data.store, data.own(english, vietnamese))


def _short(data: SiteData, value: str) -> str:
    """Return a default on one line."""
    return markup.whole(value) if value else data.t("none")


def _default(data: SiteData, value: str) -> str:
    return markup.code(value) if value else data.t("none")


def _readers(data: SiteData, era: OptionEra | records.Era) -> str:
    return ", ".join(data.t(READERS[reader]) for reader in era.read_by)


def _option(data: SiteData, option: records.Option, info: OptionInfo) -> Iterator[str]:
    store = data.store
    kind = data.t(option_text.KINDS[info.kind])
    about_it = f", {data.t('about {0}').format(data.t(info.topic.capitalize()).lower())}" if info.topic else ""
    yield f"*{kind}{about_it}*\n\n{_own(data, info.summary, info.summary_vi)}"
    yield from _what_to_set(data, option, info)
    yield from _now(data, info)
    if not data.english and any(advice.adviser == GUIDE for advice in info.said):
        yield from _guided(data, info)
    if info.lives:
        yield markup.heading(2, data.t("By release"), "eras")
        yield timeline(data, info)
        yield from eras(data, info)
    yield markup.heading(2, data.t("Effect"), "effect")
    names = ("memory", "latency", "throughput", "accuracy")
    yield from markup.resolved(
        (data.t(name.capitalize()), markup.prose(store, data.t(getattr(info, name)))) for name in names
    )
    yield from option_charts.charts_of_option(data, option)
    yield from _advised(data, info)
    yield from _judged(data, info)
    yield from _known_issues(data, info)
    yield from _rules(data, option)
    yield from _sources(data, option, info)


def _what_to_set(data: SiteData, option: records.Option, info: OptionInfo) -> Iterator[str]:
    """Return how to choose a value, and what the recommender takes for usual loads, with its reason in a few words."""
    yield markup.heading(2, data.t("What to set"), "choose")
    yield f"**{markup.prose(data.store, data.t(info.choose))}**\n"
    rows = [
        (
            f'<a href="md:index.md?{html.escape(urlencode(question))}">{data.html(when)}</a>',
            markup.code(chosen.value) if chosen.emitted else f"{markup.code(chosen.value)} ({data.t('default')})",
            # The short text describes an emitted value. For a default, show the full reason.
            markup.text(data.brief(option, chosen.brief) if chosen.emitted else data.reason(option, chosen.reason)),
        )
        for when, question in CASES.items()
        for chosen in choices(" ".join(f"--{name} {value}" for name, value in question.items()))
        if chosen.option == option.id and option.setting and option.emit != "never" and chosen.value
    ]
    yield from markup.table(data.labels("For", "Value", "Why"), rows)


@cache
def choices(words: str) -> tuple[Explanation, ...]:
    """Return what the recommender chooses for a question."""
    return build_recommendation(root.make_context("recommend", words.split()).params).explanations


def essential(data: SiteData) -> list[records.Option]:
    """Return the twelve options to know: those that the recommender always writes, then the most discussed."""
    talk = Counter(
        name for said in (data.store.claims, data.store.threads) for each in said.values() for name in each.options
    )
    served = (each for each in data.store.options() if each.setting and each.id not in data.store.client)
    return sorted(served, key=lambda each: (each.emit != "always", -talk[each.id]))[:ESSENTIAL]


def eras(data: SiteData, info: OptionInfo) -> Iterator[str]:
    """Return an option's eras as a table."""
    head = data.labels("Releases", "Default", "Takes", "Read by", "Notes")
    yield from markup.table(head, (_era(data, era) for era in info.lives))


def _now(data: SiteData, info: OptionInfo) -> Iterator[str]:
    if not info.there:
        gone = data.t("Not in LMDeploy {0}: the server exits at once if it is set.").format(data.newest.id)
        yield f'\n!!! warning "{data.t("Warning")}"\n\n    {gone}\n'
        return
    python = ", ".join(markup.code(field) for field in info.fields)
    default = data.t("Default in {0}").format(data.newest.id)
    yield from markup.resolved(((default, _default(data, info.default)), (data.t("In Python"), python)))


def _era(data: SiteData, era: OptionEra) -> tuple[str, ...]:
    last = era.last or data.t("{0} (newest)").format(data.newest.id)
    takes = data.t(TYPES[era.type])
    if era.choices:
        takes = data.t("one of {0}").format(" ".join(markup.whole(choice) for choice in era.choices))
    return (
        era.first if era.first == era.last else data.t("{0} to {1}").format(era.first, last),
        _default(data, era.default),
        takes,
        _readers(data, era),
        markup.prose(data.store, data.t(era.note)),
    )


def _value(data: SiteData, advice: OptionAdvice) -> str:
    shown = markup.code(advice.value)
    if advice.up_to:
        shown = data.t("{0} to {1}").format(shown, markup.code(advice.up_to))
    return shown if advice.final else f"{shown} ({data.t('mentioned only')})"


def _guided(data: SiteData, info: OptionInfo) -> Iterator[str]:
    """Return the guide's advice first: readers of its language come for it."""
    yield markup.heading(2, data.t("What the guide advises"), "guide")
    for advice in info.said:
        if advice.adviser == GUIDE:
            yield f"- {_value(data, advice)}: {_own(data, advice.reason, advice.reason_vi)}"
    verdicts = [claim for claim in info.judged if GUIDE in claim.advisers and claim.holds]
    if verdicts:
        yield f"\n{data.t('Verdicts on that advice:')}\n"
    for claim in verdicts:
        yield from _claim(data, claim)
    yield ""


def _advised(data: SiteData, info: OptionInfo) -> Iterator[str]:
    others = [advice for advice in info.said if data.english or advice.adviser != GUIDE]
    if not others:
        return
    yield markup.heading(2, data.t("Advice" if data.english else "Other advice"), "advised")
    rows = []
    judged: set[str] = set()
    for advice in others:
        name = advice.adviser
        claims = [claim for claim in info.judged if name in claim.advisers and claim.holds and name not in judged]
        judged.add(name)
        marks = " ".join(f"[{markup.verdict(claim.verdict, data.say)}](/claims.md#{claim.claim})" for claim in claims)
        rows.append(
            (adviser_link(data, name), _value(data, advice), _own(data, advice.reason, advice.reason_vi), marks)
        )
    head = data.labels("Adviser", "Value", "Why", "Verdicts on their claims")
    yield from markup.table(head, rows)


def _claim(data: SiteData, claim: OptionVerdict) -> Iterator[str]:
    shown = markup.verdict(claim.verdict, data.say)
    when = "" if claim.holds else f" ({markup.span(claim.since, claim.until, data.say)})"
    yield f"- {shown}{when} [{markup.text(data.t(claim.statement))}](/claims.md#{claim.claim})  "
    yield f"  {markup.reason(data.store, claim.claim, claim.because, data.say)}"


def _judged(data: SiteData, info: OptionInfo) -> Iterator[str]:
    if info.judged:
        yield markup.heading(2, data.t("Claims"), "claims")
        for claim in sorted(info.judged, key=lambda claim: not claim.holds):
            yield from _claim(data, claim)


def _known_issues(data: SiteData, info: OptionInfo) -> Iterator[str]:
    if info.met:
        yield markup.heading(2, data.t("Known issues"), "threads")
        for thread in info.met:
            over = (
                ""
                if thread.possible
                else f" ({data.t('releases')} {markup.span(thread.since, thread.until, data.say)})"
            )
            remedy = markup.prose(data.store, data.t(thread.remedy))
            yield f"- [{markup.text(data.t(thread.symptom))}](/threads.md#{thread.thread}){over} {remedy}"


def _rules(data: SiteData, option: records.Option) -> Iterator[str]:
    ends = (f"flags/{option.id}", f"environment/{option.id}", f"client/{option.id}")
    chosen = [rule for rule in engine.rules() if set(ends) & set(rule.sources)]
    if chosen:
        yield markup.heading(2, data.t("Review rules"), "rules")
        yield from (f"- [{rule.id}](/rules/{rule.id.lower()}.md) {markup.text(data.t(title(rule)))}" for rule in chosen)


def _sources(data: SiteData, option: records.Option, info: OptionInfo) -> Iterator[str]:
    yield markup.heading(2, data.t("Sources"), "sources")
    if not data.english:
        yield data.t("Quotes from web pages are in English.") + "\n"
    reasons = list(dict.fromkeys(line for reason in option.reasons for line in _opened(data, reason.sources)))
    if has_source(info.sources) or not (reasons or any(has_source(era.sources) for era in info.lives)):
        yield from markup.sources(data.store, info.sources, data.say, info.release)
    for era in info.lives:
        span = data.t("From {0} to {1}" if era.last else "From {0}").format(era.first, era.last)
        yield from markup.details(span, markup.sources(data.store, era.sources, data.say, era.last or info.release))
    yield from markup.details(data.t("Sources of the report's reasons"), reasons)


def _opened(data: SiteData, sources: records.Sources) -> Iterator[str]:
    if has_source(sources):
        yield from markup.sources(data.store, sources, data.say, data.newest.id)
