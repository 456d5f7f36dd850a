"""Predict what clients see under load, by simulating one server with the request's lengths, turns and arrivals."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, get_args

from recommender.common.fast_replace import fast_replace
from recommender.estimate.cache_need import shared_tokens
from recommender.estimate.engines.engine import engine_of
from recommender.estimate.sampling import gaps_of
from recommender.estimate.scheduler.passes import SLOT_PASSES, SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.simulation import (
    LoadFigures,
    Quantiles,
    Timed,
    simulate_arrivals,
    simulate_closed_loop,
)
from recommender.estimate.terms.cached_prefix import DIGITS, TimesOf, cached_tokens, round_ms, shared_row_ms
from recommender.request.lengths import pair_lengths
from recommender.request.mix import MOST_ASKED, deal_sizes

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.request.lengths import MixRequest
    from recommender.request.resolved_request import ResolvedRequest


def is_simulated(resolved: ResolvedRequest, config: Configuration, concurrency: int) -> bool:
    """Return whether a load is simulated: it arrives, several are in flight, or lengths vary.

    Images in a closed loop are solved instead, where a pass holds prompts and running requests and all requests are
    alike: see ``closed_loop``.
    """
    if resolved.rps:
        return True
    if resolved.images and not resolved.varies and not engine_of(config).DECODE_ROUNDS:
        return False
    return concurrency > config.servers or resolved.varies


def simulate_servers(
    resolved: ResolvedRequest,
    config: Configuration,
    concurrency: int,
    coefficients: Mapping[str, float],
    times_of: TimesOf,
    kv_tokens: int,
) -> LoadFigures:
    """Return the figures of all servers, with the load spread evenly.

    Means are those of all requests, quantiles those of the fullest servers.
    """
    per_server, fuller = divmod(concurrency, config.servers)
    arguments = (coefficients, times_of, kv_tokens)
    full = simulate_server(resolved, config, per_server + bool(fuller), *arguments)
    if resolved.rps or not per_server or not fuller:  # all busy servers have the same load
        busy = config.servers if resolved.rps else fuller or config.servers
        # The simulated rate is rounded: less than was asked for would miss the goal.
        rps = resolved.rps if resolved.rps and full.keeps_up else full.rps * busy
        return replace(full, rps=rps, tokens=full.tokens * busy)
    less = simulate_server(resolved, config, per_server, *arguments)
    rps = full.rps * fuller + less.rps * (config.servers - fuller)
    share = full.rps * fuller / rps

    def mixed(name: Timed) -> Quantiles:
        ours: Quantiles = getattr(full, name)
        others: Quantiles = getattr(less, name)
        return replace(ours, mean=share * ours.mean + (1 - share) * others.mean)

    tokens = full.tokens * fuller + less.tokens * (config.servers - fuller)
    return LoadFigures(mixed("ttft"), mixed("tpot"), mixed("latency"), rps, tokens)


def simulate_server(
    resolved: ResolvedRequest,
    config: Configuration,
    concurrency: int,
    coefficients: Mapping[str, float],
    times_of: TimesOf,
    kv_tokens: int,
) -> LoadFigures:
    """Return the figures of one server with ``concurrency`` requests in flight, or with the request's arrivals.

    Arguments as in ``describe_server``.
    """
    server, turns = describe_server(resolved, config, concurrency, coefficients, times_of, kv_tokens)
    rate = max(round_ms(resolved.rps / config.servers), 10.0**-DIGITS) if resolved.rps else 0.0
    return _simulate(server, turns, 0 if rate else concurrency, rate, resolved.burstiness)


def describe_server(
    resolved: ResolvedRequest,
    config: Configuration,
    concurrency: int,
    coefficients: Mapping[str, float],
    times_of: TimesOf,
    kv_tokens: int = 0,
    *,
    alone: bool = True,
) -> tuple[SimulatedServer, tuple[tuple[SimulatedRequest, ...], ...]]:
    """Return a server and, for each turn of a conversation, its equally likely requests.

    ``times_of`` gives the times of requests by their lengths. ``kv_tokens`` is the size of the KV cache; 0 is no
    limit. ``concurrency`` conversations share the prefix cache. A server that is not ``alone`` has no histories: each
    turn of a conversation may go to another one.
    """
    server, shared_row = describe_limits(resolved, config, coefficients, times_of, kv_tokens)
    shared = shared_tokens(resolved, config.prefix_caching, config.block_len)
    needed = concurrency * max(resolved.total_tokens(config.max_tiles) - shared, 1)
    kept = min(server.kv_tokens / needed, 1.0) if kv_tokens else 1.0
    kept = kept if alone else 0.0
    return server, tuple(
        _list_requests(resolved, config, times_of, turn, (kept, shared_row), sized=not alone)
        for turn in range(resolved.turns)
    )


def describe_limits(
    resolved: ResolvedRequest,
    config: Configuration,
    coefficients: Mapping[str, float],
    times_of: TimesOf,
    kv_tokens: int,
) -> tuple[SimulatedServer, float]:
    """Return a server, and the ms of a step for a prefix that it reads once. Arguments as in ``describe_server``."""
    times_by_length = times_of(resolved, config)
    times = times_by_length(resolved.prompt_tokens, resolved.output_tokens)
    shared = shared_tokens(resolved, config.prefix_caching, config.block_len)
    shared_row = shared_row_ms(resolved, config, times_by_length)
    # The prefill of an image was measured with the reading of weights, so it hides none.
    hidable = 0.0 if resolved.images else times.step_hidable
    writing = round_ms(coefficients["token-host-ms"] * resolved.streamed_share)
    shares_lock = bool(resolved.images) and engine_of(config).SHARES_LOCK
    server = SimulatedServer(
        overhead=round_ms(engine_of(config).request_overhead_ms(coefficients)),
        pass_base=round_ms(times.step_base - hidable),
        budget=engine_of(config).prompt_tokens(resolved, config),
        batch=config.max_batch_size,
        kv_tokens=max(kv_tokens - shared, 1) if kv_tokens else 0,
        times=times._replace(step_row=0.0, step_base=times.step_base + shared_row),
        # Measured with text; what images do to the host is in the coefficients of their preparation.
        rounds=engine_of(config).DECODE_ROUNDS,
        contexts=engine_of(config).contexts_limit(config.session_len, config.max_batch_size),
        chunk=0.0 if resolved.images else writing,
        lock_per_token=writing if shares_lock else 0.0,
        spacing=round_ms(engine_of(config).image_spacing_ms(resolved, coefficients)),
    )
    return server, shared_row


@lru_cache(maxsize=4096)
def _simulate(
    server: SimulatedServer,
    turns: tuple[tuple[SimulatedRequest, ...], ...],
    concurrency: int,
    rate: float,
    burstiness: float,
) -> LoadFigures:
    if rate:
        return simulate_arrivals(server, turns, gaps_of(rate, burstiness), rate)
    rungs = sorted({*islice(RUNGS, bisect_left(RUNGS, concurrency) + 1), server.batch})
    place = bisect_left(rungs, concurrency)
    above = _climb(server, turns, tuple(rungs[: place + 1]))
    if rungs[place] == concurrency:
        return above
    return _between(_climb(server, turns, tuple(rungs[:place])), above, concurrency, rungs[place - 1 : place + 1])


RUNGS = tuple(2**power for power in range(20))
"""Requests in flight that are simulated, beside the batch; figures between them are interpolated."""


@lru_cache(maxsize=4096)
def _climb(
    server: SimulatedServer, turns: tuple[tuple[SimulatedRequest, ...], ...], rungs: tuple[int, ...]
) -> LoadFigures:
    """Return the figures at the last of the rungs, no better than at those below.

    A simulation of few hundred requests is off by a percent or two; without this a server would sometimes seem faster
    with one request more.
    """
    figures = _simulate_clients(_without_slack(server, turns, rungs[-1]), turns, rungs[-1])
    if len(rungs) == 1:
        return figures
    less = _climb(server, turns, rungs[:-1])
    mean = min(max(figures.latency.mean, less.latency.mean), less.latency.mean * rungs[-1] / rungs[-2])
    latency = replace(_each(max, figures.latency, less.latency), mean=mean)
    rps = 1e3 * rungs[-1] / mean
    return LoadFigures(
        ttft=_each(min, _each(max, figures.ttft, less.ttft), latency),
        tpot=_each(max, figures.tpot, less.tpot),
        latency=latency,
        rps=rps,
        tokens=figures.tokens / figures.rps * rps,
    )


def _without_slack(
    server: SimulatedServer, turns: tuple[tuple[SimulatedRequest, ...], ...], clients: int
) -> SimulatedServer:
    """Lower a server's limits as far as so few clients do not notice, so that one cached simulation serves many limits.

    Where a pass holds the prompts of all clients, a larger budget changes nothing. Nor does a batch beyond three times
    the clients: each runs or waits, and ended in at most two of the passes that still hold its slot.
    """
    most = clients * max(request.new_tokens for turn in turns for request in turn)
    if server.rounds or server.budget + server.batch - clients < most:
        return server
    whole = clients * max(request.context for turn in turns for request in turn)
    contexts = server.contexts if server.contexts < whole else 0
    return replace(server, budget=most, batch=min(server.batch, (1 + SLOT_PASSES) * clients), contexts=contexts)


_simulate_clients = lru_cache(maxsize=4096)(simulate_closed_loop)


def _each(choose: Callable[[float, float], float], one: Quantiles, other: Quantiles) -> Quantiles:
    return Quantiles(*map(choose, astuple(one), astuple(other)))


def _between(below: LoadFigures, above: LoadFigures, clients: int, rungs: Sequence[int]) -> LoadFigures:
    """Interpolate between two rungs, on logarithmic scales; Little's law gives the rate."""
    share = math.log(clients / rungs[0]) / math.log(rungs[1] / rungs[0])

    def mixed(low: float, high: float) -> float:
        return math.pow(low, 1 - share) * math.pow(high, share)

    found = combine(mixed, below, above)
    rps = 1e3 * clients / found.latency.mean
    return replace(found, rps=rps, tokens=above.tokens / above.rps * rps)


def combine(choose: Callable[[float, float], float], one: LoadFigures, other: LoadFigures) -> LoadFigures:
    """Return what a function makes of each time of two loads; the rates are those of the first."""
    ttft, tpot, latency = (_each(choose, getattr(one, name), getattr(other, name)) for name in get_args(Timed))
    return replace(one, ttft=ttft, tpot=tpot, latency=latency)


def _list_requests(
    resolved: ResolvedRequest,
    config: Configuration,
    times_of: TimesOf,
    turn: int,
    cache: tuple[float, float],
    *,
    sized: bool,
) -> tuple[SimulatedRequest, ...]:
    """Return the equally likely requests of a turn; the first is 0. ``cache`` as in ``describe_by_length``.

    ``sized``: each has images of one size of a mix; else the times are the mean of all sizes.
    """
    requests: Sequence[tuple[ResolvedRequest, tuple[int, int, int]]]
    if asked := resolved.request.asked:
        requests = [(_with_own(resolved, one), (one.prompt, one.output, 0)) for one in asked]
    else:
        pairs = pair_lengths(resolved.prompts, resolved.outputs)
        if not (sized and resolved.image_sizes):
            describe = describe_by_length(resolved, config, times_of, cache)
            return tuple(describe(prompt, output, turn) for prompt, output in pairs)
        requests = [(resolved, (prompt, output, turn)) for prompt, output in pairs]
    if sized and resolved.image_sizes:
        requests = deal_sizes(requests * -(-MOST_ASKED // len(requests)))
    return tuple(describe_by_length(own, config, times_of, cache)(*lengths) for own, lengths in requests)


def _with_own(resolved: ResolvedRequest, request: MixRequest) -> ResolvedRequest:
    return fast_replace(resolved, images=request.images, prefix_tokens=request.prefix)


def describe_by_length(
    resolved: ResolvedRequest, config: Configuration, times_of: TimesOf, cache: tuple[float, float]
) -> Callable[[int, int, int], SimulatedRequest]:
    """Return what describes a request of so many tokens of prompt and answer, in a turn.

    ``cache``: the share of histories that it keeps, and the ms of a step for a prefix that the server reads once.
    """
    kept, shared_row = cache
    free = fast_replace(config, prefill_tokens=2**30, session_len=2**30)  # a prompt's whole prefill, however it is cut
    times_by_length = times_of(resolved, free)
    other_tokens = resolved.input_tokens(config.max_tiles) - resolved.prompt_tokens
    shared = shared_tokens(resolved, config.prefix_caching, config.block_len)

    def describe(prompt: int, output: int, turn: int) -> SimulatedRequest:
        text = resolved.prompt_in_turn(prompt, output, turn)
        times, context = times_by_length(text, output), text + other_tokens
        cached = cached_tokens(resolved, config, (prompt, output, turn), context, kept)
        prefill = times.prefill - times.expert_pass
        if cached:
            known = times_by_length(max(text - (context - cached), 1), output)
            prefill = max(times.prefill - known.prefill, 0.0)
        return SimulatedRequest(
            round_ms(times.prepare),
            round_ms(prefill),
            context - cached,
            context,
            output,
            round_ms(max(times.step_row - shared_row, 0.0)),
            max(cached - shared, 0),
            round_ms(times.encoded_again),
        )

    return describe
