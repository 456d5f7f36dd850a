"""An option that no LMDeploy release has

## What it does
Reports options of `lmdeploy serve api_server` that no covered release has: typos, options of other servers, and
prefixes that match several options. An option that the script gives only if LMDeploy's own `--help` lists it is no
error: a release without it never reads it.

## Why
The parser stops at the first unknown word, before anything is loaded. Since 0.9.2 it reads an underscore in an
option's name as a dash; older releases do not. A prefix works only if exactly one option starts with it.

## Bad

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --sesion-len 8192

## Good
Use the option's exact name. The message names the closest option; `--fix` writes it if there is no doubt.

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --session-len 8192
"""

import difflib
from functools import lru_cache

from recommender.common.text import opposite, shorten
from recommender.knowledge.other_servers import ELSEWHERE
from recommender.review import accepted_options, checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import GivenOption

SURE = 0.9
NEAR = 0.75
"""With 0.6, --temperature would match --chat-template."""


@launch_rule(
    "error",
    sources=(
        "threads/image-tag-lags-behind",
        "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli/utils.py",
    ),
)
def rule(case: Case) -> Diagnostics:
    if not checks.server(case):
        return
    for option in case.launch.options:
        known = checks.accepts(case, option.name) or checks.is_asked_for(case, option)
        if known or not option.name.startswith("-"):
            continue
        if checks.flag_of(case.resolved.store, option.name) is None:
            yield _unknown(case, option)
        elif option.name.replace("_", "-") in accepted_options.values_taken(case.resolved.release.id):
            yield _underscores(case, option)


def _underscores(case: Case, option: GivenOption) -> Diagnostic:
    name = option.name.replace("_", "-")
    return Diagnostic(
        option.place,
        f"{checks.release(case)} does not know {option.name}: it accepts no underscores in option names.",
        f"The parser reads them as dashes since 0.9.2; {name} works in every release.",
        edits.rename(case.script, option, name),
    )


def _unknown(case: Case, option: GivenOption) -> Diagnostic:
    known = sorted(accepted_options.values_taken(case.resolved.release.id))
    spelling = option.name.replace("_", "-")
    why = "The parser stops at an unknown option, before anything is loaded."
    equivalent = ELSEWHERE.get(spelling, "")
    if equivalent:
        name = equivalent.lstrip("=")
        fix = edits.rename(case.script, option, name) if equivalent.startswith("=") and name in known else None
        return Diagnostic(option.place, f"LMDeploy has no option {option.name}; use {name}.", why, fix)
    begun = [option_name for option_name in known if option_name.startswith(spelling)]
    if len(begun) > 1 and len(spelling) > len("--"):
        shown = ", ".join(begun[:4])
        return Diagnostic(
            option.place, f"{shorten(option.name)} is ambiguous; it matches {len(begun)} options: {shown}.", why
        )
    near = _near(spelling, case.resolved.release.id)
    hint = f": did you mean {near[0]}?" if near else "."
    denied = bool(near) and opposite(near[0], spelling)
    if denied:
        hint = f"; there is only the opposite, {near[0]}."
    ratios = [difflib.SequenceMatcher(None, candidate, spelling).ratio() for candidate in near]
    sure = bool(ratios) and ratios[0] >= SURE and (len(ratios) == 1 or ratios[1] < SURE)
    fix = edits.rename(case.script, option, near[0]) if sure and not denied else None
    return Diagnostic(option.place, f"No release of LMDeploy has the option {shorten(option.name)}{hint}", why, fix)


@lru_cache(maxsize=256)
def _near(spelling: str, release: str) -> list[str]:
    """Return the closest options; cached because it is slow and servers of a file repeat their options."""
    return difflib.get_close_matches(spelling, sorted(accepted_options.values_taken(release)), n=2, cutoff=NEAR)
