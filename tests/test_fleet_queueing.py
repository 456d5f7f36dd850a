"""Servers that share arrivals: against closed forms, a discrete-event simulation, and runs with Poisson arrivals."""

import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import partial
from itertools import islice, pairwise

import pytest
import simpy
from artefacts import KNOWLEDGE
from engine import Server, Steps, poisson
from scipy import stats

from recommender.calibration.predict import resolve_load
from recommender.estimate import arrivals
from recommender.estimate.arrivals import OpenServer, open_server
from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.sampling import gaps_of
from recommender.estimate.scheduler import simulation
from recommender.estimate.scheduler.passes import SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.simulation import LoadFigures
from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.load import load
from recommender.render import artefact

STORE = load()


def thread(each_ms: float, burstiness: float = 1.0) -> OpenServer:
    """A server whose preparing thread takes all the time there is: one request after the other."""
    times = ServiceTimes(0, 0, 1e-6, 0, 0)
    server = SimulatedServer(overhead=0, pass_base=1e-6, budget=1000, batch=1000, kv_tokens=0, times=times)
    return OpenServer(server, ((SimulatedRequest(each_ms, 1e-6, 1, 1, 1, 0),),), burstiness)


def crommelin(time: float, busy: float) -> float:
    """The chance to wait at most so long in M/D/1 with service 1 (Erlang 1909; Crommelin 1932): signs alternate."""
    with localcontext(prec=120):
        rate, terms = Decimal(busy), Decimal(0)
        for k in range(math.floor(time) + 1):
            over = rate * (k - Decimal(time))
            terms += over**k / math.factorial(k) * (-over).exp()
        return float((1 - rate) * terms)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7])
def test_the_slowest_of_equal_times(busy: float) -> None:
    """M/D/1: the time that 99 % keep to, against the exact distribution of waiting."""
    found = simulation.simulate_arrivals(*_parts(thread(20.0)), gaps_of(busy * 50), busy * 50, 40_000)
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if crommelin(middle, busy) < 0.99 else (low, middle)
    assert found.latency.p99 == pytest.approx(20 * (1 + low), rel=0.06)


def _parts(server: OpenServer) -> tuple[SimulatedServer, tuple[tuple[SimulatedRequest, ...], ...]]:
    return server.server, server.turns


def test_the_capacity_is_the_slowest_station() -> None:
    """20 ms of one thread: 50 a second, less what a closed loop of finite length leaves out."""
    assert thread(20.0).capacity == pytest.approx(50, rel=0.01)


@pytest.mark.parametrize("dealt", [1, 3, 16])
@pytest.mark.parametrize("burstiness", [1.0, 2.0])
def test_arrivals_in_turn(dealt: int, burstiness: float) -> None:
    """A server of several gets every so manieth arrival: the gaps are sums, which gamma distributions keep."""
    gaps = list(islice(gaps_of(5.0, burstiness, dealt=dealt), 8000))
    shape = dealt / burstiness**2
    assert stats.kstest(gaps, stats.gamma(shape, scale=200 / shape).cdf).pvalue > 1e-3


@pytest.mark.parametrize("dealt", [1, 4])
def test_groups_are_dealt(dealt: int) -> None:
    """Groups of geometric size, every fourth request of which goes to one server, drawn one by one."""
    rng, together, rate = random.Random(3), 3.0, 5.0
    times, now = [], 0.0
    for gap, size in poisson(rate * dealt, 8000 * dealt, rng, together):
        now += 1e3 * gap
        times += [now] * size
    plain = [after - before for before, after in pairwise(times[::dealt])]
    ours = list(islice(gaps_of(rate, together=together, dealt=dealt), 8000))
    assert statistics.fmean(ours) == pytest.approx(200, rel=0.06)
    assert stats.ks_2samp(plain, ours).pvalue > 1e-3


def test_servers_in_turn_wait_less() -> None:
    """Of twice as many servers at twice the rate, each has shorter queues; with one they are those of M/D/1."""
    means = [thread(20.0).at(35.0, dealt).latency.mean for dealt in (1, 2, 4, 8, 16)]
    assert means == sorted(means, reverse=True)
    assert means[0] == pytest.approx(20 * (1 + 0.7 / 2 / 0.3), rel=0.15)
    assert 20 <= means[-1] <= 22


# --- several servers, event by event ---------------------------------------------------------

# (prepare, prefill, step, row, prefill of a full pass) in ms, output tokens, batch, servers, share of the capacity
SIMULATED = [
    (ServiceTimes(9.0, 6.0, 7.0, 0.05, 72), 16, 32, 1, 0.5),
    (ServiceTimes(12.0, 30.0, 8.0, 0.2, 90), 16, 24, 4, 0.6),
    (ServiceTimes(1.0, 14.0, 9.0, 0.08, 56), 100, 48, 4, 0.8),
    (ServiceTimes(6.0, 9.0, 8.0, 0.05, 36), 12, 6, 8, 0.6),
]
Pick = Callable[[list[int]], int]


def fewest(busy: list[int]) -> int:
    return busy.index(min(busy))


def in_turn() -> Pick:
    """One server after the other."""
    turn = iter(range(10**9))
    return lambda busy: next(turn) % len(busy)


def events(
    terms: ServiceTimes, out: int, batch: int, servers: int, rate: float, pick: Pick
) -> tuple[list[float], float]:
    """Sorted times in ms of requests that arrive at several servers; the mean number of requests at one."""
    environment, times = simpy.Environment(), list[float]()
    joining = round(terms.full_pass / terms.prefill)
    every = [Server(environment, *terms[:4], out=out, batch=batch, joining=joining) for _ in range(servers)]
    busy, area, seen = [0] * servers, 0.0, 0.0

    def count(place: int, more: int) -> None:
        nonlocal area, seen
        area += sum(busy) * (environment.now - seen)
        seen = environment.now
        busy[place] += more

    def ask(place: int) -> Steps:
        count(place, 1)
        yield environment.process(every[place].ask(times))
        count(place, -1)

    def drive(gaps: Iterator[tuple[float, int]]) -> Steps:
        for gap, _ in gaps:
            yield environment.timeout(1e3 * gap)
            environment.process(ask(pick(busy)))

    environment.process(drive(poisson(rate * servers, 5000 * servers, random.Random(7))))
    environment.run()
    return sorted(times[500 * servers :]), area / seen / servers


def ours(terms: ServiceTimes, out: int, batch: int) -> OpenServer:
    """The same server for the simulation; nothing of a step hides a prefill."""
    tokens = 100
    budget = round(terms.full_pass / terms.prefill) * tokens - batch  # beside the running ones
    times = terms._replace(step_row=0.0)
    server = SimulatedServer(0.0, terms.step_base, max(budget, tokens), batch, 0, times)
    return OpenServer(
        server, ((SimulatedRequest(terms.prepare, terms.prefill, tokens, tokens, out, terms.step_row),),), 1
    )


@pytest.mark.parametrize(("terms", "out", "batch", "servers", "busy"), SIMULATED)
def test_simulated_servers(terms: ServiceTimes, out: int, batch: int, servers: int, busy: float) -> None:
    """Servers that take turns, of another simulation: mean and p99; by Little's law the number at one.

    With the fewest connections requests take no longer than with turns; that is what a load balancer does.
    """
    server = ours(terms, out, batch)
    rate = busy * server.capacity
    found = server.at(rate, servers)
    plain, number = events(terms, out, batch, servers, rate, in_turn())
    assert found.latency.mean == pytest.approx(statistics.fmean(plain), rel=0.12)
    assert found.latency.p99 == pytest.approx(plain[int(0.99 * len(plain))], rel=0.2)
    assert found.rps * found.latency.mean / 1e3 == pytest.approx(number, rel=0.15)
    least, _ = events(terms, out, batch, servers, rate, fewest)
    assert found.latency.mean >= 0.93 * statistics.fmean(least)
    assert found.latency.p99 >= 0.88 * least[int(0.99 * len(least))]


# --- measured --------------------------------------------------------------------------------

RUNS = sorted(
    (path.stem, number)
    for path in (KNOWLEDGE / "evidence").glob("*.yaml")
    for number, phase in enumerate(read_record(path, records.SmokeRun).phases)
    if phase.arrivals_rps and phase.images
)
"""Of text the fit judges the times under arrivals."""


def beside(name: str, number: int) -> tuple[list[int], LoadFigures, float]:
    """The times of a run with Poisson arrivals in their order of size, what is simulated of it, and the share busy."""
    run = read_record(KNOWLEDGE / "evidence" / f"{name}.yaml", records.SmokeRun)
    phase, made = run.phases[number], artefact.rebuild_run(run, STORE)
    width, height = (int(side) for side in phase.image.split("x"))
    resolved = replace(resolve_load(made, 16, phase.images, width, height, run.cpus), rps=0.0)
    server = open_server(resolved, made.config, 0)
    rate = phase.arrivals_rps
    found = simulation.simulate_arrivals(*_parts(server), gaps_of(rate), rate, 8000)
    return sorted(map(int, phase.latencies_ms.split())), found, rate / server.capacity


def test_runs_with_poisson_arrivals() -> None:
    """Servers that requests arrived at by themselves. Both pages say what is so: medians of the H100's runs are within
    25 %; LMDeploy's defaults on an H200, with a thread for each core, took up to 1.8 times as long."""
    every = {each: beside(*each) for each in RUNS}
    off = {each: found.latency.p50 / statistics.median(times) - 1 for each, (times, found, _) in every.items()}
    crowded = [value for (name, _), value in off.items() if name == "h200-loads-2026-11-24-vision-rates"]
    threads = [value for (name, _), value in off.items() if name.startswith("h100")]
    assert (len(threads), len(crowded)) == (9, 3)
    assert len(off) == 12
    assert max(map(abs, threads)) <= 0.255
    assert sum(abs(value) <= 0.1 for value in threads) == 6
    assert sorted(round(value, 2) for value in crowded) == [-0.42, -0.29, -0.05]
    busiest = max(busy for *_, busy in every.values())
    for page in ("site/concepts/front.md", "site/concepts/front.vi.md"):
        text = " ".join((KNOWLEDGE.parent / page).read_text("utf-8").split())
        assert f"{busiest:.0%}".replace("%", " %") in text, page


def test_the_tail_is_what_the_runs_show() -> None:
    """The coefficient and its ends are the median, least and most of 99 % measured over simulated."""
    every = [beside(*each) for each in RUNS]
    tails = sorted(times[int(0.99 * len(times))] / found.latency.p99 for times, found, _ in every)
    tail = STORE.coefficients["tail-open"]
    assert (tail.low, tail.value, tail.high) == pytest.approx((tails[0], statistics.median(tails), tails[-1]), abs=0.05)


def test_a_simulation_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a rate comes back to the rates that it knows."""
    calls = []
    monkeypatch.setattr(
        arrivals,
        "simulate_arrivals",
        partial(lambda real, *words: calls.append(1) or real(*words), simulation.simulate_arrivals),
    )
    one = [thread(11.5).at(20.0, 2) for _ in range(3)]
    assert one[0] == one[2]
    assert len(calls) == 1
