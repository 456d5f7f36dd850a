"""Pick one configuration by the goal, among those that pass every constraint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from recommender.choose import batch_room, candidates, constraints
from recommender.choose.constraints import ConstraintFinding, ParsedConstraint
from recommender.choose.feasibility import is_hopeless
from recommender.choose.pick import pick
from recommender.choose.prefill_budget import usual_budget
from recommender.estimate import memory, speed
from recommender.estimate.configuration import Configuration
from recommender.estimate.coverage import TURBOMIND, list_measured_gpus
from recommender.estimate.memory_items import Memory
from recommender.knowledge.conditions import Value
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest

MUCH_ALIKE = 0.02
"""Candidates whose logarithmic excess over the goals differs by less than this count as alike; the goal decides."""
NO_SLOWER = 0.02
"""Share of the predicted requests/s that room in the batch may cost: a load that is no power of two is interpolated for
the larger batch and simulated for its own, and the two differ by as much."""
LONG_CONTEXT = 4096
"""Tokens of a request, on average, from which runs won with a KV cache of 8 bits."""
EIGHT_BITS_WIN = 1.07
"""Predicted gain from which they are chosen."""
RATE_CONSTRAINT = "goal-rps"
NOT_EXCLUDED = "The range of the prediction includes the goal: measure it."


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration with its estimates, and the values that constraints compare."""

    config: Configuration
    memory: Memory
    speed: speed.Speed
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen configuration, its warnings, and how many were rejected by what."""

    best: Candidate
    warnings: tuple[ConstraintFinding, ...]
    considered: int
    rejected: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NoCandidate:
    """No configuration passes: the binding constraint, and what else rejects.

    ``too_large``: the weights alone exceed the memory, so only more memory helps. ``near``: the configuration that
    misses only goals, by so little that the ranges of its prediction include them. ``closest``: the one that misses
    only goals, by least, whatever the ranges; None if nothing else passes either.
    """

    binding: ConstraintFinding
    others: tuple[ConstraintFinding, ...]
    considered: int
    rejected: tuple[tuple[str, int], ...]
    too_large: bool
    near: Choice | None = None
    closest: Candidate | None = None


def predict(
    resolved: ResolvedRequest,
    config: Configuration,
    fact_values: Mapping[str, Value] | None = None,
    ranged: bool = True,
    memory_use: Memory | None = None,
    capped: bool = True,
) -> Candidate:
    """Return a configuration with its estimates.

    ``fact_values`` and ``memory_use`` are passed where they are computed already. Without ``ranged``, speeds have no
    range. ``capped`` as in ``speed.predict_load``.
    """
    memory_use = memory_use or memory.estimate(resolved, config)
    fast = speed.estimate(resolved, config, ranged, memory_use.kv_tokens, capped)
    values = dict(fact_values or constraints.fact_values(resolved))
    values |= constraints.config_values(resolved, config)
    values |= constraints.estimate_values(memory_use, fast, resolved.request)
    return Candidate(config, memory_use, fast, values)


@dataclass(frozen=True, slots=True)
class Assessed:
    """A configuration, what rejects it, and which of the request's goals it misses. ``values`` fill their messages.

    ``candidate`` is None where a fact or the memory rejects, and in short where the rate is out of reach.
    ``memory_use`` is None where a fact rejects.
    """

    candidate: Candidate | None
    values: Mapping[str, Value]
    findings: tuple[ParsedConstraint, ...]
    missed: tuple[ParsedConstraint, ...] = ()
    memory_use: Memory | None = None

    @property
    def distance(self) -> tuple[int, float, float]:
        """Return how far it is from passing: what rejects it, its latency in ms, the bytes of a GPU."""
        latency = self.candidate.speed.latency_ms.value if self.candidate else float("inf")
        return len(self.findings), latency, self.memory_use.total if self.memory_use else float("inf")


@dataclass(frozen=True, slots=True)
class Rejections:
    """What rejects all configurations: those that come nearest, and how many were rejected by what.

    ``missing_goals``: the nearest miss only goals. ``too_large`` as in ``NoCandidate``.
    """

    tier: list[Assessed]
    missing_goals: bool
    considered: int
    rejected: tuple[tuple[str, int], ...]
    too_large: bool


def choose(resolved: ResolvedRequest, room: bool = True) -> Choice | NoCandidate:
    """Return the best configuration for the goal that gives up the least accuracy.

    Accuracy is given up for memory; for speed only by ``_with_8_bits``. If something fits but misses a goal of the
    request, the search ends there. Without ``room`` the batch equals the load.
    """
    outcome = search(resolved, room)
    return outcome if isinstance(outcome, Choice) else _explain_rejections(resolved, outcome)


def search(resolved: ResolvedRequest, room: bool = True, short: bool = False) -> Choice | Rejections:
    """Return what ``choose`` does, or why it chooses nothing.

    ``short``: show with less work that a configuration misses the rate; its speed is then unknown.
    """
    fact_values = constraints.fact_values(resolved)
    applicable = constraints.select_applicable(resolved, fact_values)
    rejected: Counter[str] = Counter()
    considered = 0
    tier: list[Assessed] = []
    fits: list[Assessed] = []
    too_large = False
    for configs in candidates.tiers(resolved):
        assessed = [_assess(resolved, config, fact_values, applicable, short) for config in configs]
        tier = _binding(tier, assessed)
        considered += len(assessed)
        rejected.update(rule.record.id for entry in assessed for rule in (*entry.findings, *entry.missed))
        fits = [entry for entry in assessed if not entry.findings]
        passed = [entry.candidate for entry in fits if entry.candidate and not entry.missed]
        if passed:
            usual = usual_budget(resolved)
            picked = _with_8_bits(resolved, pick(passed, resolved.request.goal, usual), fact_values, applicable)
            larger = batch_room.larger_batches(resolved, picked.config) if room else ()
            best = _make_room(resolved, picked, larger, fact_values, applicable)
            warnings = constraints.evaluate(applicable, best.values, "warn")
            return Choice(best, warnings, considered, tuple(rejected.most_common()))
        if fits:
            break
        if too_large := all(entry.memory_use and not entry.memory_use.free for entry in assessed):
            break  # no concession changes the weights
    return Rejections(fits or tier, bool(fits), considered, tuple(rejected.most_common()), too_large)


def _explain_rejections(resolved: ResolvedRequest, outcome: Rejections) -> NoCandidate:
    """Return what binds: of the constraints that reject the nearest candidate, the one that rejects most candidates."""
    fact_values, counts = constraints.fact_values(resolved), dict(outcome.rejected)
    near = _find_near(resolved, outcome.tier, fact_values) if outcome.missing_goals else None
    nearest = min(outcome.tier, key=lambda entry: (_excess_of(entry, resolved.request), entry.distance))
    violated = sorted((*nearest.findings, *nearest.missed), key=lambda finding: -counts[finding.record.id])
    binding, *others = constraints.explain_violated(violated, nearest.values)
    choice = None
    if near:
        warnings = _warn_of_goals(resolved, near, constraints.select_applicable(resolved, fact_values))
        choice = Choice(near, warnings, outcome.considered, outcome.rejected)
    closest = None if nearest.findings else nearest.candidate
    return NoCandidate(binding, tuple(others), outcome.considered, outcome.rejected, outcome.too_large, choice, closest)


def _binding(before: list[Assessed], tier: list[Assessed]) -> list[Assessed]:
    """Return the tier whose rejections name the binding constraint.

    That is the last one. If facts alone reject all of it and memory rejected a candidate before, it is the one before:
    an engine that cannot give up more accuracy must not hide that memory is short.
    """
    return before if any(entry.memory_use for entry in before) and not any(entry.memory_use for entry in tier) else tier


def _with_8_bits(
    resolved: ResolvedRequest,
    picked: Candidate,
    fact_values: Mapping[str, Value],
    applicable: tuple[ParsedConstraint, ...],
) -> Candidate:
    """Return the picked configuration, with an 8-bit KV cache if runs show that this wins.

    Retrieval on Qwen2.5-7B-AWQ and one H100 (runs h100-sweep-qwen-rag): 9 % more requests/s at 64 in flight (predicted
    10), 5 % at 16. Shorter contexts gained less than predicted (h100-sweep-llama-chat: 3 to 4 %, predicted 8 to 11),
    and images and the PyTorch engine nothing. Cards that no run measured keep 16. A rate is answered with either.
    """
    request, config = resolved.request, picked.config
    wins = request.kv == "auto" and request.goal in ("balanced", "throughput") and config.backend == TURBOMIND
    wins = wins and resolved.gpu.id in list_measured_gpus(resolved.store)
    if not wins or config.kv_bits < 16 or resolved.images or resolved.rps or resolved.total_tokens() < LONG_CONTEXT:
        return picked
    eight_bits = replace(candidates.at_bits(resolved, config, 8), kv_bits_by="speed")
    assessed = _assess(resolved, eight_bits, fact_values, applicable)
    eight = None if assessed.findings or assessed.missed else assessed.candidate
    return eight if eight and eight.speed.rps.value >= EIGHT_BITS_WIN * picked.speed.rps.value else picked


def _make_room(
    resolved: ResolvedRequest,
    picked: Candidate,
    larger: Iterable[Configuration],
    fact_values: Mapping[str, Value],
    applicable: tuple[ParsedConstraint, ...],
) -> Candidate:
    """Return the picked configuration with the largest batch that its cache holds, if that slows nothing."""
    for config in larger:
        memory_use = memory.estimate(resolved, config)
        values = {**fact_values, **constraints.config_values(resolved, config), **constraints.memory_values(memory_use)}
        of_memory = [rule for rule in applicable if not rule.of_speed]
        if batch_room.holds_batch(resolved, config, memory_use) and not constraints.find_violated(of_memory, values):
            candidate = predict(resolved, config, fact_values, memory_use=memory_use)
            slower = candidate.speed.rps.value < (1 - NO_SLOWER) * picked.speed.rps.value
            if not slower and not constraints.find_violated(applicable, candidate.values):
                return candidate
            break
    return predict(resolved, picked.config, fact_values)


def excess(candidate: Candidate, request: Request) -> float:
    """Return by how much a prediction misses the request's goals, as a sum of logarithms; 0: none."""
    over = [candidate.speed.goal_ms(goal) / goal.most_ms for goal in request.time_goals]
    over += [request.planned_rps / candidate.speed.rps.value] if request.rps else []
    return sum(math.log(each) for each in over if each > 1)


def _excess_of(entry: Assessed, request: Request) -> float:
    """Return by how much a candidate misses the goals; infinity if anything else rejects it."""
    return excess(entry.candidate, request) if entry.candidate and not entry.findings else math.inf


def _find_near(resolved: ResolvedRequest, fits: list[Assessed], fact_values: Mapping[str, Value]) -> Candidate | None:
    """Return the candidate that misses the goals by the least, if its predicted ranges include all goals."""
    request = resolved.request
    by_excess = {id(entry): excess(entry.candidate, request) for entry in fits if entry.candidate}
    least = min(by_excess.values())
    close = [entry.candidate for entry in fits if entry.candidate and by_excess[id(entry)] <= least + MUCH_ALIKE]
    best = predict(resolved, pick(close, request.goal, usual_budget(resolved)).config, fact_values)
    values = {**best.values, **constraints.best_speed_values(best.speed, request)}
    goals = [rule for rule in constraints.parse_all(resolved.store) if rule.record.id in _goals(resolved)]
    return None if constraints.find_violated(goals, values, estimated=(True,)) else best


def _goals(resolved: ResolvedRequest) -> frozenset[str]:
    return constraints.list_goal_constraints(resolved.store)


def _warn_of_goals(
    resolved: ResolvedRequest, near: Candidate, applicable: tuple[ParsedConstraint, ...]
) -> tuple[ConstraintFinding, ...]:
    """Return the goals that the middle of a prediction misses, as warnings, before the other warnings."""
    missed = [rule for rule in constraints.find_violated(applicable, near.values) if rule.record.id in _goals(resolved)]
    goals = map(warn_of_goal, constraints.explain_violated(missed, near.values))
    return (*goals, *constraints.evaluate(applicable, near.values, "warn"))


def warn_of_goal(finding: ConstraintFinding) -> ConstraintFinding:
    """Turn a missed goal into a warning: the predicted range includes the goal."""
    return replace(finding, severity="warn", message=f"{finding.message} {NOT_EXCLUDED}")


def _assess(
    resolved: ResolvedRequest,
    config: Configuration,
    fact_values: Mapping[str, Value],
    applicable: tuple[ParsedConstraint, ...],
    short: bool = False,
) -> Assessed:
    """Return an assessment; memory and then speed are estimated only if nothing simpler rejects.

    ``short``: do not simulate a speed if the closed form shows that the rate is missed, and do not cap it.
    """
    values = {**fact_values, **constraints.config_values(resolved, config)}
    findings = constraints.find_violated(applicable, values, estimated=(False,))
    if findings:
        return Assessed(None, values, findings)
    memory_use = memory.estimate(resolved, config)
    values |= constraints.memory_values(memory_use)
    of_memory = [rule for rule in applicable if not rule.of_speed]
    findings = constraints.find_violated(of_memory, values, estimated=(True,))
    if findings:
        return Assessed(None, values, findings, memory_use=memory_use)
    goals = constraints.list_goal_constraints(resolved.store)
    if short and not resolved.request.time_goals and is_hopeless(resolved, config):
        missed = tuple(rule for rule in applicable if rule.record.id == RATE_CONSTRAINT)
        return Assessed(None, values, (), missed, memory_use)
    candidate = predict(resolved, config, fact_values, ranged=False, memory_use=memory_use, capped=not short)
    findings = constraints.find_violated(applicable, candidate.values, estimated=(True,))
    if short and not findings:
        return _assess(resolved, config, fact_values, applicable)
    missed = tuple(finding for finding in findings if finding.record.id in goals)
    others = tuple(finding for finding in findings if finding not in missed)
    return Assessed(candidate, candidate.values, others, missed, memory_use)
