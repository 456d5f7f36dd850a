"""An option that this release does not have

## What it does
Reports options that the target release of LMDeploy does not have, but an older or newer release does. An option that
the script gives only if LMDeploy's own `--help` lists it is no error: a release without it never reads it.

## Why
The parser stops at an unknown option. Options come and go:

`--max-concurrent-requests` was added in 0.7.0.post3, `--communicator` in 0.7.2 and `--trust-remote-code` in 0.13.0.
`--enable-metrics` was removed in 0.11.0, where metrics are on by default. `--disable-vision-encoder` was removed in
0.15.0; `--language-model-only` replaces it.

## Bad
With 0.11.0 or newer:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --enable-metrics

## Good
Remove the option, or install a release that has it. `--fix` removes or renames it if nothing else changes.

    lmdeploy serve api_server internlm/internlm2_5-7b-chat
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, Fix, launch_rule
from recommender.review.script.model import GivenOption

if TYPE_CHECKING:
    from recommender.knowledge import records

# What replaces a removed option, and which options are unnecessary before they exist or after they are removed.
SUCCESSORS = {"disable-vision-encoder": "language-model-only"}
NEEDLESS_LATER = {"enable-metrics": "metrics are on by default"}
NEEDLESS_BEFORE = {
    "trust-remote-code": "older releases always run the repository's code",
    "disable-metrics": "older releases have metrics off by default",
}


@launch_rule(
    "error",
    sources=(
        "threads/image-tag-lags-behind",
        "constraints/remote-code-flag-absent",
        "constraints/communicator-flag-absent",
        "flags/enable-metrics",
        "flags/disable-vision-encoder",
    ),
)
def rule(case: Case) -> Diagnostics:
    if not checks.server(case):
        return
    for option, flag in checks.options(case):
        lacking = checks.era(case, flag) is None and not checks.is_asked_for(case, option)
        if lacking and option.name.replace("_", "-") == flag.option:
            yield _absent(case, option, flag)


def _absent(case: Case, option: GivenOption, flag: records.Flag) -> Diagnostic:
    version = case.resolved.version
    later = next((era.since for era in flag.eras if Version(era.since) > version), "")
    gone = next((era.until for era in reversed(flag.eras) if era.until and Version(era.until) <= version), "")
    reason, fix = _repair(case, option, flag, bool(later))
    when = f"it was added in {later}" if later else f"it was removed in {gone}"
    return Diagnostic(
        option.place,
        f"{checks.release(case)} has no {flag.option}: {when}{reason}.",
        "The parser stops at an unknown option, before anything is loaded.",
        fix,
        sources=(f"flags/{flag.id}",),
    )


def _repair(case: Case, option: GivenOption, flag: records.Flag, later: bool) -> tuple[str, Fix | None]:
    needless = (NEEDLESS_BEFORE if later else NEEDLESS_LATER).get(flag.id, "")
    if needless:
        return f"; {needless}", edits.remove(case.script, option)
    successor = case.resolved.store.flags.get(SUCCESSORS.get(flag.id, ""))
    if successor is not None and not later and checks.era(case, successor) is not None:
        return f"; {successor.option} replaces it", edits.rename(case.script, option, successor.option)
    return "", None
