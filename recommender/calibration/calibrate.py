"""Fit the host's and the GPU's terms to a user's own smoke runs: ``--calibrate FILE...``."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from recommender.calibration.observations import Observation, log_errors, observe_run
from recommender.calibration.predict import needs_simulation
from recommender.common.errors import KnowledgeError, RequestError
from recommender.estimate import speed
from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.names import gpu_of_driver, resolve_gpu
from recommender.knowledge.store import Store
from recommender.request.request import MAX_SCALE, Request

STEPS = 24
"""Values of each factor tried in a pass; each further pass covers a third of the last one's range."""
PASSES = 6
RATES, PARTS = ("latency", "rps"), ("ttft", "token")
UNMET = 0.5
"""Median log error above which calibration fails."""
EXACT = 0.01
"""Mean log error that counts as none."""
PULL = 0.8
"""Pull of each factor towards 1: how many e-folds the mean error must fall for a factor to move by e.

Mean error when each of twelve starts on one H100 calibrated the others: 8 % with this pull, 7 % without, 10 % with a
quarter of it. On simulated hosts and GPUs 1.5 and 2.5 times as slow: 9 to 10 % with any pull.
"""


def calibrate(request: Request, files: Sequence[str], store: Store) -> Request:
    """Return the request with the factors of the host's and the GPU's terms that fit these runs best.

    Raises RequestError for a file that is no evidence record, or one of another GPU.
    """
    gpu, _ = resolve_gpu(store, request.gpu)
    observations: list[Observation] = []
    for name in files:
        run = _read(Path(name))
        run_gpu = gpu_of_driver(store, run.gpu, run.gpu_name)
        if run_gpu != gpu.id:
            raise RequestError(f"--calibrate {name}: measured on {run_gpu}, not on {gpu.id}; give runs on that GPU")
        loads = _loads(run, name, store)
        if not loads:
            raise RequestError(
                f"--calibrate {name}: no usable load; give a server's run with a fixed concurrency"
                ", requests of one length and none failed, recorded by recommend smoke"
            )
        observations += loads
    host, engine = fit_factors(observations, store)
    left = _errors(observations, speed.scale_coefficients(store, host, engine), RATES)
    if statistics.median(error for _, error in left) > UNMET:
        raise RequestError(
            f"--calibrate: no factors up to {MAX_SCALE:g} make the prediction for {gpu.id} match these runs; check"
            " whether other work ran on the machine, or another GPU was used"
        )
    names = " ".join(dict.fromkeys(observation.run for observation in observations))
    return replace(request, host_scale=host, card_scale=engine, calibrated_by=names)


def _loads(run: records.SmokeRun, name: str, store: Store) -> list[Observation]:
    """Return the loads of a run that can be predicted. Raises RequestError."""
    try:
        observed = observe_run(run, store)
        return [
            observation
            for observation in observed
            if observation.concurrency and not needs_simulation(observation.resolved)
        ]
    except RequestError as error:
        raise RequestError(f"--calibrate {name}: {error}; give a record as recommend smoke wrote it") from None
    except (ValueError, KeyError):
        raise RequestError(
            f"--calibrate {name}: its figures or its request cannot be read; give a record as recommend smoke wrote it"
        ) from None


def _read(path: Path) -> records.SmokeRun:
    if path.is_dir():
        raise RequestError(f"--calibrate {path}: is a folder; give the records in it")
    if not path.is_file():
        raise RequestError(f"--calibrate {path}: no such file; write one: recommend smoke --save-evidence {path.name}")
    try:
        return read_record(path, records.SmokeRun)
    except KnowledgeError as error:
        raise RequestError(f"--calibrate {error}; recommend smoke --save-evidence writes such files") from None


def _errors(
    observations: Iterable[Observation], values: Mapping[str, float], figures: Collection[str]
) -> list[tuple[str, float]]:
    """Return figure and absolute log error of each measured figure of some names under these coefficients."""
    errors = ((name, abs(log)) for observation in observations for name, log in log_errors(observation, values))
    return [(name, error) for name, error in errors if name in figures]


def fit_factors(observations: Sequence[Observation], store: Store) -> tuple[float, float]:
    """Return the factors of the host's and the GPU's terms that minimise the mean error, to three digits."""

    def loss(host: float, gpu: float) -> float:
        errors = _errors(observations, speed.scale_coefficients(store, host, gpu), (*RATES, *PARTS))
        mean = statistics.fmean(min(error, 1.0) if name in RATES else error / 4 for name, error in errors)
        return math.log(mean + EXACT) + PULL * (abs(math.log(host)) + abs(math.log(gpu)))

    best, reach = (1.0, 1.0), MAX_SCALE
    for _ in range(PASSES):
        steps = [reach ** (2 * number / STEPS - 1) for number in range(STEPS + 1)]
        pairs = {(_bounded(best[0] * a), _bounded(best[1] * b)) for a, b in itertools.product(steps, steps)}
        best = min(sorted(pairs), key=lambda pair: loss(*pair))
        reach **= 8 / STEPS
    return best


def _bounded(factor: float) -> float:
    """Return a factor between the ends, with the digits that a request's head shows."""
    return float(f"{min(max(factor, 1 / MAX_SCALE), MAX_SCALE):.3g}")
