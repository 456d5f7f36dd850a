"""Composes the steps: request -> facts -> candidates -> choice -> explained recommendation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from recommender import __version__
from recommender import constraints as c
from recommender.choose import Candidate, Choice, Nothing, choose, measure
from recommender.configuration import Configuration
from recommender.explain import Explanation, explain
from recommender.facts import Facts, gather, resolve_model
from recommender.memory import Memory
from recommender.nearby import Near, near
from recommender.nearest import Change, nearest
from recommender.request import Request
from recommender.speed import Speed
from recommender.store import Store, UnknownName, load

MAX_RPS_CONCURRENCY = 1024


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A complete answer: what was asked, what is emitted and why, and what to expect of it."""

    made_by: str
    request: Request
    facts: Facts
    adviser: str
    config: Configuration
    memory: Memory
    speed: Speed
    explanations: tuple[Explanation, ...]
    findings: tuple[c.Finding, ...]
    considered: int
    rejected: tuple[tuple[str, int], ...]
    added: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    near: tuple[Near, ...] = ()


class NothingFits(Exception):
    """No configuration passes every constraint."""

    def __init__(self, facts: Facts, nothing: Nothing, change: Change | None) -> None:
        """Keeps what binds and the nearest change that would fit, None where none was found."""
        super().__init__(nothing.binding.message)
        self.facts = facts
        self.nothing = nothing
        self.change = change


def recommend(request: Request, store: Store | None = None) -> Recommendation:
    """The best configuration for a request.

    Raises UnknownName, RequestError or CheckpointError for what cannot be
    understood, NothingFits where no configuration passes.
    """
    facts = understand(request, store or load())
    if request.rps and not request.load and not request.concurrency:
        facts, outcome = _for_rate(facts)
    else:
        outcome = choose(facts)
    if isinstance(outcome, Nothing):
        raise NothingFits(facts, outcome, nearest(facts, outcome.too_large))
    return _explained(facts, outcome.best, "", outcome.warnings, outcome)


def recommend_adviser(
    request: Request,
    adviser: str,
    added: Mapping[str, str] = MappingProxyType({}),
    left_out: Collection[str] = (),
    store: Store | None = None,
) -> Recommendation:
    """An adviser's own configuration as given, with what speaks against it; ``defaults`` gives LMDeploy's own.

    ``added`` are values by option on top of it, ``left_out`` options to drop from it.
    Raises UnknownName or RequestError.
    """
    from recommender import follow

    facts = understand(request, store or load())
    advised = follow.followed(facts, adviser, added, left_out)
    candidate = measure(facts, follow.configuration(facts, advised))
    return replace(
        _explained(facts, candidate, advised.id, follow.findings(facts, advised, candidate), None),
        explanations=follow.explanations(facts, advised, candidate),
        added=advised.added,
        left_out=advised.left,
    )


def understand(request: Request, store: Store) -> Facts:
    """The facts of a request; a model that is a folder is read from its own files."""
    try:
        resolve_model(store, request.model)
    except UnknownName as unknown:
        from recommender import checkpoint

        if checkpoint.is_folder(request.model):
            return gather(request, store, checkpoint.read(Path(request.model), store))
        if checkpoint.looks_like_path(request.model):
            raise UnknownName(f"--model: no folder {checkpoint.shown(request.model)} with a config.json") from None
        raise unknown from None
    return gather(request, store)


def _for_rate(facts: Facts) -> tuple[Facts, Choice | Nothing]:
    """The fewest requests in flight (a power of two) whose predicted rate reaches the one asked for."""
    flight = 1
    while True:
        tried = replace(facts, concurrency=flight)
        outcome = choose(tried)
        if isinstance(outcome, Choice) or flight >= MAX_RPS_CONCURRENCY:
            return tried, outcome
        if RATE_CONSTRAINT not in dict(outcome.rejected):
            return tried, outcome
        flight *= 2


RATE_CONSTRAINT = "goal-rps"


def _explained(
    facts: Facts, best: Candidate, adviser: str, findings: tuple[c.Finding, ...], outcome: Choice | None
) -> Recommendation:
    return Recommendation(
        made_by=f"lmdeploy-recommender {__version__}",
        request=facts.request,
        facts=facts,
        adviser=adviser,
        config=best.config,
        memory=best.memory,
        speed=best.speed,
        explanations=explain(facts, best),
        findings=findings,
        considered=outcome.considered if outcome else 1,
        rejected=outcome.rejected if outcome else (),
        near=near(facts, best.config),
    )
