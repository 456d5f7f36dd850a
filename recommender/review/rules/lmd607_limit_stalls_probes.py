"""A request limit that health checks wait behind

Finds ``--max-concurrent-requests`` on a server whose health is probed over HTTP.

The limit is one semaphore around every route, /health and /metrics among them. A server that is merely full answers
no probe either: the probe runs into its time limit, and the orchestrator restarts a server that was working, under
just the load that needed it.

Mend it by leaving the option out: ``--max-batch-size`` is the limit that the engine keeps, and further requests wait
in its queue. If it must be there, keep it well above the batch.

Bad:

    args: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct, --max-concurrent-requests, "8"]
    livenessProbe:
      httpGet: {path: /health, port: 23333}

Good:

    args: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct, --max-batch-size, "8"]
    livenessProbe:
      httpGet: {path: /health, port: 23333}
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around


def check(case: Case) -> Iterator[Said]:
    """Probes of the container, or the script's own in a loop without end."""
    setting = case.settings.get("max-concurrent-requests")
    if setting is None or not support.server(case):
        return
    container = case.launch.container
    probed = any(probe.path for probe in container.probes) if container else False
    if probed or around.kept(case.script, "_watched", lambda: _watched(case)):
        yield Said(
            support.at(setting),
            "A full server stops answering its health probe too: the limit covers every route.",
            "The probe then has a working server restarted; limit the load with --max-batch-size instead.",
        )


def _watched(case: Case) -> bool:
    """Whether the script itself asks for the server's health again and again."""
    return any(
        call.loop is not None
        and call.loop.endless
        and call.words
        and call.words[0].value in ("curl", "wget")
        and any((word.value or "").rstrip("/").endswith("/health") for word in call.words[1:])
        for call in case.script.calls
    )


RULE = Rule(
    id="LMD607",
    name="limit-stalls-probes",
    family="operations",
    severity="warning",
    sources=("flags/max-concurrent-requests", "claims/concurrent-requests-limits-handling"),
    check=check,
)
