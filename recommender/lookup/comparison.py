"""Compare the advisers' configurations and ours for one request, setting by setting. Data, no layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from recommender.choose import recommend
from recommender.choose.constraints import ConstraintFinding
from recommender.choose.reasons import ClaimVerdict, Explanation
from recommender.estimate.configuration import setting_text
from recommender.knowledge.engines import is_read

if TYPE_CHECKING:
    from recommender.choose.recommend import NothingFits, Recommendation
    from recommender.knowledge import records
    from recommender.knowledge.store import Store
    from recommender.request.request import Request
    from recommender.request.resolved_request import ResolvedRequest

OURS = "ours"


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """An option's value in one configuration."""

    adviser: str
    """Id of the adviser, or ours."""
    value: str
    """The value, as text."""
    up_to: str
    """Upper end where a range was advised."""
    left: bool
    """Not given: LMDeploy's default."""
    reason: str
    """Why."""


@dataclass(frozen=True, slots=True)
class ComparedVerdict:
    """A claim about the option as of the release, and the advisers who made it."""

    claim: str
    """Id of the claim."""
    advisers: tuple[str, ...]
    """Ids of the advisers who say it."""
    verdict: str
    """What the sources show."""
    statement: str
    """What is claimed."""
    because: str
    """Why."""
    measured: tuple[str, ...]
    """What was measured, every compared load included."""
    sources: records.Sources
    """What the verdict rests on."""
    caveat: str
    """What limits the sources; empty: nothing."""


@dataclass(frozen=True, slots=True)
class ComparedSetting:
    """One option: our value with its reason, each adviser's, and the verdicts on it."""

    option: str
    """Id of the option."""
    name: str
    """Name on the command line, of the variable or of the field."""
    kind: str
    """flag, environment or client."""
    state: Literal["read", "unread", "gone"]
    """read by TurboMind or the server; unread by both; gone from the release."""
    default: str
    """LMDeploy's default; empty: none."""
    ours: ComparedValue
    """Our value."""
    sources: records.Sources
    """What it rests on."""
    caveat: str
    """What limits the sources; empty: nothing."""
    given: tuple[ComparedValue, ...]
    """Each adviser's value."""
    verdicts: tuple[ComparedVerdict, ...]
    """Claims about the option."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole comparison. If nothing fits, ``ours`` is None and ``nothing`` says why."""

    resolved: ResolvedRequest
    ours: Recommendation | None
    nothing: NothingFits | None
    advised: tuple[Recommendation, ...]
    settings: tuple[ComparedSetting, ...]


def compare(request: Request, store: Store) -> Comparison:
    """Compare ours with every adviser's.

    Raises UnknownName, RequestError or CheckpointError.
    """
    ours, nothing = None, None
    try:
        ours = recommend.recommend(request, store)
        resolved = ours.resolved
    except recommend.NothingFits as error:
        nothing, resolved = error, error.resolved
    advised = tuple(recommend.recommend_adviser(request, name, store=store) for name in store.advisers)
    return Comparison(resolved, ours, nothing, advised, tuple(_settings(resolved, ours, advised)))


def rejections(recommendation: Recommendation) -> tuple[ConstraintFinding, ...]:
    """Return what keeps a configuration from starting, or from doing what was asked."""
    return tuple(finding for finding in recommendation.findings if finding.severity == "reject")


def unknown_options(recommendation: Recommendation) -> tuple[str, ...]:
    """Return a configuration's options that the release's parser refuses."""
    resolved = recommendation.resolved
    known = {resolved.store.flags[name].option for name in resolved.options}
    flags = (option.name for option in recommendation.explanations if option.kind == "flag" and option.emitted)
    return tuple(name for name in flags if name not in known)


def _settings(
    resolved: ResolvedRequest, ours: Recommendation | None, advised: tuple[Recommendation, ...]
) -> Iterator[ComparedSetting]:
    """Yield every option that anybody gives."""
    explained = [{option.option: option for option in adviser.explanations} for adviser in advised]
    mine = {option.option: option for option in ours.explanations} if ours else {}
    for option in resolved.store.options():
        given = [final_setting(resolved.store.advisers[adviser.adviser], option.id) for adviser in advised]
        own = mine.get(option.id)
        if not any(given) and not (own and own.emitted):
            continue
        theirs = next((options[option.id] for options in explained if option.id in options), None)
        shown = own or theirs
        assert shown is not None
        yield ComparedSetting(
            option=option.id,
            name=shown.name,
            kind=shown.kind,
            state=_state(resolved, option.id, shown.kind),
            default=shown.default,
            ours=_our_value(option, ours, own),
            sources=shown.sources,
            caveat=shown.caveat,
            given=tuple(
                ComparedValue(adviser.adviser, setting.value, setting.up_to, False, setting.reason)
                if setting
                else ComparedValue(adviser.adviser, value_in_effect(option, adviser, shown.default), "", True, "")
                for adviser, setting in zip(advised, given, strict=True)
            ),
            verdicts=tuple(_verdict(resolved.store, bearing) for bearing in (theirs.verdicts if theirs else ())),
        )


def _state(resolved: ResolvedRequest, option: str, kind: str) -> Literal["read", "unread", "gone"]:
    if kind != "flag":
        return "read"
    era = resolved.options.get(option)
    if era is None:
        return "gone"
    return "read" if is_read(era, resolved.engine) else "unread"


def final_setting(adviser: records.Adviser, option: str) -> records.Setting | None:
    """Return what an adviser's configuration has of an option; None: nothing."""
    return next((setting for setting in adviser.settings if setting.final and setting.option == option), None)


def _our_value(option: records.Option, ours: Recommendation | None, own: Explanation | None) -> ComparedValue:
    if ours is None or own is None:
        return ComparedValue(OURS, "", "", True, "")
    value = own.value if own.emitted else value_in_effect(option, ours, own.default)
    return ComparedValue(OURS, value, "", not own.emitted, own.reason)


def value_in_effect(option: records.Option, recommendation: Recommendation, default: str) -> str:
    """Return the value in effect of an option that is not given."""
    decides = option.setting and option.id not in recommendation.resolved.store.client  # else the client decides
    if default or not decides:
        return default
    return setting_text(getattr(recommendation.config, option.setting))


def _verdict(store: Store, bearing: ClaimVerdict) -> ComparedVerdict:
    return ComparedVerdict(
        claim=bearing.claim,
        advisers=store.claims[bearing.claim].advisers,
        verdict=bearing.verdict,
        statement=bearing.statement,
        because=bearing.because,
        measured=bearing.measured,
        sources=bearing.sources,
        caveat=bearing.caveat,
    )
