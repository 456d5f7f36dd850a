"""Solve a closed loop of requests over two stations: preprocessing and engine."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

HALVINGS = 12

Limit: TypeAlias = Literal["preprocessing", "prefill on the card", "decoding steps"]
"""The station that more load queues at."""


class ServiceTimes(NamedTuple):
    """Service demands of one request on one server, in ms.

    An iteration with m requests takes ``step_base + m * step_row``. A mixture of
    experts also reads those that its tokens go through, up to ``expert_most`` for all.
    A token misses the share ``expert_missed`` of them; each one but the first counts as
    ``expert_spread`` of a token that is routed by chance. Their kernels take at least ``expert_launches``
    to launch. A pass with prefill takes ``expert_pass`` for the experts, whatever it holds; ``prefill`` includes one.
    A pass with prompts takes at least ``prompt_floor`` to launch. Each further pass of a cut prompt takes
    ``encoded_again`` for its images. A request spends ``delay`` on its way, where it holds no other up.
    ``full_pass`` is the prefill of an iteration that uses the whole prefill budget.
    ``step_hidable`` is the part of ``step_base`` that reads weights, which a prefill in the same pass hides.
    """

    prepare: float
    prefill: float
    step_base: float
    step_row: float
    full_pass: float
    step_hidable: float = 0.0
    expert_most: float = 0.0
    expert_missed: float = 0.0
    expert_spread: float = 0.0
    expert_pass: float = 0.0
    expert_launches: float = 0.0
    prompt_floor: float = 0.0
    encoded_again: float = 0.0
    delay: float = 0.0

    def step(self, requests: float) -> float:
        """Return the ms of one iteration with ``requests`` requests and no prefill."""
        plain = self.step_base + requests * self.step_row
        if not self.expert_most:
            return plain
        reads = self.expert_most * (1 - math.pow(self.expert_missed, 1 + (requests - 1) * self.expert_spread))
        return plain + max(self.expert_launches, reads)

    def further_pass(self, part: float) -> float:
        """Return what a further pass adds to a prompt's ``part`` of prefill: launches, and weights it cannot hide."""
        return max(self.step(1) - part, self.step_base - self.step_hidable)


class LoopTimes(NamedTuple):
    """Solution of a closed loop.

    ``rate`` is in requests a ms. ``waiting`` and ``engine`` are the ms that a request
    spends before the engine runs it, and in the engine.
    """

    rate: float
    waiting: float
    engine: float


@lru_cache(maxsize=65536)
def solve_loop(times: ServiceTimes, output_tokens: int, concurrency: int, batch: int) -> LoopTimes:
    """Return rate and times with ``concurrency`` requests always in the loop.

    The engine runs at most ``batch`` of them at once. Exact solution of a birth-death
    chain over the number of requests in the engine: preprocessing is one thread and
    feeds one request at a time; the engine completes m requests every
    ``output_tokens`` iterations, which also carry m prefills.
    """
    prefill, step = times.prefill, times.step
    base, row = (0.0, 0.0) if times.expert_most else (times.step_base, times.step_row)
    feeds = _feed_rates(times, concurrency)
    weight, total, done, inside = 1.0, 1.0, 0.0, 0.0
    for prepared in range(1, concurrency + 1):
        if prepared <= batch:  # the loop of every prediction: step(running) is written out where that is short
            running = prepared
            step_time = base + running * row if row else step(running)
            complete = running / (output_tokens * step_time + running * prefill)
        weight *= feeds[concurrency - prepared] / complete
        total += weight
        done += weight * complete
        inside += weight * running
        if total > 1e200:
            weight, total, done, inside = weight / total, 1.0, done / total, inside / total
    rate, mean = done / total, inside / total
    return LoopTimes(rate, (concurrency - mean) / rate, mean / rate)


def _feed_rates(times: ServiceTimes, most: int) -> list[float]:
    """Return the requests a ms that reach the engine with 1 to ``most`` requests outside it.

    Each spends ``delay`` beside the others, then waits for the preparing thread. Mean value analysis of one queue.
    """
    rates, queued, prepare = [], 0.0, max(times.prepare, 1e-6)
    for outside in range(1, most + 1):
        response = prepare * (1 + queued)
        rates.append(outside / (times.delay + response))
        queued = rates[-1] * response
    return rates


def find_limit(times: ServiceTimes, output_tokens: int, batch: int, spacing: float = 0.0) -> Limit:
    """Return the station with the largest demand; ``spacing``: the least ms between prepared requests."""
    parts: dict[Limit, float] = {"preprocessing": max(times.prepare, spacing), "prefill on the card": times.prefill}
    parts["decoding steps"] = output_tokens * times.step(batch) / batch
    return max(parts, key=lambda part: parts[part])


def token_gap(times: ServiceTimes, loop: LoopTimes, output_tokens: int, share: float) -> float:
    """Return the ms between two tokens: what other requests add in the engine delays the first token or later ones.

    A request waits for half of the pass that runs when it comes. Of the rest its first token bears a ``share``.
    """
    added = max(loop.engine - times.prefill - output_tokens * times.step(1), 0.0)
    rest = max(added - loop.engine / output_tokens / 2, 0.0)
    return times.step(1) + (1 - share) * rest / max(output_tokens - 1, 1)


def share_gpu(
    times: ServiceTimes, output_tokens: int, concurrency: int, batch: int, others: int, step_share: float
) -> ServiceTimes:
    """Return the service times of a server that shares its GPU under CUDA MPS.

    ``others`` servers on that GPU have the same load. Prefill saturates the GPU, so
    servers that prefill together split it. A decoding step leaves most of the GPU
    idle: it slows by the fraction ``step_share`` only. The share of time that a server
    prefills depends on the resulting rate; bisection finds it.
    """
    low, high = 0.0, 1.0
    slowed = times
    for _ in range(HALVINGS):
        busy = (low + high) / 2
        prefill, step = 1 + others * busy, 1 + step_share * others * busy
        slowed = times._replace(
            prefill=times.prefill * prefill,
            full_pass=times.full_pass * prefill,
            step_base=times.step_base * step,
            step_hidable=times.step_hidable * step,
            expert_most=times.expert_most * step,
            expert_launches=times.expert_launches * step,
            expert_pass=times.expert_pass * prefill,
            encoded_again=times.encoded_again * prefill,
        )
        rate = solve_loop(slowed, output_tokens, concurrency, batch).rate
        low, high = (busy, high) if rate * slowed.prefill > busy else (low, busy)
    return slowed
