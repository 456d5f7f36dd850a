"""A probe that kills the server while it loads

## What it does
Reports a Kubernetes liveness probe (or the startup probe, if there is one) that gives up before the longest measured
startup, or before the weights of a known model are read at 1 GB/s.

## Why
Kubernetes restarts a container after repeated liveness failures. By default it probes from the start, every 10
seconds, and 3 failures are enough. Measured startups of small models took up to a minute; large models, slow disks
and downloads take longer. An impatient probe kills every start before it completes, forever.

## Bad

    livenessProbe:
      httpGet: {path: /health, port: 23333}

## Good
Add a startup probe whose period times failures is several times the startup time. Liveness probes wait for it.

    startupProbe:
      httpGet: {path: /health, port: 23333}
      periodSeconds: 10
      failureThreshold: 60
    livenessProbe:
      httpGet: {path: /health, port: 23333}
"""

from recommender.estimate.model_shape import weight_bytes
from recommender.knowledge.startup_times import FAST_VOLUME_BYTES_S, longest_start
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import Probe

# The defaults of Kubernetes, and of Docker where they differ.
PERIOD_S = 10
FAILURES = 3
COMPOSE_PERIOD_S = 30


@launch_rule(
    "warning", sources=("https://speakerdeck.com/thockin/kubernetes-pod-probes", "threads/health-unhealthy-while-busy")
)
def rule(case: Case) -> Diagnostics:
    container = case.launch.container
    if not checks.server(case) or container is None:
        return
    longest = longest_start("pytorch" if checks.engine(case) == "pytorch" else "turbomind")
    for probe in container.probes:
        if probe.awaited and _patience(probe, COMPOSE_PERIOD_S) < longest:
            yield Diagnostic(
                probe.place,
                f"The health check gives up after {_patience(probe, COMPOSE_PERIOD_S):.0f} s; startups of small models"
                f" took up to {longest:.0f} s.",
                "The services that wait for it with service_healthy then do not start; add a start_period of minutes.",
            )
    by_kind = {probe.kind: probe for probe in container.probes} if case.script.kind == "kubernetes" else {}
    killer = by_kind.get("startup") or by_kind.get("liveness")
    if killer is None:
        return
    if longest <= _patience(killer) < (reading := _reading_s(case)):
        yield Diagnostic(
            killer.place,
            f"The {killer.kind} probe gives up after {_patience(killer):.0f} s; at 1 GB/s, reading the weights takes"
            f" {reading:.0f} s.",
            "Kubernetes restarts the container before the model is loaded, forever; add a patient startupProbe.",
        )
    if _patience(killer) >= longest:
        return
    yield Diagnostic(
        killer.place,
        f"The {killer.kind} probe gives up after {_patience(killer):.0f} s; startups of small models took up to"
        f" {longest:.0f} s.",
        "Kubernetes restarts the container before the model is loaded, forever; add a patient startupProbe.",
    )


def _reading_s(case: Case) -> float:
    """Return how long a fast volume takes for the weights of a known model."""
    return weight_bytes(case.resolved.model) / FAST_VOLUME_BYTES_S if case.model_known else 0.0


def _patience(probe: Probe, period: float = PERIOD_S) -> float:
    return probe.initial_s + (probe.period_s or period) * (probe.failures or FAILURES)
