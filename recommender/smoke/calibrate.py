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
from recommender.checkpoint import CheckpointError
from recommender.compiling import read_record
from recommender.facts import resolve_gpu
from recommender.request import MAX_SCALE, Request, RequestError
from recommender.smoke.observations import Observation, logs, observed
from recommender.store import PART, KnowledgeError, Store, UnknownName

STEPS = 24
"""Values tried of each factor from one end to the other; each further pass looks closer, within a third of the last."""
PASSES = 6
RATES, PARTS = ("latency", "rps"), ("ttft", "token")
UNMET = 0.5
"""Middle error, a logarithm, from which factors are no answer."""
EXACT = 0.01
"""Mean error that is as good as none."""
PULL = 0.8
"""By how many e-folds the mean error has to fall for a factor to move by e: what a run does not tell stays.

Of twelve starts on one H100 each calibrated the others alone: 8 % mean error, 7 % without, 10 % with a quarter of this
pull; on hosts and cards made up to be 1.5 and 2.5 times as slow it found as much as any (9 to 10 %).
"""


def calibrated(request: Request, files: Sequence[str], store: Store) -> Request:
    """The request with the factors of the host's and the card's terms that fit these runs best.

    Raises RequestError for a file that is no evidence record, or of another GPU.
    """
    card, _ = resolve_gpu(store, request.gpu)
    every: list[Observation] = []
    for name in files:
        run = _read(Path(name))
        of = _card(run, store)
        if of != card.id:
            raise RequestError(f"--calibrate {name}: taken on {of}, asked was {card.id}; name runs of that")
        found = _loads(run, name, store)
        if not found:
            raise RequestError(
                f"--calibrate {name}: no load of it can be used: it takes a server's loads of a fixed number in flight,"
                " none of which failed; drive one: recommend smoke"
            )
        every += found
    host, engine = fitted(every, store)
    met = speed.scaled(store, host, engine)
    if statistics.median(abs(log) for of in every for name, log in logs(of, met) if name in RATES) > UNMET:
        raise RequestError(
            f"--calibrate: no factors up to {MAX_SCALE:g} bring what is known of {card.id} near these runs; look for"
            " what else ran on the machine, or whether they ran on another card"
        )
    names = " ".join(dict.fromkeys(of.run for of in every))
    return replace(request, host_scale=host, card_scale=engine, calibrated_by=names)


def _card(run: r.SmokeRun, store: Store) -> str:
    """The card that a run was made on, by the name that the driver gave it where that is known."""
    try:
        named, doubts = resolve_gpu(store, run.gpu_name)
    except UnknownName:
        return run.gpu
    return run.gpu if doubts or PART in run.gpu or named.name == store.gpus[run.gpu].name else named.id


def _loads(run: r.SmokeRun, name: str, store: Store) -> list[Observation]:
    """The loads of a run that can be held against a prediction."""
    try:
        return [each for each in observed(run, store) if each.flight]
    except (RequestError, UnknownName, CheckpointError) as error:
        raise RequestError(f"--calibrate {name}: {error}; name a record as recommend smoke wrote it") from None
    except (ValueError, KeyError):
        raise RequestError(
            f"--calibrate {name}: its figures or its request cannot be read; name a record as recommend smoke wrote it"
        ) from None


def _read(path: Path) -> r.SmokeRun:
    if path.is_dir():
        raise RequestError(f"--calibrate {path}: a folder; name the records in it")
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
        found = [(name, abs(log)) for of in every for name, log in logs(of, values) if name in (*RATES, *PARTS)]
        errors = [min(log, 1.0) if name in RATES else log / 4 for name, log in found]
        pull = PULL * (abs(math.log(host)) + abs(math.log(card)))
        return math.log(statistics.fmean(errors) + EXACT) + pull

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
