"""Fits the host's and the card's terms to a user's own smoke runs: ``--calibrate FILE...``."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from recommender import records as r
from recommender import speed
from recommender.compiling import read_record
from recommender.facts import resolve_gpu
from recommender.request import MAX_SCALE, Request, RequestError
from recommender.smoke.observations import Observation, logs, observed
from recommender.store import KnowledgeError, Store

STEPS = 24
"""Values tried of each factor from one end to the other; each further pass looks closer, within a third of the last."""
PASSES = 6
PULL = 0.005
"""Error for which a factor moves by e: without a run that tells host from card, both stay where they are."""


def calibrated(request: Request, files: Sequence[str], store: Store) -> Request:
    """The request with the factors of the host's and the card's terms that fit these runs best.

    Raises RequestError for a file that is no evidence record, or of another GPU.
    """
    card, _ = resolve_gpu(store, request.gpu)
    every: list[Observation] = []
    for name in files:
        run = _read(Path(name))
        if run.gpu != card.id:
            raise RequestError(f"--calibrate {name}: taken on {run.gpu}, asked was {card.id}; name runs of that")
        found = [each for each in observed(run, store) if each.flight]
        if not found:
            raise RequestError(f"--calibrate {name}: it has no load that was answered; drive one: recommend smoke")
        every += found
    host, engine = fitted(every, store)
    return replace(request, host_scale=host, card_scale=engine)


def _read(path: Path) -> r.SmokeRun:
    if not path.is_file():
        raise RequestError(f"--calibrate {path}: no such file; write one: recommend smoke --save-evidence {path.name}")
    try:
        return read_record(path, r.SmokeRun)
    except KnowledgeError as error:
        raise RequestError(f"--calibrate {error}; recommend smoke --save-evidence writes such files") from None


def fitted(every: Sequence[Observation], store: Store) -> tuple[float, float]:
    """Factors of the host's terms and of the card's, to three digits: the least mean error over all figures."""

    def loss(host: float, card: float) -> float:
        values = speed.scaled(store, host, card)
        errors = [min(abs(log), 1.0) for of in every for name, log in logs(of, values) if name in ("latency", "rps")]
        errors += [abs(log) / 4 for of in every for name, log in logs(of, values) if name in ("ttft", "token")]
        pull = PULL * (abs(math.log(host)) + abs(math.log(card)))
        return statistics.fmean(errors) + pull

    best, reach = (1.0, 1.0), MAX_SCALE
    for _ in range(PASSES):
        steps = [reach ** (2 * number / STEPS - 1) for number in range(STEPS + 1)]
        tried = {(_kept(best[0] * a), _kept(best[1] * b)) for a, b in itertools.product(steps, steps)}
        best = min(sorted(tried), key=lambda pair: loss(*pair))
        reach **= 8 / STEPS
    return best


def _kept(factor: float) -> float:
    """Between the ends, and with the digits that a request's head shows."""
    return float(f"{min(max(factor, 1 / MAX_SCALE), MAX_SCALE):.3g}")
