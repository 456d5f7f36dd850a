"""An option that no release of LMDeploy has

Finds options of `lmdeploy serve api_server` that no covered release knows: misspelt ones, those of another
server, and beginnings that fit several options.

The parser stops at the first word that it does not know, before anything is loaded. From 0.9.2 on it reads an
underscore in a name as a dash, before it does not; a beginning will do where only one option has it.

Write the option as the release has it. The nearest one is named; where it is beyond doubt, it is put in.

Bad:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --sesion-len 8192

Good:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --session-len 8192
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import lru_cache

from recommender.review import mend, wheels
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.review.script import Option
from recommender.store import shorten

# What other servers call the same thing. "=": the same values too, so that it may be put in.
ELSEWHERE = {
    "--host": "=--server-name",
    "--port": "=--server-port",
    "--tensor-parallel-size": "=--tp",
    "--max-model-len": "=--session-len",
    "--context-length": "=--session-len",
    "--gpu-memory-utilization": "--cache-max-entry-count (a share of the memory that the weights leave free)",
    "--mem-fraction-static": "--cache-max-entry-count (a share of the memory that the weights leave free)",
    "--max-num-seqs": "--max-batch-size",
    "--max-num-batched-tokens": "--max-prefill-token-num",
    "--kv-cache-dtype": "--quant-policy (0, 4 or 8)",
    "--quantization": "--model-format",
    "--served-model-name": "--model-name",
    "--enforce-eager": "--eager-mode (PyTorch engine only)",
    "--instance-num": "--max-batch-size",
    "--cache-count": "--cache-max-entry-count",
}
SURE = 0.9
NEAR = 0.6


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case):
        return
    for option in case.launch.options:
        if not option.name.startswith("-") or s.accepts(case, option.name):
            continue
        if s.flag_of(case.facts.store, option.name) is None:
            yield _unknown(case, option)
        elif option.name.replace("_", "-") in wheels.values_taken(case.facts.release.id):
            yield _underscores(case, option)


def _underscores(case: Case, option: Option) -> Said:
    name = option.name.replace("_", "-")
    return Said(
        option.place,
        f"{s.release(case)} reads no underscores in the name of an option: {option.name} is unknown to it.",
        f"The parser takes them for dashes from 0.9.2 on; {name} is right in every release.",
        mend.rename(option, name),
    )


def _unknown(case: Case, option: Option) -> Said:
    known = sorted(wheels.values_taken(case.facts.release.id))
    spelling = option.name.replace("_", "-")
    why = "The parser stops at an option that it does not know, before anything is loaded."
    begun = [each for each in known if each.startswith(spelling)]
    if len(begun) > 1 and len(spelling) > len("--"):
        shown = ", ".join(begun[:4])
        return Said(option.place, f"{shorten(option.name)} may be one of {len(begun)} options: {shown}.", why)
    other = ELSEWHERE.get(spelling, "")
    if other:
        name = other.lstrip("=")
        fix = mend.rename(option, name) if other.startswith("=") and name in known else None
        return Said(option.place, f"LMDeploy has no option {option.name}; what comes near it is {name}.", why, fix)
    near = _near(spelling, case.facts.release.id)
    hint = f": did you mean {near[0]}?" if near else "."
    ratios = [difflib.SequenceMatcher(None, each, spelling).ratio() for each in near]
    sure = bool(ratios) and ratios[0] >= SURE and (len(ratios) == 1 or ratios[1] < SURE)
    fix = mend.rename(option, near[0]) if sure else None
    return Said(option.place, f"No release of LMDeploy has the option {shorten(option.name)}{hint}", why, fix)


@lru_cache(maxsize=256)
def _near(spelling: str, release: str) -> list[str]:
    """The options that are spelled most like this one; slow, and the same for each server of a file."""
    return difflib.get_close_matches(spelling, sorted(wheels.values_taken(release)), n=2, cutoff=NEAR)


RULE = Rule(
    id="LMD101",
    name="unknown-option",
    family="starts",
    severity="error",
    sources=(
        "threads/image-tag-lags-behind",
        "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli/utils.py",
    ),
    check=_check,
)
