"""An adviser's configuration as given, and what speaks against it."""

from __future__ import annotations

from dataclasses import replace
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


def resolve_adviser(store: Store, name: str) -> r.Adviser:
    """An adviser by id or name. Raises UnknownName with near matches."""
    for adviser in store.advisers.values():
        if normal(name) in (normal(adviser.id), normal(adviser.name)):
            return adviser
    raise UnknownName(f"unknown adviser {shorten(name)}{did_you_mean(name, store.advisers)}")


def advised(adviser: r.Adviser) -> dict[str, r.Setting]:
    """The settings of an adviser's own configuration, by option."""
    return {setting.option: setting for setting in adviser.settings if setting.final}


def given(setting: r.Setting) -> str:
    """The value to use: of a range its upper end, which holds whatever the lower one holds."""
    return setting.up_to or setting.value


def configuration(facts: Facts, adviser: r.Adviser) -> Configuration:
    """What the adviser's values decide, with LMDeploy's own defaults for what it leaves open.

    Raises RequestError where a recorded value cannot be read as its setting.
    """
    base = next(tiers(facts))[0]
    values: dict[str, object] = {
        "session_len": facts.model.text.max_positions,
        "max_batch_size": _default_batch(facts),
        "prefill_tokens": DEFAULT_PREFILL,
        "cache_ratio": DEFAULT_RATIO,
        "block_len": BLOCK,
        "kv_bits": 16,
        "prefix_caching": False,
        "omp_threads": facts.request.cpus,
        "max_tiles": 0,
        "tp": 1,
        "servers": 1,
        "proxy_url": "",
        "trust_remote_code": False,
        "disable_docs": False,
        "server_name": "0.0.0.0",
        "structured_output": False,
    }
    options = {option.id: option for option in facts.store.options()}
    for name, setting in advised(adviser).items():
        option = options.get(name)
        if option is not None and option.setting:
            values[option.setting] = _decoded(option, given(setting), base)
    return replace(base, **values)  # type: ignore[arg-type]


def _default_batch(facts: Facts) -> int:
    """The batch LMDeploy takes without the option, by the card (0.10.0 and later: lmdeploy/utils.py)."""
    by_card = {"a100": 384, "h100": 1024, "h200": 1024}
    return next((size for name, size in by_card.items() if facts.gpu.id.startswith(name)), 128)


def _decoded(option: r.Option, text: str, base: Configuration) -> object:
    plain = next((each.value for each in option.encodings if each.text == text), text)
    kind = type(getattr(base, option.setting))
    try:
        return plain == "true" if kind is bool else kind(plain)
    except ValueError:
        raise RequestError(f"{option.id}: {shorten(text)} is no {kind.__name__}; mend the adviser's record") from None


def explanations(facts: Facts, adviser: r.Adviser, candidate: Candidate) -> tuple[Explanation, ...]:
    """Every option as the adviser gives it: emitted where given, else left at the release's default.

    An option that the release no longer has is emitted too, as the adviser gave it.
    """
    settings = advised(adviser)
    explained = {each.option: each for each in explain(facts, candidate)}
    found = [
        replace(each, value=given(settings[name]), emitted=_shown(each, settings[name]), reason=_reason(settings[name]))
        if name in settings
        else replace(each, value=each.default, emitted=False)
        for name, each in explained.items()
    ]
    for name, setting in settings.items():
        flag = facts.store.flags.get(name)
        if name not in explained and flag is not None:
            found.append(_gone(flag, setting))
    return tuple(found)


def _shown(each: Explanation, setting: r.Setting) -> bool:
    return given(setting) == "true" if each.switch else bool(given(setting))


def _reason(setting: r.Setting) -> str:
    return setting.reason or "Given without a reason."


def _gone(flag: r.Flag, setting: r.Setting) -> Explanation:
    switch = flag.eras[-1].type == "bool"
    value = given(setting)
    return Explanation(
        option=flag.id,
        kind="flag",
        name=flag.option,
        value=value,
        default=flag.eras[-1].default,
        switch=switch,
        emitted=not switch or value == "true",
        reason=_reason(setting),
        sources=flag.sources,
        advice=(),
        verdicts=(),
    )


def findings(facts: Facts, adviser: r.Adviser, candidate: Candidate) -> tuple[c.Finding, ...]:
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


def _unread(facts: Facts, adviser: r.Adviser) -> list[c.Finding]:
    found = []
    for name, setting in advised(adviser).items():
        flag, era = facts.store.flags.get(name), facts.options.get(name)
        if flag is None or (flag.eras[-1].type == "bool" and given(setting) != "true"):
            continue
        if era is None:
            message = f"{flag.option} does not exist in LMDeploy {facts.release.id}: the server does not start"
            found.append(c.Finding("unknown-option", "reject", message, f"leave {flag.option} out", flag.sources))
        elif not READERS & set(era.read_by):
            message = f"{flag.option} does nothing here: read by {' and '.join(era.read_by)} in {facts.release.id}"
            found.append(c.Finding("unread-option", "warn", message, f"leave {flag.option} out", era.sources))
    return found
