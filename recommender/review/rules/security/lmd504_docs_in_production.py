"""Interactive API pages in production

## What it does
Reports a server in production without `--disable-fastapi-docs`. A server counts as in production if other hosts can
reach it and the script restarts it, probes it, registers it with a proxy or sets keys.

## Why
The pages at / and /redoc list every route, management routes included, with forms to call them. Clients do not need
them.

## Bad

    while true; do lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct; sleep 10; done

## Good
Add `--disable-fastapi-docs`:

    while true; do lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --disable-fastapi-docs; sleep 10; done
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings


@launch_rule("info", sources=("flags/disable-fastapi-docs", "claims/docs-routes-go"))
def rule(case: Case) -> Diagnostics:
    if not checks.server(case) or case.launch.unsure or "disable-fastapi-docs" in case.settings:
        return
    if surroundings.is_long_running(case) and surroundings.reachable(case):
        yield Diagnostic(
            case.launch.place,
            "The interactive API pages are enabled.",
            "They list every route, management routes included; production does not need them"
            " (--disable-fastapi-docs).",
        )
