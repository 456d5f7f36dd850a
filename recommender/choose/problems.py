"""Find what speaks against a configuration that somebody gave."""

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
"""Constraints of a tp that no other option divides."""
SERVES_MODEL = frozenset({"turbomind-serves-model", "pytorch-serves-model"})
"""Constraints that say why LMDeploy runs a model with the other engine."""


def find_problems(
    resolved: ResolvedRequest, adviser: GivenSettings, candidate: Candidate, asked: Candidate | None = None
) -> tuple[ConstraintFinding, ...]:
    """Return what speaks against the configuration.

    Options that the release ignores or lacks, violated constraints, refuted claims. ``asked`` is the configuration as
    it was given, if LMDeploy runs it with the other engine: of that one only why LMDeploy leaves it.
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
    """Yield the violated constraints that reject; a goal that the prediction's range includes warns, as elsewhere."""
    parsed, goals = constraints.parse_all(resolved.store), constraints.list_goal_constraints(resolved.store)
    best = {**candidate.values, **constraints.best_speed_values(candidate.speed, resolved.request)}
    missed = {finding.constraint for finding in constraints.evaluate(parsed, best, "reject")}
    for finding in constraints.evaluate(parsed, candidate.values, "reject"):
        yield warn_of_goal(finding) if finding.constraint in goals - missed else finding


def _layout(resolved: ResolvedRequest, adviser: GivenSettings) -> GpuLayout:
    """Return the numbers that lay the server out over GPUs."""
    return GpuLayout(
        release=resolved.release.id,
        options=resolved.options,
        engine=resolved.engine,
        given={name: setting.value for name, setting in adviser.settings.items()},
        gpus=resolved.request.gpu_count,
        spelled=lambda option: resolved.store.flags[option].option,
    )


def _find_no_layout(store: Store, layout: GpuLayout) -> tuple[ConstraintFinding, ...]:
    remedy = "give numbers that make a layout, or leave them out"
    return tuple(
        ConstraintFinding("gpu-layout", "reject", problem.message, remedy, store.flags[problem.source].sources)
        for problem in layout.problems()
    )


def _find_unpredicted(resolved: ResolvedRequest, adviser: GivenSettings, cards: int) -> Iterator[ConstraintFinding]:
    """Yield settings that change the speed, or spread a model over GPUs, in a way that no prediction knows."""
    for name, setting in adviser.settings.items():
        flag, era = resolved.store.flags.get(name), resolved.options.get(name)
        if flag is None or era is None or flag.setting or setting.value == era.default:
            continue
        given = flag.option if era.type == "bool" else f"{flag.option} {clip(setting.value, 60)}"
        if flag.topic == "parallelism" and era.minimum == "1":  # a number of parts
            message = f"The prediction leaves {given} out: it is that of {count(cards, 'GPU')} without it"
        elif _changes_speed(resolved, flag, era, setting.value):
            message = f"The prediction leaves {given} out; it may change the speed"
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
