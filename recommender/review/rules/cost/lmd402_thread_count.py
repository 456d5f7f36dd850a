"""A thread count that does not fit the host

## What it does
Reports an OMP_NUM_THREADS that is not a positive number, or that is at least the number of cores (`--cpus`).

## Why
If the value is not a positive number, the OpenMP library chooses: it uses every core. More threads than cores wait
for each other. As many threads as cores leave none for the server's other work while it prepares images.

## Bad

    OMP_NUM_THREADS=0 lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code

## Good
Use 2 to 4, and at most half of the cores divided by the servers of the host:

    OMP_NUM_THREADS=4 lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code
"""

from recommender.common.pattern import pattern
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

NUMBERS = pattern(r"\s*[1-9]\d*\s*(,\s*[1-9]\d*\s*)*")


@option_rule(
    "omp-num-threads",
    "warning",
    sources=(
        "environment/omp-num-threads",
        "constraints/omp-threads-within-cpus",
        "constraints/omp-threads-limited",
        "https://learn.microsoft.com/en-us/previous-versions/xh7e1zba(v=vs.140)",
        "https://gcc.gnu.org/onlinedocs/gcc-7.5.0/libgomp/OMP_005fNUM_005fTHREADS.html",
    ),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if not setting.text:
        return
    if not NUMBERS.fullmatch(setting.text):
        yield Diagnostic(
            checks.at(setting),
            f"OMP_NUM_THREADS={setting.text[:40]} is not a number of threads.",
            "Without a positive number, the OpenMP library uses every core.",
        )
    elif "cpus" in case.answered:
        violation = next(checks.broken(case, "omp-threads-within-cpus", "omp-threads-limited"), None)
        if violation is not None:
            yield Diagnostic(checks.at(setting), violation.message, violation.record.remedy)
