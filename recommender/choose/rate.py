"""Choose a configuration for requests that arrive at a rate: how many are served at once follows from it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.choose.constraints import list_goal_constraints
from recommender.choose.feasibility import may_fit
from recommender.choose.select import (
    RATE_CONSTRAINT,
    Candidate,
    Choice,
    NoCandidate,
    Rejections,
    choose,
    excess,
    search,
)
from recommender.estimate.speed import estimate
from recommender.estimate.uncertainty import Range

if TYPE_CHECKING:
    from recommender.request.resolved_request import ResolvedRequest

MAX_RPS_CONCURRENCY = 1024
"""Requests at once for each GPU up to which a rate is tried."""
LARGER = 5
"""Doublings of a batch that reaches the rate, at most."""
FLAT = 1
"""Doublings in a row that may bring nothing: some batches of two are no faster than those of one."""
SPARE = 1.1
"""Factor on the rate that a server must reach; below it, queues make an 8-bit KV cache the better one."""
WORTH = 0.05
"""Least share of a request's time that twice the batch must save to be worth its memory."""


def choose_for_rate(resolved: ResolvedRequest) -> tuple[ResolvedRequest, Choice | NoCandidate]:
    """Return the case and choice at the lowest concurrency that reaches the rate. Powers of two are tried.

    Requests arrive one by one and wait for a place in the batch. The concurrency rises until all goals are met and
    the next one would shorten a request by less than ``WORTH``, or give up accuracy that the rate does not need.
    """
    goals = list_goal_constraints(resolved.store)
    tried = _first_likely(replace(resolved, rps=resolved.request.planned_rps))
    outcome = search(tried, short=True)
    best: tuple[ResolvedRequest, Choice | Rejections] = (tried, outcome)
    tries = [tried]
    left, flat = LARGER, 0
    while tried.concurrency < _most_at_once(resolved) and left:
        missed = set() if isinstance(outcome, Choice) else goals & dict(outcome.rejected).keys()
        if not (missed or isinstance(outcome, Choice)):
            break
        left -= RATE_CONSTRAINT not in missed
        tried = replace(tried, concurrency=2 * tried.concurrency)
        outcome = search(tried, short=True)
        if isinstance(outcome, Rejections) and not goals & dict(outcome.rejected).keys():
            break  # the rate is the limit, not the memory for more requests at once
        tries.append(tried)
        if _is_worth(best, tried, outcome):
            best, flat = (tried, outcome), 0
        elif flat == FLAT:
            break
        else:
            flat += 1
    if isinstance(best[1], Choice):
        return best[0], best[1]
    outcomes = [(case, choose(case)) for case in tries]
    near = [case for outcome in outcomes for case in _near(*outcome)]
    if near:
        return min(near, key=lambda case: round(excess(case[1].best, resolved.request), 2))
    return min(reversed(outcomes), key=_excess)


def _excess(case: tuple[ResolvedRequest, Choice | NoCandidate]) -> float:
    """Return by how much what misses only goals misses them; infinity if nothing misses only them."""
    closest = case[1].closest if isinstance(case[1], NoCandidate) else None
    return excess(closest, case[0].request) if closest else math.inf


def _most_at_once(resolved: ResolvedRequest) -> int:
    return MAX_RPS_CONCURRENCY * resolved.request.gpu_count


def _first_likely(resolved: ResolvedRequest) -> ResolvedRequest:
    """Return the case at the lowest concurrency that the closed form does not rule out; 1 if it rules out all."""
    powers = range(_most_at_once(resolved).bit_length())
    tries = [replace(resolved, concurrency=2**power) for power in powers]
    return next((tried for tried in tries if may_fit(tried)), tries[0])


def _near(tried: ResolvedRequest, outcome: Choice | NoCandidate) -> list[tuple[ResolvedRequest, Choice]]:
    """Return what misses only goals by little, if that is all there is."""
    return [(tried, outcome.near)] if isinstance(outcome, NoCandidate) and outcome.near else []


def _is_worth(
    best: tuple[ResolvedRequest, Choice | Rejections], tried: ResolvedRequest, outcome: Choice | Rejections
) -> bool:
    """Return whether a larger batch is clearly faster, or the first that fits.

    It gives up accuracy only where the batch that does not may be too slow for the rate.
    """
    smaller = best[1]
    if isinstance(smaller, Rejections):
        return True
    if isinstance(outcome, Rejections):
        return False
    fast, slow = outcome.best, smaller.best
    spare = SPARE if fast.config.kv_bits == 8 else 1.0
    if fast.config.kv_bits < slow.config.kv_bits and most_served(best[0], slow).value >= spare * tried.rps:
        return False
    return fast.speed.latency_ms.value < (1 - WORTH) * slow.speed.latency_ms.value


def most_served(resolved: ResolvedRequest, candidate: Candidate) -> Range:
    """Return the requests/s that the servers answer with full batches; for a closed loop those that are predicted."""
    if not resolved.rps:
        return candidate.speed.rps
    config = candidate.config
    full = replace(resolved, rps=0.0, concurrency=config.max_batch_size * config.servers)
    return estimate(full, config, kv_tokens=candidate.memory.kv_tokens).rps


def bound_by_arrivals(served: Range, most: Range, arriving: float) -> Range:
    """Return the answered requests/s, with the range of the ``most`` that are: never more than that, or than arrive."""
    value = min(served.value, most.value, arriving)
    return Range(value, min(value, most.low), min(max(value, most.high), arriving))
