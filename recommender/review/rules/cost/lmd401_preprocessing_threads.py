"""Image preprocessing on every core

## What it does
Reports a vision server without OMP_NUM_THREADS, or with OMP_NUM_THREADS set to all cores, if requests are concurrent:
by the given load, or because the script sets a batch size, a limit or a proxy. For one request at a time it is an
info, because the gain is a few milliseconds. A single command without a script is not reported: the variables of its
shell are unknown. Nor are models whose images are not cut into tiles, such as Qwen2.5-VL: on TurboMind they lose
nothing, and on the PyTorch engine hosts differed (40 or 24 requests per second with 4 threads or unset, 18 or 19).

## Why
Each server process prepares all images in one thread. The tensor operations of that thread use every core unless
OMP_NUM_THREADS limits them.

Measured with sixteen concurrent 448 x 448 images on an H100 with 16 cores: 22 to 28 requests per second unset (five
launches of 12 s), 49 to 54 with 4. Among the other options, only a batch size of 1 changed as much, for the worse.

## Bad

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 64

## Good
Export OMP_NUM_THREADS=4 before the launch: 2 to 4, and at most half of the cores divided by the servers of the host.
Measure it with your own images.

    export OMP_NUM_THREADS=4
    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 64
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings

ALL_CORES = ("$(nproc)", "`nproc`", "$(nproc --all)", "`nproc --all`")


@launch_rule(
    "warning",
    needs=("model",),
    sources=(
        "environment/omp-num-threads",
        "claims/omp-threads-limit-images",
        "claims/one-preprocessing-thread",
        "constraints/omp-threads-limited",
    ),
)
def rule(case: Case) -> Diagnostics:
    vision = case.resolved.vision
    if not checks.server(case) or not case.resolved.images or not vision or vision.pixels:
        return
    if case.script.kind == "command":
        return
    if not case.load_known and not surroundings.expects_concurrency(case):
        return
    setting = case.settings.get("omp-num-threads")
    if setting is None:
        if case.launch.unsure or surroundings.sets_elsewhere(case.script) or "OMP_NUM_THREADS" in case.script.text:
            return
        place, how = case.launch.place, "OMP_NUM_THREADS is not set"
    elif setting.word is not None and setting.word.raw.strip("\"'") in ALL_CORES:
        place, how = setting.word.place, "OMP_NUM_THREADS is set to all cores"
    else:
        return
    yield Diagnostic(
        place,
        f"{how}, so image preprocessing uses every core.",
        "Measured with 16 concurrent images on 16 cores, this halves the throughput; set it to 2 or 4.",
        severity=None if case.load_known and case.loaded.concurrency > 1 else "info",
    )
