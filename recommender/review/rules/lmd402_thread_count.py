"""A number of threads that does not fit the host

Finds OMP_NUM_THREADS with a value that is no positive number, or with as many threads as the host has cores or
more, where the number of cores was told (``--cpus``).

A value that is no positive number leaves the choice to the OpenMP library, which takes every core. More threads
than cores only wait for each other; as many as cores leave none for the server's other work while images are
prepared.

Mend it with 2 to 4, and never more than half of the cores divided by the servers of the host.

Bad:

    OMP_NUM_THREADS=0 lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code

Good:

    OMP_NUM_THREADS=4 lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code
"""

import re
from collections.abc import Iterator

from recommender.review import support
from recommender.review.case import told
from recommender.review.rule import Case, Rule, Said

NUMBERS = re.compile(r"\s*[1-9]\d*\s*(,\s*[1-9]\d*\s*)*")


def check(case: Case) -> Iterator[Said]:
    """The value as given."""
    setting = case.settings.get("omp-num-threads")
    if setting is None or not setting.text:
        return
    if not NUMBERS.fullmatch(setting.text):
        yield Said(
            support.at(setting),
            f"OMP_NUM_THREADS={setting.text[:40]} is no number of threads.",
            "A value that is no positive number leaves the choice to the library, which takes every core.",
        )
    elif "cpus" in told(case):
        found = next(support.broken(case, "omp-threads-within-cpus", "omp-threads-limited"), None)
        if found is not None:
            yield Said(support.at(setting), found.message, found.record.remedy)


RULE = Rule(
    id="LMD402",
    name="thread-count",
    family="costs",
    severity="warning",
    sources=(
        "environment/omp-num-threads",
        "constraints/omp-threads-within-cpus",
        "constraints/omp-threads-limited",
        "https://learn.microsoft.com/en-us/previous-versions/xh7e1zba(v=vs.140)",
        "https://gcc.gnu.org/onlinedocs/gcc-7.5.0/libgomp/OMP_005fNUM_005fTHREADS.html",
    ),
    check=check,
)
