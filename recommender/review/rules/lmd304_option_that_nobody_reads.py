"""An option that nobody reads in this release

Finds options that the parser takes and nothing reads: `--num-tokens-per-iter` and `--max-prefill-iters` before 0.10.0
and from 0.12.0 on, `--rope-scaling-factor` from 0.14.0 on, `--distributed-executor-backend` in 0.11.0.

Up to 0.9.2 the two scheduling options were parsed and never passed on. 0.10.0 to 0.11.1 read them. From 0.12.0 on
they are passed to the engine and stored there; that nothing reads them was seen in the source up to 0.16.0, and is not
known of later releases. `--max-prefill-token-num` sets the same in every release.

Take the option out.

Bad, with 0.16.0:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --num-tokens-per-iter 4096

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-prefill-token-num 4096
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

NOBODY = frozenset({"nobody"})
OWN_RULES = frozenset({"vision-max-batch-size"})
SCHEDULING = frozenset({"num-tokens-per-iter", "max-prefill-iters"})
READ_UP_TO = Version("0.17.0")
"""The C++ source of this release and of later ones was not read."""


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case):
        return
    for option, flag in s.options(case):
        era = s.era(case, flag)
        if era is None or set(era.read_by) != NOBODY or flag.id in OWN_RULES:
            continue
        if s.at_default(case, flag.id) and flag.id not in SCHEDULING:
            continue
        unseen = flag.id in SCHEDULING and case.facts.version >= READ_UP_TO
        what = "is not known to do anything" if unseen else "does nothing: nobody reads it"
        yield Said(
            option.place,
            f"{option.name} {what} in {s.release(case)}.",
            era.note or "It is parsed and not passed on.",
            None if unseen else mend.remove(case.script, option),
            severity="info" if unseen else None,
        )


RULE = Rule(
    id="LMD304",
    name="option-that-nobody-reads",
    family="nothing",
    severity="warning",
    sources=(
        "flags/num-tokens-per-iter",
        "flags/max-prefill-iters",
        "flags/rope-scaling-factor",
        "claims/tokens-per-iter-not-passed",
        "claims/tokens-per-iter-unread",
    ),
    check=_check,
)
