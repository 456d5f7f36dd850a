"""Say what limits a fact's sources: C++ of an older release, runs of one release, random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, cast

from recommender.common.plain import Plain
from recommender.knowledge.conditions import parse, version
from recommender.knowledge.engines import LABELS
from recommender.knowledge.store import Store

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.knowledge.claim_measurements import ComparedLoad, MeasuredComparison

Say = Callable[[str], str]
"""Translates a text; ``str`` in English."""


REPOSITORY = "https://github.com/InternLM/lmdeploy"


def web_address(store: Store, source: records.CodeSource) -> str:
    """Return the web address of a source line; empty if it is in a wheel only."""
    if source.path == "METADATA" or not store.releases[source.release].repository:
        return ""
    return f"{REPOSITORY}/blob/v{source.release}/{source.path}#L{source.line}"


def in_wheel(path: str) -> bool:
    """Return whether a cited path is in the wheel; others are in the repository at the release's tag."""
    return path == "METADATA" or path.startswith("lmdeploy/")


def is_engine_code(path: str) -> bool:
    """Return whether a cited path is code of the engine, which wheels hold only compiled."""
    return not in_wheel(path) and not path.startswith("docs/")


@lru_cache(maxsize=8192)
def for_engine(sources: records.Sources, engine: str) -> records.Sources:
    """Return the sources without code of other engines than ``engine``; all of them where nothing else is cited."""
    others = tuple(folder for name, label in LABELS.items() if name != engine for folder in label.code)
    code = tuple(line for line in sources.code if not line.path.startswith(others))
    if not code or len(code) == len(sources.code):
        return sources
    return cast("records.Sources", Plain({**vars(sources), "code": code}))


def code_caveat(store: Store, sources: records.Sources | records.Thread, release: str, say: Say = str) -> str:
    """Return what to say of engine code older than ``release``, whose own was not public; empty: nothing.

    A run on a release after that code supports it; then the text names that release.
    """
    if not release or store.releases[release].repository:
        return ""
    cited = (line.release for line in sources.code if is_engine_code(line.path))
    older = sorted((each for each in cited if version(each) < version(release)), key=version)
    if not older:
        return ""
    runs = (store.evidence.get(name) or store.probes.get(name) for name in getattr(sources, "evidence", ()))
    measured = [run.lmdeploy for run in runs if run and version(run.lmdeploy) > version(older[-1])]
    if measured:
        return say("code of {0}; measured on {1}").format(older[-1], max(measured, key=version))
    if older[-1] == newest_public(store):
        return say("code of {0}; later code is not public").format(older[-1])
    return say("code of {0}; newer code was not read").format(older[-1])


@lru_cache(maxsize=8)
def newest_public(store: Store) -> str:
    """Return the newest release whose C++ was public when read."""
    return max((name for name, release in store.releases.items() if release.repository), key=version)


def record_caveat(store: Store, record: object) -> str:
    """Return what limits the sources of a record, or of the latest era of an option that has none of its own."""
    parts = (record, *reversed(getattr(record, "eras", ())))
    cited = ((part, part if hasattr(part, "code") else getattr(part, "sources", None)) for part in parts)
    caveats = (code_caveat(store, known, newest_about(store, part)) for part, known in cited if known and known.code)
    return next(caveats, "")


def newest_about(store: Store, record: object) -> str:
    """Return the newest covered release that a record, or a part of one, is about; empty: none.

    By its ``until``, or by the conditions on the release alone in its ``when``.
    """
    until = getattr(record, "until", "")
    parsed = (parse(text) for text in getattr(record, "when", ()))
    alone = [condition for condition in parsed if set(condition.names) == {"lmdeploy"}]
    about = (
        name
        for name in store.releases
        if not until or version(name) < version(until)
        if all(condition.holds({"lmdeploy": version(name)}) for condition in alone)
    )
    return max(about, key=version, default="")


def weights(random: bool, say: Say = str) -> str:
    """Return what the weights of a measured figure were: everything shown as measured says so."""
    return say("random weights" if random else "real weights")


def measured_lines(store: Store, claim: str, say: Say = str) -> Iterator[str]:
    """Yield on what a claim was measured, then, in English, each comparison at all its loads; nothing without runs."""
    measured = store.measured.get(claim)
    if measured is None:
        return
    made = weights(measured.random_weights, say)
    on = (", ".join(measured.releases), ", ".join(measured.gpus), ", ".join(measured.models), made)
    yield say("Measured on LMDeploy {0}: {1}; {2}; {3}.").format(*on)
    yield from map(_comparison, measured.comparisons)


def _comparison(comparison: MeasuredComparison) -> str:
    counted = [load for load in comparison.loads if load.counts]
    others = [load for load in comparison.loads if not load.counts]
    change = f"{comparison.change[0].upper()}{comparison.change[1:]}"
    text = f"{change}, {comparison.figure}: {_loads(counted)}."
    return f"{text} Outside the verdict: {_loads(others)}." if others else text


def _loads(loads: list[ComparedLoad]) -> str:
    """Return ratios by what a request has: ``x0.96 at 1, x1.02 at 16 (448x448, 330 in, 16 out)``."""
    groups = []
    for requests, each in groupby(loads, lambda load: load.requests):
        ratios = ", ".join(f"x{load.ratio:.2f} at {load.pressure}" for load in each)
        groups.append(f"{ratios} ({requests})")
    return "; ".join(groups)
