"""An option that the release does not read

## What it does
Reports options that the parser accepts but nothing reads: `--num-tokens-per-iter` and `--max-prefill-iters` before
0.10.0 and since 0.12.0, `--rope-scaling-factor` since 0.14.0, and `--distributed-executor-backend` in 0.11.0.

## Why
Up to 0.9.2 LMDeploy parsed the two scheduling options and did not pass them on. Releases 0.10.0 to 0.11.1 read them.
Since 0.12.0 the engine stores them. The source shows that nothing reads them up to 0.16.0; later releases are
unknown. `--max-prefill-token-num` sets the same in every release.

## Bad
With 0.16.0:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --num-tokens-per-iter 4096

## Good
Remove the option:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-prefill-token-num 4096
"""

from packaging.version import Version

from recommender.review import accepted_options, checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import GivenOption

NOBODY = frozenset({"nobody"})
OWN_RULES = frozenset({"vision-max-batch-size"})
SCHEDULING = frozenset({"num-tokens-per-iter", "max-prefill-iters"})
STORED = frozenset({"rope-scaling-factor"})
"""Options that the engine's configuration stores and nothing reads, so Python has no use for them either."""
READ_UP_TO = Version("0.17.0")
"""The C++ source of this release and of later ones is unknown."""


@launch_rule(
    "warning",
    sources=(
        "flags/num-tokens-per-iter",
        "flags/max-prefill-iters",
        "flags/rope-scaling-factor",
        "claims/tokens-per-iter-not-passed",
        "claims/tokens-per-iter-unread",
    ),
)
def rule(case: Case) -> Diagnostics:
    in_python = checks.python(case)
    if not (checks.server(case) or in_python):
        return
    for option, flag in checks.options(case):
        era = checks.era(case, flag)
        if era is None or set(era.read_by) != NOBODY or flag.id in OWN_RULES:
            continue
        if in_python and flag.id not in STORED:  # the others are lost between the command line and the engine
            continue
        if in_python and not _of_its_class(case, option):  # LMD109 reports it
            continue
        if checks.at_default(case, flag.id) and flag.id not in SCHEDULING:
            continue
        unseen = flag.id in SCHEDULING and case.resolved.version >= READ_UP_TO
        yield Diagnostic(
            option.place,
            f"{option.name} has no {'known ' if unseen else ''}effect in {checks.release(case)}.",
            era.note or "LMDeploy parses it but does not pass it on.",
            None if unseen else edits.remove(case.script, option),
            severity="info" if unseen else None,
            sources=(f"flags/{flag.id}",),
        )


def _of_its_class(case: Case, option: GivenOption) -> bool:
    """Return whether the configuration class that is called has this keyword."""
    whose, _, keyword = option.name.rpartition(".")
    engine = whose or case.launch.engine
    return not engine or keyword in accepted_options.keywords(case.resolved.release.id, engine)
