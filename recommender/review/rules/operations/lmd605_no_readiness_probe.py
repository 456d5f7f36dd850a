"""A pod that gets requests while it loads

## What it does
Reports a server in a Kubernetes Deployment, StatefulSet, DaemonSet or ReplicaSet without a readiness or startup
probe.

## Why
Without a probe the pod counts as ready as soon as its container runs, and its Service sends requests to it. The port
stays closed until the model is loaded, so requests fail during every rollout and restart.

## Bad

    containers:
      - name: llm
        command: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct]

## Good
Add a readiness probe on `/v1/models` or `/health`:

    containers:
      - name: llm
        command: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct]
        readinessProbe:
          httpGet: {path: /health, port: 23333}
"""

import re
from functools import lru_cache

from recommender.common.pattern import pattern
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import Script

SERVED = pattern(r"^[^\S\n]*kind:[^\S\n]*[\"']?(?:Deployment|StatefulSet|DaemonSet|ReplicaSet)\b", re.MULTILINE)
OTHERS = pattern(r"^[^\S\n]*kind:[^\S\n]*[\"']?(?:Pod|Job|CronJob)\b", re.MULTILINE)


@launch_rule(
    "warning",
    sources=("https://jorijn.com/en/knowledge-base/kubernetes/deployments/kubernetes-health-probes-configuration/",),
)
def rule(case: Case) -> Diagnostics:
    container = case.launch.container
    if not checks.server(case) or container is None or case.script.kind != "kubernetes":
        return
    if _serves(case.script) and not any(probe.kind in ("readiness", "startup") for probe in container.probes):
        yield Diagnostic(
            case.launch.place,
            "The pod has no readiness probe, so it gets requests while it still loads the model.",
            "The port stays closed until then, so requests fail at each rollout; add a readinessProbe on /health.",
        )


@lru_cache(maxsize=8)
def _serves(script: Script) -> bool:
    """Return whether every pod of the manifest belongs to a workload that serves."""
    return bool(SERVED.search(script.text)) and not OTHERS.search(script.text)
