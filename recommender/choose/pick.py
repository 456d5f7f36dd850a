"""Pick one of several candidates by the goal; what is simpler or takes less memory wins ties."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from recommender.estimate.engines.engine import engine_of

if TYPE_CHECKING:
    from recommender.choose.select import Candidate

SLOW = 1.25
WORTH_LEAVING = 1.1
"""Predicted gain needed to leave a default: predictions for dense models on measured GPUs have a range of a tenth."""


def pick(passed: Iterable[Candidate], goal: str, usual: int = 0) -> Candidate:
    """Return the best candidate by the goal; see ``_break_ties`` for equals.

    With ``usual``, a prefill budget in tokens, only a gain of ``WORTH_LEAVING`` justifies another budget.
    """
    fit = _drop_slow(list(passed)) if goal == "memory" else _drop_idle_sharing(list(passed))
    least = min(_total_bytes(candidate) for candidate in fit)
    if goal == "memory":
        return min(fit, key=lambda x: (_total_bytes(x), x.speed.latency_ms.value))
    fastest = min(candidate.speed.latency_ms.value for candidate in fit)
    most = max(candidate.speed.rps.value for candidate in fit)
    costs: dict[str, Callable[[Candidate], float]] = {
        "latency": lambda x: x.speed.latency_ms.value / fastest,
        "throughput": lambda x: most / x.speed.rps.value,
        "balanced": lambda x: x.speed.latency_ms.value / fastest + most / x.speed.rps.value,
    }
    cost = costs[goal]
    if usual:
        limit = WORTH_LEAVING * min(map(cost, fit))
        tied = [x for x in fit if x.config.prefill_tokens == usual and cost(x) <= limit]
        fit = tied or fit
    return min(fit, key=lambda x: (round(cost(x), 2), *_break_ties(x, least)))


def _drop_slow(fit: list[Candidate]) -> list[Candidate]:
    """Drop candidates that trade a quarter of the speed or more for memory."""
    fastest = min(candidate.speed.latency_ms.value for candidate in fit)
    return [candidate for candidate in fit if candidate.speed.latency_ms.value <= SLOW * fastest]


def _drop_idle_sharing(fit: list[Candidate]) -> list[Candidate]:
    """Drop servers that share GPUs, unless they answer clearly more than fewer on a GPU do.

    Sharing needs an MPS daemon and a proxy.
    """
    kept: list[Candidate] = []
    for share in sorted({candidate.config.share for candidate in fit}):
        most = max((candidate.speed.rps.value for candidate in kept), default=0.0)
        shared = [candidate for candidate in fit if candidate.config.share == share]
        kept += [x for x in shared if x.speed.rps.value >= engine_of(x.config).SHARING_GAIN * most]
    return kept


def _break_ties(candidate: Candidate, least: int) -> tuple[float, ...]:
    """Return what decides between equally fast candidates.

    Clearly less memory, then the larger prefill budget, which absorbs bursts.
    """
    used = _total_bytes(candidate)
    return round(used / least, 1), -candidate.config.prefill_tokens, used


def _total_bytes(candidate: Candidate) -> int:
    """Return the bytes on all GPUs."""
    return candidate.memory.total * candidate.config.cards
