"""Simulate requests that are given one by one: those of a trace, and those that a load was driven with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING

from recommender.estimate.load_profile import describe_by_length, describe_limits
from recommender.estimate.scheduler.passes import SimulatedAnswer, SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.prefix_cache import find_hits
from recommender.estimate.scheduler.simulation import LoadFigures, answer_arrivals, answer_sequence, simulate_replay
from recommender.estimate.terms.cached_prefix import TimesOf

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.request.resolved_request import ResolvedRequest


def replay_trace(
    resolved: ResolvedRequest,
    config: Configuration,
    coefficients: Mapping[str, float],
    times_of: TimesOf,
    kv_tokens: int,
) -> LoadFigures:
    """Return the figures of all servers where the requests of a trace come as they did.

    Servers take turns; the figures are those of the first. With headroom requests come so many times as fast. A
    request beyond the session has a shorter prompt, because a server refuses it. A server has the part of a prompt
    that earlier requests left in its cache. If the share that the whole trace repeats is known, that share counts
    instead, because requests before these filled the cache; what a cache of this size loses of it is what it loses of
    these.
    """
    request, replayed = resolved.request, resolved.request.replay[:: config.servers]
    hits, most = (find_hits(request.replay, tokens, config.servers) for tokens in (kv_tokens, 0))
    reuse: tuple[Sequence[int], float] = (), sum(hits) / sum(most) if any(most) else 1.0
    if any(most) and not request.repeated_share:
        reuse = hits, 1.0
    lengths = [(replayed_request.prompt, replayed_request.output) for replayed_request in replayed]
    server, requests = _describe_given(resolved, config, coefficients, times_of, kv_tokens, lengths, *reuse)
    times = (replayed_request.at / request.headroom for replayed_request in replayed)
    figures = simulate_replay(server, list(zip(times, requests, strict=True)), resolved.rps / config.servers)
    return replace(figures, rps=figures.rps * config.servers, tokens=figures.tokens * config.servers)


def answer_driven(
    resolved: ResolvedRequest,
    config: Configuration,
    concurrency: int,
    coefficients: Mapping[str, float],
    times_of: TimesOf,
    kv_tokens: int,
    driven: Sequence[tuple[float, int, int]],
) -> Sequence[SimulatedAnswer]:
    """Return one server's answers to the requests that a load was driven with, in the order in which they were sent.

    ``driven`` has the ms of sending and the tokens of input and answer, as a server counts them. With ``concurrency``
    requests in flight the times are not looked at.
    """
    template = replace(resolved, prompt_tokens=0).input_tokens(config.max_tiles)
    lengths = [(tokens - template, output) for _, tokens, output in driven]
    server, requests = _describe_given(resolved, config, coefficients, times_of, kv_tokens, lengths)
    if concurrency:
        return answer_sequence(server, requests, concurrency)
    return answer_arrivals(server, [(at, request) for (at, *_), request in zip(driven, requests, strict=True)])


def _describe_given(
    resolved: ResolvedRequest,
    config: Configuration,
    coefficients: Mapping[str, float],
    times_of: TimesOf,
    kv_tokens: int,
    lengths: Sequence[tuple[int, int]],
    hits: Sequence[int] = (),
    kept_share: float = 1.0,
) -> tuple[SimulatedServer, list[SimulatedRequest]]:
    """Return a server, and one request for each pair of lengths, cut to the session.

    ``hits``: the cached tokens of each request. Without them, the prefix is cached, and the share ``kept_share`` of
    all other repeated tokens.
    """
    server, shared_row = describe_limits(resolved, config, coefficients, times_of, kv_tokens)
    cache = kept_share, shared_row
    without_hits = describe_by_length(resolved, config, times_of, cache)
    first = replace(resolved, prompt_tokens=1).input_tokens(config.max_tiles)
    described: dict[tuple[tuple[int, int], int], SimulatedRequest] = {}
    asked = list(zip(lengths, hits or repeat(-1), strict=False))
    for (prompt, output), hit in asked:
        if ((prompt, output), hit) not in described:
            fits = max(min(prompt, config.session_len - output - first), resolved.prefix_tokens, 1)
            own = _with_hit(resolved, hit, first + fits - 1) if hit >= 0 else None
            describe = describe_by_length(own, config, times_of, cache) if own else without_hits
            described[(prompt, output), hit] = describe(fits, output, 0)
    return server, [described[key] for key in asked]


def _with_hit(resolved: ResolvedRequest, hit: int, context: int) -> ResolvedRequest:
    """Return the request with ``hit`` of its ``context`` tokens in the cache, prefix included."""
    share = (hit + 0.5) / context  # half a token more, because a share is rounded down
    request = replace(resolved.request, repeated_share=share)
    return replace(resolved, prefix_tokens=min(resolved.prefix_tokens, hit), request=request)
