"""Images that arrive at a rate: against queueing theory, and against runs that no coefficient was fitted to."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from recommender import Request, recommend
from recommender.calibration.predict import (
    cache_of,
    is_predictable,
    resolve_phase,
    with_free_memory,
    with_server_layout,
)
from recommender.estimate import speed
from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.load import load
from recommender.knowledge.run_figures import figures
from recommender.render import artefact

STORE = load()
EVIDENCE = Path(__file__).parent.parent / "knowledge" / "evidence"
COEFFICIENTS = speed.read_coefficients(STORE)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7, 0.85])
def test_images_that_arrive_wait_as_theory_says(busy: float) -> None:
    """A batch of one serves equal requests one after another: an M/D/1 queue, whose mean wait theory gives."""
    alone = recommend(Request(gpu="l4", concurrency=1))
    service = alone.speed.latency_ms.value
    arriving = replace(alone.resolved, rps=1e3 * busy / service, burstiness=1.0)
    found = speed.estimate(arriving, alone.config, False, alone.memory.kv_tokens)
    wait = busy * service / (2 * (1 - busy))
    # The next request is prepared while one runs, which takes a part of its wait away.
    assert 0.55 * wait < found.latency_ms.value - service < 1.3 * wait
    assert found.rps.value == pytest.approx(arriving.rps, rel=0.02)
    assert found.p99_ms.value > found.latency_ms.value + wait


MEASURED_ARRIVALS = sorted(EVIDENCE.glob("*rates.yaml"))


def test_arrivals_of_images_as_measured() -> None:
    """No run of these was fitted. Where image threads are limited, medians are within a fifth of the middle."""
    errors: dict[str, list[float]] = {"latency": [], "ttft": []}
    for path in MEASURED_ARRIVALS:
        run = read_record(path, records.SmokeRun)
        if not is_predictable(run) or "OMP_NUM_THREADS=4" not in run.environment:
            continue
        setup = artefact.rebuild_setup(run, STORE)
        config = with_server_layout(run, setup.config)
        resolved = with_free_memory(setup.resolved, run)
        for phase in run.phases:
            if not phase.arrivals_rps or not phase.images:
                continue
            asked = resolve_phase(replace(setup, resolved=resolved), run, phase)
            cache = cache_of(asked, config)
            _, profile = speed.predict_load(asked, config, config.max_batch_size, COEFFICIENTS, cache)
            assert profile is not None
            got = figures(phase)
            errors["latency"].append(math.log(got.p50_ms / profile.latency.p50))
            errors["ttft"].append(math.log(got.ttft_ms / profile.ttft.p50))
    assert len(errors["latency"]) >= 7
    assert statistics.median(map(abs, errors["latency"])) < 0.12
    assert statistics.median(map(abs, errors["ttft"])) < 0.2
    assert max(map(abs, errors["latency"])) < 0.35
