"""Prints what a run costs: ``python tests/bench.py``. Medians of whole processes, rate in one process, peak memory."""

from __future__ import annotations

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
MAIN = ("-m", "recommender", "--gpu", "A100-80G", "--load", "single")
HELP = ("-m", "recommender", "--help")
NOTHING = ("-c", "pass")
BENCH_MODELS = ("internvl3-8b-awq", "internvl3-38b-awq", "qwen2.5-7b-instruct")
BENCH_RELEASES = ("0.9.2", "0.12.3", "0.16.0", "0.18.0")
BENCH_GPUS = ("a10", "a100-pcie-40g", "a100-sxm-80g", "h100-pcie-80g", "h100-sxm-80g", "h200-sxm", "l4", "l40s", "t4")
BENCH_LOADS = ("single", "low", "medium", "high")


def seconds(words: tuple[str, ...], runs: int = RUNS) -> float:
    """The median wall time of a whole Python process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def peak_mb(words: tuple[str, ...] = MAIN) -> float:
    """The peak resident memory of one process, in MB."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, *sys.argv[1:]], check=True, capture_output=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout) * 1024 / 1e6


def rate() -> tuple[float, int, int]:
    """Recommendations a second in this process over a mixed grid, how many, and how many of them fit."""
    from recommender.pipeline import NothingFits, recommend
    from recommender.request import Request

    asked = [
        Request(gpu=gpu, load=workload, goal="balanced", model=model, lmdeploy=release)
        for gpu, workload, model, release in product(BENCH_GPUS, BENCH_LOADS, BENCH_MODELS, BENCH_RELEASES)
    ]
    recommend(asked[0])
    fit = 0
    start = time.process_time()  # one thread: the wall time of an idle machine, whatever else runs on this one
    for request in asked:
        try:
            recommend(request)
            fit += 1
        except NothingFits:
            pass
    return len(asked) / (time.process_time() - start), len(asked), fit


def main() -> None:
    """Measures and prints."""
    print(f"median of {RUNS} whole processes, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    seconds(MAIN, 1)
    for name, words in (("python -c pass", NOTHING), ("recommend --help", HELP), ("the main job", MAIN)):
        print(f"  {name:<18}{seconds(words):8.3f} s")
    each_second, number, fit = rate()
    print(f"in one process      {each_second:8.0f} recommendations/s over {number} requests, {fit} of which fit")
    print(f"peak memory         {peak_mb():8.0f} MB the main job")
    print(f"                    {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6:8.0f} MB this process")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
