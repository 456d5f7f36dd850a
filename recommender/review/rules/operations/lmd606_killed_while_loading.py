"""A probe that kills the server while it loads

## What it does
Reports a Kubernetes liveness probe (or the startup probe, if there is one) that gives up before the longest measured
startup.

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

from recommender.knowledge.startup_times import longest_start
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import Probe

# The defaults of Kubernetes.
PERIOD_S = 10
FAILURES = 3


@launch_rule(
    "warning", sources=("https://speakerdeck.com/thockin/kubernetes-pod-probes", "threads/health-unhealthy-while-busy")
)
def rule(case: Case) -> Diagnostics:
    container = case.launch.container
    if not checks.server(case) or container is None or case.script.kind != "kubernetes":
        return
    by_kind = {probe.kind: probe for probe in container.probes}
    probe = by_kind.get("startup") or by_kind.get("liveness")
    longest = longest_start("pytorch" if checks.engine(case) == "pytorch" else "turbomind")
    if probe is None or _patience(probe) >= longest:
        return
    yield Diagnostic(
        probe.place,
        f"The {probe.kind} probe gives up after {_patience(probe):.0f} s; startups of small models took up to"
        f" {longest:.0f} s.",
        "Kubernetes restarts the container before the model is loaded, forever; add a patient startupProbe.",
    )


def _patience(probe: Probe) -> float:
    return probe.initial_s + (probe.period_s or PERIOD_S) * (probe.failures or FAILURES)
