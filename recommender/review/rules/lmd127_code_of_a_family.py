"""A model of a family whose configurations are code

Finds a repository that is not in the knowledge base, of an organisation and family of which every checkpoint that is
there has a configuration written as code (``InternVL2-8B`` beside the known ``InternVL3-8B``), without leave to run it.

From 0.13.0 on LMDeploy loads such a configuration only with leave, and the start ends without. Checkpoints converted
to the classes of the library itself (``-hf``) need none.

Look into the repository: where its ``config.json`` has an ``auto_map``, give ``--trust-remote-code`` after reading
that code, best with a pinned revision.

Bad, with 0.13.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL2-8B

Good:

    lmdeploy serve api_server OpenGVLab/InternVL2-8B --trust-remote-code
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.store import Store

NEEDED = "remote-code-needed"
FAMILY = re.compile(r"([\w.-]+/[A-Za-z]+)[\d_.-]*\d[^/]*")
CONVERTED = "-hf"


@lru_cache(maxsize=2)
def _families(store: Store) -> frozenset[str]:
    """Organisation and leading letters of the repositories of which all are code, but for the converted ones."""
    found: dict[str, bool] = {}
    for model in store.models.values():
        if (match := FAMILY.fullmatch(model.hub)) and CONVERTED not in model.hub.casefold():
            name = match[1].casefold()
            found[name] = found.get(name, True) and model.remote_code
    return frozenset(name for name, code in found.items() if code)


def _check(case: Case) -> Iterator[Said]:
    word = case.launch.model
    if case.model_known or word is None or not word.value or case.launch.starts == "proxy" or case.launch.unsure:
        return
    match = FAMILY.fullmatch(word.value)
    if not match or CONVERTED in word.value.casefold() or match[1].casefold() not in _families(case.facts.store):
        return
    if case.text("trust-remote-code") == "true" or "trust_remote_code" in {each.name for each in case.launch.options}:
        return
    if not _asked_for(case):
        return
    yield Said(
        word.place,
        f"Known checkpoints of {match[1]} have code for a configuration; {s.release(case)} needs leave to run it.",
        "The start ends without --trust-remote-code where config.json has an auto_map; read that code first.",
    )


def _asked_for(case: Case) -> bool:
    """Whether the release runs such code only when told to: where the option is there and off by default."""
    era = case.facts.options.get("trust-remote-code")
    return era is not None and era.default != "true"


RULE = Rule(
    id="LMD127",
    name="remote-code-of-family",
    family="starts",
    severity="warning",
    sources=(f"constraints/{NEEDED}", "threads/remote-code-off-by-default", "flags/trust-remote-code"),
    check=_check,
)
