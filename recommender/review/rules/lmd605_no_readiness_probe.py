"""A pod that is sent requests while it loads

Finds a server in a Deployment, StatefulSet, DaemonSet or ReplicaSet of Kubernetes that has neither a readiness nor a
startup probe.

Without one the pod counts as ready as soon as its container runs, and its Service sends requests to it. The port is
closed until the model is loaded, so with each rollout and each restart requests fail for that long.

Mend it with a readiness probe on ``/v1/models`` or ``/health``.

Bad:

    containers:
      - name: llm
        command: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct]

Good:

    containers:
      - name: llm
        command: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct]
        readinessProbe:
          httpGet: {path: /health, port: 23333}
"""

import re
from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

SERVED = re.compile(r"^\s*kind:\s*[\"']?(?:Deployment|StatefulSet|DaemonSet|ReplicaSet)\b", re.MULTILINE)
OTHERS = re.compile(r"^\s*kind:\s*[\"']?(?:Pod|Job|CronJob)\b", re.MULTILINE)


def check(case: Case) -> Iterator[Said]:
    """The pod's probes, where it is surely one that serves."""
    container, text = case.launch.container, case.script.text
    if not support.server(case) or container is None or case.script.kind != "kubernetes":
        return
    if not around.kept(case.script, "_serves", lambda: bool(SERVED.search(text)) and not OTHERS.search(text)):
        return
    if not any(probe.kind in ("readiness", "startup") for probe in container.probes):
        yield Said(
            case.launch.place,
            "The pod has no readiness probe: it is sent requests while it still loads the model.",
            "Its port is closed until then, so requests fail at each rollout; add a readinessProbe on /health.",
        )


RULE = Rule(
    id="LMD605",
    name="no-readiness-probe",
    family="operations",
    severity="warning",
    sources=("https://jorijn.com/en/knowledge-base/kubernetes/deployments/kubernetes-health-probes-configuration/",),
    check=check,
)
