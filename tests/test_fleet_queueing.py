"""Servers that share arrivals: against closed forms, a discrete-event simulation, and runs with Poisson arrivals."""

import math
import random
import statistics
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import cache, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import fleet_simulation
import pytest
import yaml
from artefacts import KNOWLEDGE
from scipy import stats
from variants import TEXT, configuration, resolve

from recommender.calibration.predict import resolve_load
from recommender.estimate import arrivals
from recommender.estimate.arrivals import OpenServer, open_server
from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.sampling import gaps_of
from recommender.estimate.scheduler import simulation, typical_arrivals
from recommender.estimate.scheduler.passes import SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.pool import Pool
from recommender.estimate.scheduler.simulation import LoadFigures
from recommender.fleet.aim import Aim, Tail
from recommender.fleet.rate_search import RateSearch
from recommender.fleet.sizing import LONG
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


def slowest(busy: float) -> float:
    """What 99 % wait at most in M/D/1, in service times; where the sum has too many digits, its exponential tail."""
    if busy > 0.8:
        low, high = 1e-9, 5.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if busy * math.expm1(middle) < middle else (low, middle)
        return math.log((1 - busy) / (busy * math.exp(low) - 1) / 0.01) / low
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if crommelin(middle, busy) < 0.99 else (low, middle)
    return low


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7])
def test_the_slowest_of_equal_times(busy: float) -> None:
    """M/D/1: the time that 99 % keep to, against the exact distribution of waiting."""
    found = simulation.simulate_arrivals(*_parts(thread(20.0)), gaps_of(busy * 50), busy * 50, 40_000)
    assert found.latency.p99 == pytest.approx(20 * (1 + slowest(busy)), rel=0.06)


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
    while len(times) < 8000 * dealt:
        now += 1e3 * rng.expovariate(rate * dealt / together)
        times.append(now)
        while rng.random() < 1 - 1 / together:
            times.append(now)
    plain = [after - before for before, after in pairwise(times[::dealt])]
    ours = list(islice(gaps_of(rate, together=together, dealt=dealt), 8000))
    assert statistics.fmean(ours) == pytest.approx(200, rel=0.06)
    assert stats.ks_2samp(plain, ours).pvalue > 1e-3


def test_more_servers_wait_less() -> None:
    """Of twice as many servers at twice the rate, each has shorter queues; with one they are those of M/D/1."""
    means = [thread(20.0).at(35.0, servers).latency.mean for servers in (1, 2, 4, 8, 16)]
    assert means == sorted(means, reverse=True)
    assert means[0] == pytest.approx(20 * (1 + 0.7 / 2 / 0.3), rel=0.1)
    assert 20 <= means[-1] <= 22


# --- several servers, event by event ---------------------------------------------------------

TABLE = yaml.safe_load((Path(__file__).parent / "cases" / "fleet_sizing.yaml").read_text("utf-8"))
"""What ``fleet_simulation`` found: p99 of fleets, and the fewest servers that keep a goal."""
SHARES = [(place + 0.5) / 400 for place in range(400)]


@cache
def ours(kind: str, shape: str) -> OpenServer:
    """A server of the table for the plan, with the quantiles of its lengths."""
    terms, mean = fleet_simulation.KINDS[kind]
    quantiles = {
        "fixed": lambda share: mean,
        "nearly fixed": lambda share: mean * (0.98 + 0.04 * share),
        "geometric": stats.geom(1 / mean).ppf,
        "log-normal": stats.lognorm(1, scale=mean * math.exp(-0.5)).ppf,
    }[shape]
    outputs = [mean] if shape == "fixed" else [max(round(quantiles(share)), 1) for share in SHARES]
    tokens = 100
    times = ServiceTimes(0, 0, terms.step, 0, 0, terms.hidable)
    server = SimulatedServer(
        0.0, terms.step - terms.hidable, terms.prompts * tokens - terms.batch, terms.batch, 0, times
    )
    requests = (SimulatedRequest(terms.prepare, terms.prefill, tokens, tokens, output, terms.row) for output in outputs)
    return OpenServer(server, (tuple(requests),), 1.0)


def test_the_table_covers_what_is_claimed() -> None:
    """One to 16 servers, 30 to 95 % busy, lengths fixed, geometric and log-normal, bursts; large ones keep few busy."""
    rows = TABLE["times"]
    assert {row["servers"] for row in rows} >= {1, 2, 4, 8, 16}
    assert {row["lengths"] for row in rows} >= {"fixed", "geometric", "log-normal"}
    assert {row["burst"] for row in rows} == {1, 4, 8, 16, 100, 400}
    usual = [row for row in rows if row["burst"] <= 16]
    busy = [row["rate"] / row["servers"] / ours(row["kind"], row["lengths"]).capacity for row in usual]
    assert min(busy) == pytest.approx(0.3, abs=0.02)
    assert max(busy) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("number", [0, 44, 84, -5])
def test_the_table_is_what_the_simulation_finds(number: int) -> None:
    """Some short rows, made again."""
    row = TABLE["times"][number]
    found = fleet_simulation.rounded(fleet_simulation.simulate(row))
    assert found == {name: row[name] for name in found}


@pytest.mark.parametrize("row", TABLE["times"], ids=lambda row: "-".join(map(str, list(row.values())[:5])))
def test_p99_is_within_15_percent(row: dict[str, Any]) -> None:
    """Of whole answers, with the fewest connections, next to the other simulation."""
    found = ours(row["kind"], row["lengths"]).at(row["rate"] / row["servers"], row["servers"], row["burst"])
    assert found.keeps_up
    assert found.latency.p99 == pytest.approx(row["p99"], rel=0.15)


@pytest.mark.parametrize(
    "row", [row for row in TABLE["times"] if row["servers"] > 16], ids=lambda row: f"{row['kind']}-{row['rate']}"
)
def test_first_tokens_of_many_servers(row: dict[str, Any]) -> None:
    """Of many servers, few are simulated, for so long that their queues are the usual ones; large bursts are spread."""
    found = ours(row["kind"], row["lengths"]).at(row["rate"] / row["servers"], row["servers"], row["burst"])
    assert found.ttft.p99 == pytest.approx(row["ttft_p99"], rel=0.15)


def test_first_tokens_of_bursts() -> None:
    """Of groups of 2 to 400 requests at 1 to 256 servers; all rows were looked at while the arrivals were designed.

    The p99 is off by most where about one request in a hundred finds no slot: there it is ten times the p98.
    """
    rows = [row for row in (*TABLE["times"], *TABLE["unseen"]) if row["burst"] > 1]
    firsts, answers = [], []
    for row in rows:
        found = ours(row["kind"], row["lengths"]).at(row["rate"] / row["servers"], row["servers"], row["burst"])
        firsts.append(abs(found.ttft.p99 / row["ttft_p99"] - 1))
        answers.append(abs(found.latency.p99 / row["p99"] - 1))
    assert statistics.median(firsts) <= 0.1
    assert max(firsts) <= 0.18
    assert sum(off <= 0.15 for off in answers) >= 0.95 * len(rows)


def test_irregular_bursts() -> None:
    """Groups of up to 32 requests, gaps that vary up to four times as much as Poisson's, 1 to 16 servers.

    The last six rows were unseen when the simulation was done: all within 10 %. Off by most of the others: p99 of
    answers 24 % too high for groups of 8 with gaps of 3 at one server, 80 % busy. First tokens are 25 % too low for
    groups of 32 at 8 servers, 23 to 26 % too high twice, and twice as long as they are where one request in a hundred
    waits.
    """
    rows = TABLE["bursty"]
    assert {row["variation"] for row in rows} == {1, 2, 3, 4}
    assert {row["burst"] for row in rows} == {1, 8, 16, 32}
    assert len(rows) >= 35
    answers, firsts = [], []
    for row in rows:
        server = replace(ours(row["kind"], row["lengths"]), burstiness=float(row["variation"]))
        found = server.at(row["rate"] / row["servers"], row["servers"], row["burst"])
        answers.append(abs(found.latency.p99 / row["p99"] - 1))
        firsts.append(abs(found.ttft.p99 / row["ttft_p99"] - 1))
    assert sum(off <= 0.15 for off in answers) >= len(rows) - 1
    assert max(answers) <= 0.25
    assert sum(off <= 0.16 for off in firsts) >= len(rows) - 4
    assert sum(off <= 0.26 for off in firsts) >= len(rows) - 1
    assert statistics.median(firsts) <= 0.1
    assert max((*answers[-6:], *firsts[-6:])) <= 0.105


@pytest.mark.parametrize(("together", "dealt"), [(4.0, 1), (32.0, 1), (64.0, 8)])
def test_a_typical_stretch_has_the_waits_of_all(together: float, dealt: int) -> None:
    """Waits of a plain queue of the chosen groups have the p99 of a hundred times as many, drawn and worked here."""
    busy, count = 0.6, 8000
    queue = typical_arrivals.SimpleQueue(busy, 10**9, 10**9)
    gaps = typical_arrivals.typical_gaps(queue, 1000, count, 0, together, 1.0, dealt)
    chance, plain = random.Random(21), list[float]()
    left = 0
    gap = 0.0
    while len(plain) < 100 * count:
        gap += chance.expovariate(1) * together / dealt
        size = math.ceil(math.log(1 - chance.random()) / math.log(1 - 1 / together))
        mine, left = divmod(left + size, dealt)
        if mine:
            plain += [gap, *(0.0,) * (mine - 1)]
            gap = 0.0
    ours_, theirs = slowest_of(gaps, busy, 1000), slowest_of(plain, busy, 0)
    assert ours_ == pytest.approx(theirs, rel=0.12)


def test_a_stretch_of_dealt_groups_has_the_mean_gap() -> None:
    """Groups of two dealt to four servers: about half leave a server nothing, and are no arrival of its."""
    queue = typical_arrivals.SimpleQueue(0.6, 10**9, 10**9)
    gaps = typical_arrivals.typical_gaps(queue, 0, 2000, 0, 2.0, 1.0, 4)
    assert statistics.fmean(gaps) == pytest.approx(1, rel=0.1)


def test_where_nobody_waits_any_stretch_is_typical() -> None:
    """No wait tells two of them apart."""
    queue = typical_arrivals.SimpleQueue(0.0, 10**9, 10**9)
    assert len(typical_arrivals.typical_gaps(queue, 10, 50, 20, 4.0, 1.0, 1)) == 80


@pytest.mark.parametrize("together", [2.0, 60.0, 400.0])
@pytest.mark.parametrize("busy", [0.05, 0.9])
def test_fifty_groups_count_at_least(together: float, busy: float) -> None:
    """Few of them say little of the largest."""
    assert arrivals._count(busy, 16, 1, together, 1.0, 1.0) >= 50 * together


@pytest.mark.parametrize("servers", [1, 4, 16])
def test_of_each_server_160_count_at_least(servers: int) -> None:
    """It begins with nothing to prepare, however rarely requests come."""
    assert arrivals._count(0.05, servers, 1, 1.0, 1.0, 1.0) >= 160 * servers


@pytest.mark.parametrize("busy", [0.5, 0.8, 0.9])
def test_a_longer_queue_counts_more(busy: float) -> None:
    """25 times the requests over which a queue fluctuates."""
    assert arrivals._count(busy, 1, 1, 1.0, 1.0, 1.0) >= 25 / (1 - busy) ** 2


def test_a_simple_queue_by_hand() -> None:
    """Half a unit each at the station, and two slots of two units each: above two, one ends in a unit of time.

    Two come at once and end at the station after 1. Three more come at 0.25 when 2 exp(-1/8) slots are taken, so of
    them 3 - 2 (1 - exp(-1/8)) find none. Half a unit later half a request fewer waits; much later all are gone.
    """
    queue = typical_arrivals.SimpleQueue(station=0.5, slots=2, capacity=1.0)
    over = 3 - 2 * (1 - math.exp(-1 / 8))
    waits = queue.waits([0.0, 0.25, 0.5, 30.0], [2, 3, 1, 2])
    expected = [(0, 1), (0.75, 2.25 + over), (1.75 + over - 0.5, 2.25 + over + 0.5), (0, 1)]
    assert list(zip(*waits, strict=True)) == [pytest.approx(ends, abs=1e-5) for ends in expected]


def test_a_group_is_above_a_limit_as_far_as_its_waits_are() -> None:
    """Of four that wait 1 to 3, two are above 2, by a half on average; of three that wait 3 to 5 all, by 2."""
    marks = typical_arrivals._sum_above(2.0, 4, [0, 2], [1.0, 0.0, 3.0], [3.0, 1.0, 5.0], [4, 9, 3])
    assert list(marks) == [(4, [0, 2], [0, 2, 5]), (4, [0, 2], [0, 1, 7])]


def test_a_simple_queue_has_the_slowest_station_and_all_slots() -> None:
    """Prefill takes 4 ms on average, preparing 2: of the 10 ms between two requests 0.4. Twice the servers, twice
    the slots.
    """
    server = thread(1.0).server
    requests = tuple(SimulatedRequest(prepare, prefill, 1, 1, 1, 0) for prepare, prefill in ((1.0, 3.0), (3.0, 5.0)))
    one = OpenServer(server, (requests,), 1.0)
    queue = one.simplify(100.0, 2)
    assert (queue.station, queue.slots) == (pytest.approx(0.4), 2 * server.batch)
    assert queue.capacity == pytest.approx(one.capacity / 100)


def slowest_of(gaps: list[float], busy: float, skipped: int) -> float:
    """The p99 of the waits in a queue of equal service times, without the first requests."""
    waited, waits = 0.0, []
    for gap in gaps:
        waited = max(waited - gap, 0.0) + busy
        waits.append(waited)
    ordered = sorted(waits[skipped:])
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


@pytest.mark.parametrize("row", TABLE["hosts"], ids=lambda row: "-".join(map(str, row.values())))
def test_hosts_are_within_one(row: dict[str, Any]) -> None:
    """The fewest servers that keep a goal for answers or first tokens."""
    server = ours(row["kind"], row["lengths"])
    goal = {"p99_ms": row["goal"]} if row["figure"] == "p99" else {"ttft_ms": row["goal"], "ttft_at": "p99"}
    aim = Aim(row["rate"], peak=1, spare=0, **goal)
    effort = LONG if row["figure"] == "ttft_p99" else 1.0
    found = RateSearch(server, aim, Tail(server.alone), per_host=1, effort=effort).find()
    assert abs(found - row["needed"]) <= 1


@pytest.mark.parametrize(("servers", "busy"), [(1, 0.5), (4, 0.8), (16, 0.8)])
def test_random_service_times_behind_one_queue(servers: int, busy: float) -> None:
    """M/M/c: a pool whose servers take one request each waits as Erlang's formula says; so does the table's judge."""
    passes, step = 50, 2.0
    lengths, mean_ms = fleet_simulation.geometric(passes), passes * step
    rate = busy * servers / mean_ms  # a ms
    server = SimulatedServer(0.0, step, 10**6, 1, 0, ServiceTimes(0, 0, step, 0, 0))
    chance, now, sent = random.Random(5), 0.0, []
    for _ in range(30_000):
        now += chance.expovariate(rate)
        sent.append((now, SimulatedRequest(0.0, 1e-9, 1, 1, lengths(chance), 0.0)))
    found = statistics.fmean(answer.done - answer.sent for answer in Pool(server, servers, 1).answer(sent))
    expected = mean_ms + erlang_c(servers, busy) * mean_ms / servers / (1 - busy)
    assert found == pytest.approx(expected, rel=0.05)
    terms = fleet_simulation.Terms(0.0, 1e-9, step, 0.0, 1)
    judged = fleet_simulation.run(terms, lengths, servers, rate * 1e3, 8_000, limit=1)
    assert judged.mean == pytest.approx(expected, rel=0.1)


def erlang_c(servers: int, busy: float) -> float:
    """The chance to wait in M/M/c (Erlang 1917)."""
    load = servers * busy
    below = math.fsum(load**k / math.factorial(k) for k in range(servers))
    above = load**servers / math.factorial(servers) / (1 - busy)
    return above / (below + above)


@pytest.mark.parametrize(("busy", "counted"), [(0.7, 1000), (0.8, 2500), (0.9, 2500), (0.9, 10_000), (0.95, 40_000)])
def test_the_gaps_wait_as_theory_says(busy: float, counted: int) -> None:
    """The gaps that plans are made with: their M/D/1 queue, worked here, has the p99 of its exact distribution."""
    gaps = list(islice(gaps_of(1000 * busy, seed=arrivals.ARRIVALS_SEED), counted + counted // 4))
    stretch = len(gaps) / busy / math.fsum(gaps)
    waited, waits = 0.0, []
    for gap in gaps:
        waited = max(waited + 1 - gap * stretch, 0.0)
        waits.append(waited)
    waits = sorted(waits[counted // 4 :])
    assert waits[math.ceil(0.99 * len(waits)) - 1] == pytest.approx(slowest(busy), rel=0.13)


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_a_request_goes_to_the_server_that_is_free_first(servers: int) -> None:
    """One at a time each: in the order of arrival a request takes the server that has been free for longest."""
    server = SimulatedServer(0.0, 2.0, 10**6, 1, 0, ServiceTimes(0, 0, 2.0, 0, 0))
    chance, now, sent = random.Random(9), 0.0, []
    for _ in range(300):
        now += chance.expovariate(servers / 60)
        sent.append((now, SimulatedRequest(0.0, 1e-9, 1, 1, chance.randint(1, 50), 0.0)))
    free, expected = [0.0] * servers, []
    for at, request in sent:
        place = free.index(min(free))
        free[place] = max(free[place], at) + 2.0 * request.output
        expected.append(free[place])
    assert [answer.done for answer in Pool(server, servers, 1).answer(sent)] == pytest.approx(expected)


def test_a_quarter_of_the_batch_is_prepared_meanwhile() -> None:
    """At least four requests."""
    assert [arrivals.places(batch) for batch in (1, 16, 17, 64)] == [5, 20, 22, 80]


def test_idle_servers_take_turns() -> None:
    """Among equals HAProxy's leastconn takes the one that has waited longest."""
    pool = Pool(thread(1.0).server, 3, 10)
    pool.answer([(1000.0 * number, SimulatedRequest(0.0, 1.0, 16, 16, 2, 0.0)) for number in range(6)])
    assert [sorted(server.answers) for server in pool.servers] == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("kind", ["chat", "small"])
def test_servers_of_a_pool_are_worked_in_the_order_of_time(kind: str) -> None:
    """A pool of one is the one server, to the last request; with tokens that the host writes, too, nearly."""
    server = ours(kind, "geometric").server
    chance, now, sent = random.Random(3), 0.0, []
    for _ in range(3000):
        now += chance.expovariate(0.8 * ours(kind, "geometric").capacity / 1e3)
        sent.append((now, chance.choice(ours(kind, "geometric").turns[0])))
    one, pooled = simulation.answer_arrivals(server, sent), Pool(server, 1, 10**9).answer(sent)
    assert [answer.done for answer in pooled] == pytest.approx([answer.done for answer in one])
    writing = replace(server, chunk=0.12)
    one, pooled = simulation.answer_arrivals(writing, sent), Pool(writing, 1, 10**9).answer(sent)
    for figure in ("ttft", "latency"):
        ours_, theirs = (getattr(simulation.summarise_arrivals(each, 1.0), figure) for each in (pooled, one))
        assert (ours_.mean, ours_.p99) == pytest.approx((theirs.mean, theirs.p99), rel=0.04)


@pytest.mark.parametrize("chunk", [0.0, 2.0, 6.0])
@pytest.mark.parametrize("prepare", [0.0, 10.0])
def test_a_pool_of_one_holds_up_a_request_as_the_one_server_does(chunk: float, prepare: float) -> None:
    """Whenever others come while the first is answered: prompts and what the loop writes meanwhile delay them."""
    server = replace(thread(1.0).server, times=ServiceTimes(0, 0, 10.0, 0, 0), pass_base=0.0, chunk=chunk)
    for at in range(1, 100, 3):
        asked = [(0.0, 0.0, 1.0, 9), (at, prepare, 35.0, 2), (at + 7, prepare, 1.0, 2)]
        sent = [(when, SimulatedRequest(before, prefill, 16, 16, out, 0.0)) for when, before, prefill, out in asked]
        assert Pool(server, 1, 10).answer(sent) == simulation.answer_arrivals(server, sent), at


def test_servers_that_share_a_gpu_slow_each_other_by_their_load() -> None:
    """64 requests over two servers take as long as 32 with one, and longer than two."""
    shared = {"model": TEXT, "images": 0, "prompt_tokens": 300, "output_tokens": 20}
    two, one, idle = (
        open_server(resolve(**shared, concurrency=load), configuration(max_batch_size=64, servers=servers, share=2), 0)
        for load, servers in ((64, 2), (32, 1), (2, 2))
    )
    assert two == one
    assert two.server.times.step(1) > idle.server.times.step(1)


# --- measured --------------------------------------------------------------------------------

RUNS = sorted(
    (path.stem, number)
    for path in (KNOWLEDGE / "evidence").glob("*.yaml")
    if "arrivals_rps: " in path.read_text("utf-8")  # the rest need not be read as records
    for number, phase in enumerate(read_record(path, records.SmokeRun).phases)
    if phase.arrivals_rps and phase.images and not phase.drawn
)
"""Of text the fit judges the times under arrivals. Mixed sizes and lengths that vary are not simulated with images."""


def server_of(run: records.SmokeRun, phase: records.Phase) -> OpenServer:
    """The server that a run measured, with its requests."""
    made = artefact.rebuild_setup(run, STORE)
    width, height = (int(side) for side in phase.image.split("x"))
    resolved = replace(resolve_load(made, 16, phase.images, width, height, run.cpus), rps=0.0)
    return open_server(resolved, made.config, 0)


def beside(name: str, number: int) -> tuple[list[int], LoadFigures, float]:
    """The times of a run with Poisson arrivals in their order of size, what is simulated of it, and the share busy."""
    run = read_record(KNOWLEDGE / "evidence" / f"{name}.yaml", records.SmokeRun)
    phase = run.phases[number]
    server, rate = server_of(run, phase), phase.arrivals_rps
    found = simulation.simulate_arrivals(*_parts(server), gaps_of(rate), rate, 8000)
    return sorted(map(int, phase.latencies_ms.split())), found, rate / server.capacity


def test_runs_with_poisson_arrivals() -> None:
    """Servers that requests arrived at by themselves. Both pages say what is so: medians of the H100's runs are within
    25 %, of an H200's with four threads within 8 %; with a thread for each core, LMDeploy's default, it took up to
    1.8 times as long."""
    every = {each: beside(*each) for each in RUNS}
    off = {each: found.latency.p50 / statistics.median(times) - 1 for each, (times, found, _) in every.items()}
    crowded = [value for (name, _), value in off.items() if name == "h200-loads-2026-11-24-vision-rates"]
    threads = [value for (name, _), value in off.items() if name.startswith("h100")]
    four = [value for (name, _), value in off.items() if name == "h200-loads-2026-11-24-vision-omp-rates"]
    assert (len(threads), len(crowded), len(four)) == (9, 3, 3)
    assert len(off) == 15
    assert max(map(abs, four)) <= 0.085
    assert max(map(abs, threads)) <= 0.255
    assert sum(abs(value) <= 0.1 for value in threads) == 7
    assert sorted(round(value, 2) for value in crowded) == [-0.42, -0.2, -0.06]
    busiest = max(busy for *_, busy in every.values())
    for page in ("site/concepts/front.md", "site/concepts/front.vi.md"):
        text = " ".join((KNOWLEDGE.parent / page).read_text("utf-8").split())
        assert f"{busiest:.0%}".replace("%", " %") in text, page


def test_the_tail_is_what_the_runs_show() -> None:
    """The coefficient and its ends: measured over simulated, of what p99 is beyond that of a request alone."""
    tails = []
    for name, number in RUNS:
        run = read_record(KNOWLEDGE / "evidence" / f"{name}.yaml", records.SmokeRun)
        times = sorted(map(int, run.phases[number].latencies_ms.split()))
        server = server_of(run, run.phases[number])
        alone, p99 = server.alone.latency.p99, server.at(run.phases[number].arrivals_rps).latency.p99
        tails.append((times[math.ceil(0.99 * len(times)) - 1] - alone) / (p99 - alone))
    tail = STORE.coefficients["tail-open"]
    expected = min(tails), statistics.median(tails), max(tails)
    assert (tail.low, tail.value, tail.high) == pytest.approx(expected, abs=0.05)


def test_a_simulation_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a rate comes back to the rates that it knows."""
    calls = []
    monkeypatch.setattr(
        arrivals,
        "Pool",
        partial(lambda real, *words: calls.append(1) or real(*words), Pool),
    )
    one = [thread(11.5).at(20.0, 2) for _ in range(3)]
    assert one[0] == one[2]
    assert len(calls) == 1
