"""What rules share: what is known of a launch, which constraints that violates, and small safe repairs.

``known(case)`` has the values of the condition vocabulary as far as somebody told them: a constraint that compares
anything else is not judged. So a rule needs no list of what to ask; it names constraints, and is silent by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from recommender import constraints as c
from recommender.conditions import Condition, Value, fill
from recommender.facts import options_of, within
from recommender.follow import Followed, Given
from recommender.follow import configuration as decided
from recommender.request import RequestError
from recommender.review import case as k
from recommender.review import wheels
from recommender.review.rule import Case, Said, Setting
from recommender.store import Store

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.configuration import Configuration
    from recommender.review.script import Launch, Option, Place

TURBOMIND, PYTORCH = "turbomind", "pytorch"
OF_GPU = frozenset({"max_batch_size"})
"""Settings whose default depends on the card."""
OF_MODEL = frozenset({"session_len"})
OF_HOST = frozenset({"omp_threads"})
OF_CLIENT = frozenset({"max_tokens", "temperature", "max_tiles", "structured_output"})
"""What each request sets: known only where the script says so itself."""
NOTHING: Mapping[str, Value] = MappingProxyType({})


@dataclass(frozen=True)
class Broken:
    """A violated constraint, its message filled in, and the settings of the launch that it compares."""

    record: r.Constraint
    message: str
    settings: tuple[Setting, ...]


# --- the launch


def server(case: Case) -> bool:
    """Whether the launch is an api_server on a command line, or was meant to be one."""
    instead = case.launch.instead
    return case.launch.starts == "api_server" and (instead is None or "/" in (instead.value or "/"))


def python(case: Case) -> bool:
    """Whether the launch is a pipeline of a Python file."""
    return case.launch.starts == "pipeline"


def wanted(case: Case) -> str:
    """The engine that is asked for, LMDeploy's default included; empty where it cannot be known."""
    launch = case.launch
    if launch.starts == "proxy":
        return ""
    if launch.engine:
        return PYTORCH if launch.engine == "PytorchEngineConfig" else TURBOMIND
    if "backend" in case.settings:
        text = case.text("backend")
        return text if text in (TURBOMIND, PYTORCH) else ""
    return "" if launch.unsure else TURBOMIND


def engine(case: Case) -> str:
    """The engine that will run: the one asked for, or PyTorch where TurboMind is known not to serve the model."""
    asked = wanted(case)
    if asked == TURBOMIND and case.model_known and not serves(case, TURBOMIND):
        return PYTORCH
    device = case.settings.get("device")
    if asked == TURBOMIND and device is not None and device.text != "cuda":
        return ""
    return asked


def serves(case: Case, name: str) -> bool:
    """Whether an engine serves the model in this release, as its record says."""
    facts = case.facts
    return any(each.engine == name and within(each.since, each.until, facts.version) for each in facts.model.support)


def release(case: Case) -> str:
    """The release in words; one that nobody named is assumed to be the newest."""
    name = f"LMDeploy {case.facts.release.id}"
    return name if case.release_known else f"{name} (assumed)"


def spelled(case: Case, name: str) -> str:
    """How the launch writes a flag, or would."""
    found = case.settings.get(name)
    if found is not None:
        return found.option.name
    flag = case.facts.store.flags.get(name)
    if flag is None:
        return name
    return flag.id.replace("-", "_") if python(case) else flag.option


def at(setting: Setting) -> Place:
    """Where a finding about a setting points: at its value, else at its name."""
    if setting.word is None:
        return setting.option.place
    return setting.word.written or setting.word.place


# --- what is known


def known(case: Case) -> Mapping[str, Value]:
    """The condition vocabulary's names that somebody told, or that LMDeploy's defaults decide."""
    memo: dict[str, Any] = vars(case)  # as functools.cached_property does: a case is frozen and has no hash
    if "_known" not in memo:
        memo["_known"] = _known(case)
    found: Mapping[str, Value] = memo["_known"]
    return found


def _known(case: Case) -> dict[str, Value]:
    facts = case.facts
    told = k.told(case)
    values: dict[str, Value] = {}
    for name, value in c.fact_values(facts).items():
        if _is_told(case, name, told):
            values[name] = value
    config, sure = _decided(case)
    each = c.config_values(facts, config)
    for name, value in each.items():
        if name.startswith("config.") and name.removeprefix("config.") in sure:
            values[name] = value
    values["config.servers"] = 1
    if case.load_known and case.model_known:
        values |= {name: value for name, value in each.items() if name.startswith("request.")}
    if wanted(case):
        values["config.backend"] = engine(case) or wanted(case)
    else:
        values.pop("config.backend", None)
    return values


def _is_told(case: Case, name: str, told: Collection[str]) -> bool:
    if name == "gpu.count":
        return k.cards(case) is not None
    if name == "request.cpus":
        return "cpus" in told
    if name in ("request.goal", "request.kv"):
        return name.removeprefix("request.") in told
    if name == "lmdeploy":
        return True
    return {"gpu": case.gpu_known, "model": case.model_known, "request": case.load_known}[name.partition(".")[0]]


def _decided(case: Case) -> tuple[Configuration, frozenset[str]]:
    """The configuration with the values that are given, and the names of the settings that are really known."""
    names = {option.id: option.setting for option in case.facts.store.options() if option.setting}
    given: dict[str, Given] = {}
    for name, setting in case.settings.items():
        text = k.meant(case.facts, name, setting.text) if name in names and setting.text else None
        if text:
            given[name] = Given(text, "")
    try:
        config = _followed(case, given)
    except RequestError:  # some value is none that its option takes: a rule of its own says so
        given = {name: each for name, each in given.items() if _readable(case, name, each)}
        config = _followed(case, given)
    unknown = {names[name] for name in case.settings if name in names and name not in given}
    if case.launch.engine:
        config = replace(config, backend=wanted(case))
    explicit = {names[name] for name in given}
    if case.launch.unsure or case.launch.starts == "proxy":
        return config, frozenset(explicit)
    defaults = {name for name in names.values() if _default_known(case, name)} - unknown
    return config, frozenset(explicit | defaults)


def _followed(case: Case, given: Mapping[str, Given]) -> Configuration:
    return decided(case.facts, Followed("script", "the script", given))


def _readable(case: Case, name: str, given: Given) -> bool:
    try:
        _followed(case, {name: given})
    except RequestError:
        return False
    return True


def _default_known(case: Case, name: str) -> bool:
    if name in OF_GPU:
        return case.gpu_known
    if name in OF_MODEL:
        return case.model_known
    return name not in OF_HOST | OF_CLIENT


def broken(case: Case, *ids: str, lean: bool = False, extra: Mapping[str, Value] = NOTHING) -> Iterator[Broken]:
    """Of these constraints the violated ones; those that compare something nobody told are not judged.

    ``lean``: their conditions on estimates are left out, for a rule that has a message of its own. ``extra``:
    values that the rule knows better.
    """
    values = dict(known(case)) | dict(extra)
    numbered = _numbered(case.facts.store)
    for _, rule in sorted((numbered[each] for each in ids if each in numbered), key=lambda pair: pair[0]):
        if lean:
            rule = replace(rule, when=tuple(each for each in rule.when if not _estimated(each)), estimated=False)
        names = {name for each in (*rule.when, *rule.require) for name in each.names}
        judged = _with_estimates(case, values) if rule.estimated else values
        if names <= judged.keys() and rule.violated(judged):
            shown = dict(c.fact_values(case.facts)) | dict(judged)
            message = "" if lean else fill(rule.record.message, shown)
            yield Broken(rule.record, message, _settings(case, rule))


@lru_cache(maxsize=4)
def _numbered(store: Store) -> Mapping[str, tuple[int, c.Rule]]:
    """The constraints with their order, by id."""
    return {rule.record.id: (number, rule) for number, rule in enumerate(c.rules(store))}


def _estimated(condition: Condition) -> bool:
    return any(name.startswith("estimate.") for name in condition.names)


def _with_estimates(case: Case, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The estimates too, those of the load only where it is known."""
    made = _estimates(case)
    loaded = {f"estimate.{each}" for each in k.LOADED}
    return dict(values) | {name: value for name, value in made.items() if case.load_known or name not in loaded}


def _estimates(case: Case) -> dict[str, Value]:
    candidate = k.estimate(case)
    if candidate is None:
        return {}
    return {name: value for name, value in candidate.values.items() if name.startswith("estimate.")}


def _settings(case: Case, rule: c.Rule) -> tuple[Setting, ...]:
    """The settings that a constraint compares, those of its requirement first."""
    by_name = {option.setting: option.id for option in case.facts.store.options() if option.setting}
    found: list[Setting] = []
    for each in (*rule.require, *rule.when):
        for name in each.names:
            option = by_name.get(name.removeprefix("config."))
            setting = case.settings.get(option) if name.startswith("config.") and option else None
            if setting is not None and setting not in found:
                found.append(setting)
    return tuple(found)


def say(case: Case, *ids: str, given: bool = True) -> Iterator[Said]:
    """A finding for each violated constraint, at the setting that it compares.

    ``given``: only where the launch sets one of them; else the finding stands at the launch.
    """
    for each in broken(case, *ids):
        if each.settings or not given:
            place = at(each.settings[0]) if each.settings else case.launch.place
            yield Said(place, each.message, each.record.remedy)


# --- options


def flag_of(store: Store, text: str) -> r.Flag | None:
    """The record of an option as it is written in full; an underscore is a dash."""
    spelling = text.replace("_", "-")
    return next((flag for flag in store.flags.values() if flag.option == spelling), None)


def accepts(case: Case, text: str) -> bool:
    """Whether the release's parser takes an option written so: in full, or shortened to what only one begins with."""
    spelling = text.replace("_", "-") if wheels.takes_underscores(case.facts.release.id) else text
    spelling = spelling.partition(".")[0] if wheels.takes_underscores(case.facts.release.id) else spelling
    taken = wheels.values_taken(case.facts.release.id)
    if spelling in taken or spelling in ("-h", "--help"):
        return True
    begun = [each for each in taken if each.startswith(spelling)]
    return spelling.startswith("--") and len(spelling) > len("--") and len(begun) == 1


def options(case: Case) -> Iterator[tuple[Option, r.Flag]]:
    """The launch's options that are flags of some release, with their records, in their order."""
    for option in case.launch.options:
        name = k.flag_id(case.facts, case.launch, option.name)
        flag = case.facts.store.flags.get(name) if name else None
        if flag is not None:
            yield option, flag


def era(case: Case, flag: r.Flag) -> r.Era | None:
    """The flag's era in the release, None where the release has no such option."""
    return options_of(case.facts.store, case.facts.version).get(flag.id)


def literal(launch: Launch) -> str:
    """The model as the launch names it, empty where it cannot be known."""
    return (launch.model.value if launch.model else None) or ""


def local(case: Case) -> bool:
    """Whether the model is a folder of the author's: it may hold other weights than the checkpoint of its name."""
    text = literal(case.launch)
    return text.startswith(("/", ".", "~")) or text.count("/") != 1


def is_file(text: str) -> bool:
    """Whether a value is written like a file's name."""
    return "/" in text or text.endswith((".json", ".jinja", ".jinja2", ".txt"))


def alone(case: Case) -> bool:
    """Whether the script starts this server only, once and behind no proxy, so that the whole load is its own."""
    if "proxy-url" in case.settings or any(launch.starts == "proxy" for launch in case.script.launches):
        return False
    return len(case.script.launches) == 1 and getattr(case.launch.container, "replicas", 1) == 1


def number(case: Case, name: str) -> int | None:
    """A flag's value as a whole number, None where it is none or not given."""
    value = case.number(name)
    return int(value) if value is not None and value == int(value) else None


def at_default(case: Case, name: str) -> bool:
    """Whether a flag is given the value that it has without being given; a switch that is off, too."""
    setting, now = case.settings.get(name), case.facts.options.get(name)
    return setting is not None and now is not None and setting.text == now.default


def images_told(case: Case) -> bool:
    """Whether somebody said that requests have images, or what they look like."""
    return bool({"image", "load", "rps"} & k.told(case)) and "text_only" not in k.told(case)


def stretched_by_name(launch: Launch) -> bool:
    """Whether the model's own name says that it is a longer variant."""
    return any(each in literal(launch).casefold() for each in ("1m", "yarn", "128k", "long", "262k", "256k"))
