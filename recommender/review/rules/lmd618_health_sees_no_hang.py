"""A health check that cannot see a dead engine

Finds a liveness probe or health check on /health with a release in which that route only tells that the web server
is alive.

Up to 0.13.0 /health answers 200 whatever the engine does. An engine that died or hangs goes unseen: requests fail or
wait for ever, and nothing restarts the server.

Mend it with 0.14.0 or newer, or probe with a short completion and a time limit.

Bad, on 0.9.2:

    livenessProbe:
      httpGet: {path: /health, port: 23333}

Good, on 0.14.0 or newer:

    livenessProbe:
      httpGet: {path: /health, port: 23333}
"""

from collections.abc import Iterator

from recommender.facts import within
from recommender.review import support
from recommender.review.rule import Case, Rule, Said

THREAD = "health-says-ok-while-dead"


def check(case: Case) -> Iterator[Said]:
    """Probes of a named release that is within the thread's."""
    thread, container = case.facts.store.threads[THREAD], case.launch.container
    if not support.server(case) or container is None or not case.release_known:
        return
    if not within(thread.since, thread.until, case.facts.version):
        return
    for probe in container.probes:
        if probe.kind in ("liveness", "healthcheck") and probe.path.rstrip("/").endswith("/health"):
            yield Said(
                probe.place,
                f"In {support.release(case)} /health answers 200 even when the engine is dead.",
                thread.remedy,
            )


RULE = Rule(
    id="LMD618",
    name="health-sees-no-hang",
    family="operations",
    severity="info",
    sources=(f"threads/{THREAD}", "claims/restart-loop-recovers"),
    check=check,
)
