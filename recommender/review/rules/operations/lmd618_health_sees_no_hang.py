"""A health check that misses a dead engine

## What it does
Reports a liveness probe or health check on /health in a release where that route only shows that the web server runs.

## Why
Up to 0.13.0 /health answers 200 whatever the engine does. A dead or hung engine stays undetected: requests fail or
hang, and nothing restarts the server.

## Bad
With 0.9.2:

    livenessProbe:
      httpGet: {path: /health, port: 23333}

## Good
Use 0.14.0 or newer, or probe with a short completion and a timeout. With 0.14.0 or newer:

    livenessProbe:
      httpGet: {path: /health, port: 23333}
"""

from recommender.knowledge.eras import within
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

THREAD = "health-says-ok-while-dead"


@launch_rule("info", sources=(f"threads/{THREAD}", "claims/restart-loop-recovers"))
def rule(case: Case) -> Diagnostics:
    thread, container = case.resolved.store.threads[THREAD], case.launch.container
    if not checks.server(case) or container is None or not case.release_known:
        return
    if not within(thread.since, thread.until, case.resolved.version):
        return
    for probe in container.probes:
        if probe.kind in ("liveness", "healthcheck") and probe.path.rstrip("/").endswith("/health"):
            yield Diagnostic(
                probe.place,
                f"In {checks.release(case)} /health answers 200 even if the engine is dead.",
                thread.remedy,
            )
