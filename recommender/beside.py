"""The advisers' configurations and ours for one request, setting by setting. Data, no layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from recommender import pipeline
from recommender.constraints import Finding
from recommender.explain import READERS, Bearing, Explanation

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.facts import Facts
    from recommender.pipeline import NothingFits, Recommendation
    from recommender.request import Request
    from recommender.store import Store

OURS = "ours"


@dataclass(frozen=True, slots=True)
class Value:
    """What one configuration has at an option. ``left``: nothing was given, this is what LMDeploy then takes."""

    adviser: str
    value: str
    up_to: str
    left: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim about the option as of the release, and which advisers made it."""

    claim: str
    advisers: tuple[str, ...]
    verdict: str
    statement: str
    because: str
    sources: r.Sources


@dataclass(frozen=True, slots=True)
class Setting:
    """One option: our value with its reason, each adviser's, and what was judged of it.

    ``state``: ``read`` by TurboMind or the server, ``unread`` by either in this release, or ``gone`` from it.
    """

    option: str
    name: str
    kind: str
    state: Literal["read", "unread", "gone"]
    default: str
    ours: Value
    sources: r.Sources
    given: tuple[Value, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """All of it. ``ours`` is None where nothing fits, and ``nothing`` says why."""

    facts: Facts
    ours: Recommendation | None
    nothing: NothingFits | None
    advised: tuple[Recommendation, ...]
    settings: tuple[Setting, ...]


def beside(request: Request, store: Store) -> Beside:
    """Ours and every adviser's. Raises UnknownName, RequestError or CheckpointError."""
    ours, nothing = None, None
    try:
        ours = pipeline.recommend(request, store)
        facts = ours.facts
    except pipeline.NothingFits as error:
        nothing, facts = error, error.facts
    advised = tuple(pipeline.recommend_adviser(request, name, store=store) for name in store.advisers)
    return Beside(facts, ours, nothing, advised, tuple(_settings(facts, ours, advised)))


def rejected(found: Recommendation) -> tuple[Finding, ...]:
    """What keeps a configuration from starting, or from doing what was asked."""
    return tuple(each for each in found.findings if each.severity == "reject")


def refused(found: Recommendation) -> tuple[str, ...]:
    """Options of a configuration that the release's parser does not know: a server with one does not start."""
    known = {found.facts.store.flags[name].option for name in found.facts.options}
    flags = (each for each in found.explanations if each.kind == "flag" and each.emitted)
    return tuple(each.name for each in flags if each.name not in known)


def _settings(facts: Facts, ours: Recommendation | None, advised: tuple[Recommendation, ...]) -> Iterator[Setting]:
    """Every option that anybody gives."""
    by_option = [{each.option: each for each in found.explanations} for found in advised]
    mine = {each.option: each for each in ours.explanations} if ours else {}
    for option in facts.store.options():
        said = [_said(facts.store.advisers[found.adviser], option.id) for found in advised]
        own = mine.get(option.id)
        if not any(said) and not (own and own.emitted):
            continue
        shown = own or next(each[option.id] for each in by_option if option.id in each)
        yield Setting(
            option=option.id,
            name=shown.name,
            kind=shown.kind,
            state=_state(facts, option.id, shown.kind),
            default=shown.default,
            ours=_ours(option, ours, own),
            sources=own.sources if own else shown.sources,
            given=tuple(
                Value(found.adviser, setting.value, setting.up_to, False, setting.reason)
                if setting
                else Value(found.adviser, taken(option, found, shown.default), "", True, "")
                for found, setting in zip(advised, said, strict=True)
            ),
            verdicts=tuple(_verdict(facts.store, each) for each in _bearings(by_option, option.id)),
        )


def _bearings(by_option: list[dict[str, Explanation]], option: str) -> tuple[Bearing, ...]:
    return next((each[option].verdicts for each in by_option if option in each), ())


def _state(facts: Facts, option: str, kind: str) -> Literal["read", "unread", "gone"]:
    if kind != "flag":
        return "read"
    era = facts.options.get(option)
    if era is None:
        return "gone"
    return "read" if READERS & set(era.read_by) else "unread"


def _said(adviser: r.Adviser, option: str) -> r.Setting | None:
    return next((each for each in adviser.settings if each.final and each.option == option), None)


def _ours(option: r.Option, ours: Recommendation | None, own: Explanation | None) -> Value:
    if ours is None or own is None:
        return Value(OURS, "", "", True, "")
    value = own.value if own.emitted else taken(option, ours, own.default)
    return Value(OURS, value, "", not own.emitted, own.reason)


def taken(option: r.Option, found: Recommendation, default: str) -> str:
    """The value in effect where an option is not given: the default, or what LMDeploy makes of none."""
    if default or not option.setting or option.id in found.facts.store.client:  # of a request, clients decide
        return default
    value = getattr(found.config, option.setting)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _verdict(store: Store, each: Bearing) -> Verdict:
    return Verdict(
        each.claim, store.claims[each.claim].advisers, each.verdict, each.statement, each.because, each.sources
    )
