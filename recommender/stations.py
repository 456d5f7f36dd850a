"""The two stations that a request passes, and the rate at which a closed loop passes them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

HALVINGS = 12


class Terms(NamedTuple):
    """Demands of one request on one server, in ms.

    An iteration with m requests takes ``step_base + m * step_row``. One of a mixture of experts also reads
    ``expert_row`` for each request, ``expert_most`` for all experts, of which ``expert_hidden`` costs nothing.
    ``full_pass``: the prefill of an iteration that takes all that its budget allows.
    """

    prepare: float
    prefill: float
    step_base: float
    step_row: float
    full_pass: float
    expert_row: float = 0.0
    expert_most: float = 0.0
    expert_hidden: float = 0.0

    def step(self, requests: float) -> float:
        """One iteration with so many requests and no prefill."""
        plain = self.step_base + requests * self.step_row
        if not self.expert_row:
            return plain
        return plain + max(min(requests * self.expert_row, self.expert_most) - self.expert_hidden, 0.0)


class Stations(NamedTuple):
    """``rate`` in requests a ms; ms of a request before the engine runs it (``waiting``) and in it (``engine``)."""

    rate: float
    waiting: float
    engine: float


@lru_cache(maxsize=65536)
def stations(terms: Terms, out: int, flight: int, batch: int) -> Stations:
    """The two stations with ``flight`` requests always in flight, of which ``batch`` run at most.

    ``out`` output tokens each. Birth-death chain over the number that are prepared: the preparing
    thread feeds one at a time, the engine completes m requests every ``out`` iterations, which
    carry m prefills.
    """
    feed = 1 / max(terms.prepare, 1e-6)
    weight, total, done, inside = 1.0, 1.0, 0.0, 0.0
    for n in range(1, flight + 1):
        m = min(n, batch)
        complete = m / (out * terms.step(m) + m * terms.prefill)
        weight *= feed / complete
        total += weight
        done += weight * complete
        inside += weight * m
        if total > 1e200:
            weight, total, done, inside = weight / total, 1.0, done / total, inside / total
    rate, mean = done / total, inside / total
    return Stations(rate, (flight - mean) / rate, mean / rate)


def shared(terms: Terms, out: int, flight: int, batch: int, others: int, slowed: float) -> Terms:
    """The demands on a card where so many other servers compute at the same time, each under the same load.

    Prefill takes the whole card, so while others are at it too each has its part; a decoding step leaves most of
    the card idle and is slowed less. How busy the others are follows from the rate that comes of it: halving.
    """
    low, high = 0.0, 1.0
    made = terms
    for _ in range(HALVINGS):
        busy = (low + high) / 2
        longer = 1 + slowed * others * busy
        made = terms._replace(
            prefill=terms.prefill * (1 + others * busy),
            full_pass=terms.full_pass * (1 + others * busy),
            step_base=terms.step_base * longer,
            expert_row=terms.expert_row * longer,
            expert_most=terms.expert_most * longer,
            expert_hidden=terms.expert_hidden * longer,
        )
        rate = stations(made, out, flight, batch).rate
        low, high = (busy, high) if rate * made.prefill > busy else (low, busy)
    return made
