"""A model family that needs --trust-remote-code

## What it does
Reports an unknown model without `--trust-remote-code` if every known checkpoint of its family has its configuration
as code. Example: `InternVL2-8B`, because `InternVL3-8B` has. A repository counts as of the family only if the
organisation is the same; for a folder, the name decides. The commands `lmdeploy chat` and `lmdeploy lite` are checked
too, known models included.

## Why
Since 0.13.0 LMDeploy runs such code only with the option; otherwise startup fails. Checkpoints in the transformers
layout (`-hf`) do not need it.

## Bad
With 0.13.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL2-8B

## Good
Look at the repository. If its `config.json` has an `auto_map`, read that code, then add `--trust-remote-code`. Pin
the revision too.

    lmdeploy serve api_server OpenGVLab/InternVL2-8B --trust-remote-code
"""

from collections.abc import Mapping
from functools import lru_cache

from recommender.common.pattern import pattern
from recommender.knowledge.store import Store
from recommender.review import accepted_options, checks
from recommender.review.context import hub_name, model_of
from recommender.review.rule import Case, Diagnostic, Diagnostics, declare
from recommender.review.script.model import Launch, Word

SWITCH = "--trust-remote-code"
HUB = pattern(r"[\w-]+/[\w.-]+")
FAMILY = pattern(r"([A-Za-z]+)(?![A-Za-z])[^/]*\d[^/]*")
CONVERTED = "-hf"


@lru_cache(maxsize=2)
def _families(store: Store) -> Mapping[str, frozenset[str]]:
    """Return the families whose unconverted checkpoints all have remote code: leading letters, with organisations."""
    code: dict[tuple[str, str], bool] = {}
    for model in store.models.values():
        organisation, _, name = model.hub.casefold().partition("/")
        if (match := FAMILY.fullmatch(name)) and CONVERTED not in name:
            key = match[1], organisation
            code[key] = code.get(key, True) and model.remote_code
    return {
        family: frozenset(organisation for name, organisation in code if name == family)
        for family in {name for name, _ in code}
        if all(needed for (name, _), needed in code.items() if name == family)
    }


def _check(case: Case) -> Diagnostics:
    launch, word = case.launch, _model(case.launch)
    if word is None or not word.value or launch.unsure or not _asked_for(case):
        return
    if any(option.name.replace("_", "-").lstrip("-") == SWITCH.lstrip("-") for option in launch.options):
        return
    configured = _configured(case, word.value)
    if configured:
        yield Diagnostic(
            word.literal or word.place,
            f"{configured} configured by code; {checks.release(case)} does not run it by default.",
            f"If config.json has an auto_map, loading fails without {SWITCH}; read that code first.",
        )


def _model(launch: Launch) -> Word | None:
    """Return the model of a server, or the one that chat or lite loads."""
    if launch.starts == "tool":
        return launch.extra[0] if launch.extra and launch.command.startswith(("chat", "lite")) else None
    return None if launch.starts == "proxy" else launch.model


def _configured(case: Case, name: str) -> str:
    """Return what is configured by code: the model, or its family; empty if unknown, or LMD108's to report."""
    store = case.resolved.store
    if case.launch.starts == "tool" and (known := model_of(store, name)) is not None:
        return f"{known.hub} is" if known.remote_code else ""
    name = hub_name(name)
    organisation, _, last = name.replace("\\", "/").rstrip("/").rpartition("/")
    match = FAMILY.fullmatch(last)
    if case.model_known or match is None or CONVERTED in last.casefold():
        return ""
    organisations = _families(store).get(match[1].casefold(), frozenset())
    of_hub = HUB.fullmatch(name) is not None
    known_there = organisations and (not of_hub or organisation.casefold() in organisations)
    return f"Known {match[1]} checkpoints are" if known_there else ""


def _asked_for(case: Case) -> bool:
    """Return whether the command has --trust-remote-code in this release and does not set it by default."""
    if case.launch.starts == "tool":
        return SWITCH in accepted_options.parser(case.resolved.release.id, case.launch.command)
    era = case.resolved.options.get(SWITCH.lstrip("-"))
    return era is not None and era.default != "true"


rule = declare(
    __name__,
    "warning",
    check=_check,
    tools=True,
    sources=("constraints/remote-code-needed", "threads/remote-code-off-by-default", "flags/trust-remote-code"),
)
