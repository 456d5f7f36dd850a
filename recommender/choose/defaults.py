"""Compare a recommendation with LMDeploy's defaults, and with a KV cache of 8 bits, under the same load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recommender.choose import advisers, constraints
from recommender.choose.select import predict
from recommender.estimate.uncertainty import Range
from recommender.request.resolved_request import engines_for

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation


@dataclass(frozen=True, slots=True)
class DefaultsComparison:
    """What LMDeploy does with no options but those that the model needs: requests/s, and bytes of a GPU.

    ``gain`` is the recommendation's requests/s over the defaults', with the range of the former. ``fits`` is False
    where the defaults may run out of memory.
    """

    rps: float
    memory: int
    gain: Range
    fits: bool


def compare_with_defaults(recommendation: Recommendation) -> DefaultsComparison | None:
    """Return how the defaults compare; None if the recommendation is somebody's configuration."""
    if recommendation.adviser:
        return None
    resolved, ours = recommendation.resolved, recommendation.speed.rps
    given = advisers.follow(resolved, advisers.DEFAULTS, {}, ())
    config = advisers.build_configuration(resolved, given)
    if config.backend not in engines_for(replace(resolved.request, backend="auto"), resolved.model, resolved.version):
        config = replace(config, backend=resolved.engine)  # LMDeploy falls back (0.18.0 lmdeploy/archs.py:38)
    candidate = predict(resolved, config, ranged=False)
    rps = candidate.speed.rps.value
    goals = constraints.list_goal_constraints(resolved.store)
    rules = [rule for rule in constraints.parse_all(resolved.store) if rule.estimated and rule.record.id not in goals]
    return DefaultsComparison(
        rps,
        candidate.memory.total,
        Range(ours.value / rps, ours.low / rps, ours.high / rps),
        not constraints.evaluate(tuple(rules), candidate.values, "reject"),
    )


WORTH_TELLING = 1.07
"""Predicted gain from which a KV cache of 8 bits is mentioned."""


def gain_of_8_bits(recommendation: Recommendation) -> float:
    """Return by how much a KV cache of 8 bits would raise the requests/s; 1.0 where that is not worth telling.

    It is never chosen for speed, because it changes answers. Steps that read long contexts gain, as measured on one
    H100 (runs h100-sweep-qwen-rag, -llama-chat): retrieval at 64 in flight 9 % (predicted 9), chat 3 % (6).
    """
    resolved, config = recommendation.resolved, recommendation.config
    chosen = recommendation.adviser or resolved.request.kv != "auto" or config.kv_bits < 16
    unmeasured = resolved.images or config.backend != "turbomind"
    if chosen or unmeasured or resolved.rps or resolved.concurrency < 2:  # at a rate, all is answered that arrives
        return 1.0
    gain = predict(resolved, replace(config, kv_bits=8), ranged=False).speed.rps.value / recommendation.speed.rps.value
    return gain if gain >= WORTH_TELLING else 1.0
