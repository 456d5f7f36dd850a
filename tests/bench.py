"""Print what a run costs: ``python tests/bench.py``.

Medians of whole processes, rate in one process, peak memory.
"""

import math
import os
import resource
import statistics
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 10
ROUNDS = 3
MAIN = ("-m", "recommender", "--gpu", "A100-80G", "--load", "single")
HELP = ("-m", "recommender", "--help")
NOTHING = ("-c", "pass")
BENCH_MODELS = ("internvl3-8b-awq", "internvl3-38b-awq", "qwen2.5-7b-instruct")
BENCH_RELEASES = ("0.9.2", "0.12.3", "0.16.0", "0.18.0")
BENCH_GPUS = ("a10", "a100-pcie-40g", "a100-sxm-80g", "h100-pcie-80g", "h100-sxm-80g", "h200-sxm", "l4", "l40s", "t4")
BENCH_LOADS = ("single", "low", "medium", "high")


def run_python(*words: str) -> str:
    """Return the output of a whole Python process on this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def seconds(words: tuple[str, ...], runs: int = RUNS) -> float:
    """Return the median wall time of a whole Python process."""
    durations = []
    for _ in range(runs):
        start = time.perf_counter()
        run_python(*words)
        durations.append(time.perf_counter() - start)
    return statistics.median(durations)


def peak_mb(words: tuple[str, ...] = MAIN) -> float:
    """Return the peak resident memory of one process, in MB."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, *sys.argv[1:]], check=True, capture_output=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    return int(run_python("-c", code, *words)) * 1024 / 1e6


def cpu_seconds(words: tuple[str, ...]) -> float:
    """Return the processor time of a whole Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_python(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def yardstick() -> object:
    """Do a fixed piece of work: how long it takes says how fast this machine is at this moment."""
    words = sorted(f"{number * 7919 % 10007:x}" for number in range(10_000))
    return words, sum({str(number): number * 0.5 for number in range(10_000)}.values())


def rate() -> tuple[float, int, int, float]:
    """Return recommendations a second over a mixed grid, their number, how many fit, and the cost of one.

    The cost is the processor time of one over that of ``yardstick``, which runs in between. Of each, and of the
    yardstick after it, the best of ``ROUNDS`` counts: other work on the machine makes some slower.
    """
    from recommender.choose.recommend import NothingFits, recommend
    from recommender.request.request import Request

    asked = [
        Request(gpu=gpu, load=workload, goal="balanced", model=model, lmdeploy=release)
        for gpu, workload, model, release in product(BENCH_GPUS, BENCH_LOADS, BENCH_MODELS, BENCH_RELEASES)
    ]
    recommend(asked[0])
    best, compared, fit = [math.inf] * len(asked), [math.inf] * len(asked), set[int]()
    for number, request in [*enumerate(asked)] * ROUNDS:
        start = time.process_time()  # one thread: the wall time of an idle machine
        try:
            recommend(request)
            fit.add(number)
        except NothingFits:
            pass
        end = time.process_time()
        best[number] = min(best[number], end - start)
        yardstick()
        compared[number] = min(compared[number], time.process_time() - end)
    took = sum(best)
    return len(asked) / took, len(asked), len(fit), took / sum(compared)


def main() -> None:
    """Measure and print."""
    print(f"median of {RUNS} whole processes, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    seconds(MAIN, 1)
    for name, words in (("python -c pass", NOTHING), ("recommend --help", HELP), ("the main job", MAIN)):
        print(f"  {name:<18}{seconds(words):8.3f} s")
    each_second, number, fit, _ = rate()
    print(f"in one process      {each_second:8.0f} recommendations/s over {number} requests, {fit} of which fit")
    print(f"peak memory         {peak_mb():8.0f} MB the main job")
    print(f"                    {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6:8.0f} MB this process")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
