"""Compare a recommendation with LMDeploy's defaults, and with a KV cache of 16 bits, under the same load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.choose import advisers, constraints
from recommender.choose.candidates import at_bits
from recommender.choose.select import predict
from recommender.estimate.uncertainty import Range

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
    """Return how the defaults compare; None if the recommendation follows an adviser."""
    if recommendation.adviser:
        return None
    resolved, ours = recommendation.resolved, recommendation.speed.rps
    given = advisers.follow(resolved, advisers.DEFAULTS, {}, ())
    config = advisers.fall_back(resolved, advisers.build_configuration(resolved, given))
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


def rate_of_16_bits(recommendation: Recommendation) -> float:
    """Return the requests/s with a KV cache of 16 bits; 0 where speed was no reason for fewer."""
    resolved, config = recommendation.resolved, recommendation.config
    if config.kv_bits_by != "speed":
        return 0.0
    return predict(resolved, at_bits(resolved, config, 16), ranged=False).speed.rps.value
