"""An option that this release does not have

Finds options that LMDeploy has had, or got later, but that the release asked for does not know.

The parser stops at an option it does not know. Options come and go: `--trust-remote-code` came with 0.13.0,
`--max-concurrent-requests` with 0.7.0.post3, `--communicator` with 0.7.2; `--enable-metrics` went with 0.11.0, where
metrics are on without it, and `--disable-vision-encoder` with 0.15.0, where `--language-model-only` stands for it.

Leave the option out, or install the release that has it. It is taken out or renamed where that changes nothing else.

Bad, with 0.11.0 or newer:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --enable-metrics

Good:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Fix, Rule, Said
from recommender.review.script import Option

if TYPE_CHECKING:
    from recommender import records as r

# What to do with an option once it is gone, or before it came: another name, or nothing where it went without saying.
SUCCESSORS = {"disable-vision-encoder": "language-model-only"}
NEEDLESS_LATER = {"enable-metrics": "metrics are on without it"}
NEEDLESS_BEFORE = {
    "trust-remote-code": "before, code of the model's repository always ran",
    "disable-metrics": "before, metrics were off unless asked for",
}


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case):
        return
    for option, flag in s.options(case):
        if s.era(case, flag) is None and option.name.replace("_", "-") == flag.option:
            yield _absent(case, option, flag)


def _absent(case: Case, option: Option, flag: r.Flag) -> Said:
    version = case.facts.version
    later = next((each.since for each in flag.eras if Version(each.since) > version), "")
    gone = next((each.until for each in reversed(flag.eras) if each.until and Version(each.until) <= version), "")
    reason, fix = _repair(case, option, flag, bool(later))
    when = f"it came with {later}" if later else f"it went with {gone}"
    return Said(
        option.place,
        f"{s.release(case)} has no {flag.option}: {when}{reason}.",
        "The parser stops at an option that it does not know, before anything is loaded.",
        fix,
    )


def _repair(case: Case, option: Option, flag: r.Flag, later: bool) -> tuple[str, Fix | None]:
    needless = (NEEDLESS_BEFORE if later else NEEDLESS_LATER).get(flag.id, "")
    if needless:
        return f"; {needless}", mend.remove(case.script, option)
    successor = case.facts.store.flags.get(SUCCESSORS.get(flag.id, ""))
    if successor is not None and not later and s.era(case, successor) is not None:
        return f", where {successor.option} stands for it", mend.rename(option, successor.option)
    return "", None


RULE = Rule(
    id="LMD102",
    name="option-of-another-release",
    family="starts",
    severity="error",
    sources=(
        "threads/image-tag-lags-behind",
        "constraints/remote-code-flag-absent",
        "constraints/communicator-flag-absent",
        "flags/enable-metrics",
        "flags/disable-vision-encoder",
    ),
    check=_check,
)
