"""The goal picks one configuration among those that pass every constraint. Deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from recommender import candidates, memory, speed
from recommender import constraints as c
from recommender.conditions import Value
from recommender.configuration import Configuration
from recommender.facts import Facts


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration with its estimates and the names constraints compare."""

    config: Configuration
    memory: memory.Memory
    speed: speed.Speed
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Choice:
    """The winner, what warns about it, and how many were considered and rejected, by constraint."""

    best: Candidate
    warnings: tuple[c.Finding, ...]
    considered: int
    rejected: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """No configuration passes: the constraint that binds first, and how many fell to each.

    ``too_large``: the weights alone leave no room, so only more memory can help.
    """

    binding: c.Finding
    others: tuple[c.Finding, ...]
    considered: int
    rejected: tuple[tuple[str, int], ...]
    too_large: bool


def measure(
    facts: Facts, config: Configuration, known: Mapping[str, Value] | None = None, ranged: bool = True
) -> Candidate:
    """A configuration with its estimates; without ``ranged`` only the middle of each speed."""
    used, fast = memory.estimate(facts, config), speed.estimate(facts, config, ranged)
    values = dict(known or c.fact_values(facts))
    values |= c.config_values(facts, config)
    values |= c.estimate_values(facts, used, fast)
    return Candidate(config, used, fast, values)


def choose(facts: Facts) -> Choice | Nothing:
    """The best configuration for the request's goal that gives up the least accuracy.

    Accuracy is given up for memory only: where something fits but misses a goal
    of the request, that is the answer.
    """
    known = c.fact_values(facts)
    among = c.applicable(facts, known)
    rejected: Counter[str] = Counter()
    considered = 0
    judged: list[Judged] = []
    too_large = False
    for group in candidates.tiers(facts):
        judged = [_judge(facts, config, known, among) for config in group]
        considered += len(judged)
        for each in judged:
            rejected.update(finding.constraint for finding in (*each.findings, *each.missed))
        fits = [each for each in judged if each.candidate and not each.findings]
        passed = [each.candidate for each in fits if each.candidate and not each.missed]
        if passed:
            best = measure(facts, pick(passed, facts.request.goal).config, known)
            return Choice(best, c.evaluate(among, best.values, "warn"), considered, tuple(rejected.most_common()))
        if fits:
            judged = fits
            break
        too_large = all(each.candidate and not each.candidate.memory.free for each in judged)
        if too_large:
            break  # no concession changes the weights
    nearest = min(judged, key=lambda each: (len(each.findings), each.latency))
    # Of the candidate that came nearest, what stood most often in the way of all.
    found = sorted((*nearest.findings, *nearest.missed), key=lambda each: -rejected[each.constraint])
    return Nothing(found[0], tuple(found[1:]), considered, tuple(rejected.most_common()), too_large)


@dataclass(frozen=True, slots=True)
class Judged:
    """A configuration with what rejects it, and which goals of the request it misses."""

    candidate: Candidate | None
    findings: tuple[c.Finding, ...]
    missed: tuple[c.Finding, ...] = ()

    @property
    def latency(self) -> float:
        """Predicted latency in ms; infinite where nothing was estimated."""
        return self.candidate.speed.latency_ms.value if self.candidate else float("inf")


def _judge(facts: Facts, config: Configuration, known: Mapping[str, Value], among: tuple[c.Rule, ...]) -> Judged:
    """Estimates are made only where nothing simpler rejects."""
    values = {**known, **c.config_values(facts, config)}
    findings = c.evaluate(among, values, estimated=(False,))
    if findings:
        return Judged(None, findings)
    candidate = measure(facts, config, known, ranged=False)
    findings = c.evaluate(among, candidate.values, estimated=(True,))
    goals = c.goals(facts.store)
    return Judged(
        candidate,
        tuple(each for each in findings if each.constraint not in goals),
        tuple(each for each in findings if each.constraint in goals),
    )


Score = Callable[[Candidate], tuple[float, ...]]


def pick(passed: Iterable[Candidate], goal: str) -> Candidate:
    """The best by the goal; see ``_ties`` for those equally good."""
    found = _not_slow(list(passed)) if goal == "memory" else _worth_sharing(list(passed))
    least = min(each.memory.total * _cards(each) for each in found)
    fastest = min(each.speed.latency_ms.value for each in found)
    most = max(each.speed.rps.value for each in found)
    scores: dict[str, Score] = {
        "latency": lambda x: (round(x.speed.latency_ms.value / fastest, 2), *_ties(x, least)),
        "throughput": lambda x: (-round(x.speed.rps.value / most, 2), *_ties(x, least)),
        "memory": lambda x: (x.memory.total * _cards(x), x.speed.latency_ms.value),
        "balanced": lambda x: (
            round(x.speed.latency_ms.value / fastest + most / x.speed.rps.value, 2),
            *_ties(x, least),
        ),
    }
    return min(found, key=scores[goal])


def _not_slow(found: list[Candidate]) -> list[Candidate]:
    """Without what buys a little memory with a quarter of the speed or more."""
    fastest = min(each.speed.latency_ms.value for each in found)
    return [each for each in found if each.speed.latency_ms.value <= SLOW * fastest]


SLOW = 1.25
SHARING_GAINS = 1.1


def _worth_sharing(found: list[Candidate]) -> list[Candidate]:
    """Without servers that share cards, unless they answer a tenth more: a daemon and a proxy are more to run."""
    single = [each for each in found if each.config.share == 1]
    most = max((each.speed.rps.value for each in single), default=0.0)
    return single + [each for each in found if each not in single and each.speed.rps.value >= SHARING_GAINS * most]


def _ties(candidate: Candidate, least: int) -> tuple[float, ...]:
    """Among equally fast ones: clearly less memory, then the larger prefill budget, which takes bursts."""
    used = candidate.memory.total * _cards(candidate)
    return round(used / least, 1), -candidate.config.prefill_tokens, used


def _cards(candidate: Candidate) -> int:
    return candidate.config.cards
