"""A probe that kills the server while it loads

Finds a liveness probe (or the startup probe, where there is one) of Kubernetes that gives up sooner than a server
was seen to take to its first answer.

Kubernetes restarts a container whose liveness probe fails so often in a row. By default it asks from the start, every
10 seconds, and 3 failures are enough. Measured starts took up to half a minute for models of 1B to 14B from a warm
disk; large models, slow disks and downloads take minutes. A probe with less patience kills each start before it is
done, for ever.

Mend it with a startup probe whose period times failures is a few times what a start takes: liveness waits for it.

Bad:

    livenessProbe:
      httpGet: {path: /health, port: 23333}

Good:

    startupProbe:
      httpGet: {path: /health, port: 23333}
      periodSeconds: 10
      failureThreshold: 60
    livenessProbe:
      httpGet: {path: /health, port: 23333}
"""

import re
from collections.abc import Iterator
from functools import cache

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.script import Probe
from recommender.store import data_root

STARTED = re.compile(r"^\s*(?:- )?startup_s: ([\d.]+)$", re.MULTILINE)
# What Kubernetes takes where the file does not say.
PERIOD_S = 10
FAILURES = 3


@cache
def longest_start() -> float:
    """Seconds of the slowest measured start of all evidence. Only numbers are picked out: the files are large."""
    folder = data_root() / "knowledge" / "evidence"
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.yaml")))
    return max((float(seconds) for text in texts for seconds in STARTED.findall(text)), default=0.0)


def check(case: Case) -> Iterator[Said]:
    """The patience of the probe that decides over the start."""
    container = case.launch.container
    if not support.server(case) or container is None or case.script.kind != "kubernetes":
        return
    by_kind = {probe.kind: probe for probe in container.probes}
    probe = by_kind.get("startup") or by_kind.get("liveness")
    if probe is None or _patience(probe) >= longest_start():
        return
    yield Said(
        probe.place,
        f"The {probe.kind} probe gives up after {_patience(probe):.0f} s; starts of small models took up to"
        f" {longest_start():.0f} s.",
        "The container is restarted before the model is loaded, again and again; give it a patient startupProbe.",
    )


def _patience(probe: Probe) -> float:
    return probe.initial_s + (probe.period_s or PERIOD_S) * (probe.failures or FAILURES)


RULE = Rule(
    id="LMD606",
    name="killed-while-loading",
    family="operations",
    severity="warning",
    sources=("https://speakerdeck.com/thockin/kubernetes-pod-probes", "threads/health-unhealthy-while-busy"),
    check=check,
)
