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

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule


@launch_rule(
    "warning",
    sources=("https://jorijn.com/en/knowledge-base/kubernetes/deployments/kubernetes-health-probes-configuration/",),
)
def rule(case: Case) -> Diagnostics:
    container = case.launch.container
    if not checks.server(case) or container is None or not container.serves:
        return
    if not any(probe.kind in ("readiness", "startup") for probe in container.probes):
        yield Diagnostic(
            case.launch.place,
            "The pod has no readiness probe, so it gets requests while it still loads the model.",
            "The port stays closed until then, so requests fail at each rollout; add a readinessProbe on /health.",
        )
