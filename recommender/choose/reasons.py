"""Explain each option: its value, the reason, the advice and verdicts on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from recommender.choose.needs import list_needs
from recommender.choose.select import Candidate
from recommender.estimate.configuration import setting_text
from recommender.knowledge.conditions import Value, fill, parse, version
from recommender.knowledge.engines import EngineName, is_read
from recommender.knowledge.eras import within
from recommender.knowledge.provenance import code_caveat, for_engine, measured_lines
from recommender.knowledge.store import Store
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge import records

Kind = Literal["flag", "environment", "client"]
NEEDED = "this model needs it"


@dataclass(frozen=True, slots=True)
class Advice:
    """What one adviser says about an option."""

    adviser: str
    """Id of the adviser."""
    value: str
    """The advised value."""
    reason: str
    """The adviser's reason."""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A claim about an option, with its verdict."""

    claim: str
    """Id of the claim."""
    statement: str
    """What is claimed."""
    verdict: str
    """What the sources show."""
    because: str
    """Why."""
    measured: tuple[str, ...]
    """What was measured, every compared load included."""
    sources: records.Sources
    """What the verdict rests on."""
    caveat: str
    """What limits the sources; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One option of the release: its value, whether it is emitted, and why."""

    option: str
    """Id of the option."""
    kind: Kind
    """flag, environment or client."""
    name: str
    """Name on the command line, of the variable or of the field."""
    value: str
    """The chosen value, as text."""
    default: str
    """LMDeploy's default; empty: none."""
    switch: bool
    """The option takes no value."""
    emitted: bool
    """It is written; otherwise the default does."""
    reason: str
    """Why it has this value."""
    sources: records.Sources
    """What the reason rests on."""
    advice: tuple[Advice, ...]
    """What advisers say; for requests with images only: they were asked about those."""
    verdicts: tuple[ClaimVerdict, ...]
    """Claims about the option."""
    caveat: str = ""
    """What limits the sources; empty: nothing."""
    brief: str = ""
    """The reason in about five words."""
    unset: str = ""
    """What holds where the default is empty."""


def explain(resolved: ResolvedRequest, candidate: Candidate) -> tuple[Explanation, ...]:
    """Return an explanation of every option: flags, then environment, then client."""
    store, needs = resolved.store, list_needs(resolved)
    flags = ((store.flags[name], era) for name, era in resolved.options.items())
    return (
        *(_explain(resolved, candidate, needs, flag, "flag", flag.option, era.default, era) for flag, era in flags),
        *(
            _explain(resolved, candidate, needs, parameter, parameter.kind, parameter.name, parameter.default, None)
            for parameter in (*store.environment.values(), *store.client.values())
        ),
    )


def _explain(
    resolved: ResolvedRequest,
    candidate: Candidate,
    needs: Mapping[str, records.NeededOption],
    option: records.Option,
    kind: Kind,
    name: str,
    default: str,
    era: records.Era | None,
) -> Explanation:
    value = format_value(option, candidate, default)
    need = needs.get(option.setting)
    if need is not None and value == need.value:
        reason, sources, brief = fill(need.because, candidate.values), need.sources, NEEDED
    else:
        reason, sources, brief = _find_reason(option, candidate.values)
    if era is None or is_read(era, resolved.engine):  # else the reason may be that only another engine reads it
        sources = for_engine(sources, resolved.engine)
    return Explanation(
        option=option.id,
        kind=kind,
        name=name,
        value=value,
        default=default,
        switch=era is not None and era.type == "bool",
        emitted=is_emitted(option, value, default, era, resolved.engine),
        reason=reason,
        sources=sources,
        advice=_list_advice(resolved.store, option.id) if resolved.images else (),
        verdicts=tuple(
            verdict
            for when, verdict in _find_verdicts(resolved.store, option.id, resolved.release.id)
            if all(parse(text).holds(candidate.values) for text in when)
        ),
        caveat=_caveat(resolved.store, sources, resolved.release.id),
        brief=brief,
        unset=option.unset,
    )


_caveat = lru_cache(maxsize=8192)(code_caveat)


@lru_cache(maxsize=4096)
def _find_verdicts(store: Store, option: str, release: str) -> tuple[tuple[tuple[str, ...], ClaimVerdict], ...]:
    """Return the verdicts of a release on what is claimed of an option, the most specific claims first.

    Each with the conditions under which the claim concerns a request.
    """
    return tuple(
        (
            claim.when,
            ClaimVerdict(
                claim.id,
                claim.statement,
                claim.verdict,
                claim.because,
                tuple(measured_lines(store, claim.id)),
                claim.sources,
                code_caveat(store, claim.sources, release),
            ),
        )
        for claim in sorted(store.claims.values(), key=lambda claim: len(claim.options))
        if option in claim.options and within(claim.since, claim.until, version(release))
    )


def format_value(option: records.Option, candidate: Candidate, default: str) -> str:
    """Return the decided value as the option's text, or the default if undecided."""
    if not option.setting:
        return default
    text = setting_text(getattr(candidate.config, option.setting))
    return next((encoding.text for encoding in option.encodings if encoding.value == text), text)


def is_emitted(option: records.Option, value: str, default: str, era: records.Era | None, engine: EngineName) -> bool:
    """Return whether the option is written out.

    It must be decided, read by the engine that runs or the server, and differ from the default, unless its
    record says otherwise.
    """
    if not option.setting or option.emit == "never":
        return False
    if era is not None:
        if not is_read(era, engine):
            return False
        if era.type == "bool":
            return value == "true"
    return bool(value) and (option.emit == "always" or value != default)


def has_source(sources: records.Sources) -> bool:
    """Return whether a fact cites a source; facts without one are unverified."""
    return bool(sources.code or sources.pages or sources.evidence)


def _find_reason(option: records.Option, values: Mapping[str, Value]) -> tuple[str, records.Sources, str]:
    """Return the reason, its sources, and the same in a few words."""
    for reason in option.reasons:
        if all(parse(text).holds(values) for text in reason.when):
            sources = reason.sources if has_source(reason.sources) else option.sources
            return fill(reason.text, values), sources, fill(reason.brief or option.brief, values)
    return option.summary, option.sources, fill(option.brief, values)


def range_text(value: str, up_to: str) -> str:
    """Return a value, or a range if there is an upper end."""
    return f"{value} to {up_to}" if up_to else value


@lru_cache(maxsize=512)
def _list_advice(store: Store, option: str) -> tuple[Advice, ...]:
    return tuple(
        Advice(adviser.id, range_text(setting.value, setting.up_to), setting.reason)
        for adviser in store.advisers.values()
        for setting in adviser.settings
        if setting.option == option and setting.final
    )
