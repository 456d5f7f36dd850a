"""Find the problems of an adviser's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.choose import constraints
from recommender.choose.advisers import GivenSettings
from recommender.choose.constraints import ConstraintFinding
from recommender.choose.select import Candidate, warn_of_goal
from recommender.common.text import clip, count
from recommender.knowledge.conditions import parse
from recommender.knowledge.engines import is_read
from recommender.knowledge.eras import within
from recommender.knowledge.gpu_layout import GpuLayout
from recommender.knowledge.provenance import code_caveat, measured_lines
from recommender.knowledge.store import Store
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge import records

OF_WHOLE_TP = frozenset({"tp-divides-heads", "tp-kv-heads-shared", "tp-kv-heads-repeated", "tp-divides-hidden"})
"""Constraints on tp that hold only if no other option changes how attention is split."""
SERVES_MODEL = frozenset({"turbomind-serves-model", "pytorch-serves-model"})
"""Constraints that say why LMDeploy runs a model with the other engine."""


def find_problems(
    resolved: ResolvedRequest, adviser: GivenSettings, candidate: Candidate, asked: Candidate | None = None
) -> tuple[ConstraintFinding, ...]:
    """Return the problems of a configuration.

    These are options that the release ignores or lacks, violated constraints, and refuted claims. If LMDeploy falls
    back to the other engine, ``asked`` is the configuration before that; it adds only the reason for the fallback.
    """
    parsed = constraints.parse_all(resolved.store)
    layout = _layout(resolved, adviser)
    left = () if asked is None or asked.config == candidate.config else _find_violated(resolved, asked)
    return (
        *(finding for finding in left if finding.constraint in SERVES_MODEL),
        *_find_unread(resolved, adviser),
        *(_find_no_layout(resolved.store, layout) or _find_unpredicted(resolved, adviser, candidate.config.cards)),
        *(
            finding
            for finding in _find_violated(resolved, candidate)
            if not (layout.is_spread and finding.constraint in OF_WHOLE_TP)
        ),
        *constraints.evaluate(parsed, candidate.values, "warn"),
        *_find_refuted(resolved, adviser, candidate),
    )


def _find_refuted(
    resolved: ResolvedRequest, adviser: GivenSettings, candidate: Candidate
) -> Iterator[ConstraintFinding]:
    """Yield the adviser's claims that sources contradict."""
    store = resolved.store
    for claim in store.claims.values():
        if adviser.id not in claim.advisers or claim.verdict not in ("refuted", "no-effect", "outdated"):
            continue
        if not within(claim.since, claim.until, resolved.version):
            continue
        if all(parse(text).holds(candidate.values) for text in claim.when):
            verdict = f"{claim.statement} {claim.verdict.capitalize()}: {claim.because}"
            message = " ".join((verdict, *measured_lines(store, claim.id)))
            caveat = code_caveat(store, claim.sources, resolved.release.id)
            yield ConstraintFinding(claim.id, "claim", message, "", claim.sources, caveat)


def _find_violated(resolved: ResolvedRequest, candidate: Candidate) -> Iterator[ConstraintFinding]:
    """Yield the violated constraints that reject; warn of a goal that lies within the prediction's range."""
    parsed, goals = constraints.parse_all(resolved.store), constraints.list_goal_constraints(resolved.store)
    best = {**candidate.values, **constraints.best_speed_values(candidate.speed, resolved.request)}
    missed = {finding.constraint for finding in constraints.evaluate(parsed, best, "reject")}
    for finding in constraints.evaluate(parsed, candidate.values, "reject"):
        yield warn_of_goal(finding) if finding.constraint in goals - missed else finding


def _layout(resolved: ResolvedRequest, adviser: GivenSettings) -> GpuLayout:
    """Return the options that distribute the server over GPUs."""
    return GpuLayout(
        release=resolved.release.id,
        options=resolved.options,
        engine=resolved.engine,
        values={name: setting.value for name, setting in adviser.settings.items()},
        gpus=resolved.request.gpu_count,
        spell=lambda option: resolved.store.flags[option].option,
    )


def _find_no_layout(store: Store, layout: GpuLayout) -> tuple[ConstraintFinding, ...]:
    remedy = "change these numbers so that a layout exists, or remove the options"
    return tuple(
        ConstraintFinding("gpu-layout", "reject", problem.message, remedy, store.flags[problem.source].sources)
        for problem in layout.problems()
    )


def _find_unpredicted(resolved: ResolvedRequest, adviser: GivenSettings, cards: int) -> Iterator[ConstraintFinding]:
    """Yield settings that the prediction ignores although they change the speed, or spread the model over GPUs."""
    for name, setting in adviser.settings.items():
        flag, era = resolved.store.flags.get(name), resolved.options.get(name)
        if flag is None or era is None or flag.setting or setting.value == era.default:
            continue
        text = flag.option if era.type == "bool" else f"{flag.option} {clip(setting.value, 60)}"
        if flag.topic == "parallelism" and era.minimum == "1":  # a number of parts
            message = f"The prediction ignores {text}: it is for {count(cards, 'GPU')} without it"
        elif _changes_speed(resolved, flag, era, setting.value):
            message = f"The prediction ignores {text}, which may change the speed"
        else:
            continue
        yield ConstraintFinding("unpredicted-option", "warn", message, "measure it: recommend smoke", flag.sources)


def _changes_speed(resolved: ResolvedRequest, flag: records.Flag, era: records.Era, value: str) -> bool:
    """Return whether an option changes requests/s: the engine reads it, or it is a server's limit below the load."""
    if not value or not flag.changes_throughput:
        return False
    limits = era.read_by == ("server",) and value.isdecimal() and int(value) < resolved.concurrency
    return limits or resolved.engine in era.read_by


def _find_unread(resolved: ResolvedRequest, adviser: GivenSettings) -> Iterator[ConstraintFinding]:
    release = resolved.release.id
    for name, setting in adviser.settings.items():
        flag, era = resolved.store.flags.get(name), resolved.options.get(name)
        if flag is None or (flag.eras[-1].type == "bool" and setting.value != "true"):
            continue
        remedy = f"remove {flag.option}"
        if era is None:
            message = f"LMDeploy {release} has no {flag.option}: the server does not start"
            caveat = code_caveat(resolved.store, flag.sources, release)
            yield ConstraintFinding("unknown-option", "reject", message, remedy, flag.sources, caveat)
        elif not is_read(era, resolved.engine):
            readers = "nothing" if era.read_by == ("nobody",) else f"only {' and '.join(era.read_by)}"
            message = f"{flag.option} does nothing here: in LMDeploy {release} {readers} reads it"
            caveat = code_caveat(resolved.store, era.sources, release)
            yield ConstraintFinding("unread-option", "warn", message, remedy, era.sources, caveat)
