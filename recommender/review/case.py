"""A launch under review: what was told of it, its known settings, and what they would come to.

What rules use, beside the fields of ``Case``:

``told(case)``           which questions were answered by options, project settings or the script: gpu, model, load,
                         rps, image, text_only, prompt_tokens, output_tokens, goal, p99, ttft, vram, cpus, kv, lmdeploy
``cards(case)``          how many GPUs the launch sees, None where nothing tells (``facts`` then hold an assumption)
``effective(case, id)``  the value in effect of a flag or variable: as given, else the release's default; None: unknown
``configuration(case)``  the whole Configuration, None without GPU and model or where a value cannot be known
``estimate(case)``       choose.Candidate of it: ``.config``, ``.memory``, ``.speed``, ``.values``; None likewise
``violations(case)``     constraints.Finding of severity reject and warn; nothing that rests on an assumption but
                         that of the newest release, where none was told
``meant(facts, id, t)``  a value of a flag as its record's encodings have it; None where the release takes no such value

``cases(script, {"gpu": "A100-80G", "load": "single"})`` makes them; the mapping has the names of the options above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from recommender.request import RequestError
from recommender.review.context import Context, context
from recommender.review.rule import Case, Setting
from recommender.review.script import Launch, Option, Script
from recommender.store import Store, load

if TYPE_CHECKING:
    from recommender import constraints as c
    from recommender.choose import Candidate
    from recommender.configuration import Configuration
    from recommender.facts import Facts

ASSIGNED = frozenset({"server_name", "port", "proxy_url", "log_level", "disable_docs", "revision"})
"""Settings that neither memory nor speed nor a constraint of theirs depends on: unknown, they do no harm."""
LOADED = frozenset({"kv_requests", "kv_needed_tokens", "latency_ms", "p99_ms", "ttft_ms", "rps"})
PYTHON_NAMES: Mapping[str, str] = {"max_new_tokens": "max_tokens", "revision": "revision"}
ENGINES = ("TurbomindEngineConfig", "PytorchEngineConfig")
NUMBERS: Mapping[str, str] = {"none": "0", "int4": "4", "int8": "8"}
"""From 0.14.0 on the precision of the KV cache may be named."""
LARGEST = 1e18
"""No setting means more; beyond it numbers can no longer be reckoned with."""


@dataclass(frozen=True)
class Reviewed(Case):
    """A case with what was told of it, and its estimate, made when a rule first asks."""

    context: Context = field(default_factory=lambda: context(Script("", "command", ""), None, {}))

    @cached_property
    def config(self) -> Configuration | None:
        """What the launch's values decide, with LMDeploy's defaults; None where that cannot be known."""
        return _configuration(self)

    @cached_property
    def candidate(self) -> Candidate | None:
        """The configuration with its estimates."""
        from recommender.choose import measure

        try:
            return measure(self.facts, self.config) if self.config else None
        except (ValueError, ArithmeticError):  # a value that no engine runs with: a rule of its own says so
            return None

    @cached_property
    def violated(self) -> tuple[c.Finding, ...]:
        """The constraints that the configuration violates, as far as what they compare was told."""
        return _violations(self)


def cases(script: Script, options: Mapping[str, Any], project: Mapping[str, Any] | None = None) -> list[Case]:
    """The launches of a script. ``options`` are the command line's, ``project`` what the project's settings say.

    The command line counts before the script, and the script before the project's settings; but the model is
    the one that the script starts, where that is known.
    Raises RequestError or UnknownName for what the options say.
    """
    store = load()
    made: list[Case] = []
    for launch in script.launches:
        found = context(script, launch, options, project or {})
        made.append(
            Reviewed(
                script=script,
                launch=launch,
                facts=found.facts,
                settings=_settings(store, found.facts, launch),
                gpu_known="gpu" in found.told,
                model_known="model" in found.told,
                load_known=bool({"load", "rps"} & found.told),
                release_known="lmdeploy" in found.told,
                context=found,
            )
        )
    return made


def told(case: Case) -> frozenset[str]:
    """The questions that somebody answered."""
    return case.context.told if isinstance(case, Reviewed) else frozenset()


def cards(case: Case) -> int | None:
    """How many GPUs the launch sees; None where neither an option nor the script tells."""
    return case.context.cards if isinstance(case, Reviewed) else None


def effective(case: Case, name: str) -> str | None:
    """The value of a flag or variable: as given, else its default in this release; None where it is unknown."""
    given = case.settings.get(name)
    if given is not None:
        return given.text
    era = case.facts.options.get(name)
    return None if era is None or case.launch.unsure else era.default


def configuration(case: Case) -> Configuration | None:
    """The whole configuration of the launch, where GPU, model and every value that matters are known."""
    return case.config if isinstance(case, Reviewed) else None


def estimate(case: Case) -> Candidate | None:
    """Memory and speed of ``configuration``. The load is assumed (one request) where ``load_known`` is False."""
    return case.candidate if isinstance(case, Reviewed) else None


def violations(case: Case) -> tuple[c.Finding, ...]:
    """The violated constraints, those left out that rest on something nobody told."""
    return case.violated if isinstance(case, Reviewed) else ()


# --- settings


@lru_cache(maxsize=4)
def _flags(store: Store) -> Mapping[str, str]:
    return {flag.option: flag.id for flag in store.flags.values()}


@lru_cache(maxsize=4)
def _variables(store: Store) -> Mapping[str, str]:
    return {each.name: each.id for each in store.environment.values()}


@lru_cache(maxsize=4)
def _keywords(store: Store) -> Mapping[tuple[str, str], str]:
    """Flag and request field ids by configuration class and keyword."""
    fields = {(each.config, each.field): flag.id for flag in store.flags.values() for each in flag.fields}
    return fields | {("GenerationConfig", each.name): each.id for each in store.client.values()}


def flag_id(facts: Facts, launch: Launch, name: str) -> str | None:
    """The record's id of an option as it is spelled, or of a keyword of Python; None where none is known.

    As LMDeploy's parser has it: an underscore is a dash, and a beginning will do that only one option has.
    """
    if launch.starts == "pipeline":
        return _keyword(facts.store, launch, name)
    flags = _flags(facts.store)
    spelled = name.replace("_", "-")
    if spelled in flags:
        return flags[spelled]
    if not spelled.startswith("--") or launch.starts == "proxy":
        return None
    begun = [each for each in facts.options if facts.store.flags[each].option.startswith(spelled)]
    return begun[0] if len(begun) == 1 and len(spelled) > len("--") else None


def _keyword(store: Store, launch: Launch, name: str) -> str | None:
    known = _keywords(store)
    whose, dot, keyword = name.rpartition(".")
    keyword = PYTHON_NAMES.get(keyword, keyword)
    classes = (whose,) if dot else (launch.engine, *(() if launch.engine else ENGINES), "GenerationConfig")
    found = next((known[each, keyword] for each in classes if (each, keyword) in known), None)
    direct = keyword.replace("_", "-")
    return found or (direct if direct in store.flags and whose in ("", "pipeline") else None)


def _settings(store: Store, facts: Facts, launch: Launch) -> dict[str, Setting]:
    """The known flags and variables; of an option given twice the last, as the parser has it."""
    found: dict[str, Setting] = {}
    for option in launch.options:
        name = flag_id(facts, launch, option.name)
        if name is not None:
            found[name] = Setting(name, option, option.values[0] if option.values else None, _text(facts, name, option))
    variables = _variables(store)
    for name, word in launch.environment.items():
        if name in variables:
            option = Option(name, (word,), word.place, word.place)
            found[variables[name]] = Setting(variables[name], option, word, word.value)
    return found


def _text(facts: Facts, name: str, option: Option) -> str | None:
    """The value as text: "true" or "false" of a switch, several words joined by blanks."""
    flag = facts.store.flags.get(name)
    era = facts.options.get(name) or (flag.eras[-1] if flag else None)
    if era is not None and era.type == "bool":
        if not option.values:
            return "true"
        value = option.values[0].value
        return value.casefold() if value is not None else None
    values = [each.value for each in option.values]
    if any(each is None for each in values):
        return None
    return " ".join(each for each in values if each is not None)


# --- what the settings come to


def meant(facts: Facts, name: str, text: str) -> str | None:
    """A value as the flag's encodings have it; None where the release does not take it, or no estimate knows it."""
    flag, era = facts.store.flags.get(name), facts.options.get(name)
    if era is not None and era.choices and text not in era.choices:
        return None
    try:
        if not abs(float(text)) < LARGEST:
            return None
    except ValueError:  # a word
        pass
    if flag is None or not flag.encodings:
        return text
    text = NUMBERS.get(text, text)
    return text if text in {each.text for each in flag.encodings} else None


def _configuration(case: Reviewed) -> Configuration | None:
    if not (case.gpu_known and case.model_known) or case.launch.unsure or case.launch.starts == "proxy":
        return None
    from recommender.follow import Followed, Given
    from recommender.follow import configuration as decided

    settings: dict[str, Given] = {}
    known = {option.id: option.setting for option in case.facts.store.options() if option.setting}
    for name, setting in case.settings.items():
        if name not in known:
            continue
        if setting.text is None:
            if known[name] in ASSIGNED:
                continue
            return None
        if setting.text and not (setting.text == "None" and case.launch.starts == "pipeline"):
            text = meant(case.facts, name, setting.text)
            if text is not None:
                settings[name] = Given(text, "")
            elif known[name] not in ASSIGNED:
                return None
    try:
        made = decided(case.facts, Followed("script", "the script", settings))
    except RequestError:  # a value that the parser does not take: a rule of its own says so
        return None
    return replace(made, backend="pytorch") if case.launch.engine == "PytorchEngineConfig" else made


def _violations(case: Reviewed) -> tuple[c.Finding, ...]:
    from recommender import constraints as c

    candidate = case.candidate
    if candidate is None:
        return ()
    among = [rule for rule in c.rules(case.facts.store) if _told_enough(case, rule)]
    return tuple(
        finding for severity in ("reject", "warn") for finding in c.evaluate(among, candidate.values, severity)
    )


def _told_enough(case: Reviewed, rule: c.Rule) -> bool:
    """Whether a constraint compares nothing that was only assumed."""
    names = {name for each in (*rule.when, *rule.require) for name in each.names}
    if {"gpu.count", "config.cards"} & names and case.context.cards is None:
        return False
    loaded = {f"estimate.{each}" for each in LOADED}
    return case.load_known or not any(name.startswith("request.") or name in loaded for name in names)
