"""Image preprocessing left to every core

Finds a server of a vision model for which OMP_NUM_THREADS is not set, or is set to all cores, where several
requests are in flight: by the load that was told, or because the script itself sets a batch, a limit or a proxy. It is
a remark where one request at a time was told, which gains a few milliseconds only. A bare command is left alone: what
its shell exports is not seen.

Each server process prepares all its images in one thread, and the tensor operations of that thread spread over
every core unless OMP_NUM_THREADS holds them back. Sixteen 448 x 448 images at a time on an H100 with 16 cores:
22 to 28 requests a second with it unset (five launches of 12 s), 49 to 54 with 4. Of the other options only a batch
of 1 made as much of a difference, and for the worse.

Mend it with ``export OMP_NUM_THREADS=4`` before the launch (2 to 4, and never more than half of the cores divided by
the servers of the host). Measure it with images of your own.

Bad:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 64

Good:

    export OMP_NUM_THREADS=4
    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 64
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

ALL_CORES = ("$(nproc)", "`nproc`", "$(nproc --all)", "`nproc --all`")


def check(case: Case) -> Iterator[Said]:
    """The variable is unset, or written as the number of all cores."""
    if not support.server(case) or not case.facts.images or case.script.kind == "command":
        return
    if not case.load_known and not around.several(case):
        return
    setting = case.settings.get("omp-num-threads")
    if setting is None:
        if case.launch.unsure or around.sets_elsewhere(case.script) or "OMP_NUM_THREADS" in case.script.text:
            return
        place, how = case.launch.place, "OMP_NUM_THREADS is not set"
    elif setting.word is not None and setting.word.raw.strip("\"'") in ALL_CORES:
        place, how = setting.word.place, "OMP_NUM_THREADS is the number of all cores"
    else:
        return
    yield Said(
        place,
        f"{how}: the one thread that prepares images spreads its work over every core.",
        "Measured with 16 images in flight on 16 cores it halves the requests a second; set it to 2 or 4.",
        severity=None if case.load_known and case.facts.concurrency > 1 else "info",
    )


RULE = Rule(
    id="LMD401",
    name="preprocessing-threads",
    family="costs",
    severity="warning",
    sources=(
        "environment/omp-num-threads",
        "claims/omp-threads-limit-images",
        "claims/one-preprocessing-thread",
        "constraints/omp-threads-limited",
    ),
    check=check,
    needs=("model",),
)
