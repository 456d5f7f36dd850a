"""Run the steps from a request to an explained recommendation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from recommender.choose.arrival_rate import arrive_at, tells_rate_only
from recommender.choose.constraints import ConstraintFinding, is_of_engine, list_goal_constraints
from recommender.choose.looser_goals import offer_fewer_tiles
from recommender.choose.rate import bound_by_arrivals, choose_for_rate, most_served
from recommender.choose.reasons import Explanation, explain
from recommender.choose.relax import suggest_change, suggest_others
from recommender.choose.request_change import RequestChange
from recommender.choose.select import RATE_CONSTRAINT, Candidate, Choice, NoCandidate, choose, predict
from recommender.common.errors import UserError
from recommender.common.exit_codes import NEGATIVE
from recommender.common.version import __version__
from recommender.estimate.configuration import Configuration
from recommender.estimate.memory_items import Memory
from recommender.estimate.published_figures import PublishedFigure, find_published
from recommender.estimate.similar_runs import SimilarRun, find_similar_runs
from recommender.estimate.speed import Speed, replay
from recommender.estimate.uncertainty import Range
from recommender.knowledge.engines import LABELS, EngineName
from recommender.knowledge.load import load
from recommender.knowledge.store import Store
from recommender.request.request import Request
from recommender.request.resolved_request import (
    ResolvedRequest,
    check_context,
    engines_for,
    resolve_with_checkpoint,
)

if TYPE_CHECKING:
    from recommender.choose.advisers import GivenSettings


@dataclass(frozen=True, slots=True)
class Setup:
    """A request and the configuration that serves it: all that a prediction needs."""

    resolved: ResolvedRequest
    config: Configuration


@dataclass(frozen=True, slots=True)
class Recommendation(Setup):
    """A complete answer: request, configuration with reasons, prediction."""

    made_by: str
    request: Request
    memory: Memory
    speed: Speed
    explanations: tuple[Explanation, ...]
    findings: tuple[ConstraintFinding, ...]
    similar_runs: tuple[SimilarRun, ...]
    published: tuple[PublishedFigure, ...]
    considered: int = 1
    rejected: tuple[tuple[str, int], ...] = ()
    adviser: str = ""
    added: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()


class NothingFits(UserError):
    """No configuration passes every constraint."""

    exit_code = NEGATIVE

    def __init__(
        self,
        resolved: ResolvedRequest,
        nothing: NoCandidate,
        change: RequestChange | None,
        others: tuple[RequestChange, ...] = (),
    ) -> None:
        """Keep the binding constraint, the nearest change that fits, if any, and other ways out."""
        super().__init__(nothing.binding.message)
        self.resolved = resolved
        self.nothing = nothing
        self.change = change
        self.others = others


def recommend(request: Request, store: Store | None = None, room: bool = True) -> Recommendation:
    """Return the best configuration for a request; without ``room`` no batch is larger than the load.

    Raises UnknownName, RequestError or CheckpointError if the request is invalid,
    NothingFits if no configuration passes.
    """
    resolved = resolve_with_checkpoint(request, store or load())
    check_context(resolved)
    preferred: tuple[ResolvedRequest, NoCandidate] | None = None
    for other in (*engines_for(request, resolved.model, resolved.version)[1:], None):
        if tells_rate_only(request):
            resolved, outcome = choose_for_rate(resolved)
        else:
            outcome = choose(resolved, room)
        if other is None or not isinstance(outcome, NoCandidate) or not is_of_engine(resolved, outcome.binding):
            break
        preferred = preferred or (resolved, outcome)
        why = f"{LABELS[other].title}: {outcome.binding.message}"
        resolved = replace(resolved, engine=other, notes=(*resolved.notes, why))
    if preferred and isinstance(outcome, NoCandidate) and is_of_engine(resolved, outcome.binding):
        resolved, outcome = preferred  # no engine can, so the first says why
    if isinstance(outcome, NoCandidate):
        if outcome.near is None:
            change = suggest_change(resolved, outcome)
            others = suggest_others(resolved, outcome, change)
            raise NothingFits(resolved, outcome, change, others)
        outcome = _with_hint(resolved, outcome.near)
    recommendation = _complete(resolved, outcome.best, outcome.warnings, explain(resolved, outcome.best))
    return replace(recommendation, considered=outcome.considered, rejected=outcome.rejected)


def recommend_adviser(
    request: Request,
    adviser: str,
    added: Mapping[str, str] = MappingProxyType({}),
    left_out: Collection[str] = (),
    store: Store | None = None,
) -> Recommendation:
    """Return an adviser's own configuration, with the problems it has.

    Arguments and errors as in ``configure_adviser``.
    """
    from recommender.choose import advisers
    from recommender.choose.problems import find_problems

    setup, given = configure_adviser(request, adviser, added, left_out, store)
    config = advisers.fall_back(setup.resolved, setup.config)
    resolved = arrive_at(replace(setup.resolved, engine=cast(EngineName, config.backend)), config)
    candidate = predict(resolved, config)
    asked = candidate if config == setup.config else predict(resolved, setup.config)
    findings = find_problems(resolved, given, candidate, asked)
    return replace(
        _complete(resolved, candidate, findings, advisers.explain_given(resolved, given, asked)),
        adviser=given.id,
        added=given.added,
        left_out=given.left_out,
    )


def configure_adviser(
    request: Request,
    adviser: str,
    added: Mapping[str, str] = MappingProxyType({}),
    left_out: Collection[str] = (),
    store: Store | None = None,
) -> tuple[Setup, GivenSettings]:
    """Return an adviser's own configuration, and the settings it was built from.

    ``adviser`` may be ``defaults``: LMDeploy's own. ``added`` holds values by option,
    ``left_out`` options to drop. Raises UnknownName or RequestError.
    """
    from recommender.choose import advisers

    resolved = resolve_with_checkpoint(request, store or load())
    given = advisers.follow(resolved, adviser, added, left_out)
    config = advisers.build_configuration(resolved, given)
    if config.session_len <= resolved.model.text.max_positions:  # a warning covers a longer session
        check_context(resolved)
    notes = resolved.notes
    if config.backend != resolved.engine:  # drop the note on why we would take the other
        notes = tuple(note for note in notes if not note.startswith(f"{LABELS[resolved.engine].title}: "))
    return Setup(replace(resolved, engine=cast(EngineName, config.backend), notes=notes), config), given


def _with_hint(resolved: ResolvedRequest, near: Choice) -> Choice:
    """Add a hint to warnings of goals that may be missed: how less image detail would reach them."""
    hint = offer_fewer_tiles(resolved, near.best.config)
    goals = list_goal_constraints(resolved.store)
    warnings = (
        replace(each, message=f"{each.message.rstrip('.')}{hint}.") if hint and each.constraint in goals else each
        for each in near.warnings
    )
    return replace(near, warnings=tuple(warnings))


def _warn_of_queue(
    resolved: ResolvedRequest, most: Range, findings: tuple[ConstraintFinding, ...]
) -> tuple[ConstraintFinding, ...]:
    """Warn where requests may arrive faster than they are answered: the low end of ``most`` served is below the rate.

    Nothing if the middle misses the rate: that is among ``findings`` already.
    """
    asked = resolved.request.planned_rps
    if most.low >= asked or any(finding.constraint == RATE_CONSTRAINT for finding in findings):
        return ()
    served = f"{most.value:.3g} are served ({most.low:.3g} to {most.high:.3g})"
    message = f"{asked:g} requests/s may be too many: at most {served}. Beyond that the queue grows without end."
    remedy = "Send fewer to this server, or size several with recommend plan."
    sources = resolved.store.constraints[RATE_CONSTRAINT].sources
    return (ConstraintFinding("rate-near-limit", "warn", message, remedy, sources),)


def _complete(
    resolved: ResolvedRequest,
    candidate: Candidate,
    findings: tuple[ConstraintFinding, ...],
    explanations: tuple[Explanation, ...],
) -> Recommendation:
    most = most_served(resolved, candidate)
    speed = replace(candidate.speed, replayed=replay(resolved, candidate.config, candidate.memory.kv_tokens))
    if resolved.rps:
        rps = bound_by_arrivals(speed.rps, most, resolved.rps)
        speed = replace(speed, rps=rps, profile=speed.profile and speed.profile.answer_at_most(rps.value))
    return Recommendation(
        made_by=f"lmdeploy-recommender {__version__}",
        request=resolved.request,
        resolved=resolved,
        config=candidate.config,
        memory=candidate.memory,
        speed=speed,
        explanations=explanations,
        findings=(*findings, *_warn_of_queue(resolved, most, findings)),
        similar_runs=find_similar_runs(resolved, candidate.config),
        published=find_published(resolved, candidate.config),
    )
