"""Run the steps from a request to an explained recommendation."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from recommender.choose.arrival_rate import arrive_at, tells_rate_only
from recommender.choose.constraints import ConstraintFinding, is_of_engine, list_goal_constraints
from recommender.choose.feasibility import may_fit
from recommender.choose.looser_goals import offer_fewer_tiles
from recommender.choose.reasons import Explanation, explain
from recommender.choose.relax import RequestChange, suggest_change, suggest_others
from recommender.choose.select import Candidate, Choice, NoCandidate, choose, excess, predict
from recommender.common.errors import UnknownName, UserError
from recommender.common.exit_codes import NEGATIVE
from recommender.common.version import __version__
from recommender.estimate.configuration import Configuration
from recommender.estimate.memory_items import Memory
from recommender.estimate.published_figures import PublishedFigure, find_published
from recommender.estimate.similar_runs import SimilarRun, find_similar_runs
from recommender.estimate.speed import Speed, estimate, replay
from recommender.estimate.uncertainty import Range
from recommender.knowledge.engines import LABELS, EngineName
from recommender.knowledge.load import load
from recommender.knowledge.names import resolve_model, resolve_release
from recommender.knowledge.store import Store
from recommender.request.load_lengths import exceeds_context
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest, engines_for, resolve_request

if TYPE_CHECKING:
    from recommender.choose.advisers import GivenSettings

MAX_RPS_CONCURRENCY = 1024
"""Requests at once for each GPU up to which a rate is tried."""
RATE_CONSTRAINT = "goal-rps"
LARGER = 5
"""Doublings of a batch that reaches the rate, at most."""
FLAT = 1
"""Doublings in a row that may bring nothing: some batches of two are no faster than those of one."""
SPARE = 1.1
"""What a server must answer over the rate, or requests queue so long that a KV cache of 8 bits serves better."""
WORTH = 0.05
"""Least share of a request's time that twice the batch must save to be worth its memory."""


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
    if not resolved.images and resolved.total_tokens() > resolved.model.text.max_positions:
        raise exceeds_context(resolved.prompt_tokens + resolved.output_tokens, resolved.model)
    preferred: tuple[ResolvedRequest, NoCandidate] | None = None
    for other in (*engines_for(request, resolved.model, resolved.version)[1:], None):
        if tells_rate_only(request):
            resolved, outcome = _for_rate(resolved)
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
    recommendation = _complete(resolved, outcome.best, outcome.warnings)
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

    setup, given = configure_adviser(request, adviser, added, left_out, store)
    config = advisers.fall_back(setup.resolved, setup.config)
    resolved = arrive_at(replace(setup.resolved, engine=cast(EngineName, config.backend)), config)
    candidate = predict(resolved, config)
    asked = candidate if config == setup.config else predict(resolved, setup.config)
    return replace(
        _complete(resolved, candidate, advisers.find_problems(resolved, given, asked)),
        adviser=given.id,
        explanations=advisers.explain_given(resolved, given, asked),
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
    notes = resolved.notes
    if config.backend != resolved.engine:  # they say why we would take the other
        notes = tuple(note for note in notes if not note.startswith(f"{LABELS[resolved.engine].title}: "))
    return Setup(replace(resolved, engine=cast(EngineName, config.backend), notes=notes), config), given


def resolve_with_checkpoint(request: Request, store: Store) -> ResolvedRequest:
    """Return a request with its names resolved.

    A model that is a folder is read from its files. Raises UnknownName, RequestError or
    CheckpointError.
    """
    try:
        resolve_model(store, request.model)
    except UnknownName:
        from recommender.request.model_folder import find_folder, looks_like_path, shorten_path
        from recommender.request.unknown_model import explain_unknown

        folder = find_folder(request.model)
        if folder:
            from recommender.request import checkpoint

            return resolve_request(replace(request, model=folder), store, checkpoint.read(Path(folder), store))
        if looks_like_path(request.model):
            shown = shorten_path(request.model)
            raise UnknownName(f"--model: {shown} is not a folder with a config.json") from None
        release = resolve_release(store, request.lmdeploy, "--lmdeploy")
        raise UnknownName(explain_unknown(store, request.model, release.id)) from None
    return resolve_request(request, store)


def _for_rate(resolved: ResolvedRequest) -> tuple[ResolvedRequest, Choice | NoCandidate]:
    """Return the case and choice at the lowest concurrency that reaches the rate. Powers of two are tried.

    Requests arrive one by one and wait for a place in the batch. The concurrency rises until all goals are met and
    the next one would shorten a request by less than ``WORTH``, or give up accuracy that the rate does not need.
    """
    goals = list_goal_constraints(resolved.store)
    tried = _first_likely(replace(resolved, rps=resolved.request.planned_rps))
    outcome = choose(tried)
    best, tries = (tried, outcome), [(tried, outcome)]
    left, flat = LARGER, 0
    while tried.concurrency < _most_at_once(resolved) and left:
        missed = set() if isinstance(outcome, Choice) else goals & dict(outcome.rejected).keys()
        if not (missed or isinstance(outcome, Choice)):
            break
        left -= RATE_CONSTRAINT not in missed
        tried = replace(tried, concurrency=2 * tried.concurrency)
        outcome = choose(tried)
        if isinstance(outcome, NoCandidate) and not goals & dict(outcome.rejected).keys():
            break  # the rate is the limit, not the memory for more requests at once
        tries.append((tried, outcome))
        if _is_worth(best, tried, outcome):
            best, flat = (tried, outcome), 0
        elif flat == FLAT:
            break
        else:
            flat += 1
    if isinstance(best[1], Choice):
        return best
    near = [case for each in tries for case in _near(*each)]
    if near:
        return min(near, key=lambda each: round(excess(each[1].best, resolved.request), 2))
    return min(reversed(tries), key=_excess)


def _excess(case: tuple[ResolvedRequest, Choice | NoCandidate]) -> float:
    """Return by how much what misses only goals misses them; infinity if nothing misses only them."""
    closest = case[1].closest if isinstance(case[1], NoCandidate) else None
    return excess(closest, case[0].request) if closest else math.inf


def _most_at_once(resolved: ResolvedRequest) -> int:
    return MAX_RPS_CONCURRENCY * resolved.request.gpu_count


def _first_likely(resolved: ResolvedRequest) -> ResolvedRequest:
    """Return the case at the lowest concurrency that the closed form does not rule out; 1 if it rules out all."""
    powers = range(_most_at_once(resolved).bit_length())
    tries = [replace(resolved, concurrency=2**power) for power in powers]
    return next((tried for tried in tries if may_fit(tried)), tries[0])


def _near(tried: ResolvedRequest, outcome: Choice | NoCandidate) -> list[tuple[ResolvedRequest, Choice]]:
    """Return what misses only goals by little, if that is all there is."""
    return [(tried, outcome.near)] if isinstance(outcome, NoCandidate) and outcome.near else []


def _with_hint(resolved: ResolvedRequest, near: Choice) -> Choice:
    """Add a hint to warnings of goals that may be missed: how less image detail would reach them."""
    hint = offer_fewer_tiles(resolved, near.best.config)
    goals = list_goal_constraints(resolved.store)
    warnings = (
        replace(each, message=f"{each.message.rstrip('.')}{hint}.") if hint and each.constraint in goals else each
        for each in near.warnings
    )
    return replace(near, warnings=tuple(warnings))


def _is_worth(
    best: tuple[ResolvedRequest, Choice | NoCandidate], tried: ResolvedRequest, outcome: Choice | NoCandidate
) -> bool:
    """Return whether a larger batch is clearly faster, or the first that fits.

    It gives up accuracy only where the batch that does not may be too slow for the rate.
    """
    smaller = best[1]
    if isinstance(smaller, NoCandidate):
        return True
    if isinstance(outcome, NoCandidate):
        return False
    fast, slow = outcome.best, smaller.best
    spare = SPARE if fast.config.kv_bits == 8 else 1.0
    if fast.config.kv_bits < slow.config.kv_bits and _most_served(best[0], slow).value >= spare * tried.rps:
        return False
    return fast.speed.latency_ms.value < (1 - WORTH) * slow.speed.latency_ms.value


def _most_served(resolved: ResolvedRequest, candidate: Candidate) -> Range:
    """Return the requests/s that the servers answer with full batches; for a closed loop those that are predicted."""
    if not resolved.rps:
        return candidate.speed.rps
    config = candidate.config
    full = replace(resolved, rps=0.0, concurrency=config.max_batch_size * config.servers)
    return estimate(full, config, kv_tokens=candidate.memory.kv_tokens).rps


def _bound_by_arrivals(served: Range, most: Range, arriving: float) -> Range:
    """Return the answered requests/s, with the range of the ``most`` that are: never more than that, or than arrive."""
    value = min(served.value, most.value, arriving)
    return Range(value, min(value, most.low), min(max(value, most.high), arriving))


def _warn_of_queue(
    resolved: ResolvedRequest, most: Range, findings: tuple[ConstraintFinding, ...]
) -> tuple[ConstraintFinding, ...]:
    """Warn where requests may arrive faster than they are answered: the low end of ``most`` served is below the rate.

    Nothing if the middle misses the rate: that is among ``findings`` already.
    """
    asked = resolved.rps or resolved.request.planned_rps
    if most.low >= asked or any(each.constraint == RATE_CONSTRAINT for each in findings):
        return ()
    served = f"{most.value:.3g} are served ({most.low:.3g} to {most.high:.3g})"
    message = f"{asked:g} requests/s may be too many: at most {served}. Beyond that the queue grows without end."
    remedy = "Send fewer to this server, or size several with recommend plan."
    sources = resolved.store.constraints[RATE_CONSTRAINT].sources
    return (ConstraintFinding("rate-near-limit", "warn", message, remedy, sources),)


def _complete(
    resolved: ResolvedRequest, candidate: Candidate, findings: tuple[ConstraintFinding, ...]
) -> Recommendation:
    most = _most_served(resolved, candidate)
    speed = replace(candidate.speed, replayed=replay(resolved, candidate.config, candidate.memory.kv_tokens))
    if resolved.rps:
        rps = _bound_by_arrivals(speed.rps, most, resolved.rps)
        speed = replace(speed, rps=rps, profile=speed.profile and speed.profile.answer_at_most(rps.value))
    return Recommendation(
        made_by=f"lmdeploy-recommender {__version__}",
        request=resolved.request,
        resolved=resolved,
        config=candidate.config,
        memory=candidate.memory,
        speed=speed,
        explanations=explain(resolved, candidate),
        findings=(*findings, *_warn_of_queue(resolved, most, findings)),
        similar_runs=find_similar_runs(resolved, candidate.config),
        published=find_published(resolved, candidate.config),
    )
