"""Draw requests and the gaps between their arrivals; the same seed gives the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import TypeVar

T = TypeVar("T")

SEED = 7


def draws(requests: Sequence[T], seed: int = SEED) -> Iterator[T]:
    """Yield all requests once in a random order, again and again, so that even few draws have the right mean."""
    order = list(requests)
    random.Random(seed).shuffle(order)
    return cycle(order)


def gaps_of(
    rate: float, burstiness: float = 1.0, seed: int = SEED, *, together: float = 1.0, dealt: int = 1
) -> Iterator[float]:
    """Yield the ms between arrivals of ``rate`` requests/s; ``burstiness`` is their coefficient of variation.

    1 gives Poisson arrivals, more gives bursts (gamma distributed gaps, as in vLLM's benchmark). Requests come
    ``together`` in groups of geometric size with this mean. They are ``dealt`` to so many servers in turn; the gaps
    and the rate are those of one.
    """
    chance = random.Random(seed)
    shape = 1 / burstiness**2
    scale = 1e3 * together / (rate * dealt) / shape
    while True:
        groups = dealt if together <= 1 else sum(chance.random() * together < 1 for _ in range(dealt))
        yield chance.gammavariate(groups * shape, scale) if groups else 0.0
