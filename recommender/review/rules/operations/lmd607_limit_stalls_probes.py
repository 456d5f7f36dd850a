"""A request limit that blocks health checks

## What it does
Reports `--max-concurrent-requests` on a server whose health is probed over HTTP.

## Why
The limit is one semaphore for every route, /health and /metrics included. A server that is only full does not answer
probes either: the probe times out, and the orchestrator restarts a working server under load.

## Bad

    args: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct, --max-concurrent-requests, "8"]
    livenessProbe:
      httpGet: {path: /health, port: 23333}

## Good
Remove the option. `--max-batch-size` limits the engine, and further requests wait in its queue. If you need the
limit, keep it well above the batch size.

    args: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct, --max-batch-size, "8"]
    livenessProbe:
      httpGet: {path: /health, port: 23333}
"""

from functools import lru_cache

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule
from recommender.review.script.model import Script


@option_rule(
    "max-concurrent-requests",
    "warning",
    sources=("flags/max-concurrent-requests", "claims/concurrent-requests-limits-handling"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if not checks.server(case):
        return
    container = case.launch.container
    probed = any(probe.path for probe in container.probes) if container else False
    if probed or _watched(case.script):
        yield Diagnostic(
            checks.at(setting),
            "A full server does not answer its health probe either: the limit covers every route.",
            "The probe then restarts a working server; limit the load with --max-batch-size instead.",
        )


@lru_cache(maxsize=8)
def _watched(script: Script) -> bool:
    """Return whether an endless loop of the script requests /health."""
    return any(
        call.loop is not None
        and call.loop.endless
        and call.words
        and call.words[0].value in ("curl", "wget")
        and any((word.value or "").rstrip("/").endswith("/health") for word in call.words[1:])
        for call in script.calls
    )
