"""An adviser's configuration as given, with what was added or left out by name, and what speaks against it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recommender import constraints as c
from recommender.candidates import BLOCK, tiers
from recommender.choose import Candidate
from recommender.configuration import Configuration
from recommender.explain import READERS, Explanation, explain
from recommender.facts import Facts, within
from recommender.request import RequestError
from recommender.store import Store, UnknownName, did_you_mean, normal, shorten

if TYPE_CHECKING:
    from recommender import records as r

DEFAULT_PREFILL = 8192
DEFAULT_RATIO = 0.8

DEFAULTS = "defaults"
"""Followed like an adviser who gives nothing: LMDeploy's own defaults."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as given, and why."""

    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Followed:
    """Whose configuration it is, its settings by option, and what the user added to it or left out of it."""

    id: str
    name: str
    settings: Mapping[str, Given]
    added: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()


def followed(facts: Facts, name: str, added: Mapping[str, str], left: Collection[str]) -> Followed:
    """An adviser's settings by id or name, ``added`` on top by option, those of ``left`` gone.

    Raises UnknownName with near matches, RequestError for a value that an option cannot have.
    """
    if normal(name) == normal(DEFAULTS):
        whose, settings = (DEFAULTS, "LMDeploy's defaults"), {}
    else:
        adviser = resolve_adviser(facts.store, name)
        whose, settings = (adviser.id, adviser.name), advised(adviser)
    gone = tuple(sorted(_option("--without", each, settings) for each in left))
    known = {option.id for option in facts.store.options()} - (facts.store.flags.keys() - facts.options.keys())
    more = {_option("--with", each, known): value for each, value in added.items()}
    for option, value in more.items():
        switch = option in facts.options and facts.options[option].type == "bool"
        more[option] = value or ("true" if switch else "")
        if not more[option]:
            raise RequestError(f"--with {option}: a value is needed, such as --with {option}=VALUE")
    kept = {option: each for option, each in settings.items() if option not in gone}
    extra = {option: Given(value, f"Added to what {whose[1]} gave.") for option, value in more.items()}
    return Followed(*whose, kept | extra, tuple(sorted(more.items())), gone)


def _option(where: str, name: str, known: Collection[str]) -> str:
    """An option's id from how people write it: with dashes before it, underscores, capitals."""
    by_name = {normal(each): each for each in known}
    found = by_name.get(normal(name))
    if found is None:
        raise UnknownName(f"{where}: unknown option {shorten(name)}{did_you_mean(name, sorted(known))}")
    return found


def resolve_adviser(store: Store, name: str) -> r.Adviser:
    """An adviser by id or name. Raises UnknownName with near matches."""
    for adviser in store.advisers.values():
        if normal(name) in (normal(adviser.id), normal(adviser.name)):
            return adviser
    raise UnknownName(f"unknown adviser {shorten(name)}{did_you_mean(name, [*store.advisers, DEFAULTS])}")


def advised(adviser: r.Adviser) -> dict[str, Given]:
    """The settings of an adviser's own configuration, by option.

    Of a range its upper end, which holds whatever the lower one holds.
    """
    return {
        setting.option: Given(setting.up_to or setting.value, setting.reason or "Given without a reason.")
        for setting in adviser.settings
        if setting.final
    }


def configuration(facts: Facts, adviser: Followed) -> Configuration:
    """What the adviser's values decide, with LMDeploy's own defaults for what it leaves open.

    Raises RequestError where a recorded value cannot be read as its setting.
    """
    base = next(tiers(facts))[0]
    values: dict[str, object] = {
        "session_len": facts.model.text.max_positions,
        "max_batch_size": default_batch(facts),
        "prefill_tokens": DEFAULT_PREFILL,
        "cache_ratio": DEFAULT_RATIO,
        "block_len": BLOCK,
        "kv_bits": 16,
        "prefix_caching": False,
        "omp_threads": facts.request.cpus,
        "max_tiles": 0,
        "tp": 1,
        "servers": 1,
        "share": 1,
        "proxy_url": "",
        "trust_remote_code": False,
        "disable_docs": False,
        "server_name": "0.0.0.0",
        "structured_output": False,
    }
    options = {option.id: option for option in facts.store.options()}
    for name, setting in adviser.settings.items():
        option = options.get(name)
        if option is not None and option.setting:
            values[option.setting] = _decoded(option, setting.value, base)
    return replace(base, **values)  # type: ignore[arg-type]


def default_batch(facts: Facts) -> int:
    """The batch LMDeploy takes without the option, by the card (0.10.0 and later: lmdeploy/utils.py)."""
    by_card = {"a100": 384, "h100": 1024, "h200": 1024}
    return next((size for name, size in by_card.items() if facts.gpu.id.startswith(name)), 128)


def _decoded(option: r.Option, text: str, base: Configuration) -> object:
    plain = next((each.value for each in option.encodings if each.text == text), text)
    kind = type(getattr(base, option.setting))
    try:
        return plain == "true" if kind is bool else kind(plain)
    except ValueError:
        raise RequestError(f"{option.id}: {shorten(text)} is no {kind.__name__}; give one that it takes") from None


def explanations(facts: Facts, adviser: Followed, candidate: Candidate) -> tuple[Explanation, ...]:
    """Every option as it is given: emitted where given, else left at the release's default.

    An option that the release no longer has is emitted too, as the adviser gave it.
    """
    settings = adviser.settings
    explained = {each.option: each for each in explain(facts, candidate)}
    found = [
        replace(each, value=settings[name].value, emitted=_shown(each, settings[name]), reason=settings[name].reason)
        if name in settings
        else replace(each, value=each.default, emitted=False)
        for name, each in explained.items()
    ]
    for name, setting in settings.items():
        flag = facts.store.flags.get(name)
        if name not in explained and flag is not None:
            found.append(_gone(flag, setting))
    return tuple(found)


def _shown(each: Explanation, setting: Given) -> bool:
    return setting.value == "true" if each.switch else bool(setting.value)


def _gone(flag: r.Flag, setting: Given) -> Explanation:
    switch = flag.eras[-1].type == "bool"
    value = setting.value
    return Explanation(
        option=flag.id,
        kind="flag",
        name=flag.option,
        value=value,
        default=flag.eras[-1].default,
        switch=switch,
        emitted=not switch or value == "true",
        reason=setting.reason,
        sources=flag.sources,
        advice=(),
        verdicts=(),
    )


def findings(facts: Facts, adviser: Followed, candidate: Candidate) -> tuple[c.Finding, ...]:
    """What speaks against the configuration: options nobody reads or knows, constraints, refuted premises."""
    found = list(_unread(facts, adviser))
    for severity in ("reject", "warn"):
        found += c.evaluate(c.rules(facts.store), candidate.values, severity)
    for claim in facts.store.claims.values():
        holds = within(claim.since, claim.until, facts.version)
        if holds and adviser.id in claim.advisers and claim.verdict in ("refuted", "no-effect", "outdated"):
            found.append(
                c.Finding(claim.id, "claim", f"{claim.statement} {claim.verdict}: {claim.because}", "", claim.sources)
            )
    return tuple(found)


def _unread(facts: Facts, adviser: Followed) -> list[c.Finding]:
    found = []
    for name, setting in adviser.settings.items():
        flag, era = facts.store.flags.get(name), facts.options.get(name)
        if flag is None or (flag.eras[-1].type == "bool" and setting.value != "true"):
            continue
        if era is None:
            message = f"{flag.option} does not exist in LMDeploy {facts.release.id}: the server does not start"
            found.append(c.Finding("unknown-option", "reject", message, f"leave {flag.option} out", flag.sources))
        elif not READERS & set(era.read_by):
            message = f"{flag.option} does nothing here: read by {' and '.join(era.read_by)} in {facts.release.id}"
            found.append(c.Finding("unread-option", "warn", message, f"leave {flag.option} out", era.sources))
    return found
