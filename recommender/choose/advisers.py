"""Reproduce an adviser's configuration, with the user's changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recommender.choose.batch_room import default_batch
from recommender.choose.candidates import tiers
from recommender.choose.needs import list_needs
from recommender.choose.reasons import Explanation, explain
from recommender.choose.select import Candidate
from recommender.common.errors import RequestError, UnknownName
from recommender.common.text import did_you_mean, normal, shorten
from recommender.estimate.configuration import Configuration
from recommender.knowledge import option_values
from recommender.knowledge.eras import default_values
from recommender.knowledge.other_servers import closest_option
from recommender.knowledge.provenance import code_caveat
from recommender.knowledge.store import Store
from recommender.request.resolved_request import ResolvedRequest, serving_engines

if TYPE_CHECKING:
    from recommender.knowledge import records

DEFAULTS = "defaults"
"""The name of LMDeploy's own defaults: an adviser who gives no settings."""


@dataclass(frozen=True, slots=True)
class AdvisedValue:
    """A value as the adviser gave it, and the reason."""

    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """A configuration that somebody gave: its settings by option.

    ``added`` and ``left_out`` are the user's changes to it.
    """

    id: str
    name: str
    settings: Mapping[str, AdvisedValue]
    added: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()


def follow(resolved: ResolvedRequest, name: str, added: Mapping[str, str], left_out: Collection[str]) -> GivenSettings:
    """Return an adviser's settings, with the user's changes.

    ``name`` is an id, a name, or ``defaults``. ``added`` holds values by option;
    ``left_out`` options are dropped. Raises UnknownName with near matches, RequestError
    if an added option has no value.
    """
    if normal(name) == normal(DEFAULTS):
        adviser_id, full_name, settings = DEFAULTS, "LMDeploy's defaults", {}
    else:
        adviser = resolve_adviser(resolved.store, name)
        adviser_id, full_name, settings = adviser.id, adviser.name, list_settings(adviser)
    without = tuple(sorted(_resolve_option("--without", option, settings) for option in left_out))
    known = {option.id for option in resolved.store.options()} - (resolved.store.flags.keys() - resolved.options.keys())
    extra = {_resolve_option("--with", option, known): value for option, value in added.items()}
    for option, value in extra.items():
        switch = option in resolved.options and resolved.options[option].type == "bool"
        extra[option] = value or ("true" if switch else "")
        if not extra[option]:
            raise RequestError(f"--with {option}: value missing; write --with {option}=VALUE")
    for option in extra:
        _check(resolved, option, extra)
    settings = {option: setting for option, setting in settings.items() if option not in without}
    settings |= _asked_engine(resolved.request.backend, extra)
    settings |= {option: AdvisedValue(value, "Added with --with.") for option, value in extra.items()}
    return GivenSettings(adviser_id, full_name, settings, tuple(sorted(extra.items())), without)


def _asked_engine(backend: str, extra: Mapping[str, str]) -> dict[str, AdvisedValue]:
    """Return the setting that --backend makes, whatever the adviser says. Raises RequestError against --with."""
    if backend == "auto":
        return {}
    if extra.get("backend", backend) != backend:
        raise RequestError(f"--with backend={extra['backend']}: you asked for the {backend} engine too; remove one")
    return {"backend": AdvisedValue(backend, "You asked for this engine.")}


def _check(resolved: ResolvedRequest, option: str, given: Mapping[str, str]) -> None:
    """Raise RequestError if LMDeploy or TurboMind refuses the value of an option that the user gave."""
    store, flag, text = resolved.store, resolved.store.flags.get(option), given[option]
    if flag is None:
        parameter = store.environment.get(option) or store.client[option]
        option_values.check(parameter.name, parameter, text)
        return
    era = resolved.options[option]
    is_read = given.get("backend", resolved.engine) in era.read_by
    refusal = option_values.refuse(era, text)
    is_used = option_values.is_used(option, given, resolved.model.architecture, is_read)
    if refusal and (is_used or refusal.by == "parser"):
        raise RequestError(f"{flag.option}: expected {refusal.expectation}, got {shorten(text)}")
    if not option_values.runs_on_turbomind(flag, text):
        known = ", ".join(encoding.text for encoding in flag.encodings)
        if resolved.engine == "pytorch":
            raise RequestError(f"{flag.option}: {shorten(text)} has no prediction; use one of {known}")
        raise RequestError(f"{flag.option}: TurboMind accepts {known}, not {shorten(text)}")


def _resolve_option(where: str, name: str, options: Collection[str]) -> str:
    """Return an option's id from any spelling: dashes, underscores, capitals."""
    option = {normal(option): option for option in options}.get(normal(name))
    if option is None:
        if other := closest_option(name):
            raise UnknownName(f"{where}: LMDeploy has no option {shorten(name)}; use {other}")
        raise UnknownName(
            f"{where}: unknown option {shorten(name)}{did_you_mean(name, sorted(options), 'see recommend list flags')}"
        )
    return option


def resolve_adviser(store: Store, name: str) -> records.Adviser:
    """Return an adviser by id or name. Raises UnknownName with near matches."""
    for adviser in store.advisers.values():
        if normal(name) in (normal(adviser.id), normal(adviser.name)):
            return adviser
    raise UnknownName(f"unknown adviser {shorten(name)}{did_you_mean(name, [*store.advisers, DEFAULTS])}")


def list_settings(adviser: records.Adviser) -> dict[str, AdvisedValue]:
    """Return the settings of an adviser's own configuration, by option.

    A range gives its upper end, which accepts whatever the lower end does.
    """
    return {
        setting.option: AdvisedValue(setting.up_to or setting.value, setting.reason or "No reason given.")
        for setting in adviser.settings
        if setting.final
    }


def build_configuration(resolved: ResolvedRequest, adviser: GivenSettings) -> Configuration:
    """Return the configuration that the settings decide.

    LMDeploy's defaults fill in what they leave open. Raises RequestError if a value does
    not fit its setting.
    """
    unset: dict[str, str] = dict.fromkeys(list_needs(resolved), "")
    base = replace(
        next(tiers(resolved))[0],
        session_len=resolved.model.text.max_positions,
        max_batch_size=default_batch(resolved),
        omp_threads=resolved.request.cpus,
        structured_output=False,
        cache_sized_by="",
        **unset,  # type: ignore[arg-type]
    )
    given = {option: setting.value for option, setting in adviser.settings.items()}
    defaults = default_values(resolved.store, resolved.version)
    values: dict[str, object] = {}
    for option in resolved.store.options():
        if option.setting and (option.id in given or defaults.get(option.setting)):
            text = _without_zero(resolved, option.id, given.get(option.id, ""), defaults.get(option.setting, ""))
            if text:
                values[option.setting] = _decode(option, text, base)
    return replace(base, **values)  # type: ignore[arg-type]


def _without_zero(resolved: ResolvedRequest, option: str, value: str, default: str) -> str:
    """Return the given value or the default; a 0 that means another value gives that value."""
    era = resolved.options.get(option)
    if era is None or not era.zero or not option_values.is_zero(value):
        return value or default
    return default if era.zero == "default" else era.zero


def _decode(option: records.Option, text: str, base: Configuration) -> object:
    known = {encoding.text: encoding.value for encoding in option.encodings}
    value = known.get(option_values.plain(text), text)
    kind = type(getattr(base, option.setting))
    try:
        return value == "true" if kind is bool else kind(value)
    except ValueError:
        number = "a whole number" if kind is int else "a number"
        raise RequestError(f"{option.id}: expected {number}, got {shorten(text)}") from None


def explain_given(resolved: ResolvedRequest, adviser: GivenSettings, candidate: Candidate) -> tuple[Explanation, ...]:
    """Return an explanation of every option, with the values as given.

    Options that were not given keep the release's default and are not emitted. Given
    options that the release no longer has are emitted too.
    """
    given, explanations = adviser.settings, explain(resolved, candidate)
    known = {explanation.option for explanation in explanations}
    removed = [resolved.store.flags[name] for name in given if name in resolved.store.flags and name not in known]
    return (
        *(_explain_setting(explanation, given.get(explanation.option)) for explanation in explanations),
        *(_explain_removed(resolved, flag, given[flag.id]) for flag in removed),
    )


def _explain_setting(explanation: Explanation, setting: AdvisedValue | None) -> Explanation:
    if setting is None:
        return replace(explanation, value=explanation.default, emitted=False)
    emitted = setting.value == "true" if explanation.switch else bool(setting.value)
    return replace(explanation, value=setting.value, emitted=emitted, reason=setting.reason)


def _explain_removed(resolved: ResolvedRequest, flag: records.Flag, setting: AdvisedValue) -> Explanation:
    """Explain a flag that the release does not have, from its last era."""
    switch = flag.eras[-1].type == "bool"
    return Explanation(
        option=flag.id,
        kind="flag",
        name=flag.option,
        value=setting.value,
        default=flag.eras[-1].default,
        switch=switch,
        emitted=not switch or setting.value == "true",
        reason=setting.reason,
        sources=flag.sources,
        advice=(),
        verdicts=(),
        caveat=code_caveat(resolved.store, flag.sources, resolved.release.id),
    )


def fall_back(resolved: ResolvedRequest, config: Configuration) -> Configuration:
    """Return a configuration with the engine that runs it: LMDeploy takes the other one if only that serves the model.

    Source: 0.18.0 lmdeploy/archs.py:38.
    """
    serving = serving_engines(resolved.model, resolved.version)
    return config if config.backend in serving or not serving else replace(config, backend=serving[0])
