"""Determine a launch's engine, configuration and known condition values.

Assumed values are left out, so constraints that compare them are not evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.choose import constraints
from recommender.choose.advisers import AdvisedValue, GivenSettings
from recommender.choose.advisers import build_configuration as decided
from recommender.choose.needs import list_needs
from recommender.common.errors import RequestError
from recommender.common.pattern import pattern
from recommender.common.text import shorten
from recommender.knowledge.conditions import Value
from recommender.review.engine_support import PYTORCH, TURBOMIND, architecture, engine, wanted_engine
from recommender.review.launch_settings import ASSIGNED, accepted_value

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.review.case import Case
    from recommender.review.script.model import GivenOption

OF_GPU = frozenset({"max_batch_size"})
"""Settings whose default depends on the GPU."""
OF_MODEL = frozenset({"session_len"})
OF_HOST = frozenset({"omp_threads"})
OF_CLIENT = frozenset({"max_tokens", "temperature", "max_tiles", "structured_output"})
"""Set per request: known only if the script sets them."""


SPREAD = ("dp", "ep", "cp")
"""Options that spread a model over GPUs in a way that the estimates do not know: they divide by tp."""
SIZES = pattern(r"(?:.*\.)?(?:attn|mlp|moe)_(?:tp|dp|cp|ep)_size|(?:.*\.)?(?:outer_dp_size|device_num)")
"""The same in Python."""


def spread(case: Case) -> GivenOption | None:
    """Return the option that spreads the model as no estimate knows; None if there is none."""
    for name in SPREAD:
        setting, era = case.settings.get(name), case.resolved.options.get(name)
        reads = era is not None and (engine(case) or wanted_engine(case)) in era.read_by
        covered = (setting.text or "").strip() in ("1", "None") if setting else True
        if setting is not None and reads and not covered and not (name == "dp" and has_replicas(case)):
            return setting.option
    sizes = (each for each in case.launch.options if case.launch.starts == "pipeline" and SIZES.fullmatch(each.name))
    return next(sizes, None)


def has_replicas(case: Case) -> bool:
    """Return whether TurboMind runs several replicas in one server, each on tp GPUs as a server of its own.

    With fewer GPUs, and with experts or a sequence over several, it divides them otherwise (0.18.0
    turbomind/parallel_config.py:45-79).
    """
    era, number, size = case.resolved.options.get("dp"), case.number("dp") or 1, case.number("tp")
    if number < 2 or era is None or TURBOMIND not in era.read_by or engine(case) != TURBOMIND:
        return False
    if size is None and "tp" in case.settings:
        return False
    gpus = number * (size or 1)
    return gpus <= (case.visible_gpus or gpus)


def known_values(case: Case) -> dict[str, Value]:
    """Return the condition vocabulary's values that are given or defaults."""
    loaded = case.loaded
    facts = constraints.fact_values(loaded)
    values = {name: value for name, value in facts.items() if _is_known(case, name)}
    values |= {} if case.model_known else _of_architecture(case)
    config, sure = _known_configuration(case)
    decided_values = constraints.config_values(loaded, config)
    values |= {name: value for name, value in decided_values.items() if name in sure}
    if {f"config.{setting}" for setting in list_needs(case.resolved)} <= sure:
        values["config.unmet_needs"] = decided_values["config.unmet_needs"]
    values["config.servers"] = 1
    if case.load_known and case.model_known:
        values |= {name: value for name, value in decided_values.items() if name.startswith("request.")}
    if wanted_engine(case):
        values["config.backend"] = engine(case) or wanted_engine(case)
    else:
        values.pop("config.backend", None)
    return values


def _of_architecture(case: Case) -> dict[str, Value]:
    """Return what the architecture tells of a model without a record, and its name for messages."""
    found, model = architecture(case), case.launch.model
    if not found or model is None or model.value is None:
        return {}
    vision = {bool(known.vision) for known in case.resolved.store.models.values() if known.architecture == found}
    sees: dict[str, Value] = {"model.vision": vision.pop()} if len(vision) == 1 else {}
    return {"model.architecture": found, "model.hub": shorten(model.value), **sees}


def _is_known(case: Case, name: str) -> bool:
    if name == "gpu.count":
        return case.visible_gpus is not None
    if name in ("request.cpus", "request.goal", "request.kv"):
        return name.removeprefix("request.") in case.answered
    if name == "lmdeploy":
        return True
    return {"gpu": case.gpu_known, "model": case.model_known, "request": case.load_known}[name.partition(".")[0]]


def _known_configuration(case: Case) -> tuple[Configuration, frozenset[str]]:
    """Return the configuration and the names of its values that are known."""
    names = _setting_names(case)
    given: dict[str, AdvisedValue] = {}
    for name, setting in case.settings.items():
        text = accepted_value(case.resolved, name, setting.text) if name in names and setting.text else None
        if text:
            given[name] = AdvisedValue(text, "")
    config = _configure(case, given)
    if config is None:  # an invalid value; another rule reports it
        given = {name: value for name, value in given.items() if _configure(case, {name: value})}
        config = decided(case.resolved, GivenSettings("script", "the script", given))
    if case.launch.engine:
        config = replace(config, backend=wanted_engine(case))
    known = {names[name] for name in given}
    if not (case.launch.unsure or case.launch.starts == "proxy"):
        unknown = {names[name] for name in case.settings if name in names and name not in given}
        known |= {name for name in names.values() if _default_known(case, name)} - unknown
    return config, frozenset(f"config.{name}" for name in known)


def _setting_names(case: Case) -> dict[str, str]:
    """Return the setting that each option decides, by option id."""
    return {option.id: option.setting for option in case.resolved.store.options() if option.setting}


def _configure(case: Case, values: Mapping[str, AdvisedValue]) -> Configuration | None:
    """Return the configuration of these values; None if one is invalid."""
    try:
        return decided(case.resolved, GivenSettings("script", "the script", values))
    except RequestError:
        return None


def _default_known(case: Case, name: str) -> bool:
    if name in OF_GPU:
        return case.gpu_known
    if name in OF_MODEL:
        return case.model_known
    return name not in OF_HOST | OF_CLIENT


def configuration(case: Case) -> Configuration | None:
    """Return the configuration if GPU, model and all values that matter are known, for the engine that runs."""
    if not (case.gpu_known and case.model_known) or case.launch.unsure or case.launch.starts == "proxy" or spread(case):
        return None
    given: dict[str, AdvisedValue] = {}
    names = _setting_names(case)
    for name, setting in case.settings.items():
        if name not in names or setting.text == "" or (setting.text == "None" and case.launch.starts == "pipeline"):
            continue
        text = accepted_value(case.resolved, name, setting.text) if setting.text else None
        if text is not None:
            given[name] = AdvisedValue(text, "")
        elif names[name] not in ASSIGNED:
            return None
    config = _configure(case, given)
    return replace(config, backend=PYTORCH) if config is not None and engine(case) == PYTORCH else config
